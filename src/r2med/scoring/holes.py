"""Documents nobody judged: how many a system shows, and how far its score could move if they were judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from ..core import IdTable, Qrels, Run, UsageError
from ..core.columns import Int32
from .evaluation import evaluate_run
from .measures import MAIN, Float64, Int64, Measure

DEPTH = 10


class Unjudged(NamedTuple):
    """The holes in the top of a run: query (by position in the judgments), rank from 0, and document."""

    row: Int64
    rank: Int64
    doc: Int32
    doc_ids: IdTable


def unjudged(run: Run, qrels: Qrels, depth: int = DEPTH) -> Unjudged:
    """Find the documents in the top `depth` that have no judgment for their query."""
    if depth < 1:
        raise UsageError(f"a depth of {depth} shows nothing")
    top = run.top(depth).for_queries(qrels.query_ids)
    pairs = np.repeat(np.arange(len(qrels.query_ids)), np.diff(qrels.indptr)).astype(np.int64)
    width = len(run.doc_ids) + 1
    known = top.doc_ids.positions(qrels.doc_ids)[qrels.docs].astype(np.int64)
    judged = (pairs * width + known)[known >= 0]
    rows = np.arange(len(top), dtype=np.int64)[:, None]
    holes = (top.docs >= 0) & ~np.isin(rows * width + top.docs, judged)
    row, rank = np.nonzero(holes)
    return Unjudged(row.astype(np.int64), rank.astype(np.int64), top.docs[row, rank], top.doc_ids)


def hole_shares(run: Run, qrels: Qrels, depth: int = DEPTH) -> Float64:
    """Of what each judged query shows in its top `depth`, the share without a judgment; 0 where it shows nothing."""
    holes = unjudged(run, qrels, depth)
    shown = run.top(depth).for_queries(qrels.query_ids).lengths()
    counts = np.bincount(holes.row, minlength=len(shown)).astype(np.float64)
    return np.divide(counts, shown, out=np.zeros(len(shown)), where=shown > 0)


def with_relevant(qrels: Qrels, row: Int64, doc_ids: list[str], grade: int = 1) -> Qrels:
    """The judgments, and a positive one for each given pair of query position and document."""
    table = IdTable(dict.fromkeys((*qrels.doc_ids, *doc_ids)))
    rows = np.concatenate((np.repeat(np.arange(len(qrels.query_ids)), np.diff(qrels.indptr)), row))
    docs = np.concatenate((table.positions(qrels.doc_ids)[qrels.docs], table.positions(doc_ids)))
    grades = np.concatenate((qrels.grades, np.full(len(row), grade, dtype=np.int32)))
    order = np.argsort(rows, kind="stable")
    sizes = np.bincount(rows, minlength=len(qrels.query_ids))
    indptr = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return Qrels(qrels.query_ids, table, indptr, docs[order].astype(np.int32), grades[order].astype(np.int32))


class ScoreBounds(NamedTuple):
    """The least and the most each query could score, and the score as judged."""

    low: Float64
    judged: Float64
    high: Float64


def score_bounds(run: Run, qrels: Qrels, measure: Measure = MAIN, *, depth: int = DEPTH) -> ScoreBounds:
    """The exact range of a measure over every way to call the holes in its top `depth` relevant or not.

    "All relevant" is not the most: each new relevant document also makes the ideal ranking longer. For a given number
    of relevant holes the best case has them at the top and the worst at the bottom, so going through the numbers
    finds both ends. A hole counts with the highest grade that the judgments use.
    """
    holes = unjudged(run, qrels, depth)
    names = [holes.doc_ids[d] for d in holes.doc.tolist()]
    counts = np.bincount(holes.row, minlength=len(qrels.query_ids))
    starts = np.concatenate(([0], np.cumsum(counts)))[:-1]
    from_top = np.arange(len(holes.row)) - starts[holes.row]
    from_bottom = counts[holes.row] - 1 - from_top
    grade = max(1, int(qrels.grades.max(initial=1)))
    judged = evaluate_run(run, qrels, [measure]).per_query[measure.key]
    low, high = judged.copy(), judged.copy()
    for number in range(1, int(counts.max(initial=0)) + 1):
        enough = counts >= number
        for place in (from_top, from_bottom):
            chosen = np.flatnonzero((place < number) & enough[holes.row])
            trial = with_relevant(qrels, holes.row[chosen], [names[i] for i in chosen.tolist()], grade)
            scored = evaluate_run(run, trial, [measure]).per_query[measure.key]
            low, high = np.minimum(low, scored), np.maximum(high, scored)
    return ScoreBounds(low, judged, high)


class HoleReport(msgspec.Struct, frozen=True, kw_only=True):
    """One system on one task: its holes, its score as judged, the range, and where that puts it among the others.

    `if_relevant` is the score if every hole of every system were relevant (grade 1); ranks are by score, 1 the best.
    """

    system: str
    holes: float
    judged: float
    low: float
    high: float
    if_relevant: float
    rank: int
    rank_if_relevant: int
    best_rank: int
    worst_rank: int


def hole_report(
    runs: Mapping[str, Run], qrels: Qrels, measure: Measure = MAIN, *, depth: int = DEPTH
) -> list[HoleReport]:
    """How the unjudged documents could change the order of systems."""
    shares = {name: float(hole_shares(run, qrels, depth).mean()) for name, run in runs.items()}
    ranges = {name: score_bounds(run, qrels, measure, depth=depth) for name, run in runs.items()}
    pooled = _pool_as_relevant(runs, qrels, depth)
    judged = np.array([float(r.judged.mean()) for r in ranges.values()])
    low = np.array([float(r.low.mean()) for r in ranges.values()])
    high = np.array([float(r.high.mean()) for r in ranges.values()])
    relevant = np.array([evaluate_run(run, pooled, [measure]).mean(measure) for run in runs.values()])
    return [
        HoleReport(
            system=name,
            holes=shares[name],
            judged=float(judged[i]),
            low=float(low[i]),
            high=float(high[i]),
            if_relevant=float(relevant[i]),
            rank=_rank(judged, i),
            rank_if_relevant=_rank(relevant, i),
            best_rank=1 + int((low > high[i] + 1e-12).sum()),
            worst_rank=int((high >= low[i] - 1e-12).sum()),
        )
        for i, name in enumerate(runs)
    ]


def _pool_as_relevant(runs: Mapping[str, Run], qrels: Qrels, depth: int) -> Qrels:
    pairs: dict[tuple[int, str], None] = {}
    for run in runs.values():
        holes = unjudged(run, qrels, depth)
        for row, doc in zip(holes.row.tolist(), holes.doc.tolist(), strict=True):
            pairs[row, holes.doc_ids[doc]] = None
    rows = np.array([row for row, _ in pairs], dtype=np.int64)
    return with_relevant(qrels, rows, [doc for _, doc in pairs])


def _rank(scores: Float64, row: int) -> int:
    return 1 + int((scores > scores[row] + 1e-12).sum())
