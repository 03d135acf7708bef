"""Files and folders that are whole or not there: written under a temporary name, then renamed.

What a killed command leaves under such a name is removed by the next one that writes into the same folder. A living
command holds a lock on its temporary file or folder, so that nothing in use is ever removed. On Windows, where what is
locked cannot be renamed, there are no such locks, and what a killed command leaves stays.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .errors import DataError, ResultError
from .portable import lock, lock_temporary, open_folder_lock, replace

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
        replace(temporary, path)


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
    with _temporary(path, _make_folder) as temporary:
        yield temporary
        temporary.chmod(0o755 & ~_umask())
        if path.exists():
            path.rmdir()
        replace(temporary, path)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` for the length of a block."""
    with _temporary(path, _make_folder) as temporary:
        yield temporary
        _remove(temporary)


def _make_file(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _make_folder(path: Path) -> None:
    path.mkdir(mode=0o700)


@contextmanager
def _temporary(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """A temporary file or folder beside `path`, locked until the block ends and removed where it ends badly."""
    # The name is known before anything is there, so that an interrupt at any moment finds what to remove.
    temporary, handle = _new_name(path), None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path.parent)
        while not temporary.exists():  # also where another process took it for abandoned before it was locked
            if handle is not None:
                os.close(handle)
            temporary, handle = _new_name(path), None
            make(temporary)
            handle = lock_temporary(temporary, wait=True)
        yield temporary
    except OSError as error:
        _remove(temporary)
        raise _cannot_write(path, error) from None
    except BaseException:
        _remove(temporary)
        raise
    finally:
        if handle is not None:
            os.close(handle)


def _new_name(path: Path) -> Path:
    return path.with_name(f".{path.name[:50]}.{_HOST}-{secrets.token_hex(4)}.tmp")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A block that one process at a time is in, of those that name the same folder; it is made where it is missing.

    Where locks do not work (some network disks) processes are not kept apart.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = open_folder_lock(folder)
    except OSError as error:
        raise _cannot_write(folder, error) from None
    try:
        with suppress(OSError):
            lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


def remove_abandoned(folder: Path) -> None:
    """Remove temporary files and folders of commands that are dead; each process looks once through a folder."""
    if str(folder) in _LOOKED_THROUGH:
        return
    _LOOKED_THROUGH.add(str(folder))
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.fullmatch(entry.name) and (handle := lock_temporary(Path(entry.path), wait=False)):
                _remove(Path(entry.path))
                os.close(handle)


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
