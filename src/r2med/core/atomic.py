"""Files and folders that are whole or not there: written under a temporary name, then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .errors import DataError, ResultError


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name only when the block ends well."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise ResultError(f"{path}: cannot be written ({error.strerror or error})") from None
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644 & ~_umask())
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise ResultError(f"{path}: cannot be written ({error.strerror or error})") from None
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Write a whole file at once."""
    with atomic_file(path) as stream:
        stream.write(data)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder that appears under its name only when the block ends well; `path` must be absent or empty."""
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise DataError("already exists and is not an empty folder", path=path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
    except OSError as error:
        raise ResultError(f"{path}: cannot be written ({error.strerror or error})") from None
    try:
        yield temporary
        temporary.chmod(0o755 & ~_umask())
        if path.exists():
            path.rmdir()
        temporary.replace(path)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise ResultError(f"{path}: cannot be written ({error.strerror or error})") from None
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
