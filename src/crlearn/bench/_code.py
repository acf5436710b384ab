"""The code that results come from, as a fingerprint.

A version number says too little: between two releases, and in a checkout that somebody works in,
the same number stands for code that gives other results.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import crlearn


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Return the fingerprint of the crlearn that runs here, as it was when it was first asked."""
    return fingerprint_of(Path(crlearn.__file__).parent)


def fingerprint_of(folder: Path) -> str:
    """Return a hash of the names and contents of all Python files below a folder."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}
    digest = hashlib.sha256()
    for name in sorted(files):
        content = hashlib.sha256(files[name].read_bytes()).hexdigest()
        digest.update(f"{content} {name}\n".encode())
    return digest.hexdigest()[:16]
