"""How a document is written, as numbers: its words, and what can be counted without knowing what they mean.

A classifier over these columns knows nothing of any query. What it learns about relevance is an artefact of how the
documents of a benchmark were written or chosen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...core.columns import Int64, TextColumn
from ...text.analyzers import get_analyzer
from ...text.duplicates import Float64

WORDS = 1_000
"""Most frequent words that are counted, small words included: they carry the register."""
_LETTERS = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+")
_SENTENCE = re.compile(r"[.!?]+(?=\s|$)")
# A capital behind a lower-case word or a comma, so not at the start of a sentence.
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")
_CAPITALS = re.compile(r"\b[A-Z]{2,}\b")
_LIST_MARK = re.compile(r"^\s*(?:[-*•–]|\(?\d{1,2}[.)]|[A-Za-z][.)])\s", re.MULTILINE)
_NEGATION = re.compile(
    r"\b(?:no|not|nor|none|never|neither|nothing|nobody|without|cannot|deny|denies|denied|absent|absence|unremarkable)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)
_MARKS = ",;:()?"


class Part(NamedTuple):
    """One aspect of the style of documents: a row per document."""

    name: str
    values: Float64
    columns: Sequence[str] = ()  # the words, where columns are words


def style_parts(texts: TextColumn) -> list[Part]:
    """The aspects of every text; each column but those of the words has the mean 0 and the deviation 1."""
    counted = [_Counts.of(text) for text in texts]
    rates = {
        "length": [[np.log1p(c.words)] for c in counted],
        "word length": [[c.word_length] for c in counted],
        "negation": [[c.rate(c.negations)] for c in counted],
        "names": [[c.rate(c.names), c.rate(c.capitals), c.rate(c.numbers)] for c in counted],
        "layout": [
            [np.log1p(c.lines), c.list_marks / c.lines, c.words / c.sentences, *(c.rate(n) for n in c.marks)]
            for c in counted
        ],
    }
    return [word_weights(texts), *(Part(name, _standard(np.array(v))) for name, v in rates.items())]


class _Counts(NamedTuple):
    """What is counted in a text."""

    words: int
    word_length: float
    negations: int
    names: int
    capitals: int
    numbers: int
    lines: int
    list_marks: int
    sentences: int
    marks: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> _Counts:
        words = _LETTERS.findall(text)
        return cls(
            words=len(words),
            word_length=mean_word_length(words),
            negations=len(_NEGATION.findall(text)),
            names=len(_NAME.findall(text)),
            capitals=len(_CAPITALS.findall(text)),
            numbers=len(_NUMBER.findall(text)),
            lines=text.count("\n") + 1,
            list_marks=len(_LIST_MARK.findall(text)),
            sentences=max(len(_SENTENCE.findall(text)), 1),
            marks=tuple(text.count(mark) for mark in _MARKS),
        )

    def rate(self, count: int) -> float:
        """A count for each word."""
        return count / max(self.words, 1)


def mean_word_length(words: Sequence[str]) -> float:
    """Letters a word; 0 where there is none."""
    return sum(map(len, words)) / len(words) if words else 0.0


def lengths_of(texts: TextColumn) -> tuple[Float64, Float64]:
    """The number of words of each text, and their mean length in letters."""
    words = [_LETTERS.findall(text) for text in texts]
    return np.array([float(len(w)) for w in words]), np.array([mean_word_length(w) for w in words])


def word_weights(texts: TextColumn, analyzer: str = "regex", *, most: int = WORDS, least: int = 2) -> Part:
    """The tf-idf of the most frequent words, a row of length 1 for each text; all zeros where a text has none.

    A word that fewer than `least` texts hold is left out: one that a single text holds says nothing about another.
    """
    counts = get_analyzer(analyzer).count(texts)
    frequency: Int64 = np.bincount(counts.terms, minlength=len(counts.vocabulary))
    order = np.argsort(-frequency, kind="stable")[:most]
    kept = order[frequency[order] >= least]
    column = np.full(len(counts.vocabulary), -1, dtype=np.int64)
    column[kept] = np.arange(len(kept))
    rows = np.repeat(np.arange(len(texts)), np.diff(counts.indptr))
    known = column[counts.terms] >= 0
    rows, columns = rows[known], column[counts.terms][known]
    weights = np.zeros((len(texts), len(kept)))
    idf = np.log((1.0 + len(texts)) / (1.0 + frequency[kept])) + 1.0
    weights[rows, columns] = (1.0 + np.log(counts.counts[known])) * idf[columns]
    norms = np.linalg.norm(weights, axis=1, keepdims=True)
    np.divide(weights, norms, out=weights, where=norms > 0)
    return Part("words", weights, [counts.vocabulary[number] for number in kept.tolist()])


def _standard(values: Float64) -> Float64:
    """Columns with the mean 0 and the deviation 1; one that does not vary is 0."""
    centred = values - values.mean(axis=0)
    deviation = centred.std(axis=0)
    return np.asarray(np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 1e-12))
