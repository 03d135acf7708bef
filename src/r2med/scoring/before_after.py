"""What a reranker did: the first stage's measures, its own, and the best that these candidates allow."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from ..core import NO_DOCUMENT, DataError, Qrels, Run
from .evaluation import evaluate_run
from .measures import MAIN, STANDARD, Measure

SAME = 1e-9
"""Differences of a query's score below this are rounding."""


class BeforeAfter(msgspec.Struct, frozen=True, kw_only=True):
    """A reranker's effect on one task."""

    measure: str
    # The one by which queries count as helped or hurt.
    depth: int
    # How many candidates were reranked.
    queries: int
    # Judged queries; all shares are of these.
    before: dict[str, float]
    after: dict[str, float]
    oracle: dict[str, float]
    # The same candidates in the best order.
    helped: float
    # Share of queries whose measure rose.
    hurt: float
    # Share of queries whose measure fell.
    unchanged: float

    @property
    def gain(self) -> float:
        """What the reranker added to the main measure."""
        return self.after[self.measure] - self.before[self.measure]

    @property
    def share_of_possible(self) -> float | None:
        """The gain as a share of what the best order would have gained; None where there was nothing to gain."""
        possible = self.oracle[self.measure] - self.before[self.measure]
        return self.gain / possible if possible > SAME else None

    def as_notes(self, measures: Iterable[Measure] = (MAIN,)) -> dict[str, object]:
        """Plain data for a result file, with some of the measures."""
        keys = list(dict.fromkeys([self.measure, *(m.key for m in measures)]))
        return {
            "measure": self.measure,
            "depth": self.depth,
            "queries": self.queries,
            **{side: {key: getattr(self, side)[key] for key in keys} for side in ("before", "after", "oracle")},
            "helped": self.helped,
            "hurt": self.hurt,
            "unchanged": self.unchanged,
            "share_of_possible": self.share_of_possible,
        }


def before_after(
    first: Run, reranked: Run, qrels: Qrels, depth: int, *, measure: Measure = MAIN, rest: str = "keep"
) -> BeforeAfter:
    """Compare a reranked run with the candidates it was made of; `rest` as it was reranked with."""
    if first.query_ids != reranked.query_ids or first.doc_ids != reranked.doc_ids:
        raise DataError(f"runs {first.name!r} and {reranked.name!r} are not over the same queries and documents")
    measures = dict.fromkeys((*STANDARD, measure))
    before, after = evaluate_run(first, qrels, measures), evaluate_run(reranked, qrels, measures)
    best = evaluate_run(oracle(first, qrels, depth, rest=rest), qrels, measures)
    change = after.per_query[measure.key] - before.per_query[measure.key]
    helped, hurt = float((change > SAME).mean()), float((change < -SAME).mean())
    return BeforeAfter(
        measure=measure.key,
        depth=depth,
        queries=len(change),
        before=before.means,
        after=after.means,
        oracle=best.means,
        helped=helped,
        hurt=hurt,
        unchanged=float((np.abs(change) <= SAME).mean()),
    )


def oracle(first: Run, qrels: Qrels, depth: int, *, rest: str = "keep") -> Run:
    """The first `depth` candidates of each query by their grade, equal ones as they came; the rest behind, or gone."""
    depth = min(depth, first.depth)
    width = first.depth if rest == "keep" else depth
    docs = np.array(first.docs[:, :width])
    rows = first.query_ids.positions(qrels.query_ids)
    judged = first.doc_ids.positions(qrels.doc_ids)[qrels.docs]
    table = np.zeros(len(first.doc_ids) + 1, dtype=np.int64)  # the last cell stands for "no document" (-1)
    bounds = qrels.indptr.tolist()
    for query, row in enumerate(rows.tolist()):
        if row < 0:
            continue
        span = slice(bounds[query], bounds[query + 1])
        table[judged[span]] = np.maximum(qrels.grades[span], 0)
        table[-1] = -1  # empty places stay behind
        docs[row, :depth] = docs[row, :depth][np.argsort(-table[docs[row, :depth]], kind="stable")]
        table[judged[span]] = 0
    scores = np.where(docs == NO_DOCUMENT, -np.inf, np.arange(docs.shape[1], 0, -1)).astype(np.float32)
    return Run(first.query_ids, first.doc_ids, docs, scores, name=f"{first.name}.oracle@{depth}")
