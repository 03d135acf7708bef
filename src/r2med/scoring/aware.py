"""Scores that do not depend on chance: copies of a passage count once, equal scores are averaged over their orders.

Where a corpus holds the same passage several times, or a system gives several passages the same score, the order among
them is arbitrary. Strict measures depend on it; aware ones do not. Both are given side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from ..core import NO_DOCUMENT, IdTable, Qrels, Run, UsageError
from ..core.columns import Int32
from .evaluation import Evaluation, evaluation_of, score
from .hits import Bools, Ties, tied_hits
from .measures import STANDARD, Measure, parse_measures


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
