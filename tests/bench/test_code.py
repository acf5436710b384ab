from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import crlearn
from crlearn.bench._code import fingerprint, fingerprint_of


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    (folder / "inside").mkdir(parents=True)
    (folder / "a.py").write_text("x = 1\n")
    (folder / "inside" / "b.py").write_text("y = 2\n")
    return folder


def test_the_same_code_elsewhere_is_the_same(package: Path, tmp_path: Path):
    before = fingerprint_of(package)
    shutil.copytree(package, tmp_path / "other" / "place")
    assert fingerprint_of(tmp_path / "other" / "place") == before


def test_what_is_no_code_does_not_count(package: Path):
    before = fingerprint_of(package)
    (package / "study.toml").write_text("title = 'x'")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    assert fingerprint_of(package) == before


def test_every_change_of_code_counts(package: Path):
    found = [fingerprint_of(package)]
    (package / "inside" / "b.py").write_text("y = 3\n")
    found.append(fingerprint_of(package))
    (package / "inside" / "b.py").rename(package / "b.py")
    found.append(fingerprint_of(package))
    (package / "b.py").unlink()
    found.append(fingerprint_of(package))
    assert len(set(found)) == 4


def test_that_of_crlearn():
    assert fingerprint() == fingerprint_of(Path(crlearn.__file__).parent)
    assert len(fingerprint()) == 16
