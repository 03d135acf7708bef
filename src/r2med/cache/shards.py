"""Shard files: rows of numbers with the keys they are found by, whole or not at all.

    magic        16 bytes
    header       count, dimension, CRC-32 of the body, CRC-32 of the header so far; filled up to 64 bytes
    keys         count × 16 bytes: hash of the text
    tokens       count × int32: length of the text before it was cut, -1 if unknown
    seconds      count × float32: what making the text's rows took, NaN if unknown
    sizes        only where a text has several rows, one for each token: count × int32
    (filled up to 64 bytes)
    rows         one of float32 for each text, or as many of int16 as `sizes` says

Shards of earlier versions have another magic and no seconds; those of their rows are unknown.

A shard is written under a temporary name and renamed, and never changed afterwards: processes that encode at the same
time each write their own, and nobody waits. Its header is checked when it is opened, its body before a row of it is
used: a file that was found intact is not read again by this process until it changes.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ..core import ModelError
from ..core.columns import Int32, Int64
from ..core.files import atomic_file

SETTLED_SECONDS = 2.0
"""How long ago a file must have changed last for its times to tell it from a later version: clocks of file systems
tick in milliseconds, and two writes within one tick leave the same times."""


class FileIdentity(NamedTuple):
    """What differs between a file and anything that is later written in its place."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, facts: os.stat_result) -> FileIdentity:
        """From what the file system says of a file."""
        return cls(facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


_intact: set[FileIdentity] = set()
"""Files this process has read from end to end and found to match their checksum."""


def intact(identity: FileIdentity, matches: Callable[[], bool]) -> bool:
    """Whether a file matches its checksum; `matches` reads it, once per process and version of the file."""
    if identity in _intact:
        return True
    if not matches():
        return False
    if time.time() - max(identity.modified, identity.changed) / 1e9 > SETTLED_SECONDS:
        _intact.add(identity)
    return True


MAGIC = b"r2med vectors 2\n"
UNTIMED = b"r2med vectors 1\n"
TOKENS_MAGIC = b"r2med tokens 01\n"
BESIDE = {MAGIC: 24, UNTIMED: 20, TOKENS_MAGIC: 28}
"""Bytes that each text has before the rows."""
HEADER = struct.Struct("<QIII")
START = 64
SUFFIX = ".shard"

Keys = npt.NDArray[np.uint64]
Float32 = npt.NDArray[np.float32]
Column = TypeVar("Column", Int32, Float32)
Int16 = npt.NDArray[np.int16]
Numbers = Float32 | Int16


class DamagedShard(Exception):
    """A shard that was cut off or changed after it was written."""


class Shard(NamedTuple):
    """An open shard: views into the mapped file."""

    path: Path
    keys: Keys  # count × 2
    tokens: Int32
    seconds: Float32
    sizes: Int32 | None  # rows of each text; None: one
    vectors: Any  # Float32, or Int16 where a text has several
    identity: FileIdentity
    matches: Callable[[], bool]  # reads the body and compares it with its checksum

    def is_intact(self) -> bool:
        """Whether the body is what was written; read once per process."""
        return intact(self.identity, self.matches)

    def spans(self, texts: Int64) -> tuple[Int64, Int64]:
        """First row of each text, and how many it has."""
        if self.sizes is None:
            return texts, np.ones(len(texts), dtype=np.int64)
        sizes = self.sizes.astype(np.int64)
        return (np.cumsum(sizes) - sizes)[texts], sizes[texts]

    def rows_of(self, texts: Int64) -> Int64:
        """All rows of some texts, one after the other."""
        starts, sizes = self.spans(texts)
        rows: Int64 = np.arange(sizes.sum()) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
        return rows


def write_shard(
    folder: Path,
    keys: Keys,
    tokens: Int32,
    vectors: Numbers,
    seconds: Float32 | None = None,
    sizes: Int32 | None = None,
) -> Path:
    """Write rows as a new shard of `folder`."""
    timed = np.full(len(keys), np.nan, dtype=np.float32) if seconds is None else seconds
    return write_blocks(folder, keys, tokens, timed, vectors.shape[1], lambda: iter([vectors]), sizes)


def write_blocks(
    folder: Path,
    keys: Keys,
    tokens: Int32,
    seconds: Float32,
    dimension: int,
    blocks: Callable[[], Iterator[Numbers]],
    sizes: Int32 | None = None,
) -> Path:
    """The same with rows that come a block at a time, twice: once for the checksum, once to be written."""
    path = folder / f"{time.time_ns():016x}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
    magic = MAGIC if sizes is None else TOKENS_MAGIC

    def parts() -> Iterator[bytes | memoryview]:
        yield np.ascontiguousarray(keys, dtype="<u8").tobytes()
        yield np.ascontiguousarray(tokens, dtype="<i4").tobytes()
        yield np.ascontiguousarray(seconds, dtype="<f4").tobytes()
        if sizes is not None:
            yield np.ascontiguousarray(sizes, dtype="<i4").tobytes()
        yield bytes(_rows_start(len(keys), magic) - START - BESIDE[magic] * len(keys))
        for block in blocks():
            yield np.ascontiguousarray(block, dtype="<f4" if sizes is None else "<i2").data

    checksum = 0
    for part in parts():
        checksum = zlib.crc32(part, checksum)
    head = magic + HEADER.pack(len(keys), dimension, checksum, 0)[:-4]
    head += struct.pack("<I", zlib.crc32(head))
    with atomic_file(path) as stream:
        stream.write(head.ljust(START, b"\0"))
        for part in parts():
            stream.write(part)
    return path


def open_shard(path: Path, *, check: bool = False) -> Shard:
    """Map a shard whose header and size are right, and its body too with `check`.

    Raises DamagedShard, or FileNotFoundError if it is gone.
    """
    with path.open("rb") as stream:
        head = stream.read(START)
        facts = os.fstat(stream.fileno())
        count, dimension, checksum = _read_header(head)
        magic = head[: len(MAGIC)]
        several = magic == TOKENS_MAGIC
        start = _rows_start(count, magic)
        if facts.st_size < start:
            raise DamagedShard("wrong size")
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    sizes = np.frombuffer(mapped, dtype="<i4", count=count, offset=START + 24 * count) if several else None
    rows = count if sizes is None else int(sizes.sum(dtype=np.int64))
    if facts.st_size != start + (4 if sizes is None else 2) * rows * dimension:
        raise DamagedShard("wrong size")
    if sizes is not None and (sizes < 1).any():
        raise DamagedShard("texts without rows")

    def matches() -> bool:
        with memoryview(mapped) as view, view[START:] as body:
            return zlib.crc32(body) == checksum

    keys = np.frombuffer(mapped, dtype="<u8", count=2 * count, offset=START).reshape(count, 2)
    tokens = np.frombuffer(mapped, dtype="<i4", count=count, offset=START + 16 * count)
    seconds = np.full(count, np.nan, dtype=np.float32)
    if magic != UNTIMED:
        seconds = np.frombuffer(mapped, dtype="<f4", count=count, offset=START + 20 * count)
    vectors = np.frombuffer(mapped, dtype="<i2" if several else "<f4", count=rows * dimension, offset=start)
    matrix = vectors.reshape(rows, dimension)
    shard = Shard(path, keys, tokens, seconds, sizes, matrix, FileIdentity.of(facts), matches)
    if check and not shard.is_intact():
        raise DamagedShard("wrong checksum")
    return shard


def _read_header(head: bytes) -> tuple[int, int, int]:
    end = len(MAGIC) + HEADER.size
    if len(head) < START or head[: len(MAGIC)] not in BESIDE:
        raise DamagedShard("not a shard")
    count, dimension, checksum, own = HEADER.unpack(head[len(MAGIC) : end])
    if own != zlib.crc32(head[: end - 4]):
        raise DamagedShard("wrong header")
    return count, dimension, checksum


def _rows_start(count: int, magic: bytes) -> int:
    used = BESIDE[magic] * count
    return START + used + -used % 64


class Found(NamedTuple):
    """Where rows lie: shard and row of each key, -1 where there is none."""

    shard: Int32
    row: Int64

    def take(self, positions: Int64 | npt.NDArray[np.bool_]) -> Found:
        """Some of the keys."""
        return Found(self.shard[positions], self.row[positions])

    @property
    def shards(self) -> list[int]:
        """Numbers of the shards that occur."""
        return np.flatnonzero(np.bincount(self.shard[self.shard >= 0])).tolist()


class ShardSet:
    """All shards of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shards: list[Shard] = []
        self.damaged = 0
        while not self._open_all():
            # Another process merged shards between the listing and here: what it wrote is there now.
            self.shards, self.damaged = [], 0

    def _open_all(self) -> bool:
        """Open every shard of the folder; False if one had gone before it could be opened."""
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            try:
                self._add(open_shard(path))
            except DamagedShard:
                self.damaged += 1
            except FileNotFoundError:
                return False
        return True

    def _add(self, shard: Shard) -> None:
        if self.shards and shard.vectors.shape[1] != self.dimension:
            raise ModelError(
                f"the cache holds vectors of {self.dimension} and of {shard.vectors.shape[1]} dimensions "
                f"for one model ({self.folder}); remove that folder, or give the model another name or revision"
            )
        self._set([*self.shards, shard])

    def _set(self, shards: list[Shard]) -> None:
        self.shards = shards
        self.__dict__.pop("_index", None)

    @property
    def dimension(self) -> int:
        """Length of the rows; 0 while there are none."""
        return int(self.shards[0].vectors.shape[1]) if self.shards else 0

    def __len__(self) -> int:
        return sum(len(shard.keys) for shard in self.shards)

    @cached_property
    def _index(self) -> tuple[Keys, Int32, Int64]:
        """Keys in order, with shard and row of each."""
        keys = np.concatenate([shard.keys for shard in self.shards])
        order = np.argsort(keys[:, 0], kind="stable")
        sizes = [len(shard.keys) for shard in self.shards]
        shard = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        row = np.concatenate([np.arange(size, dtype=np.int64) for size in sizes])
        return keys[order], shard[order], row[order]

    def find(self, keys: Keys) -> Found:
        """Where each key's row lies. Shards that hold one are checked first; a damaged one is left out and counted."""
        while True:
            found = self._look_up(keys)
            damaged = {number for number in found.shards if not self.shards[number].is_intact()}
            if not damaged:
                return found
            self.damaged += len(damaged)
            self._set([shard for number, shard in enumerate(self.shards) if number not in damaged])

    def _look_up(self, keys: Keys) -> Found:
        if not len(self):
            return Found(np.full(len(keys), -1, np.int32), np.full(len(keys), -1, np.int64))
        known, shard, row = self._index
        at = np.minimum(np.searchsorted(known[:, 0], keys[:, 0]), len(known) - 1)
        hit = (known[at] == keys).all(axis=1)
        return Found(np.where(hit, shard[at], np.int32(-1)), np.where(hit, row[at], np.int64(-1)))

    def append(
        self,
        keys: Keys,
        tokens: Int32,
        vectors: Numbers,
        seconds: Float32 | None = None,
        sizes: Int32 | None = None,
    ) -> None:
        """Keep rows on disk from now on."""
        if self.shards and vectors.shape[1] != self.dimension:
            raise ModelError(
                f"the model returned vectors of {vectors.shape[1]} dimensions, but the cache holds "
                f"{self.dimension} for it ({self.folder})"
            )
        written = write_shard(self.folder, keys, tokens, vectors, seconds, sizes)
        try:
            self._add(open_shard(written))
        except FileNotFoundError:  # another process has merged it into a shard that is not known here
            known = {shard.path for shard in self.shards}
            for shard in ShardSet(self.folder).shards:
                if shard.path not in known:
                    self._add(shard)

    def tokens(self, found: Found) -> Int32:
        """Token counts of found texts."""
        return self._column("tokens", found, np.full(len(found.row), -1, dtype=np.int32))

    def seconds(self, found: Found) -> Float32:
        """What making each of the found rows took; NaN where that is unknown."""
        return self._column("seconds", found, np.full(len(found.row), np.nan, dtype=np.float32))

    def _column(self, name: str, found: Found, values: Column) -> Column:
        for number in found.shards:
            here = found.shard == number
            values[here] = getattr(self.shards[number], name)[found.row[here]]
        return values


LARGE = 1 << 30
"""A shard of this many bytes is left as it is: copying it again and again would cost more than opening it."""
BLOCK = 4096


def compact(folder: Path, *, large: int = LARGE) -> int:
    """Merge the shards of one folder, of which an hour of encoding leaves hundreds; says how many there were.

    The new shard is whole before an old one goes, and is written a block at a time, whatever its size. A process that
    reads meanwhile has the old ones mapped, or finds them gone and looks again. Damaged shards are left for `prune`.
    """
    shards = ShardSet(folder)
    small = [shard for shard in shards.shards if shard.vectors.nbytes < large and shard.is_intact()]
    if len(small) < 2:
        return len(shards.shards)
    keys = np.concatenate([shard.keys for shard in small])
    _, first = np.unique(keys, axis=0, return_index=True)
    keep = np.sort(first)
    tokens = np.concatenate([shard.tokens for shard in small])[keep]
    seconds = np.concatenate([shard.seconds for shard in small])[keep]
    several = [shard.sizes for shard in small if shard.sizes is not None]
    sizes = np.concatenate(several)[keep] if several else None
    ends = np.cumsum([len(shard.keys) for shard in small])

    def blocks() -> Iterator[Numbers]:
        for shard, end in zip(small, ends.tolist(), strict=True):
            start = end - len(shard.keys)
            rows = shard.rows_of(keep[(keep >= start) & (keep < end)] - start)
            yield from (shard.vectors[rows[begin : begin + BLOCK]] for begin in range(0, len(rows), BLOCK))

    write_blocks(folder, keys[keep], tokens, seconds, shards.dimension, blocks, sizes)
    for shard in small:
        with suppress(OSError):  # another process was faster, or Windows, where a mapped file stays
            shard.path.unlink()
    return len(shards.shards)
