from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from crlearn.cli._paths import (
    check_data_file,
    check_data_type,
    check_free,
    check_is_folder,
    check_is_run,
    snapshot,
)


def test_data_files(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        check_data_file(tmp_path / "nothing.csv")
    for name in ("data.CSV", "data.crl"):
        (tmp_path / name).touch()
        check_data_file(tmp_path / name)
        check_data_type(tmp_path / name)
    (tmp_path / "data.txt").touch()
    with pytest.raises(ValueError, match=r"type of 'data\.txt' is not known.*\.csv"):
        check_data_file(tmp_path / "data.txt")
    with pytest.raises(ValueError, match=r"'data\.txt' must end in \.crl, \.csv"):
        check_data_type(tmp_path / "data.txt")


def test_folders(tmp_path: Path):
    check_is_folder(tmp_path, "nothing")
    with pytest.raises(FileNotFoundError, match=r"no folder .*new'\. A command makes one\."):
        check_is_folder(tmp_path / "new", "A command")
    check_free(tmp_path / "new")
    check_free(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no model\.crl and result\.json"):
        check_is_run(tmp_path)
    (tmp_path / "model.crl").touch()
    with pytest.raises(ValueError, match=r"holds files of a fit already \(model\.crl\)"):
        check_free(tmp_path)
    content = {"method": "IVAE", "data": {"file": "d.csv"}}
    (tmp_path / "result.json").write_text(json.dumps(content))
    check_is_run(tmp_path)
    with pytest.raises(ValueError, match=r"a fit of IVAE to 'd\.csv' already.* with --force"):
        check_free(tmp_path)


def test_what_was_written_since(tmp_path: Path):
    assert snapshot(tmp_path / "new") == {}
    (tmp_path / "a").write_text("a")
    (tmp_path / "folder").mkdir()
    before = snapshot(tmp_path)
    assert list(before) == ["a"]
    assert snapshot(tmp_path) == before
    (tmp_path / "a").write_text("other")
    assert snapshot(tmp_path) != before


@pytest.mark.parametrize(
    "words",
    [
        "fit missing.csv --method IVAE --out run",
        "simulate segments --out world.txt",
        "evaluate missing",
        "report missing",
        "bench run missing.toml --out run",
        "bench show missing.toml",
        "bench status missing",
        "bench table missing",
        "--version",
        "fit --help",
    ],
)
def test_nothing_heavy_is_imported_for_a_name_that_is_mistyped(words: str, tmp_path: Path):
    code = (
        "import sys; from crlearn.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit as end: code = end.code\n"
        "print(code, [m for m in ('jax', 'sklearn', 'pandas', 'numpy') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, *words.split()]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    ends_well = words in ("--version", "fit --help")
    assert said.splitlines()[-1] == f"{0 if ends_well else 2} []"
