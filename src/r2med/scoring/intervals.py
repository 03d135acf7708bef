"""Confidence intervals of scores by a stratified paired bootstrap over queries.

Every resample draws the queries of each task anew, within the task, and the same queries for all systems. A resample
is kept as how often each query was drawn, so that all systems and all resamples of a task are one matrix product.

A plain bootstrap of few queries gives intervals that are too narrow: it takes the variance over n rather than n - 1
and a normal quantile where Student's belongs. Unless told otherwise, wider quantiles of the resamples are read to
make up for both (Hesterberg's expanded percentiles); with a hundred queries it hardly shows.

A bootstrap knows only what it saw. Where every score is 0 or 1, the exact interval of a share (Clopper and Pearson)
stands instead; where all scores are equal, the most that the queries not seen could change with the same confidence.
A task of one query borrows its spread from the other tasks. Differences have intervals of their own: `significance`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from ..core import UsageError
from ..core.columns import Int64
from ..core.table import interval, points
from .evaluation import ScoreSet, Weights
from .measures import Float64

Method = Literal["percentile", "bca"]
METHODS: tuple[Method, ...] = ("percentile", "bca")
_CELLS_AT_ONCE = 1 << 21
_NORMAL = NormalDist()
_TINY = 1e-300
_PRECISION = 1e-15
_MOST_STEPS = 500


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How intervals and tests are computed; stored beside what they gave."""

    level: float = 0.95
    method: Method = "bca"
    resamples: int = 10_000
    seed: int = 0
    expanded: bool = True

    def __post_init__(self) -> None:
        if not 0.5 <= self.level < 1:
            raise UsageError(f"an interval needs a level from 0.5 up to, not including, 1; got {self.level:g}")
        if self.method not in METHODS:
            raise UsageError(f"unknown interval method {self.method!r}; known: {', '.join(METHODS)}")
        if self.resamples < 100:
            raise UsageError(f"{self.resamples} resamples are too few for an interval; 100 is the least")
        if self.seed < 0:
            raise UsageError(f"a seed cannot be negative, got {self.seed}")

    @property
    def flips(self) -> int:
        """Draws of the randomisation tests: more than resamples, since p near 1 - level decides."""
        return 10 * self.resamples


