"""Files and folders that are whole or not there: written under a temporary name, then renamed.

What a killed command leaves under such a name is removed by the next one that writes into the same folder. A living
command holds a lock on its temporary file or folder, so that nothing in use is ever removed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .errors import DataError, ResultError

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows has no such locks, so nothing is removed there
    fcntl = None

# Machines that share a disk may not see each other's locks: each removes only what was written on it.
_HOST = hashlib.blake2b(os.uname().nodename.encode() if hasattr(os, "uname") else b"", digest_size=4).hexdigest()
_TEMPORARY = re.compile(rf"\..+\.{_HOST}-[a-z0-9_]{{8}}\.tmp", re.DOTALL)
_LOOKED_THROUGH: set[str] = set()  # folders in which this process has removed what was abandoned


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name only when the block ends well."""
    with _temporary(path, _make_file) as temporary:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644 & ~_umask())
        temporary.replace(path)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a whole file at once."""
    with atomic_file(path) as stream:
        stream.write(data)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder that appears under its name only when the block ends well; `path` must be absent or empty."""
    try:
        taken = path.exists() and (not path.is_dir() or any(path.iterdir()))
    except OSError as error:
        raise _cannot_write(path, error) from None
    if taken:
        raise DataError("already exists and is not an empty folder", path=path)
    with _temporary(path, tempfile.mkdtemp) as temporary:
        yield temporary
        temporary.chmod(0o755 & ~_umask())
        if path.exists():
            path.rmdir()
        temporary.replace(path)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` for the length of a block."""
    with _temporary(path, tempfile.mkdtemp) as temporary:
        yield temporary
        _remove(temporary)


def _make_file(*, dir: Path, prefix: str, suffix: str) -> str:  # noqa: A002 (as tempfile calls it)
    handle, name = tempfile.mkstemp(dir=dir, prefix=prefix, suffix=suffix)
    os.close(handle)
    return name


@contextmanager
def _temporary(path: Path, make: Callable[..., str]) -> Iterator[Path]:
    """A temporary file or folder beside `path`, locked until the block ends and removed where it ends badly."""
    try:
        temporary, lock = _reserve(path, make)
    except OSError as error:
        raise _cannot_write(path, error) from None
    try:
        yield temporary
    except OSError as error:
        _remove(temporary)
        raise _cannot_write(path, error) from None
    except BaseException:
        _remove(temporary)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _reserve(path: Path, make: Callable[..., str]) -> tuple[Path, int | None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    while True:
        made = Path(make(dir=path.parent, prefix=f".{path.name[:50]}.{_HOST}-", suffix=".tmp"))
        lock = _lock(made, wait=True)
        if made.exists():
            return made, lock
        if lock is not None:  # another process took it for abandoned before it was locked
            os.close(lock)


def _lock(path: Path, *, wait: bool) -> int | None:
    """Lock a file or folder until the handle is closed; None where somebody else holds it or locks do not work."""
    if fcntl is None:
        return None
    handle = None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        if handle is not None:
            os.close(handle)
        return None
    return handle


def remove_abandoned(folder: Path) -> None:
    """Remove temporary files and folders of commands that are dead; each process looks once through a folder."""
    if str(folder) in _LOOKED_THROUGH:
        return
    _LOOKED_THROUGH.add(str(folder))
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.fullmatch(entry.name) and (lock := _lock(Path(entry.path), wait=False)) is not None:
                _remove(Path(entry.path))
                os.close(lock)


def _remove(path: Path) -> None:
    with suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _cannot_write(path: Path, error: OSError) -> ResultError:
    return ResultError(f"{path}: cannot be written ({error.strerror or error})")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
