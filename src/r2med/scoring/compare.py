"""Systems against each other: differences with intervals and tests, per task and overall.

Paired tests look at the differences of one pair query by query. An average over tasks is a weighted sum of the
differences, so the tests of a task and of an average are the same code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import msgspec
import numpy as np

from ..core import UsageError
from .hits import Float64
from .intervals import Bootstrap, Bounds, Settings, SystemScores, score_intervals, student_quantile, two_sided_p
from .score_set import ScoreSet, Weights

EXACT_MOST = 16  # up to this many queries that differ, all sign patterns are gone through
_CELLS_AT_ONCE = 1 << 21
SAME = 1e-12
MOVED = 10


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
    exact = np.count_nonzero(differences, axis=1) <= EXACT_MOST
    p = np.empty(len(differences))
    p[exact] = [_exact_p(row) for row in differences[exact]]
    if not exact.all():
        p[~exact] = _drawn_p(differences[~exact], resamples, seed)
    return Randomisation(p, tuple(exact.tolist()))


def _exact_p(differences: Float64) -> float:
    sizes = np.abs(differences[differences != 0.0])
    sums = np.zeros(1)
    for size in sizes[:-1]:  # the last sign is fixed: a pattern and its opposite are equally far from zero
        sums = np.concatenate((sums + size, sums - size))
    sums = np.abs(sums + (sizes[-1] if len(sizes) else 0.0))
    slack = 1e-12 * sizes.sum()  # sums that are equal on paper differ in their last bits
    return float((sums >= abs(differences.sum()) - slack).mean())


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
    return TTest(t, of.freedom, two_sided_p(t, of.freedom))


def detectable_difference(of: Spread, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """The smallest true difference that a t-test on these queries would find with the given power."""
    if not (0 < alpha < 1 and 0 < power < 1):
        raise UsageError(f"alpha and power lie between 0 and 1, got {alpha:g} and {power:g}")
    reach = student_quantile(1.0 - alpha / 2.0, of.freedom) + student_quantile(power, of.freedom)
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
        differences = weighted[leader] - weighted[rest]
        differences[np.abs(differences) < 1e-15] = 0.0
        p = randomisation_test(differences, resamples=settings.resamples, seed=settings.seed).p
        apart = np.flatnonzero(holm(p) < 1.0 - settings.level)
        reach = int(apart[0]) if len(apart) else len(rest)
        for member in (leader, *rest[:reach]):
            groups[member] = group
        order = rest[reach:]
    return groups


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The second system of a pair minus the first, on one task or over all of them."""

    difference: float
    low: float
    high: float
    n: int
    p: float
    p_holm: float
    exact: bool
    t_test: TTest | None
    detectable: float | None
    wins: int
    ties: int
    losses: int
    different: bool


