"""Files on disk: opened only where they are plain files, and known by the hash of their content."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from .atomic import write_bytes
from .errors import DataError, ResultError
from .places import home

BLOCK = 1 << 20
SMALL = 4 << 20
"""Files up to this size are hashed anew each time, which takes a few milliseconds."""

HashKind = Literal["sha256", "git"]


def open_file(path: Path, *, label: str | Path | None = None) -> BinaryIO:
    """A plain file for reading; a pipe, a device or a folder is refused instead of waited for."""
    label = path if label is None else label
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise DataError("no such file", path=label) from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be opened ({getattr(error, 'strerror', None) or error})", path=label) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise DataError("is not a plain file", path=label)
    return os.fdopen(handle, "rb", buffering=1 << 18)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, which is how the hub names a large file."""
    return _digest(path, hashlib.sha256())


def git_blob_id(path: Path) -> str:
    """The hash git gives a file's content, which is how the hub names a small file."""
    return _digest(path, hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False))


def _digest(path: Path, digest: hashlib._Hash) -> str:
    with open_file(path) as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def content_hash(path: Path, kind: HashKind = "sha256") -> str:
    """The hash of a file; that of a large one is computed again only when its size or one of its times changed."""
    target = path.resolve()
    compute = sha256_of if kind == "sha256" else git_blob_id
    found = target.stat()
    if found.st_size <= SMALL:
        return compute(target)
    state = f"{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}:{found.st_ino}:{kind}"
    memory = home() / "hashes.json"
    known = _remembered(memory)
    if known.get(str(target), ("", ""))[0] != state:
        known = {name: entry for name, entry in known.items() if os.path.exists(name)}  # noqa: PTH110 (thousands)
        known[str(target)] = (state, compute(target))
        with suppress(ResultError):  # a read-only home costs the hash again, nothing else
            write_bytes(memory, msgspec.json.encode(known, order="sorted"))
    return known[str(target)][1]


def _remembered(memory: Path) -> dict[str, tuple[str, str]]:
    try:
        return msgspec.json.decode(memory.read_bytes(), type=dict[str, tuple[str, str]])
    except (OSError, ValueError, RecursionError):
        return {}
