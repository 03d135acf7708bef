"""Are two systems different? Paired tests, Holm's correction, detectable difference, groups of similar systems.

All of them look at the differences of one pair query by query. An average over tasks is a weighted sum of the
differences, so the tests of a task and of an average are the same code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ..core import UsageError
from . import student
from .hits import Float64
from .intervals import Settings
from .score_set import Weights

ALPHA = 0.05
POWER = 0.8
EXACT_MOST = 16  # up to this many queries that differ, all sign patterns are gone through
_CELLS_AT_ONCE = 1 << 21


class Randomisation(NamedTuple):
    """p values of several pairs, and which of them are exact rather than drawn."""

    p: Float64
    exact: tuple[bool, ...]


def randomisation_test(differences: Float64, *, resamples: int = 10_000, seed: int = 0) -> Randomisation:
    """Two-sided paired randomisation test of the sum of each row.

    If two systems were the same, each query's difference could as well have the other sign. The p value is the share
    of sign patterns whose sum is at least as far from zero. Queries that do not differ have no say. With few that do,
    every pattern is counted; otherwise `resamples` are drawn and the observed one is counted among them, so that p is
    never 0.
    """
    exact = tuple(bool(n <= EXACT_MOST) for n in np.count_nonzero(differences, axis=1).tolist())
    p = np.empty(len(differences))
    for row in range(len(differences)):
        if exact[row]:
            p[row] = _exact_p(differences[row])
    drawn = np.flatnonzero(~np.array(exact, dtype=bool))
    if len(drawn):
        p[drawn] = _drawn_p(differences[drawn], resamples, seed)
    return Randomisation(p, exact)


def _exact_p(differences: Float64) -> float:
    sizes = np.abs(differences[differences != 0.0])
    sums = np.zeros(1)
    for size in sizes[:-1]:  # the last sign is fixed: a pattern and its opposite are equally far from zero
        sums = np.concatenate((sums + size, sums - size))
    sums = np.abs(sums + (sizes[-1] if len(sizes) else 0.0))
    return float((sums >= abs(differences.sum()) - _slack(sizes)).mean())


def _slack(sizes: Float64) -> float:
    """Sums that are equal on paper differ in their last bits."""
    return 1e-12 * float(sizes.sum())


def _drawn_p(differences: Float64, resamples: int, seed: int) -> Float64:
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 1])))
    queries = differences.shape[1]
    bar = np.abs(differences.sum(axis=1)) - 1e-12 * np.abs(differences).sum(axis=1)
    reached = np.zeros(len(differences))
    step, width = max(1, _CELLS_AT_ONCE // queries), -(-queries // 8)
    for begin in range(0, resamples, step):
        size = min(step, resamples - begin)
        bits = rng.integers(0, 256, size=(size, width), dtype=np.uint8)
        signs = np.unpackbits(bits, axis=1, count=queries) * 2.0 - 1.0
        reached += (np.abs(differences @ signs.T) >= bar[:, None]).sum(axis=1)
    return (reached + 1.0) / (resamples + 1.0)


class TTest(msgspec.Struct, frozen=True):
    """A paired t-test."""

    t: float
    freedom: float
    p: float


class Spread(NamedTuple):
    """A weighted sum of task means: its value, its standard error and the degrees of freedom behind that."""

    mean: float
    error: float
    freedom: float


def spread(differences: Sequence[Float64], weights: Sequence[float]) -> Spread | None:
    """The mean difference and its standard error; None where nothing varies.

    Several tasks have several variances: the degrees of freedom are Welch and Satterthwaite's.
    """
    mean, variance, pooled = 0.0, 0.0, 0.0
    for values, weight in zip(differences, weights, strict=True):
        mean += weight * float(values.mean())
        if len(values) > 1:
            part = weight * weight * float(values.var(ddof=1)) / len(values)
            variance += part
            pooled += part * part / (len(values) - 1)
    if variance < 1e-28:
        return None
    return Spread(mean, math.sqrt(variance), variance * variance / pooled)


def t_test(of: Spread) -> TTest:
    """Two-sided paired t-test."""
    t = of.mean / of.error
    return TTest(t, of.freedom, student.two_sided_p(t, of.freedom))


def detectable_difference(of: Spread, *, alpha: float = ALPHA, power: float = POWER) -> float:
    """The smallest true difference that a t-test on these queries would find with the given power."""
    if not (0 < alpha < 1 and 0 < power < 1):
        raise UsageError(f"alpha and power lie between 0 and 1, got {alpha:g} and {power:g}")
    reach = student.quantile(1.0 - alpha / 2.0, of.freedom) + student.quantile(power, of.freedom)
    return reach * of.error


def holm(p: Float64) -> Float64:
    """Correct the p values of a family of tests by Holm's step-down method."""
    order = np.argsort(p, kind="stable")
    steps = np.arange(len(p), 0, -1)
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * steps), 1.0)
    return corrected


def tie_groups(matrices: Sequence[Float64], settings: Settings = Settings()) -> list[int]:  # noqa: B008 (frozen)
    """The group of each system, 1 being the best; `matrices` holds systems × queries of each task.

    Systems are taken in order of their macro-average. The best is tested against all others, with Holm's correction;
    its group reaches down to the first system that differs from it, which then leads the next group. So members of a
    group may differ from one another; none differs significantly from the best of them.
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