class OverallDifference(Difference, frozen=True, kw_only=True):
    """A difference of averages, with the number of tasks behind them."""

    tasks: int
    of_tasks: int
    complete: bool


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A query whose score differs much between the two systems."""

    task: str
    query_id: str
    first: float
    second: float
    difference: float
    snippet: str | None = None


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two systems; differences are `second` minus `first`."""

    first: str
    second: str
    tasks: dict[str, Difference]
    macro: OverallDifference
    query_weighted: OverallDifference
    moved: list[Moved]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All that `compare` found."""

    measure: str
    settings: Settings
    systems: list[SystemScores]
    tie_groups: dict[str, int]
    pairs: list[Pair]

    def _repr_html_(self) -> str:
        from ..core.table import html_tables
        from .tables import comparison_tables

        return html_tables(comparison_tables(self))


class _Tested(NamedTuple):
    """One line of every pair: a task, or an average over tasks."""

    bounds: Bounds
    p: Float64
    exact: tuple[bool, ...]
    spreads: list[Spread | None]
    signs: Float64  # pairs × queries


def compare(scores: ScoreSet, settings: Settings = Settings()) -> Comparison:  # noqa: B008
    """Compare every pair of systems.

    Holm's correction is over tasks × pairs for the lines of tasks, and over pairs for each of the two averages.
    """
    if len(scores.systems) < 2:
        raise UsageError("a comparison needs at least two systems")
    pairs = list(combinations(range(len(scores.systems)), 2))
    contrasts = np.zeros((len(pairs), len(scores.systems)))
    for row, (first, second) in enumerate(pairs):
        contrasts[row, first], contrasts[row, second] = -1.0, 1.0
    bootstrap = Bootstrap(scores.matrices, settings)
    differences = [contrasts @ m for m in scores.matrices]
    weights, count = Weights.of(scores.matrices), len(scores.tasks)
    of_tasks = [_test(bootstrap, contrasts, differences, np.eye(count)[t]) for t in range(count)]
    macro = _test(bootstrap, contrasts, differences, weights.macro)
    by_query = _test(bootstrap, contrasts, differences, weights.by_query)
    corrected = holm(np.concatenate([t.p for t in of_tasks])).reshape(count, len(pairs))
    return Comparison(
        measure=scores.measure.key,
        settings=settings,
        systems=score_intervals(scores, settings, bootstrap=bootstrap),
        tie_groups=dict(zip(scores.systems, tie_groups(scores.matrices, settings), strict=True)),
        pairs=[
            Pair(
                first=scores.systems[first],
                second=scores.systems[second],
                tasks={
                    task.name: _line(tested, row, float(corrected[t, row]), settings)
                    for t, (task, tested) in enumerate(zip(scores.tasks, of_tasks, strict=True))
                },
                macro=_overall(macro, row, scores, settings),
                query_weighted=_overall(by_query, row, scores, settings),
                moved=most_moved(scores, first, second),
            )
            for row, (first, second) in enumerate(pairs)
        ],
    )


def _test(bootstrap: Bootstrap, contrasts: Float64, differences: list[Float64], weights: Float64) -> _Tested:
    used = [(d, w) for d, w in zip(differences, weights.tolist(), strict=True) if w]
    weighted = np.concatenate([d * (w / d.shape[1]) for d, w in used], axis=1)
    weighted[np.abs(np.concatenate([d for d, _ in used], axis=1)) <= SAME] = 0.0
    settings = bootstrap.settings
    p, exact = randomisation_test(weighted, resamples=settings.resamples, seed=settings.seed)
    spreads = [spread([d[row] for d, _ in used], [w for _, w in used]) for row in range(len(contrasts))]
    return _Tested(bootstrap.bounds(contrasts, weights), p, exact, spreads, np.sign(weighted))


def _line(tested: _Tested, row: int, p_holm: float, settings: Settings) -> Difference:
    of, signs, alpha = tested.spreads[row], tested.signs[row], 1.0 - settings.level
    found = tested.bounds.estimate(row, len(signs))
    return Difference(
        difference=found.value,
        low=found.low,
        high=found.high,
        n=found.n,
        p=float(tested.p[row]),
        p_holm=p_holm,
        exact=tested.exact[row],
        t_test=None if of is None else t_test(of),
        detectable=None if of is None else detectable_difference(of, alpha=alpha),
        wins=int((signs > 0).sum()),
        ties=int((signs == 0).sum()),
        losses=int((signs < 0).sum()),
        different=p_holm < alpha,
    )


def _overall(tested: _Tested, row: int, scores: ScoreSet, settings: Settings) -> OverallDifference:
    line = _line(tested, row, float(holm(tested.p)[row]), settings)
    return OverallDifference(
        **msgspec.structs.asdict(line), tasks=len(scores.tasks), of_tasks=scores.of_tasks, complete=scores.complete
    )


def most_moved(scores: ScoreSet, first: int, second: int, most: int = MOVED) -> list[Moved]:
    """The queries with the largest differences, either way; those that do not differ are not listed."""
    moved = [
        Moved(task=task.name, query_id=query_id, first=a, second=b, difference=b - a)
        for task in scores.tasks
        for query_id, a, b in zip(task.query_ids, *task.scores[[first, second]].tolist(), strict=True)
        if abs(b - a) > SAME
    ]
    return sorted(moved, key=lambda m: (-abs(m.difference), m.task, m.query_id))[:most]
