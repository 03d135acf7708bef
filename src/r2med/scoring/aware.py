"""Scores that do not depend on chance: copies of a passage count once, equal scores are averaged over their orders.

Where a corpus holds the same passage several times, or a system gives several passages the same score, the order among
them is arbitrary. Strict measures depend on it; aware ones do not. Both are given side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from ..core import NO_DOCUMENT, IdTable, Qrels, Run, UsageError
from ..core.columns import Int32, Int64
from .evaluation import Evaluation, evaluation_of, score
from .measures import (
    EMPTY,
    STANDARD,
    Bools,
    Float64,
    Hits,
    HitsAt,
    Measure,
    grades_along,
    ideal_ranking,
    parse_measures,
)


class AwareEvaluation(NamedTuple):
    """Strict and aware scores of one run, and how many copies and ties it holds."""

    strict: Evaluation
    aware: Evaluation
    copies_dropped: int
    tied_queries: int


def evaluate_aware(
    run: Run,
    qrels: Qrels,
    measures: Iterable[Measure | str] = STANDARD,
    *,
    copies: Mapping[str, str] | None = None,
    tolerance: float = 0.0,
) -> AwareEvaluation:
    """Score a run strictly and with copies and ties taken into account.

    `copies` maps a document to the one that stands for all its copies (see `r2med.text.duplicates`). A group of copies
    is one document: at its best rank, with the best grade that any of them has. Neighbours in a ranking whose scores
    differ by at most `tolerance` count as tied; 0 means equal in single precision.
    """
    if not tolerance >= 0.0:
        raise UsageError(f"a tie tolerance cannot be {tolerance:g}")
    chosen = parse_measures(measures)
    merged, dropped = merge_copies(run, copies or {})
    judgments = merge_judgments(qrels, copies or {})
    ranked = merged.for_queries(judgments.query_ids)
    ties = Ties.of(ranked, tolerance)
    return AwareEvaluation(
        strict=score(run, qrels, chosen),
        aware=evaluation_of(tied_hits(ranked, judgments, ties), merged, judgments, chosen),
        copies_dropped=dropped,
        tied_queries=int((ties.size > 1).any(axis=1).sum()),
    )


def merge_copies(run: Run, copies: Mapping[str, str]) -> tuple[Run, int]:
    """The run with each group of copies at its best rank only, and how many documents that removed."""
    if not copies or not run.depth:
        return run, 0
    names = [copies.get(d, d) for d in run.doc_ids]
    table = IdTable(dict.fromkeys(names))
    docs = np.append(table.positions(names), np.int32(NO_DOCUMENT))[run.docs]
    keep = _first_in_row(docs)
    order = np.argsort(~keep, axis=1, kind="stable")  # dropped documents go behind the others
    docs, kept = np.take_along_axis(docs, order, axis=1), np.take_along_axis(keep, order, axis=1)
    merged = np.where(kept, docs, NO_DOCUMENT).astype(np.int32)
    scores = np.where(kept, np.take_along_axis(run.scores, order, axis=1), -np.inf).astype(np.float32)
    dropped = int((docs >= 0).sum() - keep.sum())
    return Run(run.query_ids, table, merged, scores, name=run.name, notes=run.notes), dropped


def _first_in_row(docs: Int32) -> Bools:
    """Where a document stands for the first time in its row."""
    order = np.argsort(docs, axis=1, kind="stable")
    ordered = np.take_along_axis(docs, order, axis=1)
    first = np.ones(docs.shape, dtype=bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    keep = np.empty(docs.shape, dtype=bool)
    np.put_along_axis(keep, order, first, axis=1)
    return keep & (docs >= 0)


def merge_judgments(qrels: Qrels, copies: Mapping[str, str]) -> Qrels:
    """Judgments of groups of copies: each query keeps the best grade of a group."""
    if not copies:
        return qrels
    grades: dict[tuple[str, str], int] = {}
    for query_id, doc_id, grade in qrels:
        key = (query_id, copies.get(doc_id, doc_id))
        grades[key] = max(grade, grades.get(key, grade))
    return Qrels.from_judgments((query_id, doc_id, grade) for (query_id, doc_id), grade in grades.items())


class Ties(NamedTuple):
    """Groups of tied documents, as matrices of queries × depth: which group stands at each place."""

    group: Int64
    size: Int64
    place: Int64  # inside the group, from 0

    @classmethod
    def of(cls, run: Run, tolerance: float) -> Ties:
        """Neighbours are tied where their scores differ by at most `tolerance`."""
        starts = np.ones(run.docs.shape, dtype=bool)
        with np.errstate(invalid="ignore"):  # empty places are minus infinity
            far = run.scores[:, :-1].astype(np.float64) - run.scores[:, 1:] > tolerance
        starts[:, 1:] = far | (run.docs[:, 1:] < 0)
        group = (np.cumsum(starts) - 1).reshape(starts.shape)
        column = np.broadcast_to(np.arange(run.depth), starts.shape)
        first = np.maximum.accumulate(np.where(starts, column, 0), axis=1)
        return cls(group, np.bincount(group.ravel())[group], column - first)

    def counts(self, chosen: Bools) -> Int64:
        """How many of the chosen documents each group has."""
        return np.bincount(self.group[chosen], minlength=int(self.group.max(initial=0)) + 1)


def tied_hits(run: Run, qrels: Qrels, ties: Ties) -> HitsAt:
    """The hits over all orders of tied documents; the run holds exactly the judged queries."""
    grades = np.full(run.docs.shape, EMPTY)
    for query, _, along in grades_along(run, qrels):
        grades[query] = along

    @cache
    def at_least(rel: int) -> Hits:
        relevant, ideal = grades >= rel, ideal_ranking(qrels, rel)
        inside = ties.counts(relevant)[ties.group]
        earlier: Int64 = np.cumsum(relevant, axis=1) - relevant
        before: Int64 = np.take_along_axis(earlier, np.arange(run.depth) - ties.place, axis=1)  # above the group
        above = before + ties.place * np.maximum(inside - 1, 0) / np.maximum(ties.size - 1, 1)
        first = _first_of_group(ties, inside) * (before == 0)
        # A group may hold several grades: each of them gets an entry at each of its places.
        places = np.nonzero(inside)
        present = np.unique(grades[relevant])
        number = np.zeros((len(present), len(places[0])))
        for i, grade in enumerate(present):
            number[i] = ties.counts(grades == grade)[ties.group[places]]
        which, place = np.nonzero(number)
        row, rank = (axis[place] for axis in places)
        return Hits(
            ideal.queries,
            row,
            rank,
            present[which].astype(np.float64),
            chance=number[which, place] / ties.size[row, rank],
            above=above[row, rank],
            first=first[row, rank] * number[which, place] / inside[row, rank],
            ideal=ideal,
            relevant=np.bincount(ideal.row, minlength=ideal.queries),
        )

    return at_least


def _first_of_group(ties: Ties, inside: Int64) -> Float64:
    """The chance that the first relevant document of a group stands at each place.

    The chance that the places before are all irrelevant is a running product: each of them uses up one irrelevant
    document and one of any kind.
    """
    left = ties.size - ties.place
    miss = np.maximum(left - inside, 0) / left
    none_before = np.ones(miss.shape)
    for column in range(1, miss.shape[1]):
        carried = none_before[:, column - 1] * miss[:, column - 1]
        none_before[:, column] = np.where(ties.place[:, column] > 0, carried, 1.0)
    return none_before * np.minimum(inside / left, 1.0)
