"""Confidence intervals by a stratified paired bootstrap over queries.

Every resample draws the queries of each task anew, within the task, and the same queries for all systems. A resample
is kept as how often each query was drawn, so that all systems and all resamples of a task are one matrix product.

A plain bootstrap of few queries gives intervals that are too narrow: it takes the variance over n rather than n - 1
and a normal quantile where Student's belongs. Unless told otherwise, wider quantiles of the resamples are read to
make up for both (Hesterberg's expanded percentiles); with a hundred queries it hardly shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from ..core import UsageError
from . import student
from .hits import Float64, Int64
from .score_set import ScoreSet, Weights

Method = Literal["percentile", "bca"]
METHODS: tuple[Method, ...] = ("percentile", "bca")
RESAMPLES = 10_000
LEVEL = 0.95
_CELLS_AT_ONCE = 1 << 21
_NORMAL = NormalDist()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How intervals and tests are computed; stored beside what they gave."""

    level: float = LEVEL
    method: Method = "percentile"
    resamples: int = RESAMPLES
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


class Estimate(msgspec.Struct, frozen=True):
    """A mean over `n` queries with its interval."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{100 * self.value:.2f} [{100 * self.low:.2f}, {100 * self.high:.2f}]"


class Average(Estimate, frozen=True):
    """An average over tasks with its interval; printed, it says how many tasks are missing."""

    tasks: int
    of_tasks: int
    complete: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "complete", self.tasks == self.of_tasks)

    @property
    def scope(self) -> str:
        """Which tasks it covers."""
        return f"{self.tasks} tasks" if self.complete else f"only {self.tasks} of {self.of_tasks} tasks"

    def __str__(self) -> str:
        return super().__str__() if self.complete else f"{super().__str__()} ({self.scope})"


class Bounds(NamedTuple):
    """Values and intervals of several contrasts."""

    value: Float64
    low: Float64
    high: Float64

    def estimate(self, row: int, n: int) -> Estimate:
        """One of them, over `n` queries."""
        return Estimate(float(self.value[row]), float(self.low[row]), float(self.high[row]), n)


class Bootstrap:
    """Resampled task means of several systems, drawn once and read as often as wanted."""

    def __init__(self, matrices: Sequence[Float64], settings: Settings = Settings()) -> None:  # noqa: B008 (frozen)
        self.settings = settings
        self._matrices = [np.ascontiguousarray(m, dtype=np.float64) for m in matrices]
        streams = np.random.SeedSequence(settings.seed).spawn(len(self._matrices))
        self._means = [
            _resampled_means(m, settings.resamples, np.random.Generator(np.random.PCG64(stream)))
            for m, stream in zip(self._matrices, streams, strict=True)
        ]

    def bounds(self, contrasts: Float64, weights: Float64) -> Bounds:
        """Intervals of weighted sums of task means.

        `contrasts` has a row per value wanted and a column per system: a unit row gives a system's score, +1 and -1
        give a difference. `weights` has an entry per task.
        """
        rows = len(contrasts)
        value, replicates = np.zeros(rows), np.zeros((rows, self.settings.resamples))
        moments = _Moments(rows)
        for matrix, means, weight in zip(self._matrices, self._means, weights.tolist(), strict=True):
            if weight == 0.0:
                continue
            per_query = contrasts @ matrix
            centre = per_query.mean(axis=1)
            value += weight * centre
            replicates += weight * (contrasts @ means)
            moments.add((per_query - centre[:, None]) * (weight / matrix.shape[1]))
        replicates.sort(axis=1)
        low, high = self._positions(replicates, value, moments)
        return Bounds(value, _read(replicates, low), _read(replicates, high))

    def _positions(self, replicates: Float64, value: Float64, moments: _Moments) -> tuple[Float64, Float64]:
        """Which quantiles of the sorted replicates bound each interval."""
        tail = (1.0 - self.settings.level) / 2.0
        reach = moments.reach(tail) if self.settings.expanded else np.full(len(value), -_NORMAL.inv_cdf(tail))
        if self.settings.method == "percentile":
            low = np.array([_NORMAL.cdf(-z) for z in reach.tolist()])
            return low, 1.0 - low
        noise = 1e-12 * (1.0 + np.abs(value))[:, None]  # sums in another order differ in their last bits
        below = (replicates < value[:, None] - noise).mean(axis=1)
        level = (np.abs(replicates - value[:, None]) <= noise).mean(axis=1)
        edge = 0.5 / self.settings.resamples
        shares = np.clip(below + level / 2.0, edge, 1.0 - edge).tolist()
        rows = list(zip(shares, reach.tolist(), moments.acceleration().tolist(), strict=True))
        low = np.array([_corrected(-z, _NORMAL.inv_cdf(share), bend) for share, z, bend in rows])
        high = np.array([_corrected(z, _NORMAL.inv_cdf(share), bend) for share, z, bend in rows])
        return low, high


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
        return np.divide(
            self._third, 6.0 * self._second**1.5, out=np.zeros(len(self._third)), where=self._second > 1e-30
        )

    def reach(self, tail: float) -> Float64:
        """How many standard deviations of the resamples an interval must reach: more than the normal 1.96."""
        reach = np.full(len(self._second), -_NORMAL.inv_cdf(tail))
        for row in np.flatnonzero(self._second > 1e-30).tolist():
            freedom = self._unbiased[row] ** 2 / self._pooled[row]
            wider = math.sqrt(self._unbiased[row] / self._second[row])
            reach[row] = wider * student.quantile(1.0 - tail, round(float(freedom), 6))
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


def _resampled_means(matrix: Float64, resamples: int, rng: np.random.Generator) -> Float64:
    """Means of each system over each resample: systems × resamples."""
    systems, queries = matrix.shape
    means = np.empty((systems, resamples))
    step = max(1, _CELLS_AT_ONCE // queries)
    for begin in range(0, resamples, step):
        size = min(step, resamples - begin)
        means[:, begin : begin + size] = matrix @ _counts(size, queries, rng).T
    means /= queries
    return means


def _counts(resamples: int, queries: int, rng: np.random.Generator) -> Float64:
    """How often each query was drawn in each resample."""
    drawn: Int64 = rng.integers(0, queries, size=(resamples, queries), dtype=np.int64)
    drawn += np.arange(resamples, dtype=np.int64)[:, None] * queries
    counts = np.bincount(drawn.ravel(), minlength=resamples * queries)
    return counts.reshape(resamples, queries).astype(np.float64)


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
    each = np.eye(len(scores.systems))
    weights, count = Weights.of(scores.matrices), len(scores.tasks)
    tasks = [drawn.bounds(each, np.eye(count)[t]) for t in range(count)]
    macro, by_query = drawn.bounds(each, weights.macro), drawn.bounds(each, weights.by_query)

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
