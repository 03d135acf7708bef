"""Reciprocal-rank fusion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import Run, UsageError
from .merge import merge, same_ground

RRF_K = 60


def reciprocal_rank(runs: Sequence[Run], *, k: int = RRF_K, depth: int = 1000, name: str | None = None) -> Run:
    """Reciprocal-rank fusion: a document scores the sum of 1 / (k + rank) over the rankings that hold it."""
    same_ground(runs)
    if k < 0:
        raise UsageError(f"k must be 0 or more, not {k}")
    gains = [np.broadcast_to(1.0 / (k + np.arange(1, run.depth + 1)), run.docs.shape) for run in runs]
    return merge(runs, gains, depth=depth, name=name or "+".join(r.name for r in runs) + ".rrf")
