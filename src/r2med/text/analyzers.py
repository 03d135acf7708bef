"""Analyzers by name. `english` is Lucene's EnglishAnalyzer, token for token."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from ..core import TextColumn, UnknownName
from . import english
from .terms import TermCounts, Vocabulary, count_tokens

try:
    from .. import _fast
except ImportError:  # no compiler at install time: the Python twin gives the same tokens
    _fast = None  # type: ignore[assignment]


class Analyzer(Protocol):
    """Text to tokens."""

    name: str

    def __call__(self, text: str) -> list[str]:
        """Tokens of one text, in order."""
        ...

    def count(self, texts: TextColumn) -> TermCounts:
        """Term counts of many texts."""
        ...


class FunctionAnalyzer:
    """An analyzer made of a Python function."""

    def __init__(self, name: str, function: Callable[[str], Sequence[str]]) -> None:
        self.name = name
        self._function = function

    def __call__(self, text: str) -> list[str]:
        return list(self._function(text))

    def count(self, texts: TextColumn) -> TermCounts:
        return count_tokens(map(self._function, texts))


class NativeAnalyzer(FunctionAnalyzer):
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


PYTHON: dict[str, Analyzer] = {
    "english": FunctionAnalyzer("english", english.analyze),
    "whitespace": FunctionAnalyzer("whitespace", _whitespace),
    "regex": FunctionAnalyzer("regex", _regex),
    "none": FunctionAnalyzer("none", _whole),
}
ANALYZERS: dict[str, Analyzer] = dict(PYTHON)
if _fast is not None:
    ANALYZERS["english"] = NativeAnalyzer("english", _english, 0)
    ANALYZERS["whitespace"] = NativeAnalyzer("whitespace", _whitespace, 1)


def get_analyzer(name: str) -> Analyzer:
    """The analyzer called `name`."""
    if name not in ANALYZERS:
        raise UnknownName("analyzer", name, ANALYZERS, hint=f"(known: {', '.join(ANALYZERS)})")
    return ANALYZERS[name]


def term_sets(texts: Iterable[str], analyzer: str = "english") -> list[set[int]]:
    """The distinct terms of each text, as numbers that are equal where the terms are."""
    counted = get_analyzer(analyzer).count(TextColumn.from_texts(texts))
    bounds = counted.indptr.tolist()
    return [set(counted.terms[begin:end].tolist()) for begin, end in pairwise(bounds)]
