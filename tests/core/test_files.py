"""Plain files only, known by their content."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from r2med.core import DataError, files
from r2med.core.files import HashKind, content_hashes, git_blob_id, open_file, sha256_of, wrong_files
from r2med.core.places import home


def test_a_plain_file_is_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    with open_file(tmp_path / "link") as stream:
        assert stream.read() == b"content"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pipe", "is not a plain file"),
        ("folder", "is not a plain file"),
        ("/dev/zero", "is not a plain file"),
        ("absent", "no such file"),
        ("dangling", "no such file"),
        ("x" * 300, "cannot be opened"),
        ("nul\0", "cannot be opened"),
    ],
)
def test_anything_else_is_refused_and_not_waited_for(tmp_path: Path, name: str, message: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(DataError, match=message):
        open_file(tmp_path / name)


def test_hashes_are_those_of_the_tools(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"some content\n")
    assert sha256_of(path) == hashlib.sha256(b"some content\n").hexdigest()
    asked = subprocess.run(["git", "hash-object", str(path)], capture_output=True, text=True, check=True)
    assert git_blob_id(path) == asked.stdout.strip()


def content_hash(path: Path, kind: HashKind = "sha256") -> str:
    (found,) = content_hashes([(path, kind)])
    return found


def test_a_large_file_is_hashed_again_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SMALL", 10)
    path = tmp_path / "large"
    path.write_bytes(b"a" * 100)
    read: list[Path] = []
    monkeypatch.setattr(files, "sha256_of", lambda p: read.append(p) or sha256_of(p))  # type: ignore[func-returns-value]
    first = content_hash(path)
    assert content_hash(path) == first == hashlib.sha256(b"a" * 100).hexdigest()
    assert len(read) == 1
    times = path.stat()
    path.write_bytes(b"b" * 100)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # as one who wants it not to be noticed
    assert content_hash(path) == hashlib.sha256(b"b" * 100).hexdigest()
    assert content_hash(path, "git") == git_blob_id(path)
    (home() / "hashes.json").write_text("[broken")
    assert content_hash(path) == hashlib.sha256(b"b" * 100).hexdigest()


def test_files_of_a_snapshot_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "commit"
    blobs.mkdir()
    (snapshot / "below").mkdir(parents=True)
    for name, kind in (("large", sha256_of), ("small", git_blob_id), ("below/other", git_blob_id)):
        (blobs / "new").write_text(f"content of {name}")
        blob = blobs / kind(blobs / "new")
        (blobs / "new").rename(blob)
        (snapshot / name).symlink_to(blob)
    (snapshot / "copied").write_text("without a name to compare with")
    assert wrong_files(snapshot) == []
    stated: dict[str, tuple[HashKind, str]] = {"copied": ("sha256", "0" * 64), "large": ("sha256", "1" * 64)}
    assert wrong_files(snapshot, stated) == ["copied", "large"]
    (snapshot / "small").resolve().write_text("content of smal1")
    (snapshot / "below" / "other").resolve().unlink()
    assert wrong_files(snapshot) == ["below/other", "small"]
