"""Imports point one way: data -> methods -> metrics -> bench -> report, and the rest serve all."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "crlearn"

# Each part may import those before it. A set of parts side by side must not know each other.
ORDER: list[set[str]] = [
    {"exceptions", "files"},
    {"config", "tags"},
    {"graph", "nets", "progress"},
    {"result"},
    {"data"},
    {"persist"},
    {"train", "base", "inputs"},
    {"flows"},
    {"scores", "likelihood", "variational"},
    {"methods"},
    {"published"},
    {"estimators"},
    {"metrics"},
    {"bench"},
    {"report"},
    {"cli", "__main__"},
]
LEVEL = {part: level for level, parts in enumerate(ORDER) for part in parts}
FILES = sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_at_the_top(path: Path) -> Iterator[str]:
    """Modules that are imported when the file is; those inside functions or for types are not."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path):
    part = part_of(path)
    if part == "__init__":
        return
    for module in imports_at_the_top(path):
        if not module.startswith("crlearn."):
            continue
        other = module.split(".")[1]
        if other in LEVEL and other != part:
            assert LEVEL[other] < LEVEL[part], f"{part} must not import {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_readable(path: Path):
    assert len(path.read_text().splitlines()) <= 600


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_private_files_are_used_inside_their_folder_only(path: Path):
    for module in imports_at_the_top(path):
        names = module.split(".")
        private = [name for name in names[1:-1] if name.startswith("_") and name != "__main__"]
        if names[0] == "crlearn" and private:
            assert names[1] == part_of(path), f"{module} is private"


def test_importing_crlearn_is_light():
    code = "import sys, crlearn; print('jax' in sys.modules, 'sklearn' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]


TESTS = Path(__file__).parent
WHOLE_LIBRARY = {
    "test_architecture",
    "test_common",
    "test_documentation",
    "test_equivariance",
    "test_warnings",
}


def test_every_test_file_mirrors_a_source_file():
    for path in TESTS.rglob("test_*.py"):
        if path.stem in WHOLE_LIBRARY:
            continue
        folder = SOURCE / path.relative_to(TESTS).parent
        name = path.stem.removeprefix("test_")
        names = (f"{name}.py", f"_{name}.py", f"__{name}__.py", name)
        assert any((folder / n).exists() for n in names), f"{path} has no source file"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_source_file_has_a_test_file(path: Path):
    place = path.relative_to(SOURCE)
    if path.name == "__init__.py":
        return
    test = TESTS / place.parent / f"test_{path.stem.strip('_')}.py"
    assert test.exists(), f"{place} has no {test.relative_to(TESTS)}"
