"""Vocabularies and term counts: what an analyzer makes of a column of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.columns import Int32, Int64, TextColumn

_BASE, _MIX = np.uint32(0x9E3779B1), np.uint32(0x85EBCA6B)


class Vocabulary:
    """Terms by number, found again by hash.

    Looking a term up needs two sorted arrays that can be memory-mapped, so a saved index of 200,000 terms is ready
    at once, where a dictionary would have to be built first.
    """

    def __init__(self, terms: TextColumn, lookup: tuple[npt.NDArray[np.uint32], Int32] | None = None) -> None:
        self.terms = terms
        self._stored = lookup

    def __len__(self) -> int:
        return len(self.terms)

    def __getitem__(self, index: int) -> str:
        return self.terms[index]

    @cached_property
    def lookup(self) -> tuple[npt.NDArray[np.uint32], Int32]:
        """Sorted hashes, and the term number behind each."""
        if self._stored is not None:
            return self._stored
        # Hash and number in one key: no two are equal, so the quickest sort has one result on every machine.
        keys = (_hashes(self.terms).astype(np.uint64) << np.uint64(32)) | np.arange(len(self), dtype=np.uint64)
        keys.sort()
        return (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32).astype(np.int32)

    def find(self, terms: TextColumn) -> Int32:
        """The number of each term, -1 where it is unknown."""
        hashes, order = self.lookup
        wanted = _hashes(terms)
        first = np.searchsorted(hashes, wanted, side="left").tolist()
        last = np.searchsorted(hashes, wanted, side="right").tolist()
        found = np.full(len(terms), -1, dtype=np.int32)
        for i, (begin, end) in enumerate(zip(first, last, strict=True)):
            if begin < end:
                term = terms.encoded(i)
                for number in order[begin:end].tolist():  # more than one only where hashes collide
                    if self.terms.encoded(number) == term:
                        found[i] = number
                        break
        return found


def _hashes(terms: TextColumn) -> npt.NDArray[np.uint32]:
    """Polynomials in the bytes of each term, modulo 2**32, for all terms at once."""
    starts, ends = terms.offsets[:-1], terms.offsets[1:]
    lengths = ends - starts
    if not len(terms) or not ends[-1]:
        return np.zeros(len(terms), dtype=np.uint32)
    powers = np.cumprod(np.full(int(lengths.max()), _BASE, dtype=np.uint32), dtype=np.uint32)
    places = np.arange(int(starts[0]), int(ends[-1])) - np.repeat(starts, lengths)
    values = (terms.data[int(starts[0]) : int(ends[-1])].astype(np.uint32) + np.uint32(1)) * powers[places]
    running = np.concatenate((np.zeros(1, dtype=np.uint32), np.cumsum(values, dtype=np.uint32)))
    hashes = running[ends - starts[0]] - running[starts - starts[0]]
    return np.asarray((hashes ^ (hashes >> np.uint32(15))) * _MIX, dtype=np.uint32)


class TermCounts(NamedTuple):
    """How often each term stands in each text (CSR)."""

    vocabulary: Vocabulary
    indptr: Int64
    terms: Int32
    counts: Int32

    def lengths(self) -> Int64:
        """Number of tokens of each text."""
        running = np.concatenate(([0], np.cumsum(self.counts, dtype=np.int64)))
        return running[self.indptr[1:]] - running[self.indptr[:-1]]


def count_tokens(token_lists: Iterable[Sequence[str]]) -> TermCounts:
    """Term counts of texts that are already tokens; numbers terms by first occurrence."""
    numbers: dict[str, int] = {}
    indptr, terms, counts = [0], list[int](), list[int]()
    for tokens in token_lists:
        in_text: dict[int, int] = {}
        for token in tokens:
            number = numbers.setdefault(token, len(numbers))
            in_text[number] = in_text.get(number, 0) + 1
        terms.extend(in_text)
        counts.extend(in_text.values())
        indptr.append(len(terms))
    return TermCounts(
        Vocabulary(TextColumn.from_texts(numbers)),
        np.array(indptr, dtype=np.int64),
        np.array(terms, dtype=np.int32),
        np.array(counts, dtype=np.int32),
    )
