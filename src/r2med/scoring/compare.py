"""Systems against each other: differences with intervals and tests, per task and overall."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import msgspec
import numpy as np

from ..core import UsageError
from .hits import Float64
from .intervals import Bootstrap, Bounds, Settings, SystemScores, score_intervals
from .score_set import ScoreSet, Weights
from .significance import Spread, TTest, detectable_difference, holm, randomisation_test, spread, t_test, tie_groups

SAME = 1e-12
MOVED = 10


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


def compare(scores: ScoreSet, settings: Settings = Settings(), *, moved: int = MOVED) -> Comparison:  # noqa: B008
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
    systems = score_intervals(scores, settings, bootstrap=bootstrap)
    groups = tie_groups(scores.matrices, settings)
    return Comparison(
        measure=scores.measure.key,
        settings=settings,
        systems=systems,
        tie_groups=dict(zip(scores.systems, groups, strict=True)),
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
                moved=most_moved(scores, first, second, moved),
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
        **msgspec.structs.asdict(line),
        tasks=len(scores.tasks),
        of_tasks=scores.of_tasks,
        complete=scores.complete,
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
