from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from crlearn.files import naming, replacing, write_whole


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def write_half_and_stop(path: Path) -> None:
    with replacing(path) as draft:
        draft.write_text("ne")
        raise KeyboardInterrupt


class TestNaming:
    def test_the_file_is_named(self):
        with (
            pytest.raises(OSError, match=r"No space left on device: 'a\.csv'") as caught,
            naming("a.csv"),
        ):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "a.csv")

    def test_a_name_that_is_there_stays(self):
        with pytest.raises(PermissionError) as caught, naming("a.csv"):
            raise PermissionError(errno.EACCES, "Permission denied", "b.csv")
        assert caught.value.filename == "b.csv"

    def test_words_without_a_number(self):
        """As of h5py."""
        with pytest.raises(OSError, match=r"unable to write: 'a\.h5ad'"), naming("a.h5ad"):
            raise OSError("unable to write")


class TestReplacing:
    def test_the_old_file_stays_until_the_end(self, tmp_path: Path):
        path = tmp_path / "a.csv"
        path.write_text("old")
        with replacing(path) as draft:
            assert draft.suffix == ".csv"
            draft.write_text("new")
            assert path.read_text() == "old"
        assert path.read_text() == "new"
        assert names(tmp_path) == ["a.csv"]

    def test_it_stays_if_anything_goes_wrong(self, tmp_path: Path):
        path = tmp_path / "a.csv"
        path.write_text("old")
        with pytest.raises(KeyboardInterrupt):
            write_half_and_stop(path)
        assert path.read_text() == "old"
        assert names(tmp_path) == ["a.csv"]

    def test_folders_are_made(self, tmp_path: Path):
        write_whole(tmp_path / "a" / "b" / "c.txt", "ı")
        assert (tmp_path / "a" / "b" / "c.txt").read_bytes() == "ı".encode()

    def test_links_stay_links(self, tmp_path: Path):
        (tmp_path / "link").symlink_to(tmp_path / "file")
        write_whole(tmp_path / "link", b"x")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "file").read_bytes() == b"x"

    def test_errors_name_the_file_and_not_the_draft(self, tmp_path: Path):
        path = tmp_path / "gone" / "a.csv"
        with pytest.raises(FileNotFoundError) as caught, replacing(path) as draft:
            draft.parent.rmdir()  # and nothing can take its place
        assert caught.value.filename == str(path)

    def test_a_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        def write_half(path: Path, data: bytes) -> None:
            path.write_text(data.decode()[:2])
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", write_half)
        with pytest.raises(OSError, match="No space left on device: ") as caught:
            write_whole(tmp_path / "a.crl", b"data")
        assert caught.value.filename == str(tmp_path / "a.crl")
        assert names(tmp_path) == []

    def test_a_folder_in_the_way(self, tmp_path: Path):
        with pytest.raises(OSError, match=str(tmp_path)):
            write_whole(tmp_path, b"x")
