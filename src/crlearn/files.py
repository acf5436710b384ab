"""Writing files: a file appears whole or not at all, and an error of the system names it.

Nothing heavy is imported here, so that the command line can look at files before it does anything.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

TABLE_TYPES = (".csv", ".tsv", ".parquet", ".h5ad")


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Give the name of a file to errors of the system that come without one.

    Python names the file when one cannot be opened, but not when the disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        words = error.strerror or str(error)
        raise OSError(error.errno or errno.EIO, words, str(path)) from error


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a place to write to; in the end, what is there takes the place of `path`.

    Until then, and if anything goes wrong, `path` stays as it was. Folders above it are made.
    """
    path = Path(path)
    target = path.resolve()
    with naming(path):
        if target.exists() and not target.is_file():
            yield target  # a device or a pipe, or a folder, which the system refuses in its words
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{uuid4().hex}.{target.name}")
        try:
            yield draft
            draft.replace(target)
        except OSError as error:
            if error.filename == str(draft):
                error.filename = str(path)
            raise
        finally:
            draft.unlink(missing_ok=True)


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file; texts in UTF-8."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    with replacing(path) as draft:
        draft.write_bytes(data)
