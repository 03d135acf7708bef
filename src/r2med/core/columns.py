"""Columns of text and tables of ids: the memory layout of a corpus; and the fingerprints of such content.

A corpus of 60,000 passages as Python strings costs an object per passage and, as soon as one Greek letter is in it,
two bytes per character. Held as one UTF-8 buffer with offsets it costs its own size, can be hashed in one call and is
read by the native analyzer without a copy.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar, overload

import msgspec
import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Key = TypeVar("Key")
Member = TypeVar("Member")

DIGEST_BYTES = 16  # of a fingerprint
BLOCK = 4 << 20  # bytes of text worked on at once
SPACE = np.isin(np.arange(256), list(b" \t\n\r\f\v"))


def grouped(pairs: Iterable[tuple[Key, Member]]) -> dict[Key, list[Member]]:
    """The members of each key, both in the order in which they come."""
    groups: dict[Key, list[Member]] = {}
    for key, member in pairs:
        groups.setdefault(key, []).append(member)
    return groups


class Hasher:
    """BLAKE2b over length-prefixed parts, so that ("ab", "c") and ("a", "bc") differ."""

    def __init__(self, kind: str) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.text(kind)

    def data(self, part: bytes | memoryview | npt.NDArray[np.generic]) -> None:
        """Add one binary part."""
        whole = np.ascontiguousarray(part).data if isinstance(part, np.ndarray) else part
        view = memoryview(whole)
        self._hash.update(view.nbytes.to_bytes(8, "little"))
        if view.nbytes:
            self._hash.update(view.cast("B"))

    def text(self, part: str) -> None:
        """Add one text."""
        self.data(part.encode())

    def texts(self, parts: Iterable[str]) -> None:
        """Add a list of texts as one part."""
        encoded = [p.encode() for p in parts]
        self.data(np.array([len(e) for e in encoded], dtype="<i8"))
        self.data(b"".join(encoded))

    def digest(self) -> str:
        """The fingerprint, 32 hexadecimal digits."""
        return self._hash.hexdigest()


def fingerprint(kind: str, value: object) -> str:
    """Fingerprint of plain data (numbers, texts, lists, dicts), independent of key order."""
    hasher = Hasher(kind)
    encoded = msgspec.json.encode(value, order="deterministic")
    if b"null" in encoded:  # which JSON has for infinite numbers, too
        encoded = msgspec.json.encode(_spelled(value), order="deterministic")
    hasher.data(encoded)
    return hasher.digest()


def _spelled(value: Any) -> Any:
    """Plain data in which numbers that are not finite are texts."""
    if isinstance(value, dict):
        return {key: _spelled(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled(part) for part in value]
    return {"number": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


class TextColumn(Sequence[str]):
    """An immutable sequence of texts in one UTF-8 buffer."""

    __slots__ = ("_view", "data", "offsets")

    def __init__(self, data: Bytes, offsets: Int64) -> None:
        self.data = data
        self.offsets = offsets
        self._view = memoryview(data) if len(data) else memoryview(b"")  # type: ignore[arg-type]

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> TextColumn:
        """Encode `texts`; a lone surrogate raises UnicodeEncodeError."""
        builder = TextColumnBuilder()
        for text in texts:
            builder.append(text.encode())
        return builder.build()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        return str(self._view[self.offsets[index] : self.offsets[index + 1]], "utf-8")

    def __iter__(self) -> Iterator[str]:
        view = self._view
        for start, end in pairwise(self.offsets.tolist()):
            yield str(view[start:end], "utf-8")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TextColumn):
            return NotImplemented
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.data, other.data)

    __hash__ = None  # type: ignore[assignment]

    def encoded(self, index: int) -> bytes:
        """The UTF-8 bytes of one text."""
        return bytes(self._view[self.offsets[index] : self.offsets[index + 1]])

    @property
    def nbytes(self) -> int:
        """Bytes of text held."""
        return int(self.offsets[-1])

    def byte_lengths(self) -> Int64:
        """UTF-8 length of each text."""
        return np.diff(self.offsets)

    def char_lengths(self) -> Int64:
        """Number of code points of each text: bytes that are not UTF-8 continuation bytes."""
        if not len(self.data):
            return np.zeros(len(self), dtype=np.int64)
        lengths = self.byte_lengths()
        if not (self.data >= 0x80).any():
            return lengths
        continuation = np.flatnonzero((self.data & 0xC0) == 0x80)
        return lengths - np.diff(np.searchsorted(continuation, self.offsets))

    def word_counts(self) -> Int64:
        """Number of words of each text, separated by ASCII white space."""
        counts = np.empty(len(self), dtype=np.int64)
        for begin, end in self.blocks(BLOCK):
            first, last = self.offsets[begin], self.offsets[end]
            inside = ~SPACE[self.data[first:last]]
            starts = inside.copy()
            starts[1:] &= ~inside[:-1]
            bounds = self.offsets[begin : end + 1] - first
            heads = bounds[:-1][bounds[:-1] < last - first]
            starts[heads] = inside[heads]
            counts[begin:end] = np.diff(np.searchsorted(np.flatnonzero(starts), bounds))
        return counts

    def blocks(self, size: int, most: int = 1 << 62) -> Iterator[tuple[int, int]]:
        """Where blocks of about `size` bytes, and at most `most` texts, begin and end: they keep arrays small."""
        begin = 0
        while begin < len(self):
            end = int(np.searchsorted(self.offsets, self.offsets[begin] + size, side="left"))
            end = min(max(end, begin + 1), begin + most, len(self))
            yield begin, end
            begin = end

    def digests(self) -> list[bytes]:
        """A hash of each text: equal where the bytes are."""
        return [hashlib.blake2b(self.encoded(i), digest_size=16).digest() for i in range(len(self))]

    def find_byte(self, byte: int) -> int:
        """Index of the first text that holds `byte`, or -1."""
        for start in range(0, self.nbytes, BLOCK):
            at = bytes(self._view[start : start + BLOCK]).find(byte)
            if at >= 0:
                return int(np.searchsorted(self.offsets, start + at, side="right")) - 1
        return -1

    def take(self, indices: Iterable[int]) -> TextColumn:
        """The texts at `indices`, in that order."""
        builder = TextColumnBuilder()
        for i in indices:
            builder.append(self._view[self.offsets[i] : self.offsets[i + 1]])
        return builder.build()


class TextColumnBuilder:
    """Appends UTF-8 texts; `build` hands the buffer over without a copy.

    The buffer is a numpy allocation, which asks the kernel for huge pages, and grows in place: filling it costs one
    copy of the text and few page faults. `capacity` is a guess at the bytes to come.
    """

    def __init__(self, capacity: int = 1 << 16) -> None:
        self._data = np.empty(max(capacity, 1), dtype=np.uint8)
        self._size = 0
        self._lengths: list[int] = []

    def append(self, text: bytes | memoryview) -> None:
        """Add one text."""
        self._lengths.append(len(text))
        self._write(text)

    def extend(self, texts: list[bytes]) -> None:
        """Add many texts at once, which is faster."""
        self._lengths.extend(map(len, texts))
        self._write(b"".join(texts))

    def _write(self, data: bytes | memoryview) -> None:
        end = self._size + len(data)
        if end > len(self._data):
            self._data.resize(max(end, len(self._data) * 3 // 2), refcheck=False)
        self._data[self._size : end] = np.frombuffer(data, dtype=np.uint8)
        self._size = end

    def build(self) -> TextColumn:
        """The finished column; the builder must not be used afterwards."""
        self._data.resize(self._size, refcheck=False)
        offsets = np.zeros(len(self._lengths) + 1, dtype=np.int64)
        np.cumsum(self._lengths, out=offsets[1:])
        return TextColumn(self._data, offsets)


class IdTable(Sequence[str]):
    """An ordered set of ids: position to id, id to position, and the order that breaks ties."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._ids = tuple(ids)

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self._ids[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __contains__(self, item: object) -> bool:
        return item in self._positions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdTable) and self._ids == other._ids

    def __hash__(self) -> int:
        return hash(self._ids)

    def __repr__(self) -> str:
        return f"IdTable({len(self)} ids)"

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {identifier: i for i, identifier in enumerate(self._ids)}

    def position(self, identifier: str) -> int:
        """Index of `identifier`, or -1."""
        return self._positions.get(identifier, -1)

    def positions(self, identifiers: Iterable[str]) -> Int32:
        """Indices of many ids, -1 where unknown."""
        get = self._positions.get
        return np.fromiter((get(i, -1) for i in identifiers), dtype=np.int32)

    def duplicates(self) -> list[str]:
        """Ids that stand in the table more than once, each named once."""
        if len(self._positions) == len(self._ids):
            return []
        return [i for i, times in Counter(self._ids).items() if times > 1]

    @cached_property
    def tie_rank(self) -> Int32:
        """For each position, its place when ids are sorted descending: equal scores are ordered by it.

        Code-point order is UTF-8 byte order, which is what trec_eval's strcmp sees.
        """
        order = sorted(range(len(self._ids)), key=self._ids.__getitem__, reverse=True)
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return rank
