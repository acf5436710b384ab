"""What can be said of files and folders before anything heavy is imported.

A mistyped name is told at once, and not after the seconds that JAX takes to import.
"""

from __future__ import annotations

import json
from pathlib import Path

from crlearn.files import TABLE_TYPES

OWN_TYPE = ".crl"
MODEL, LATENTS, RESULT, GRAPH = "model.crl", "latents.csv", "result.json", "graph.gml"


def check_is_file(path: Path) -> None:
    """Refuse a file that is not there."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file '{path}'.")


def check_data_file(path: Path) -> None:
    """Refuse data that are not there, or of a type that is not known."""
    check_is_file(path)
    if path.suffix.lower() not in (*TABLE_TYPES, OWN_TYPE):
        raise ValueError(
            f"The type of '{path.name}' is not known. The name must end in "
            f"{', '.join((*TABLE_TYPES, OWN_TYPE))}."
        )


def check_data_type(path: Path) -> None:
    """Refuse a name whose ending says nothing, before any work is done."""
    allowed = (OWN_TYPE, *TABLE_TYPES)
    if path.suffix.lower() not in allowed:
        raise ValueError(f"The name of '{path.name}' must end in {', '.join(allowed)}.")


def check_is_run(folder: Path) -> None:
    """Refuse a folder that no fit was written to."""
    if not (folder / MODEL).is_file() or not (folder / RESULT).is_file():
        raise FileNotFoundError(
            f"'{folder}' is not the folder of a fit: it has no {MODEL} and {RESULT}. "
            "crlearn fit DATA --method NAME --out FOLDER makes one."
        )


def check_is_folder(folder: Path, made_by: str) -> None:
    """Refuse a folder that is not there."""
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder '{folder}'. {made_by} makes one.")


def check_free(folder: Path) -> None:
    """Refuse a folder whose files a fit would replace."""
    there = [name for name in (MODEL, LATENTS, RESULT, GRAPH) if (folder / name).exists()]
    if there:
        raise ValueError(
            f"'{folder}' holds {_described(folder)} already ({', '.join(there)}). Choose another "
            "folder with --out, or replace it with --force."
        )


def _described(folder: Path) -> str:
    try:
        content = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        return f"a fit of {content['method']} to '{content['data']['file']}'"
    except (OSError, ValueError, KeyError, TypeError):
        return "files of a fit"


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Return when each file of a folder was written, and how long it is."""
    files = folder.iterdir() if folder.is_dir() else ()
    found = {path.name: path.stat() for path in files if path.is_file()}
    return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in found.items()}
