"""Word shingles of many texts, hashed in arrays: what near-duplicate and overlap detection compares.

A shingle is a run of `width` consecutive words, lower-cased, punctuation left out. Words are hashed by a polynomial
over their bytes whose prefix sums give every word of a block of text in a few array operations, so that a corpus of
60,000 passages takes seconds and no Python object per word.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ..core.columns import Bytes, Int64, TextColumn

UInt64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Whole = TypeVar("Whole", UInt64, Int64)

WIDTH = 5
BLOCK = 1 << 22  # bytes of text worked on at once
# A text's number in its block and a shingle's hash share one word, so that one sort orders both. Of the ten million
# shingles of a large corpus about three pairs then meet by chance.
HASH_BITS = np.uint64(44)
BLOCK_TEXTS = 1 << 20
_BASE = 0x9E3779B97F4A7C15
_LOWER = np.arange(256, dtype=np.uint8)
_LOWER[ord("A") : ord("Z") + 1] += 32
_WORD = np.zeros(256, dtype=bool)
_WORD[[*range(ord("0"), ord("9") + 1), *range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1)]] = True
_WORD[0x80:] = True


class Shingles(NamedTuple):
    """The set of shingles of each text (CSR), sorted within a text; a text without words has none."""

    indptr: Int64
    hashes: UInt64
    width: int

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.indptr) - 1

    def sizes(self) -> Int64:
        """Number of different shingles of each text."""
        return np.diff(self.indptr)

    def owners(self) -> Int64:
        """For each shingle the text that holds it."""
        return np.repeat(np.arange(len(self)), self.sizes())

    def take(self, texts: Int64) -> Shingles:
        """The sets of some texts, in that order."""
        sizes = self.sizes()[texts]
        indptr = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        inside = np.arange(indptr[-1]) - np.repeat(indptr[:-1], sizes)
        return Shingles(indptr, self.hashes[np.repeat(self.indptr[:-1][texts], sizes) + inside], self.width)


def shingle(texts: TextColumn, width: int = WIDTH) -> Shingles:
    """Shingles of every text; one shorter than `width` words is a single shingle of all its words."""
    sizes, hashes = [], []
    for begin, end in _blocks(texts):
        words, indptr = _words(texts, begin, end)
        owners, values = _runs(words, indptr, width)
        packed = distinct((owners.astype(np.uint64) << HASH_BITS) | (values >> (np.uint64(64) - HASH_BITS)))
        sizes.append(np.bincount((packed >> HASH_BITS).astype(np.int64), minlength=end - begin))
        hashes.append(packed & ((np.uint64(1) << HASH_BITS) - np.uint64(1)))
    running = np.cumsum(np.concatenate([np.zeros(1, dtype=np.int64), *sizes]))
    return Shingles(running.astype(np.int64), np.concatenate([np.empty(0, dtype=np.uint64), *hashes]), width)


def distinct(values: Whole) -> Whole:
    """Each value once, in order: `np.unique` by sorting, which is several times faster than its hash table."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def concatenate(parts: list[Shingles]) -> Shingles:
    """The texts of several sets in one."""
    sizes = np.concatenate([part.sizes() for part in parts])
    indptr = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return Shingles(indptr, np.concatenate([part.hashes for part in parts]), parts[0].width)


def _blocks(texts: TextColumn) -> Iterator[tuple[int, int]]:
    begin = 0
    while begin < len(texts):
        end = int(np.searchsorted(texts.offsets, texts.offsets[begin] + BLOCK, side="left"))
        end = min(max(end, begin + 1), begin + BLOCK_TEXTS, len(texts))
        yield begin, end
        begin = end


def _words(texts: TextColumn, begin: int, end: int) -> tuple[UInt64, Int64]:
    """Hashes of the words of a block in order, and where each text's words begin."""
    offsets = texts.offsets[begin : end + 1] - texts.offsets[begin]
    data = texts.data[texts.offsets[begin] : texts.offsets[end]]
    inside = _inside_words(data)
    heads = np.zeros(len(data) + 1, dtype=bool)
    heads[offsets] = True
    before = np.concatenate((np.zeros(1, dtype=bool), inside[:-1])) if len(data) else inside
    after = np.concatenate((inside[1:], np.zeros(1, dtype=bool))) if len(data) else inside
    starts = np.flatnonzero(inside & (~before | heads[:-1]))
    ends = np.flatnonzero(inside & (~after | heads[1:])) + 1
    powers, inverses = _powers(max(len(data), 1))
    values = np.where(inside, _LOWER[data].astype(np.uint64) + np.uint64(1), np.uint64(0))
    prefix = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(values * powers[: len(data)], dtype=np.uint64)))
    words = mix((prefix[ends] - prefix[starts]) * inverses[starts])
    return words, np.searchsorted(starts, offsets).astype(np.int64)


def _inside_words(data: Bytes) -> Bools:
    """Letters, digits and all of non-ASCII but its punctuation: dashes, curly quotes, the unbreakable space."""
    inside = _WORD[data]
    if len(data) > 2 and (data >= 0x80).any():
        dash = np.flatnonzero((data[:-2] == 0xE2) & ((data[1:-1] == 0x80) | (data[1:-1] == 0x81)))
        space = np.flatnonzero((data[:-1] == 0xC2) & (data[1:] == 0xA0))
        for at in (dash, dash + 1, dash + 2, space, space + 1):
            inside[at] = False
    return inside


def _runs(words: UInt64, indptr: Int64, width: int) -> tuple[Int64, UInt64]:
    """(text, hash) of every run of `width` words that stays inside its text."""
    lengths = np.diff(indptr)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(words)) - indptr[:-1][owner]
    whole = place + width <= lengths[owner]
    short = np.flatnonzero((lengths > 0) & (lengths < width))
    short_values = np.zeros(len(short), dtype=np.uint64)
    padded = np.concatenate((words, np.zeros(width, dtype=np.uint64)))
    total = np.zeros(len(words), dtype=np.uint64)
    for step in range(width):
        total = mix(total + padded[step : step + len(words)])
        ready = lengths[short] == step + 1
        short_values[ready] = total[indptr[short[ready]]]
    return np.concatenate((owner[whole], short)), np.concatenate((total[whole], short_values))


def mix(values: UInt64) -> UInt64:
    """Spread every input bit over the whole number (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _powers(length: int) -> tuple[UInt64, UInt64]:
    """Powers of an odd base and of its inverse modulo 2^64; the tables of a usual block are kept."""
    return _power_tables(BLOCK) if length <= BLOCK else _power_tables(1 << (length - 1).bit_length())


@cache
def _power_tables(length: int) -> tuple[UInt64, UInt64]:
    return tuple(  # type: ignore[return-value]
        np.concatenate(([np.uint64(1)], np.cumprod(np.full(length - 1, base, dtype=np.uint64), dtype=np.uint64)))
        for base in (_BASE, pow(_BASE, -1, 1 << 64))
    )
