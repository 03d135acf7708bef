"""Score sets to compute with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from r2med.scoring.evaluation import ScoreSet, TaskScores

Float64 = npt.NDArray[np.float64]
R2MED_SIZES = (103, 77, 88, 97, 118, 150, 114, 129)  # 876 queries


def scores_of(*matrices: Float64, of_tasks: int | None = None) -> ScoreSet:
    """Systems s0, s1, … on tasks t0, t1, …."""
    tasks = tuple(
        TaskScores(f"t{t}", tuple(f"t{t}-q{q}" for q in range(m.shape[1])), m) for t, m in enumerate(matrices)
    )
    names = tuple(f"s{s}" for s in range(matrices[0].shape[0]))
    return ScoreSet(names, tasks, len(matrices) if of_tasks is None else of_tasks)


def drawn(systems: int, sizes: Sequence[int], seed: int = 0) -> ScoreSet:
    """Skewed scores with many zeros, as nDCG has; systems share the difficulty of the queries."""
    rng = np.random.default_rng(seed)
    made = []
    for size in sizes:
        easy = rng.beta(0.6, 1.4, size=size)
        made.append(np.clip(easy + rng.normal(0.0, 0.15, size=(systems, size)), 0.0, 1.0))
    return scores_of(*made)