class Estimate(msgspec.Struct, frozen=True):
    """A mean over `n` queries with its interval."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{points(self.value)} {interval(self.low, self.high)}"


class Average(Estimate, frozen=True):
    """An average over tasks with its interval; printed, it says how many tasks are missing."""

    tasks: int
    of_tasks: int
    complete: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "complete", self.tasks == self.of_tasks)

    @property
    def scope(self) -> str:
        return f"{self.tasks} tasks" if self.complete else f"only {self.tasks} of {self.of_tasks} tasks"

    def __str__(self) -> str:
        return super().__str__() if self.complete else f"{super().__str__()} ({self.scope})"


class Bounds(NamedTuple):
    """Values and intervals of several contrasts."""

    value: Float64
    low: Float64
    high: Float64

    def estimate(self, row: int, n: int) -> Estimate:
        return Estimate(float(self.value[row]), float(self.low[row]), float(self.high[row]), n)


class Bootstrap:
    """Resampled task means of several systems, drawn once and read as often as wanted."""

    def __init__(self, matrices: Sequence[Float64], settings: Settings = Settings()) -> None:  # noqa: B008 (frozen)
        self.settings = settings
        self._matrices = [np.ascontiguousarray(m, dtype=np.float64) for m in matrices]
        streams = np.random.SeedSequence(settings.seed).spawn(len(self._matrices))
        spare = _residuals(self._matrices)
        self._means = [
            _resampled_means(m, settings.resamples, np.random.Generator(np.random.PCG64(stream)), spare)
            for m, stream in zip(self._matrices, streams, strict=True)
        ]

    def macro(self) -> tuple[Float64, Float64]:
        """The mean over tasks of every system, and over each resample: systems × resamples."""
        value = np.mean([m.mean(axis=1) for m in self._matrices], axis=0)
        return value, np.mean(self._means, axis=0)

    def scores(self, weights: Float64) -> Bounds:
        """Intervals of every system's score, exact where all its scores are 0 or 1, or equal."""
        found = self.bounds(None, weights)
        used = [m for m, weight in zip(self._matrices, weights.tolist(), strict=True) if weight]
        pooled = np.concatenate(used, axis=1)
        single = len(used) == 1
        shares = [w / m.shape[1] for m, w in zip(self._matrices, weights.tolist(), strict=True) if w]
        effective = 1.0 / sum(share**2 * m.shape[1] for share, m in zip(shares, used, strict=True))
        low, high, tail = found.low.copy(), found.high.copy(), (1.0 - self.settings.level) / 2.0
        for row, scores in enumerate(pooled):
            if np.ptp(scores) < 1e-12 and 0.0 <= scores[0] <= 1.0:
                unseen = 1.0 - tail ** (1.0 / effective)
                low[row], high[row] = scores[0] * (1.0 - unseen), scores[0] * (1.0 - unseen) + unseen
            elif single and np.isin(scores, (0.0, 1.0)).all():
                low[row], high[row] = share_interval(int(scores.sum()), len(scores), tail)
        return Bounds(found.value, low, high)

    def bounds(self, contrasts: Float64 | None, weights: Float64) -> Bounds:
        """Intervals of weighted sums of task means.

        `contrasts` has a row per value wanted and a column per system: +1 and -1 give a difference. Without, the values
        are the scores of all systems. `weights` has an entry per task.
        """
        rows = len(self._matrices[0]) if contrasts is None else len(contrasts)
        value, replicates = np.zeros(rows), np.zeros((rows, self.settings.resamples))
        moments = _Moments(rows)
        for matrix, means, weight in zip(self._matrices, self._means, weights.tolist(), strict=True):
            if weight == 0.0:
                continue
            per_query, drawn = (matrix, means) if contrasts is None else (contrasts @ matrix, contrasts @ means)
            centre = per_query.mean(axis=1)
            value += weight * centre
            replicates += weight * drawn
            moments.add((per_query - centre[:, None]) * (weight / matrix.shape[1]))
        return _bounds(replicates, value, moments, self.settings)


def _bounds(replicates: Float64, value: Float64, moments: _Moments, settings: Settings) -> Bounds:
    """Values with the quantiles of their replicates, which are sorted in place, that bound each interval."""
    replicates.sort(axis=1)
    low, high = _positions(replicates, value, moments, settings)
    return Bounds(value, _read(replicates, low), _read(replicates, high))


def _positions(replicates: Float64, value: Float64, moments: _Moments, settings: Settings) -> tuple[Float64, Float64]:
    """Which quantiles of the sorted replicates bound each interval."""
    tail = (1.0 - settings.level) / 2.0
    reach = moments.reach(tail) if settings.expanded else np.full(len(value), -_NORMAL.inv_cdf(tail))
    if settings.method == "percentile":
        low = np.array([_NORMAL.cdf(-z) for z in reach.tolist()])
        return low, 1.0 - low
    noise = 1e-12 * (1.0 + np.abs(value))[:, None]  # sums in another order differ in their last bits
    below = (replicates < value[:, None] - noise).mean(axis=1)
    level = (np.abs(replicates - value[:, None]) <= noise).mean(axis=1)
    edge = 0.5 / settings.resamples
    shares = np.clip(below + level / 2.0, edge, 1.0 - edge).tolist()
    rows = list(zip(shares, reach.tolist(), moments.acceleration().tolist(), strict=True))
    low = np.array([_corrected(-z, _NORMAL.inv_cdf(share), bend) for share, z, bend in rows])
    high = np.array([_corrected(z, _NORMAL.inv_cdf(share), bend) for share, z, bend in rows])
    return low, high


def statistic_bounds(value: float, replicates: Float64, influence: Float64, settings: Settings) -> tuple[float, float]:
    """The interval of any statistic, from its value on each resample and the influence of each query on it."""
    moments = _Moments(1)
    moments.add(influence[None])
    found = _bounds(replicates[None].copy(), np.array([value]), moments, settings)
    return float(found.low[0]), float(found.high[0])


