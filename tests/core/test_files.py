"""Plain files only, known by their content."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from r2med.core import DataError, files
from r2med.core.files import (
    DEEPEST,
    LARGEST,
    HashKind,
    content_hashes,
    git_blob_id,
    open_file,
    parse_toml,
    sha256_of,
    wrong_files,
)
from r2med.core.places import home


def test_a_plain_file_is_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    with open_file(tmp_path / "link") as stream:
        assert stream.read() == b"content"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pipe", r"cannot be opened \(not a plain file\)"),
        ("folder", r"cannot be opened \(not a plain file\)"),
        ("/dev/zero", r"cannot be opened \(not a plain file\)"),
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


DOTS = ".".join(["a"] * 100_000)


@pytest.mark.parametrize(
    "text",
    [
        f"{DOTS} = 1",
        f"[{DOTS}]",
        f"[[{DOTS}]]",
        f"x = {{{DOTS} = 1}}",
        " . ".join(['"a b"'] * 60_000) + " = 1",
        ".".join(["'a.b'"] * 60_000) + " = 1",
    ],
)
def test_a_key_of_many_parts_is_refused_at_once(text: str) -> None:
    """In a process of its own with little memory: the parser would take minutes and gigabytes."""
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (20, 20))\n"
        "from r2med.core.files import parse_toml\n"
        "try:\n    parse_toml(sys.stdin.read())\n"
        "except ValueError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"holds a key with more than {DEEPEST} dots"


def test_a_document_has_a_size() -> None:
    with pytest.raises(ValueError, match="is longer than"):
        parse_toml("#" * (LARGEST + 1))


def test_dots_that_are_no_keys() -> None:
    text = "\n".join(
        [
            "numbers = [" + ", ".join(["0.5"] * 200) + "]",
            'leader = "Dose ' + "." * 200 + ' 5 mg"',
            "path = 'a" + ".b" * 200 + "'",
            '"""quoted"""'.replace('"""', "") + ' = """',
            "Sentences. " * 200,
            'and a \\""" in between ' + ".x" * 200,
            '"""',
            "# " + "a." * 200,
            ".".join(["k"] * (DEEPEST + 1)) + " = 1",
        ]
    )
    read = parse_toml(text)
    assert len(read["numbers"]) == 200
    assert "." * 200 in read["leader"]
    assert read["quoted"].count("Sentences") == 200


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "x = " + "{a=" * 100_000, 'x = """', "x = '''" + "'" * 9])
def test_what_cannot_be_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_toml(text)
