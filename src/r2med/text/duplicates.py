"""Copies of texts: exact ones, near duplicates, and texts that stand inside others.

Exact copies are equal up to white space and case. Near duplicates are found by MinHash signatures and decided by the
shingle sets themselves, so that nothing is reported on an estimate: signatures are cut into bands, texts that agree in
a whole band are candidates, and each candidate's Jaccard similarity is then counted exactly. 128 values in 32 bands of
4 find a pair of similarity 0.8 with probability above 0.999999, one of 0.6 with 0.98.

A shingle is a run of `width` consecutive words, lower-cased, punctuation left out. Words are hashed by a polynomial
over their bytes whose prefix sums give every word of a block of text in a few array operations, so that a corpus of
60,000 passages takes seconds and no Python object per word.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ..core import Documents, UsageError
from ..core.columns import BLOCK, Bytes, Int64, TextColumn, grouped

UInt64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Whole = TypeVar("Whole", UInt64, Int64)

WIDTH = 5
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
    for begin, end in texts.blocks(BLOCK, BLOCK_TEXTS):
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
    powers, inverses = _power_tables(BLOCK if len(data) <= BLOCK else 1 << (len(data) - 1).bit_length())
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


@cache
def _power_tables(length: int) -> tuple[UInt64, UInt64]:
    """Powers of an odd base and of its inverse modulo 2^64."""
    return tuple(  # type: ignore[return-value]
        np.concatenate(([np.uint64(1)], np.cumprod(np.full(length - 1, base, dtype=np.uint64), dtype=np.uint64)))
        for base in (_BASE, pow(_BASE, -1, 1 << 64))
    )


UInt32 = npt.NDArray[np.uint32]
Float64 = npt.NDArray[np.float64]

PERMUTATIONS = 128
ROWS = 4
THRESHOLD = 0.8
WINDOW = 64  # in a bucket of many copies each text meets this many neighbours: enough to join them all
_SLACK = 0.2  # over four standard deviations of an estimate from 128 values
_CHUNK = 1 << 16


def find_copies(documents: Documents) -> dict[str, str]:
    """For documents that have copies, title included: the id to that of the first document with the same text."""
    same = grouped(zip(map(text_key, documents.contents), documents.ids, strict=True))
    return {doc_id: group[0] for group in same.values() if len(group) > 1 for doc_id in group}


def text_key(text: str) -> bytes:
    """Hash of a text in which white space and case do not count."""
    return hashlib.blake2b(" ".join(text.casefold().split()).encode(), digest_size=16).digest()


class Pairs(NamedTuple):
    """Pairs of texts, the first always the smaller number, with their similarity."""

    first: Int64
    second: Int64
    similarity: Float64

    def __len__(self) -> int:
        return len(self.first)


def near_duplicates(shingles: Shingles, threshold: float = THRESHOLD) -> Pairs:
    """Pairs of texts whose shingle sets have a Jaccard similarity of `threshold` or more.

    Where over 64 texts are alike, each is compared with 64 of them, which joins them all without naming every pair.
    """
    if not 0.5 <= threshold <= 1:
        raise UsageError(f"the threshold for near duplicates lies between 0.5 and 1, not {threshold:g}")
    signature = signatures(shingles)
    filled = np.flatnonzero(shingles.sizes() > 0)
    found = [_agreeing(signature, filled, band, threshold) for band in range(0, PERMUTATIONS, ROWS)]
    codes = distinct(np.concatenate(found))
    first, second = codes // max(len(shingles), 1), codes % max(len(shingles), 1)
    similarity = jaccard(shingles, first, second)
    keep = similarity >= threshold
    return Pairs(first[keep], second[keep], similarity[keep])


def signatures(shingles: Shingles) -> UInt32:
    """For each text the least value of its shingles under each of 128 hash functions."""
    rng = np.random.Generator(np.random.PCG64(20250514))
    factors = rng.integers(1, 1 << 63, size=PERMUTATIONS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    shifts = rng.integers(0, 1 << 63, size=PERMUTATIONS, dtype=np.uint64)
    out = np.full((len(shingles), PERMUTATIONS), np.iinfo(np.uint32).max, dtype=np.uint32)
    filled = np.flatnonzero(shingles.sizes() > 0)
    begin = 0
    while begin < len(filled):
        limit = shingles.indptr[filled[begin]] + _CHUNK
        end = max(int(np.searchsorted(shingles.indptr[filled + 1], limit, side="right")), begin + 1)
        rows = filled[begin:end]
        low, high = shingles.indptr[rows[0]], shingles.indptr[rows[-1] + 1]
        hashes, starts = shingles.hashes[low:high], shingles.indptr[rows] - low
        for i in range(PERMUTATIONS):
            values = ((hashes * factors[i] + shifts[i]) >> np.uint64(32)).astype(np.uint32)
            out[rows, i] = np.minimum.reduceat(values, starts)
        begin = end
    return out


def _agreeing(signature: UInt32, filled: Int64, band: int, threshold: float) -> Int64:
    """Pairs that agree in one band and whose whole signatures do not rule them out, as `first · n + second`."""
    keys: UInt64 = np.zeros(len(filled), dtype=np.uint64)
    for column in range(band, band + ROWS):
        keys = mix(keys + signature[filled, column])
    order = np.argsort(keys, kind="stable")
    keys, texts = keys[order], filled[order]
    found = []
    for step in range(1, min(WINDOW, len(texts) - 1) + 1):
        same = np.flatnonzero(keys[step:] == keys[:-step])
        if not len(same):
            break
        first, second = np.minimum(texts[same], texts[same + step]), np.maximum(texts[same], texts[same + step])
        likely = _estimate(signature, first, second) >= threshold - _SLACK
        found.append(first[likely] * len(signature) + second[likely])
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _estimate(signature: UInt32, first: Int64, second: Int64) -> Float64:
    out = np.empty(len(first))
    for at in range(0, len(first), _CHUNK):
        part = slice(at, at + _CHUNK)
        out[part] = (signature[first[part]] == signature[second[part]]).mean(axis=1)
    return out


def jaccard(shingles: Shingles, first: Int64, second: Int64) -> Float64:
    """Exact similarity of pairs of texts."""
    sizes = shingles.sizes()
    shared = np.empty(len(first), dtype=np.int64)
    for at in range(0, len(first), 1 << 12):
        part = slice(at, at + (1 << 12))
        shared[part] = _shared(shingles.take(first[part]), shingles.take(second[part]))
    union = sizes[first] + sizes[second] - shared
    out: Float64 = np.zeros(len(first))
    np.divide(shared, union, out=out, where=union > 0)
    return out


def _shared(left: Shingles, right: Shingles) -> Int64:
    """Size of the intersection of each set with its counterpart."""
    owners = np.concatenate((left.owners(), right.owners()))
    hashes = np.concatenate((left.hashes, right.hashes))
    order = np.lexsort((hashes, owners))
    owners, hashes = owners[order], hashes[order]
    twice = (owners[1:] == owners[:-1]) & (hashes[1:] == hashes[:-1])
    return np.bincount(owners[1:][twice], minlength=len(left)).astype(np.int64)


class Overlaps(NamedTuple):
    """Texts of two sides that share shingles, and how many."""

    left: Int64
    right: Int64
    shared: Int64
    left_size: Int64
    right_size: Int64

    @property
    def left_inside(self) -> Float64:
        """Share of the left text's shingles that stand in the right one."""
        return self.shared / self.left_size

    @property
    def right_inside(self) -> Float64:
        """Share of the right text's shingles that stand in the left one."""
        return self.shared / self.right_size

    @property
    def similarity(self) -> Float64:
        """Jaccard similarity."""
        return self.shared / (self.left_size + self.right_size - self.shared)