class _Moments:
    """Sums over the influence of each query on a value, task by task."""

    def __init__(self, rows: int) -> None:
        self._second, self._third = np.zeros(rows), np.zeros(rows)
        self._unbiased, self._pooled = np.zeros(rows), np.zeros(rows)

    def add(self, influence: Float64) -> None:
        """Count in one task: a row per value, a column per query."""
        squares, n = (influence**2).sum(axis=1), influence.shape[1]
        self._second += squares
        self._third += (influence**3).sum(axis=1)
        if n > 1:
            self._unbiased += squares * n / (n - 1)
            self._pooled += (squares * n / (n - 1)) ** 2 / (n - 1)

    def acceleration(self) -> Float64:
        """BCa's correction for skewness."""
        nothing = np.zeros(len(self._third))
        return np.divide(self._third, 6.0 * self._second**1.5, out=nothing, where=self._second > 1e-30)

    def reach(self, tail: float) -> Float64:
        """How many standard deviations of the resamples an interval must reach: more than the normal 1.96."""
        reach = np.full(len(self._second), -_NORMAL.inv_cdf(tail))
        for row in np.flatnonzero(self._second > 1e-30).tolist():
            freedom = self._unbiased[row] ** 2 / self._pooled[row]
            wider = math.sqrt(self._unbiased[row] / self._second[row])
            reach[row] = wider * student_quantile(1.0 - tail, round(float(freedom), 6))
        return reach


def _corrected(z: float, bias: float, acceleration: float) -> float:
    """The quantile that BCa reads instead of the one at `z` standard deviations."""
    shifted = bias + z
    return _NORMAL.cdf(bias + shifted / max(1.0 - acceleration * shifted, 1e-6))


def _read(ordered: Float64, probability: Float64) -> Float64:
    """A quantile of each row, by linear interpolation."""
    place = np.clip(probability, 0.0, 1.0) * (ordered.shape[1] - 1)
    left = np.floor(place).astype(np.int64)
    right = np.minimum(left + 1, ordered.shape[1] - 1)
    rows, part = np.arange(len(ordered)), place - left
    return np.asarray(ordered[rows, left] * (1.0 - part) + ordered[rows, right] * part)


def _residuals(matrices: Sequence[Float64]) -> Float64:
    """How scores lie around the means of their tasks: what the spread of a task of one query is taken from."""
    several = [m for m in matrices if m.shape[1] > 1] or [np.concatenate(matrices, axis=1)]
    # By the usual correction, means of few queries lie too close to them.
    return np.concatenate(
        [(m - m.mean(axis=1, keepdims=True)) * math.sqrt(m.shape[1] / max(m.shape[1] - 1, 1)) for m in several], axis=1
    )


