"""Which population a difference speaks of, and how large a benchmark must be: queries within tasks within a kind.

A query's difference is modelled as the overall one, plus what its task adds, plus what it adds itself. Asked about
other queries of the same tasks, only the last varies; asked about other tasks of the same kind, both do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist, median
from typing import NamedTuple

import msgspec
import numpy as np

from ..core import UsageError
from .evaluation import ScoreSet
from .intervals import student_quantile, two_sided_p
from .measures import Float64

TASK_COUNTS = (1, 2, 4, 8, 16, 32, 64)
MOST_TASKS = 100_000
_NORMAL = NormalDist()


class Components(NamedTuple):
    """Standard deviations of differences: of tasks around the overall one, of queries around their task's."""

    tasks: float | None  # None where there is one task.
    queries: float


def components(differences: Sequence[Float64]) -> Components:
    """Estimate both from the queries of each task, by the moments of the analysis of variance.

    With equally many queries a task these are the estimates of restricted maximum likelihood.
    """
    freedom = sum(len(d) - 1 for d in differences)
    squares = sum(float(((d - d.mean()) ** 2).sum()) for d in differences)
    queries = squares / freedom if freedom else 0.0
    if len(differences) < 2:
        return Components(None, math.sqrt(queries))
    means = np.array([d.mean() for d in differences])
    noise = queries * float(np.mean([1.0 / len(d) for d in differences]))
    return Components(math.sqrt(max(float(means.var(ddof=1)) - noise, 0.0)), math.sqrt(queries))


class Range(msgspec.Struct, frozen=True):
    """An interval of a difference."""

    low: float
    high: float


class Populations(msgspec.Struct, frozen=True, kw_only=True):
    """One difference of macro-averages, asked about three populations.

    On these queries it is what it is. `other_queries` is its interval for other queries of these tasks, `other_tasks`
    for other tasks of this kind, with the p value of a t-test of the means of tasks.
    """

    these_queries: float
    other_queries: Range
    other_tasks: Range
    p_other_tasks: float | None
    deviation_of_tasks: float
    deviation_of_queries: float
    tasks: int


def populations(
    differences: Sequence[Float64], other_queries: tuple[float, float], p: float, level: float
) -> Populations | None:
    """The three answers, given the interval and p for other queries; None where there is one task.

    Other tasks have other queries, too: their interval is never the narrower one, nor their p the smaller.
    """
    found = components(differences)
    if found.tasks is None:
        return None
    means = np.array([d.mean() for d in differences])
    mean, freedom = float(means.mean()), len(means) - 1
    error = float(means.std(ddof=1)) / math.sqrt(len(means))
    reach = student_quantile((1.0 + level) / 2.0, freedom) * error
    return Populations(
        these_queries=mean,
        other_queries=Range(*other_queries),
        other_tasks=Range(
            max(min(mean - reach, other_queries[0]), -1.0), min(max(mean + reach, other_queries[1]), 1.0)
        ),
        p_other_tasks=max(p, two_sided_p(mean / error, freedom)) if error > 1e-14 else None,
        deviation_of_tasks=found.tasks,
        deviation_of_queries=found.queries,
        tasks=len(means),
    )


class DesignRow(msgspec.Struct, frozen=True, kw_only=True):
    """With so many tasks, the queries a task needs; None where no number of queries is enough."""

    tasks: int
    queries_same_tasks: int  # To speak of other queries of these tasks, by the starred test.
    queries_other_tasks: int | None  # To speak of other tasks of this kind.


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """How large a benchmark must be to find a difference, given how systems differed query by query."""

    effect: float
    power: float
    level: float
    systems: int  # compared together
    pairs: int  # of real systems, whose median deviations these are
    deviation_of_queries: float
    deviation_of_tasks: float | None
    least_tasks: int | None  # that other tasks of this kind need, however many queries they have
    rows: list[DesignRow]


def design(
    scores: ScoreSet,
    *,
    effect: float,
    power: float = 0.8,
    level: float = 0.95,
    systems: int = 2,
    task_counts: Sequence[int] = TASK_COUNTS,
) -> Design:
    """How many queries and tasks find a macro difference of `effect` (0–1) with this power.

    The differences are those of the systems in `scores`: the median pair. `systems` is how many will be compared
    together, which the starred test corrects for.
    """
    if not 0 < effect < 1:
        raise UsageError(f"an effect lies between 0 and 100 points, got {100 * effect:g}")
    if not (0 < power < 1 and 0.5 <= level < 1):
        raise UsageError(f"power and level lie between 0 and 1, got {power:g} and {level:g}")
    if systems < 2 or len(scores.systems) < 2:
        raise UsageError("a design needs at least two systems to compare")
    found = [
        components([m[second] - m[first] for m in scores.matrices])
        for first, second in combinations(range(len(scores.systems)), 2)
    ]
    queries = median(c.queries for c in found)
    tasks = median(c.tasks or 0.0 for c in found) if found[0].tasks is not None else None
    if queries < 1e-9:
        raise UsageError("these systems do not differ on any query, so nothing can be said about others")
    tests = systems * (systems - 1) / 2
    needed = _queries(effect, queries, tasks or 0.0, power, 1.0 - level, tests)
    rows = [
        DesignRow(
            tasks=count,
            queries_same_tasks=max(2, math.ceil(needed / count)),
            queries_other_tasks=_queries_of_tasks(effect, queries, tasks, power, 1.0 - level, tests, count),
        )
        for count in task_counts
    ]
    return Design(
        effect=effect,
        power=power,
        level=level,
        systems=systems,
        pairs=len(found),
        deviation_of_queries=queries,
        deviation_of_tasks=tasks,
        least_tasks=None if tasks is None else _least_tasks(effect, tasks, power, 1.0 - level, tests),
        rows=rows,
    )


def _queries(effect: float, queries: float, tasks: float, power: float, alpha: float, tests: float) -> float:
    """All queries together: the starred test takes what tasks add for chance, so that counts against it, too."""
    critical = _NORMAL.inv_cdf(1.0 - (1.0 - (1.0 - alpha) ** (1.0 / tests)) / 2.0)
    scale = math.sqrt(queries**2 + tasks**2 + effect**2)
    return ((critical * scale + _NORMAL.inv_cdf(power) * queries) / effect) ** 2


def _reach(count: int, power: float, alpha: float, tests: float) -> float:
    """How many standard errors a true difference over so many tasks must have."""
    freedom = count - 1
    each = 1.0 - (1.0 - alpha) ** (1.0 / tests)
    return student_quantile(1.0 - each / 2.0, freedom) + student_quantile(power, freedom)


def _queries_of_tasks(
    effect: float, queries: float, tasks: float | None, power: float, alpha: float, tests: float, count: int
) -> int | None:
    if tasks is None or count < 2:
        return None
    left = count * (effect / _reach(count, power, alpha, tests)) ** 2 - tasks**2
    return max(2, math.ceil(queries**2 / left)) if left > 0 else None


def _least_tasks(effect: float, tasks: float, power: float, alpha: float, tests: float) -> int | None:
    """The fewest tasks that are enough with any number of queries; None beyond a hundred thousand."""
    low, high = 1, 2
    while high < MOST_TASKS and _reach(high, power, alpha, tests) * tasks >= effect * math.sqrt(high):
        low, high = high, 2 * high
    if high >= MOST_TASKS:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = _reach(middle, power, alpha, tests) * tasks < effect * math.sqrt(middle)
        low, high = (low, middle) if enough else (middle, high)
    return high
