"""Leaderboards without false precision: systems that cannot be told apart share a group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .intervals import Settings
from .measures import Float64
from .score_set import Weights
from .tests_paired import holm, randomisation_test


def tie_groups(matrices: Sequence[Float64], settings: Settings = Settings()) -> list[int]:  # noqa: B008 (frozen)
    """The group of each system, 1 being the best; `matrices` holds systems × queries of each task.

    Systems are taken in order of their macro-average. The best is tested against all others, with Holm's correction;
    its group reaches down to the first system that differs from it, which then leads the next group. So members of a
    group need not be equal to one another, only indistinguishable from the best of them.
    """
    weights = Weights.of(matrices)
    weighted = np.concatenate([m * (w / m.shape[1]) for m, w in zip(matrices, weights.macro, strict=True)], axis=1)
    order = np.argsort(-weighted.sum(axis=1), kind="stable").tolist()
    groups, group = [0] * len(order), 0
    while order:
        group += 1
        leader, rest = order[0], order[1:]
        groups[leader] = group
        reach = len(rest)
        if rest:
            differences = weighted[leader] - weighted[rest]
            differences[np.abs(differences) < 1e-15] = 0.0
            p = randomisation_test(differences, resamples=settings.resamples, seed=settings.seed).p
            apart = np.flatnonzero(holm(p) < 1.0 - settings.level)
            reach = int(apart[0]) if len(apart) else len(rest)
        for member in rest[:reach]:
            groups[member] = group
        order = rest[reach:]
    return groups