def _resampled_means(matrix: Float64, resamples: int, rng: np.random.Generator, spare: Float64) -> Float64:
    """Means of each system over each resample: systems × resamples."""
    systems, queries = matrix.shape
    if queries == 1:
        return matrix + spare[:, rng.integers(0, spare.shape[1], size=resamples)]
    means = np.empty((systems, resamples))
    step = max(1, _CELLS_AT_ONCE // queries)
    for begin in range(0, resamples, step):
        size = min(step, resamples - begin)
        means[:, begin : begin + size] = matrix @ resample_counts(rng, size, queries).T
    means /= queries
    return means


def resample_counts(rng: np.random.Generator, resamples: int, queries: int) -> Float64:
    """How often each query was drawn: resamples × queries."""
    drawn: Int64 = rng.integers(0, queries, size=(resamples, queries), dtype=np.int64)
    drawn += np.arange(resamples, dtype=np.int64)[:, None] * queries
    counts = np.bincount(drawn.ravel(), minlength=resamples * queries).reshape(resamples, queries)
    return counts.astype(np.float64)


class SystemScores(msgspec.Struct, frozen=True, kw_only=True):
    """One system with the interval of each of its scores."""

    name: str
    tasks: dict[str, Estimate]
    macro: Average
    query_weighted: Average


def score_intervals(
    scores: ScoreSet, settings: Settings = Settings(), *, bootstrap: Bootstrap | None = None  # noqa: B008 (frozen)
) -> list[SystemScores]:  # fmt: skip
    """Intervals of every system's task scores and averages."""
    drawn = bootstrap if bootstrap is not None else Bootstrap(scores.matrices, settings)
    weights, count = Weights.of(scores.matrices), len(scores.tasks)
    tasks = [drawn.scores(np.eye(count)[t]) for t in range(count)]
    macro, by_query = drawn.scores(weights.macro), drawn.scores(weights.by_query)

    def average(bounds: Bounds, row: int) -> Average:
        found = bounds.estimate(row, scores.queries)
        return Average(found.value, found.low, found.high, found.n, count, scores.of_tasks)

    return [
        SystemScores(
            name=name,
            tasks={
                task.name: bounds.estimate(i, len(task.query_ids))
                for task, bounds in zip(scores.tasks, tasks, strict=True)
            },
            macro=average(macro, i),
            query_weighted=average(by_query, i),
        )
        for i, name in enumerate(scores.systems)
    ]


def share_interval(hits: int, n: int, tail: float) -> tuple[float, float]:
    """The exact interval of a share of n queries, with `tail` beyond either end (Clopper and Pearson)."""
    low = 0.0 if hits == 0 else _beta_quantile(tail, hits, n - hits + 1)
    high = 1.0 if hits == n else _beta_quantile(1.0 - tail, hits + 1, n - hits)
    return low, high


def _beta_quantile(probability: float, a: float, b: float) -> float:
    """By halving: precise to the last bits, and fast enough for a table."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if incomplete_beta(a, b, middle) < probability else (low, middle)
    return (low + high) / 2.0


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    front = math.exp(log_front)
    if x < (a + 1.0) / (a + b + 2.0):  # where the continued fraction converges fast
        return front * _continued_fraction(a, b, x) / a
    return 1.0 - front * _continued_fraction(b, a, 1.0 - x) / b


def _continued_fraction(a: float, b: float, x: float) -> float:
    """The fraction behind the incomplete beta function, by Lentz's method."""
    numerator, denominator = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    value = denominator
    for m in range(1, _MOST_STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for coefficient in (even, odd):
            denominator = 1.0 / _away_from_zero(1.0 + coefficient * denominator)
            numerator = _away_from_zero(1.0 + coefficient / numerator)
            step = numerator * denominator
            value *= step
        if abs(step - 1.0) < _PRECISION:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def two_sided_p(t: float, freedom: float) -> float:
    """Probability of a value at least as far from zero as `t`."""
    if math.isinf(t):
        return 0.0
    if t * t < 1.0:  # near zero the other form would lose t in 1 - t²; far out this one loses the tail
        return 1.0 - incomplete_beta(0.5, freedom / 2.0, t * t / (freedom + t * t))
    return incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))


def student_cdf(t: float, freedom: float) -> float:
    """Probability of a value up to `t`."""
    tail = two_sided_p(t, freedom) / 2.0
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=4096)
def student_quantile(probability: float, freedom: float) -> float:
    """The value that is not exceeded with `probability`: Newton's method, halving where it would leave the bracket."""
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -student_quantile(1.0 - probability, freedom)
    low, high = 0.0, 2.0
    while student_cdf(high, freedom) < probability:
        low, high = high, high * 2.0
    value = min(max(_NORMAL.inv_cdf(probability), low), high)
    for _ in range(200):
        excess = student_cdf(value, freedom) - probability
        low, high = (low, value) if excess > 0 else (value, high)
        step = value - excess / _density(value, freedom)
        following = step if low < step < high else (low + high) / 2.0
        if abs(following - value) <= 1e-14 * abs(value) or high - low <= 1e-14 * high:
            return following
        value = following
    return value


def _density(t: float, freedom: float) -> float:
    log_front = math.lgamma((freedom + 1.0) / 2.0) - math.lgamma(freedom / 2.0) - math.log(freedom * math.pi) / 2.0
    return math.exp(log_front - (freedom + 1.0) / 2.0 * math.log1p(t * t / freedom))
