from __future__ import annotations

import os
from pathlib import Path

import pytest

from r2med.core import DataError, ResultError
from r2med.core.atomic import atomic_file, atomic_folder, write_bytes


class Stop(Exception):
    """Something that goes wrong half-way."""


def test_a_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file"
    with atomic_file(path) as stream:
        stream.write(b"half")
        assert not path.exists()
        stream.write(b" and half")
    assert path.read_bytes() == b"half and half"
    assert os.listdir(path.parent) == ["file"]


def test_a_failure_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")
    with pytest.raises(Stop), atomic_file(path) as stream:
        stream.write(b"new")
        raise Stop
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    previous = os.umask(0o027)
    try:
        write_bytes(tmp_path / "file", b"")
        with atomic_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(previous)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("existing", [False, True])
def test_a_folder_appears_whole(tmp_path: Path, existing: bool) -> None:
    path = tmp_path / "out" / "folder"
    if existing:
        path.mkdir(parents=True)
    with atomic_folder(path) as folder:
        (folder / "file").write_text("content")
        assert path.exists() == existing
    assert (path / "file").read_text() == "content"
    assert os.listdir(path.parent) == ["folder"]


def test_a_failure_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(Stop), atomic_folder(tmp_path / "folder") as folder:
        (folder / "file").write_text("content")
        raise Stop
    assert os.listdir(tmp_path) == []


def test_a_folder_with_something_in_it_is_kept(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").touch()
    (tmp_path / "file").touch()
    for name in ("folder", "file"):
        message = f"{name}: already exists and is not an empty folder"
        with pytest.raises(DataError, match=message), atomic_folder(tmp_path / name):
            pytest.fail("must not start")
    assert (tmp_path / "folder" / "mine").exists()


def test_a_place_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResultError, match="cannot be written"):
        write_bytes(tmp_path / "file" / "below", b"")
    with pytest.raises(ResultError, match="cannot be written"), atomic_folder(tmp_path / "file" / "below"):
        pytest.fail("must not start")


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(ResultError, match="taken: cannot be written"):
        write_bytes(tmp_path / "taken", b"")
    assert os.listdir(tmp_path) == ["taken"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ResultError, match=r"cannot be written \(Permission denied\)"):
            write_bytes(tmp_path / "file", b"")
        with (
            pytest.raises(ResultError, match=r"cannot be written \(Permission denied\)"),
            atomic_folder(tmp_path / "f"),
        ):
            pytest.fail("must not start")
    finally:
        tmp_path.chmod(0o700)
