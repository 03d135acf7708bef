"""What a reranker changed: the measures of its candidates, its own, and those of the best order of the candidates."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from ..core import NO_DOCUMENT, DataError, Qrels, Run
from .evaluation import score
from .hits import EMPTY, grades_along
from .measures import MAIN, STANDARD, Measure

SAME = 1e-9
"""Differences of a query's score below this are rounding."""


class BeforeAfter(msgspec.Struct, frozen=True, kw_only=True):
    """A reranker's effect on one task; measures by their keys in JSON."""

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
        keys = dict.fromkeys([self.measure, *(m.key for m in measures)])
        facts = msgspec.structs.asdict(self) | {"share_of_possible": self.share_of_possible}
        return {k: {key: v[key] for key in keys} if isinstance(v, dict) else v for k, v in facts.items()}


def before_after(
    first: Run, reranked: Run, qrels: Qrels, depth: int, *, measure: Measure = MAIN, rest: str = "keep"
) -> BeforeAfter:
    """Compare a reranked run with the candidates it was made of; `rest` as it was reranked with."""
    if first.query_ids != reranked.query_ids or first.doc_ids != reranked.doc_ids:
        raise DataError(f"runs {first.name!r} and {reranked.name!r} are not over the same queries and documents")
    runs = (first, reranked, oracle(first, qrels, depth, rest=rest))
    before, after, best = (score(run, qrels, [*STANDARD, measure]) for run in runs)
    change = after.per_query[measure] - before.per_query[measure]
    return BeforeAfter(
        measure=measure.key,
        depth=depth,
        queries=len(change),
        before=before.means.by_key(),
        after=after.means.by_key(),
        oracle=best.means.by_key(),
        helped=float((change > SAME).mean()),
        hurt=float((change < -SAME).mean()),
        unchanged=float((np.abs(change) <= SAME).mean()),
    )


def oracle(first: Run, qrels: Qrels, depth: int, *, rest: str = "keep") -> Run:
    """The first `depth` candidates of each query by grade, equal grades in their given order.

    The remaining candidates follow unchanged, or are dropped with `rest="drop"`.
    """
    depth = min(depth, first.depth)
    docs = np.array(first.docs if rest == "keep" else first.docs[:, :depth])
    for _, row, grades in grades_along(first, qrels):
        value = np.where(grades == EMPTY, EMPTY, np.maximum(grades, 0))[:depth]
        docs[row, :depth] = docs[row, :depth][np.argsort(-value, kind="stable")]
    scores = np.where(docs == NO_DOCUMENT, -np.inf, np.arange(docs.shape[1], 0, -1)).astype(np.float32)
    return Run(first.query_ids, first.doc_ids, docs, scores, name=f"{first.name}.oracle@{depth}")
