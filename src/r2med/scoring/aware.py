"""Measures that numeric noise cannot move: copies of a passage count once, equal scores are averaged over their orders.

Where a corpus holds the same passage several times, or a system gives several passages the same score, the order among
them is an accident. Strict measures reward the accident; aware ones do not. Both are given side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from ..core import NO_DOCUMENT, IdTable, Qrels, Run, UsageError
from ..core.columns import Int32
from .aware_ties import TiedRanking, expected
from .evaluation import Evaluation, evaluate_run
from .measures import CUTOFFS, STANDARD, Float64, Measure


class AwareEvaluation(NamedTuple):
    """Strict and aware scores of one run, and how much there was to be aware of."""

    strict: Evaluation
    aware: Evaluation
    copies_dropped: int
    tied_queries: int


def evaluate_aware(
    run: Run,
    qrels: Qrels,
    measures: Iterable[Measure] = STANDARD,
    *,
    copies: Mapping[str, str] | None = None,
    tolerance: float = 0.0,
) -> AwareEvaluation:
    """Score strictly and awarely.

    `copies` maps a document to the one that stands for all its copies (see `r2med.text.duplicates`). A group of copies
    is one document: at its best rank, with the best grade that any of them has. Neighbours in a ranking whose scores
    differ by at most `tolerance` count as tied; 0 means equal in single precision.
    """
    if not tolerance >= 0.0:
        raise UsageError(f"a tie tolerance cannot be {tolerance:g}")
    chosen = tuple(measures)
    strict = evaluate_run(run, qrels, chosen)
    merged_run, dropped = merge_copies(run, copies or {})
    merged_qrels = merge_judgments(qrels, copies or {})
    ranking = _ranking(merged_run, merged_qrels, tolerance)
    per_query = {m.key: expected(m, ranking) for m in chosen}
    aware = strict._replace(per_query=per_query, micro_recall=_micro_recall(ranking))
    return AwareEvaluation(strict, aware, dropped, int((ranking.sizes > 1).any(axis=1).sum()))


def merge_copies(run: Run, copies: Mapping[str, str]) -> tuple[Run, int]:
    """The run with each group of copies at its best rank only, and how many entries went."""
    if not copies or not run.depth:
        return run, 0
    names = [copies.get(d, d) for d in run.doc_ids]
    table = IdTable(dict.fromkeys(names))
    docs = np.append(table.positions(names), np.int32(NO_DOCUMENT))[run.docs]
    keep = _first_in_row(docs)
    dropped = int(((docs >= 0) & ~keep).sum())
    order = np.argsort(~keep, axis=1, kind="stable")
    kept = np.take_along_axis(keep, order, axis=1)
    merged = np.where(kept, np.take_along_axis(docs, order, axis=1), NO_DOCUMENT).astype(np.int32)
    scores = np.where(kept, np.take_along_axis(run.scores, order, axis=1), -np.inf).astype(np.float32)
    return Run(run.query_ids, table, merged, scores, name=run.name, notes=run.notes), dropped


def _first_in_row(docs: Int32) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
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


def _ranking(run: Run, qrels: Qrels, tolerance: float) -> TiedRanking:
    """The judged queries' rankings as grades and groups of equal scores."""
    placed = run.for_queries(qrels.query_ids)
    judged = placed.doc_ids.positions(qrels.doc_ids)[qrels.docs]
    grades, bounds = np.maximum(qrels.grades, 0), qrels.indptr.tolist()
    table = np.zeros(len(placed.doc_ids) + 1, dtype=np.int32)  # the last cell stands for "no document"
    gains = np.zeros(placed.docs.shape)
    for query in range(len(qrels.query_ids)):
        docs = judged[bounds[query] : bounds[query + 1]]
        table[docs] = grades[bounds[query] : bounds[query + 1]]
        table[-1] = 0
        gains[query] = table[placed.docs[query]]
        table[docs] = 0
    positive = qrels.positives_only()
    row = np.repeat(np.arange(len(qrels.query_ids)), np.diff(positive.indptr))
    order = np.lexsort((-positive.grades, row))
    rank = np.arange(len(row)) - positive.indptr[row]
    ideal = np.zeros((len(qrels.query_ids), int(rank.max()) + 1 if len(rank) else 0))
    ideal[row, rank] = positive.grades[order]
    return TiedRanking.of(gains, placed.scores, placed.docs >= 0, ideal, tolerance)


def _micro_recall(ranking: TiedRanking) -> dict[str, float]:
    total = float(ranking.relevant.sum())
    found: Float64 = ranking.share.sum(axis=0)
    return {f"recall_micro_at_{k}": float(found[:k].sum()) / total if total else 0.0 for k in CUTOFFS}
