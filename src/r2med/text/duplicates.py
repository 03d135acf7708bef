"""Copies of texts: exact ones, near duplicates, and texts that stand inside others.

Exact copies are equal up to white space and case. Near duplicates are found by MinHash signatures and decided by the
shingle sets themselves, so that nothing is reported on an estimate: signatures are cut into bands, texts that agree in
a whole band are candidates, and each candidate's Jaccard similarity is then counted exactly. 128 values in 32 bands of
4 find a pair of similarity 0.8 with probability above 0.999999, one of 0.6 with 0.98.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core import Documents, UsageError
from ..core.columns import Int64
from .shingles import Shingles, UInt64, distinct, mix

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
    groups: dict[bytes, list[str]] = {}
    for doc_id, text in zip(documents.ids, documents.contents, strict=True):
        groups.setdefault(text_key(text), []).append(doc_id)
    return {doc_id: group[0] for group in groups.values() if len(group) > 1 for doc_id in group}


def text_key(text: str) -> bytes:
    """Hash of a text in which white space and case do not count."""
    return hashlib.blake2b(" ".join(text.casefold().split()).encode(), digest_size=16).digest()


class Pairs(NamedTuple):
    """Pairs of texts, the first always the smaller number, with their similarity."""

    first: Int64
    second: Int64
    similarity: Float64

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.first)


def near_duplicates(shingles: Shingles, threshold: float = THRESHOLD) -> Pairs:
    """All pairs of texts whose shingle sets have a Jaccard similarity of `threshold` or more."""
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

    def where(self, keep: npt.NDArray[np.bool_]) -> Overlaps:
        """Some of the pairs."""
        return Overlaps(*(column[keep] for column in self))


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
    return found.where(np.maximum(found.left_inside, found.right_inside) >= least) if len(pair) else found


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
    found: dict[int, list[int]] = {}
    for node in sorted({*pairs.first.tolist(), *pairs.second.tolist()}):
        found.setdefault(root(node), []).append(node)
    return list(found.values())
