"""Locks, processes and files, alike on POSIX systems and on Windows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from r2med.core import portable
from r2med.core.files import locked, write_bytes

FAR = 1 << 55  # as far as the byte that a claim locks may be


@contextmanager
def child(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python that has said it is ready, and ends when the block does."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os, sys\nfrom r2med.core import portable\n{code}", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@contextmanager
def opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | portable.BINARY)
    try:
        yield handle
    finally:
        os.close(handle)


HOLD = f"""
handle = os.open(sys.argv[1], os.O_RDWR | portable.BINARY)
assert portable.lock(handle, wait=True) and portable.lock_byte(handle, {FAR})
print("ready", flush=True)
sys.stdin.readline()
"""


def test_locks_keep_processes_apart_and_end_with_them(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"data")
    with opened(path) as handle:
        with child(HOLD, str(path)):
            assert not portable.lock(handle, wait=False)
            assert not portable.lock_byte(handle, FAR)
            assert portable.lock_byte(handle, FAR + 1), "another byte is free"
            assert path.read_bytes() == b"data", "a lock keeps nobody from reading"
            os.write(handle, b"more")
        assert portable.lock(handle, wait=True), "the process that held it was killed"
        assert portable.lock_byte(handle, FAR)
        portable.unlock(handle)
        portable.unlock_byte(handle, FAR)
        with child(HOLD, str(path)):
            pass


def test_one_process_at_a_time_is_in_a_locked_folder(tmp_path: Path) -> None:
    code = """
from pathlib import Path
from r2med.core.files import locked
with locked(Path(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.readline()
    Path(sys.argv[1], "mine").touch()
"""
    with child(code, str(tmp_path / "folder")) as process:
        assert process.stdin is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        with locked(tmp_path / "folder"):
            assert (tmp_path / "folder" / "mine").exists(), "entered only after the other had left"


def test_whether_a_process_lives(tmp_path: Path) -> None:
    assert portable.process_lives(os.getpid())
    with child('print("ready", flush=True); sys.stdin.readline()') as process:
        assert portable.process_lives(process.pid)
        assert process.poll() is None, "looking does not end it"
    assert not portable.process_lives(process.pid)
    assert not portable.process_lives(1 << 60)


def test_reading_at_an_offset(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"one\r\ntwo\n\x1athree")
    with opened(tmp_path / "file") as handle:
        assert portable.read_at(handle, 5, 5) == b"two\n\x1a"
        assert portable.read_at(handle, 100, 0) == b"one\r\ntwo\n\x1athree", "no line end or end of file is made up"
        assert portable.read_at(handle, 1, 100) == b""


def test_a_file_that_is_being_read_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")
    code = 'stream = open(sys.argv[1], "rb"); print("ready", flush=True); sys.stdin.readline()'
    with child(code, str(path)) as process:
        assert process.stdin is not None
        process.stdin.close()  # it ends soon
        write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_memory_is_known() -> None:
    memory = portable.total_memory()
    assert memory is not None
    assert memory > 1 << 28
