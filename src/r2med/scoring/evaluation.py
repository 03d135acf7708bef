"""Scores of a run: one value per query and measure, and their means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..core import DataError, IdTable, Qrels, Run, UsageError
from ..core.columns import Int32
from .measures import CUTOFFS, MAIN, STANDARD, Float64, Hits, Int64, Measure


class Evaluation(NamedTuple):
    """Every judged query has a row; one that the run lacks scores 0 and is counted, never dropped."""

    query_ids: IdTable
    per_query: dict[str, Float64]
    missing_queries: tuple[str, ...]
    without_positives: int
    micro_recall: dict[str, float]

    @property
    def means(self) -> dict[str, float]:
        """Mean over all judged queries of each measure."""
        return {key: float(values.mean()) for key, values in self.per_query.items()}

    def mean(self, measure: Measure | str = MAIN) -> float:
        """Mean of one measure."""
        asked = Measure.parse(measure) if isinstance(measure, str) else measure
        if asked.key not in self.per_query:
            raise UsageError(f"{asked} was not computed here; ask for it: evaluate(…, measures=[{str(asked)!r}])")
        return float(self.per_query[asked.key].mean())

    def _repr_html_(self) -> str:
        from .tables import evaluation_table

        return evaluation_table(self).html()


class _Ideal(NamedTuple):
    row: Int64
    rank: Int64
    gain: Float64


def evaluate_run(run: Run, qrels: Qrels, measures: Iterable[Measure] = STANDARD) -> Evaluation:
    """Score a run against judgments, as trec_eval does."""
    if not len(qrels.query_ids):
        raise DataError("there are no judged queries to score")
    rows = run.query_ids.positions(qrels.query_ids)
    hits = _hits(run, qrels, rows)
    total = int(hits.relevant.sum())
    return Evaluation(
        query_ids=qrels.query_ids,
        per_query={m.key: m.compute(hits) for m in measures},
        missing_queries=tuple(q for q, row in zip(qrels.query_ids, rows.tolist(), strict=True) if row < 0),
        without_positives=int((hits.relevant == 0).sum()),
        micro_recall={f"recall_micro_at_{k}": int((hits.rank < k).sum()) / total if total else 0.0 for k in CUTOFFS},
    )


def _hits(run: Run, qrels: Qrels, rows: Int32) -> Hits:
    """Find the relevant documents in the rankings.

    Each query writes its grades into one table over all documents, reads the table along its ranking and wipes it:
    no sorting, no dictionary.
    """
    judged_docs = run.doc_ids.positions(qrels.doc_ids)[qrels.docs]
    grades, bounds = np.maximum(qrels.grades, 0), qrels.indptr.tolist()
    table = np.zeros(len(run.doc_ids) + 1, dtype=np.int32)  # the last cell stands for "no document" (-1)
    found_rows: list[int] = []
    found_ranks: list[np.ndarray[tuple[int], np.dtype[np.intp]]] = []
    found_gains: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []
    for query, row in enumerate(rows.tolist()):
        if row < 0:
            continue
        docs = judged_docs[bounds[query] : bounds[query + 1]]
        table[docs] = grades[bounds[query] : bounds[query + 1]]
        table[-1] = 0
        along = table[run.docs[row]]
        ranks = along.nonzero()[0]
        found_rows.append(query)
        found_ranks.append(ranks)
        found_gains.append(along[ranks])
        table[docs] = 0
    sizes = np.array([len(r) for r in found_ranks], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    relevant = qrels.positives_per_query()
    ideal = _ideal(qrels)
    return Hits(
        queries=len(qrels.query_ids),
        row=np.repeat(np.array(found_rows, dtype=np.int64), sizes),
        rank=np.concatenate(found_ranks).astype(np.int64) if found_ranks else np.empty(0, dtype=np.int64),
        gain=np.concatenate(found_gains).astype(np.float64) if found_gains else np.empty(0),
        ordinal=np.arange(starts[-1]) - np.repeat(starts[:-1], sizes),
        relevant=relevant,
        ideal_row=ideal.row,
        ideal_rank=ideal.rank,
        ideal_gain=ideal.gain,
    )


def _ideal(qrels: Qrels) -> _Ideal:
    """The best possible ranking: positive grades of each query in descending order."""
    row = np.repeat(np.arange(len(qrels.query_ids)), np.diff(qrels.indptr))
    positive = qrels.grades > 0
    row, gain = row[positive], qrels.grades[positive].astype(np.float64)
    order = np.lexsort((-gain, row))
    row, gain = row[order], gain[order]
    starts = np.searchsorted(row, np.arange(len(qrels.query_ids)))
    return _Ideal(row, np.arange(len(row)) - starts[row], gain)