def overlaps(left: Shingles, right: Shingles, *, least: float = 0.5) -> Overlaps:
    """Pairs in which one text's shingles lie in the other's to a share of `least` or more: every one of them.

    The left side should be the small one: queries, positive passages, examples.
    """
    if left.width != right.width:
        raise UsageError(f"shingles of {left.width} and of {right.width} words cannot be compared")
    order = np.argsort(left.hashes, kind="stable")
    table, owners = left.hashes[order], left.owners()[order]
    codes, counts = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    width = max(len(right), 1)
    right_owners = right.owners()
    for at in range(0, len(right.hashes), 1 << 20):
        part = slice(at, at + (1 << 20))
        low = np.searchsorted(table, right.hashes[part], side="left")
        times = np.searchsorted(table, right.hashes[part], side="right") - low
        hits = np.repeat(low, times) + np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        pair, count = np.unique(owners[hits] * width + np.repeat(right_owners[part], times), return_counts=True)
        codes.append(pair)
        counts.append(count)
    pair, back = np.unique(np.concatenate(codes), return_inverse=True)
    shared = np.bincount(back, weights=np.concatenate(counts), minlength=len(pair)).astype(np.int64)
    a, b = pair // width, pair % width
    found = Overlaps(a, b, shared, left.sizes()[a], right.sizes()[b])
    if not len(pair):
        return found
    keep = np.maximum(found.left_inside, found.right_inside) >= least
    return Overlaps(*(column[keep] for column in found))


def groups(pairs: Pairs, count: int) -> list[list[int]]:
    """Texts joined by chains of pairs, each group in ascending order; texts without a pair are left out."""
    parent = list(range(count))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for first, second in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True):
        a, b = root(first), root(second)
        if a != b:
            parent[max(a, b)] = min(a, b)
    nodes = sorted({*pairs.first.tolist(), *pairs.second.tolist()})
    return list(grouped((root(node), node) for node in nodes).values())
