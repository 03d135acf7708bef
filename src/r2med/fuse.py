"""One ranking from several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .core import DataError, Run, UsageError
from .core.columns import Int32

RRF_K = 60


def reciprocal_rank(runs: Sequence[Run], *, k: int = RRF_K, depth: int = 1000, name: str | None = None) -> Run:
    """Reciprocal-rank fusion: a document scores the sum of 1 / (k + rank) over the rankings that hold it."""
    if not runs:
        raise UsageError("nothing to fuse")
    if k < 0:
        raise UsageError(f"k must be 0 or more, not {k}")
    first = runs[0]
    for run in runs[1:]:
        if run.doc_ids != first.doc_ids or run.query_ids != first.query_ids:
            raise DataError(f"runs {first.name!r} and {run.name!r} are not over the same queries and documents")
    tie_rank = first.doc_ids.tie_rank
    depth = min(depth, len(first.doc_ids))
    docs = np.full((len(first), depth), -1, dtype=np.int32)
    scores = np.full((len(first), depth), -np.inf, dtype=np.float32)
    gains = [1.0 / (k + np.arange(1, run.depth + 1)) for run in runs]
    table = np.zeros(len(first.doc_ids), dtype=np.float64)
    for row in range(len(first)):
        rankings = [run.docs[row] for run in runs]
        found = _accumulate(table, rankings, gains)
        fused = table[found].astype(np.float32)
        table[found] = 0.0
        best = np.lexsort((tie_rank[found], -fused))[:depth]
        docs[row, : len(best)], scores[row, : len(best)] = found[best], fused[best]
    return Run(first.query_ids, first.doc_ids, docs, scores, name=name or "+".join(r.name for r in runs) + ".rrf")


def _accumulate(table: np.ndarray, rankings: list[Int32], gains: list[np.ndarray]) -> Int32:
    """Add the gains of one query into `table`; returns the documents touched, each once."""
    touched = []
    for docs, gain in zip(rankings, gains, strict=True):
        held = docs >= 0
        present = docs if held.all() else docs[held]
        touched.append(present[table[present] == 0.0])
        table[present] += gain[held]
    return np.concatenate(touched)
