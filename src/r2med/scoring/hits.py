"""Where a run put the relevant documents: what every measure is computed from.

A measure asks for the hits at a grade: `hits(2)` holds the documents judged 2 or higher. `exact_hits` takes rankings
as they are; `aware.tied_hits` takes every order of equally scored documents as equally likely: a document then has an
entry at each rank that it may take, with its chance, and a sum over entries becomes its mean over all orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core import Qrels, Run, UsageError
from ..core.columns import Int32

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

UNJUDGED = -2
EMPTY = -3


@dataclass(frozen=True)
class Entries:
    """Documents at ranks: one entry each, as parallel arrays."""

    queries: int
    row: Int64  # the query, by its position in the judgments
    rank: Int64  # from 0
    grade: Float64

    def sum(self, values: Float64, cutoff: float) -> Float64:
        """The sum of the entries above the cut-off, for each query."""
        inside = self.rank < cutoff
        return np.bincount(self.row[inside], values[inside], self.queries).astype(np.float64, copy=False)


@dataclass(frozen=True)
class Hits(Entries):
    """Relevant documents that were retrieved."""

    chance: Float64  # that such a document stands here; 1 unless scores are tied
    above: Float64  # relevant documents above it
    first: Float64  # the chance that it stands here and is the first relevant document
    ideal: Entries  # all relevant documents in the best order
    relevant: Int64  # how many of them each query has
    judging: Callable[[], Judging] | None = None  # Gives what is judged and not relevant; None where scores are tied.

    judged_in_ten: Float64 | None = None  # The share of each query's first ten that is judged.

    def judged(self) -> Judging:
        """All judged documents; only rankings as they are have them."""
        if self.judging is None:
            raise UsageError("judged@k and bpref are not averaged over ties")
        return self.judging()


@dataclass(frozen=True)
class Judging:
    """The judged documents that were retrieved, and how many irrelevant ones each query has."""

    retrieved: Entries
    shown: Int64  # documents that each query retrieved
    irrelevant: Int64

    def irrelevant_above(self, hits: Hits, rel: int) -> Int64:
        """The judged documents of a lower grade that stand above each hit; negative grades do not count."""
        lower = (self.retrieved.grade >= 0) & (self.retrieved.grade < rel)
        width = max(int(self.retrieved.rank.max(initial=0)), int(hits.rank.max(initial=0))) + 1
        places = self.retrieved.row[lower] * width + self.retrieved.rank[lower]
        return np.searchsorted(places, hits.row * width + hits.rank) - np.searchsorted(places, hits.row * width)


HitsAt = Callable[[int], Hits]  # Gives the hits of at least this grade.


class Graded(NamedTuple):
    """One ranking as grades: negative ones are -1, `UNJUDGED` is a document without a judgment, `EMPTY` no document."""

    query: int
    row: int
    grades: Int32


def grades_along(run: Run, qrels: Qrels) -> Iterator[Graded]:
    """The grades along the ranking of each judged query that the run holds.

    Each query writes its grades into one table over all documents, reads the table along its ranking and wipes it:
    no sorting, no dictionary.
    """
    judged = run.doc_ids.positions(qrels.doc_ids)[qrels.docs]
    grades, bounds = np.maximum(qrels.grades, -1), qrels.indptr.tolist()
    table = np.full(len(run.doc_ids) + 1, UNJUDGED, dtype=np.int32)
    for query, row in enumerate(run.query_ids.positions(qrels.query_ids).tolist()):
        if row < 0:
            continue
        docs = judged[bounds[query] : bounds[query + 1]]
        table[docs] = grades[bounds[query] : bounds[query + 1]]
        table[-1] = EMPTY  # position -1: no document, or one that the run does not know
        yield Graded(query, row, table[run.docs[row]])
        table[docs] = UNJUDGED


def exact_hits(run: Run, qrels: Qrels) -> HitsAt:
    """The hits of rankings as they are."""
    sizes = np.zeros(len(qrels.query_ids), dtype=np.int64)
    judged_in_ten = np.zeros(len(sizes))
    ranks: list[Int64] = [np.empty(0, dtype=np.int64)]
    grades: list[Int32] = [np.empty(0, dtype=np.int32)]
    for query, _, along in grades_along(run, qrels):
        found = (along > 0).nonzero()[0]
        sizes[query] = len(found)
        top = along[:10]
        judged_in_ten[query] = int((top >= -1).sum()) / max(int((top != EMPTY).sum()), 1)
        ranks.append(found)
        grades.append(along[found])
    row, rank, grade = np.repeat(np.arange(len(sizes)), sizes), np.concatenate(ranks), np.concatenate(grades)

    @cache
    def judged() -> tuple[Entries, Int64]:
        shown = np.zeros(len(sizes), dtype=np.int64)
        found = [(query, (along >= -1).nonzero()[0], along) for query, _, along in grades_along(run, qrels)]
        rows = np.repeat([query for query, _, _ in found], [len(ranks) for _, ranks, _ in found]).astype(np.int64)
        places = np.concatenate([np.empty(0, dtype=np.int64), *(ranks for _, ranks, _ in found)])
        values = np.concatenate([np.empty(0), *(along[ranks] for _, ranks, along in found)])
        for query, _, along in found:
            shown[query] = np.count_nonzero(along != EMPTY)
        return Entries(len(sizes), rows, places, values.astype(np.float64)), shown

    def judging(rel: int) -> Judging:
        lower = (qrels.grades >= 0) & (qrels.grades < rel)
        owner = np.repeat(np.arange(len(sizes)), np.diff(qrels.indptr))
        return Judging(*judged(), np.bincount(owner[lower], minlength=len(sizes)))

    @cache
    def at_least(rel: int) -> Hits:
        kept, ideal = grade >= rel, ideal_ranking(qrels, rel)
        above = place_in_query(row[kept], ideal.queries)
        return Hits(
            ideal.queries,
            row[kept],
            rank[kept],
            grade[kept].astype(np.float64),
            chance=np.ones(len(above)),
            above=above.astype(np.float64),
            first=(above == 0).astype(np.float64),
            ideal=ideal,
            relevant=np.bincount(ideal.row, minlength=ideal.queries),
            judging=lambda: judging(rel),
            judged_in_ten=judged_in_ten,
        )

    return at_least


def ideal_ranking(qrels: Qrels, rel: int) -> Entries:
    """The documents of at least this grade, highest grade first."""
    queries = len(qrels.query_ids)
    row = np.repeat(np.arange(queries), np.diff(qrels.indptr))
    kept = qrels.grades >= rel
    row, grade = row[kept], qrels.grades[kept].astype(np.float64)
    order = np.lexsort((-grade, row))
    return Entries(queries, row[order], place_in_query(row[order], queries), grade[order])


def place_in_query(row: Int64, queries: int) -> Int64:
    """The number of earlier entries of the same query; entries are ordered by query."""
    return np.arange(len(row)) - np.searchsorted(row, np.arange(queries))[row]
