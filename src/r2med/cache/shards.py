"""Shard files: some vectors with the hashes of their texts, whole or not at all.

    magic        16 bytes
    header       count, dimension, CRC-32 of the body, CRC-32 of the header so far; filled up to 64 bytes
    keys         count × 16 bytes: hash of the text
    tokens       count × int32: length of the text before it was cut, -1 if unknown; filled up to 64 bytes
    vectors      count × dimension × float32

A shard is written under a temporary name and renamed, and never changed afterwards: processes that encode at the same
time each write their own, and nobody waits.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.atomic import atomic_file
from ..core.columns import Int32

MAGIC = b"r2med vectors 1\n"
HEADER = struct.Struct("<QIII")
START = 64
SUFFIX = ".shard"

Keys = npt.NDArray[np.uint64]
Float32 = npt.NDArray[np.float32]


class Shard(NamedTuple):
    """An open shard: views into the mapped file."""

    keys: Keys
    """count × 2."""
    tokens: Int32
    vectors: Float32


class DamagedShard(Exception):
    """A shard that was cut off or changed after it was written."""


def write_shard(folder: Path, keys: Keys, tokens: Int32, vectors: Float32) -> Path:
    """Write vectors as a new shard of `folder`."""
    return write_blocks(folder, keys, tokens, vectors.shape[1], lambda: iter([vectors]))


def write_blocks(
    folder: Path, keys: Keys, tokens: Int32, dimension: int, blocks: Callable[[], Iterator[Float32]]
) -> Path:
    """The same with vectors that come a block at a time, twice: once to be summed up, once to be written."""
    path = folder / f"{time.time_ns():016x}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"

    def parts() -> Iterator[bytes | memoryview]:
        yield np.ascontiguousarray(keys, dtype="<u8").tobytes()
        yield np.ascontiguousarray(tokens, dtype="<i4").tobytes()
        yield bytes(_gap(len(keys)))
        for block in blocks():
            yield np.ascontiguousarray(block, dtype="<f4").data

    checksum = 0
    for part in parts():
        checksum = zlib.crc32(part, checksum)
    head = MAGIC + HEADER.pack(len(keys), dimension, checksum, 0)[:-4]
    head += struct.pack("<I", zlib.crc32(head))
    with atomic_file(path) as stream:
        stream.write(head.ljust(START, b"\0"))
        for part in parts():
            stream.write(part)
    return path


def open_shard(path: Path) -> Shard:
    """Map a shard after checking every byte of it; raises DamagedShard, or FileNotFoundError if it is gone."""
    with path.open("rb") as stream:
        head = stream.read(START)
        size = os.fstat(stream.fileno()).st_size
        count, dimension, checksum = _read_header(head)
        if size != _vectors_start(count) + 4 * count * dimension:
            raise DamagedShard("wrong size")
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    with memoryview(mapped) as view, view[START:] as body:
        if zlib.crc32(body) != checksum:
            raise DamagedShard("wrong checksum")
    keys = np.frombuffer(mapped, dtype="<u8", count=2 * count, offset=START).reshape(count, 2)
    tokens = np.frombuffer(mapped, dtype="<i4", count=count, offset=START + 16 * count)
    vectors = np.frombuffer(mapped, dtype="<f4", count=count * dimension, offset=_vectors_start(count))
    return Shard(keys, tokens, vectors.reshape(count, dimension))


def _read_header(head: bytes) -> tuple[int, int, int]:
    end = len(MAGIC) + HEADER.size
    if len(head) < START or not head.startswith(MAGIC):
        raise DamagedShard("not a shard")
    count, dimension, checksum, own = HEADER.unpack(head[len(MAGIC) : end])
    if own != zlib.crc32(head[: end - 4]):
        raise DamagedShard("wrong header")
    return count, dimension, checksum


def _gap(count: int) -> int:
    return -20 * count % 64


def _vectors_start(count: int) -> int:
    return START + 20 * count + _gap(count)
