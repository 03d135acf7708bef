"""Analyzers by name, and the vocabularies and term counts they make of a column of texts.

`english` is Lucene's EnglishAnalyzer, token for token; `nano-english` is that of NanoR2MED's builder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core import TextColumn, UnknownName
from ..core.columns import Int32, Int64
from . import english

try:
    from .. import _fast
except ImportError:  # no compiler at install time: the Python twin gives the same tokens
    _fast = None  # type: ignore[assignment]

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

    @property
    def nbytes(self) -> int:
        """Memory that the counts take."""
        return self.indptr.nbytes + self.terms.nbytes + self.counts.nbytes

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


class Analyzer:
    """Text to tokens, by a Python function."""

    def __init__(self, name: str, function: Callable[[str], Sequence[str]]) -> None:
        self.name = name
        self._function = function

    def __call__(self, text: str) -> list[str]:
        return list(self._function(text))

    def count(self, texts: TextColumn) -> TermCounts:
        """Term counts of many texts."""
        return count_tokens(map(self._function, texts))


class NativeAnalyzer(Analyzer):
    """An analyzer whose counting runs in C; `function` takes single texts."""

    def __init__(self, name: str, function: Callable[[str], Sequence[str]], code: int) -> None:
        super().__init__(name, function)
        self._code = code

    def count(self, texts: TextColumn) -> TermCounts:
        terms, term_offsets, indptr, numbers, counts = _fast.count_terms(texts.data, texts.offsets, self._code)
        column = TextColumn(np.frombuffer(terms, dtype=np.uint8), np.frombuffer(term_offsets, dtype=np.int64))
        return TermCounts(
            Vocabulary(column),
            np.frombuffer(indptr, dtype=np.int64),
            np.frombuffer(numbers, dtype=np.int32),
            np.frombuffer(counts, dtype=np.int32),
        )


def _english(text: str) -> list[str]:
    """One text in C; half a surrogate pair has no bytes, so such a text takes the Python twin."""
    try:
        return _fast.analyze(text.encode())
    except UnicodeEncodeError:
        return english.analyze(text)


def _nano_english(text: str) -> list[str]:
    """One text in C; half a surrogate pair has no bytes, and is no letter either."""
    return _fast.analyze_nano(text.encode(errors="replace"))


_WORD = re.compile(r"(?u)\b\w\w+\b")
_SPACE = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")


def _whitespace(text: str) -> list[str]:
    """Split at Unicode's White_Space, which lacks four control characters that `str.split` splits at."""
    return [token for token in _SPACE.split(text) if token]


def _regex(text: str) -> list[str]:
    """Lower-cased runs of two or more word characters, as many Python baselines have them."""
    return _WORD.findall(text.lower())


def _whole(text: str) -> list[str]:
    """The text as one term, for keyword fields."""
    return [text] if text else []


_FUNCTIONS = {
    "english": english.analyze,
    "nano-english": english.analyze_nano,
    "whitespace": _whitespace,
    "regex": _regex,
    "none": _whole,
}
PYTHON = {name: Analyzer(name, function) for name, function in _FUNCTIONS.items()}
ANALYZERS = dict(PYTHON)
if _fast is not None:
    ANALYZERS["english"] = NativeAnalyzer("english", _english, 0)
    ANALYZERS["nano-english"] = NativeAnalyzer("nano-english", _nano_english, 2)
    ANALYZERS["whitespace"] = NativeAnalyzer("whitespace", _whitespace, 1)


def get_analyzer(name: str) -> Analyzer:
    """The analyzer called `name`."""
    if name not in ANALYZERS:
        raise UnknownName("analyzer", name, ANALYZERS, hint=f"(known: {', '.join(ANALYZERS)})")
    return ANALYZERS[name]


def term_sets(texts: Iterable[str]) -> list[set[int]]:
    """The distinct English terms of each text, as numbers that are equal where the terms are."""
    counted = ANALYZERS["english"].count(TextColumn.from_texts(texts))
    return [set(counted.terms[begin:end].tolist()) for begin, end in pairwise(counted.indptr.tolist())]
