"""Pseudo-relevance feedback: search again with what the best documents of the first search hold.

Terms are chosen and weighted as Anserini 1.7 does it (`Rm3Reranker`, `RocchioReranker`), in single precision, so that
ties between terms fall the same way. Vectors are moved towards the mean of those found (Li et al., 2023).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core import TextColumn
from ..core.columns import Int32, Int64
from ..core.queries import Feedback
from ..text import TermCounts
from .sparse import Float64, SparseQueries, TopK
from .vectors import Float32, Rows

RM3, ROCCHIO, AVERAGE, VECTOR_ROCCHIO = "rm3", "rocchio", "vector-average", "vector-rocchio"
SHORTEST, LONGEST = 2, 20
"""Characters of a term that may be fed back."""
COMMON = np.float32(0.1)
"""The share of the documents above which a term is too common to be fed back."""
NEGLIGIBLE = 0.001
"""The length of a document's vector below which it says nothing."""
_PLAIN = re.compile("[a-z0-9]+")
Bools = npt.NDArray[np.bool_]


class Mass(NamedTuple):
    """What each query's vector holds besides the terms of the corpus: its length counts, although nothing matches."""

    sums: Float64
    squares: Float64

    @classmethod
    def none(cls, count: int) -> Mass:
        """Queries without unknown terms."""
        return cls(np.zeros(count), np.zeros(count))


class Found(NamedTuple):
    """The terms of the documents that were found."""

    row: dict[int, int]
    """Document to its row in `counts`."""
    counts: TermCounts
    numbers: Int32
    """The corpus' number of each term in `counts`."""
    order: Int64
    """Each term's place in the alphabet."""
    allowed: Bools
    """Whether a term may be fed back."""

    def terms(self, document: int) -> tuple[Int32, Float32]:
        """The terms of a document that may be fed back, with their counts."""
        row = self.row[document]
        span = slice(self.counts.indptr[row], self.counts.indptr[row + 1])
        terms, counts = self.counts.terms[span], self.counts.counts[span].astype(np.float32)
        kept = self.allowed[terms]
        return terms[kept], counts[kept]

    def largest(self, terms: Int32, values: Float32, count: int) -> npt.NDArray[np.intp]:
        """Where the largest values stand; equal ones in the order of the alphabet."""
        return np.lexsort((self.order[terms], -values))[:count]


def may_feed_back(terms: TextColumn, frequency: Int64, documents: int, *, plain: bool) -> Bools:
    """Terms that are neither very short, very long nor common; `plain`: of unaccented letters and digits only."""
    rare = (frequency / np.float32(max(documents, 1))).astype(np.float32) <= COMMON
    sizes = terms.char_lengths()
    allowed: Bools = rare & (sizes >= SHORTEST) & (sizes <= LONGEST)
    if plain:
        allowed &= np.fromiter((_PLAIN.fullmatch(term) is not None for term in terms), bool, len(terms))
    return allowed


def feed_back_terms(
    feedback: Feedback, queries: SparseQueries, unknown: Mass, top: TopK, found: Found
) -> SparseQueries:
    """The queries of the next search: those of the last one, and the terms of what it found."""
    rows = [
        _next_query(feedback, *_vector(queries, row), unknown, row, top.docs[row], top.scores[row], found)
        for row in range(len(queries.indptr) - 1)
    ]
    indptr = np.concatenate(([0], np.cumsum([len(terms) for terms, _ in rows], dtype=np.int64))).astype(np.int64)
    if not rows:
        return queries
    terms, weights = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    return SparseQueries(indptr, terms.astype(np.int32), weights.astype(np.float64))


def _vector(queries: SparseQueries, row: int) -> tuple[Int32, Float64]:
    """The terms of one query, each once."""
    span = slice(queries.indptr[row], queries.indptr[row + 1])
    terms, place = np.unique(queries.terms[span], return_inverse=True)
    return terms, np.bincount(place, weights=queries.weights[span], minlength=len(terms)).astype(np.float64)


def _next_query(
    feedback: Feedback,
    terms: Int32,
    weights: Float64,
    unknown: Mass,
    row: int,
    documents: Int32,
    scores: Float32,
    found: Found,
) -> tuple[Int32, Float32]:
    there = documents >= 0
    if feedback.method == RM3:
        added, values = _relevance_model(feedback, documents[there], scores[there], found)
        length = np.abs(weights).sum() + unknown.sums[row]
        norm = float(np.abs(values).sum(dtype=np.float64))
    else:
        added, values = _mean_vector(feedback, documents[there], found)
        length = np.sqrt((weights**2).sum() + unknown.squares[row])
        norm = float(np.sqrt((values.astype(np.float64) ** 2).sum()))
    own = (weights / (length or 1.0)).astype(np.float32)
    values = (values / (norm or 1.0)).astype(np.float32)
    numbers, place = np.unique(np.concatenate((terms, found.numbers[added])), return_inverse=True)
    query, more = np.zeros(len(numbers), np.float32), np.zeros(len(numbers), np.float32)
    query[place[: len(terms)]], more[place[len(terms) :]] = own, values
    mixed = np.float32(feedback.query_weight) * query + feedback.feedback_weight * more.astype(np.float64)
    kept = mixed > 0
    return numbers[kept], mixed[kept].astype(np.float32)


def _relevance_model(
    feedback: Feedback, documents: Int32, scores: Float32, found: Found
) -> tuple[Int32, Float32]:  # fmt: skip
    """Terms by their share of each document's best terms, documents by their score."""
    sums = np.zeros(len(found.numbers), dtype=np.float32)
    seen = np.zeros(len(sums), dtype=bool)
    for document, score in zip(documents.tolist(), scores, strict=True):
        terms, counts = found.terms(document)
        best = found.largest(terms, counts, feedback.terms)
        terms, counts = terms[best], counts[best]
        norm = np.float32(counts.sum(dtype=np.float64))
        seen[terms] = True
        if norm > NEGLIGIBLE:
            sums[terms] += counts / norm * score
    return _pruned(sums, seen, feedback.terms, found)


def _mean_vector(feedback: Feedback, documents: Int32, found: Found) -> tuple[Int32, Float32]:
    """Terms by the mean of the documents' vectors, each of length one."""
    sums = np.zeros(len(found.numbers), dtype=np.float32)
    seen = np.zeros(len(sums), dtype=bool)
    for document in documents.tolist():
        terms, counts = found.terms(document)
        norm = np.float32(np.sqrt((counts.astype(np.float64) ** 2).sum()))
        seen[terms] = True
        if norm > NEGLIGIBLE:
            sums[terms] += counts / norm
    return _pruned(sums / np.float32(max(len(documents), 1)), seen, feedback.terms, found)


def _pruned(sums: Float32, seen: Bools, count: int, found: Found) -> tuple[Int32, Float32]:
    terms = np.flatnonzero(seen).astype(np.int32)
    best = found.largest(terms, sums[terms], count)
    return terms[best], sums[terms[best]]


def feed_back_vectors(feedback: Feedback, queries: Float32, rows: Rows, top: TopK) -> Float32:
    """Query vectors moved towards the mean of those that were found."""
    moved = np.array(queries, dtype=np.float32)
    for row, documents in enumerate(top.docs):
        there = documents[documents >= 0]
        if not len(there):
            continue
        mean = rows.take(there).mean(axis=0, dtype=np.float64)
        own, other = feedback.query_weight, feedback.feedback_weight
        if feedback.method == AVERAGE:  # the query counts as one of the documents
            own, other = 1 / (len(there) + 1), len(there) / (len(there) + 1)
        moved[row] = own * queries[row] + other * mean
    return moved
