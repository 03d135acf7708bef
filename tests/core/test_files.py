"""Files and folders: where ours lie, opened only where plain, written whole, known by their content."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from r2med.core import DataError, ResultError, files
from r2med.core.files import (
    DEEPEST,
    LARGEST,
    HashKind,
    atomic_file,
    atomic_folder,
    content_hashes,
    git_blob_id,
    home,
    hub_cache,
    open_file,
    parse_toml,
    sha256_of,
    write_bytes,
    wrong_files,
)


def test_places_follow_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home().name == "r2med"
    monkeypatch.delenv("R2MED_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert home() == tmp_path / "r2med"
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    assert hub_cache() == tmp_path / "hf" / "hub"
    monkeypatch.delenv("HF_HOME")
    assert hub_cache() == tmp_path / "huggingface" / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "c"))
    assert hub_cache() == tmp_path / "c"


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


HOLD = """
import sys
from pathlib import Path
from r2med.core.files import {kind}
with {kind}(Path(sys.argv[1])) as made:
    (made / "half").write_text("half") if {folder} else made.write(b"half")
    print("writing", flush=True)
    sys.stdin.read()
"""


@contextmanager
def writing(path: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is in the middle of writing a file or folder."""
    code = HOLD.format(kind=kind, folder=kind == "atomic_folder")
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("kind", ["atomic_file", "atomic_folder"])
def test_what_a_killed_command_left_is_removed_by_the_next(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = [".notes.tmp", ".out.12345678.tmp", ".out.deadbeef-abcd1234.tmp", "out.tmp"]
    for name in mine:
        (tmp_path / name).touch()
    with writing(tmp_path / "dead", kind) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(os.listdir(tmp_path)) == len(mine) + 1
    with writing(tmp_path / "alive", kind) as process:
        (living,) = set(os.listdir(tmp_path)) - set(mine)
        assert "alive" in living, "the next command has removed what the dead one left"
        write_bytes(tmp_path / "file", b"")
        assert set(os.listdir(tmp_path)) == {*mine, living, "file"}, "what is in use stays"
        process.communicate("go on")
        assert process.returncode == 0
    assert set(os.listdir(tmp_path)) == {*mine, "alive", "file"}
    monkeypatch.setattr(files, "_LOOKED_THROUGH", set())
    write_bytes(tmp_path / "file", b"")
    assert set(os.listdir(tmp_path)) == {*mine, "alive", "file"}, "others' files stay, whatever they are called"


def test_one_that_was_taken_for_abandoned_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def unlucky(path: Path, *, wait: bool) -> int | None:
        made.append(path.name)
        if len(made) == 1:
            path.unlink()  # as another process would between the two
        return None

    monkeypatch.setattr(files, "lock_temporary", unlucky)
    write_bytes(tmp_path / "file", b"content")
    assert len(set(made)) == 2
    assert (tmp_path / "file").read_bytes() == b"content"


def test_long_names_leave_room_for_the_temporary_one(tmp_path: Path) -> None:
    for name in ("x" * 255, "ä" * 127):
        write_bytes(tmp_path / name, b"")
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a stream that is open at the interrupt is not closed by name
@pytest.mark.parametrize("opened", [files.atomic_file, files.atomic_folder, files.scratch_folder])
def test_an_interrupt_at_any_line_leaves_nothing(
    tmp_path: Path, opened: Callable[[Path], AbstractContextManager[object]]
) -> None:
    """A temporary file stayed where a signal came between its making and the block that removes it."""

    class Interrupt(BaseException):
        pass

    def interrupted(line: int) -> bool:
        """Whether an interrupt at the line executed as number `line` came before the end."""
        seen = 0

        def trace(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal seen
            del arg
            if frame.f_code.co_filename != files.__file__:
                return None
            if event == "line":
                seen += 1
                if seen == line:
                    raise Interrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            with opened(tmp_path / f"{line}" / "thing"):
                pass
        except Interrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    lines = next(line for line in range(1, 1000) if not interrupted(line))
    assert lines > 10
    assert not list(tmp_path.rglob("*.tmp"))


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
