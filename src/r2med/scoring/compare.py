"""Systems against each other: differences with intervals and tests, per task and overall; and where each stands.

Paired tests look at the differences of one pair query by query. An average over tasks is a weighted sum of the
differences, so the tests of a task and of an average are the same code. Stars and letters come from one family of
tests: all pairs on the average that systems are ranked by, and all pairs × tasks for the lines of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_letters
from typing import NamedTuple

import msgspec
import numpy as np

from ..core import UsageError
from ..core.columns import Int64
from .effects import (
    Equivalence,
    Spread,
    TTest,
    detectable_difference,
    effect_size,
    equivalence,
    spread,
    t_test,
    widened,
)  # fmt: skip
from .evaluation import ScoreSet, Weights
from .intervals import Bootstrap, Settings, SystemScores, score_intervals
from .measures import Bools, Float64
from .populations import Populations, populations
from .significance import EXACT_MOST, SAME, Line, Pairs, PairTests, SignFlips, all_pairs, exact_p, pair_tests, step_down

MOVED = 10
_MOST_CELLS = 100_000_000  # pairs × draws: so many systems are tested with fewer draws
_FEWEST_DRAWS, _FIRST_DRAWS = 2_000, 20_000
_DOUBT = 2.5  # standard deviations of a p of independent draws: nearer to the level, it is drawn more often


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The second system of a pair minus the first, on one task or over all of them."""

    difference: float
    low: float
    high: float
    n: int
    p: float
    p_adjusted: float  # Corrected for all tests of the family.
    exact: bool
    t_test: TTest | None
    effect: float | None  # In standard deviations of single differences.
    detectable: float | None  # None where nothing varies or no difference could reach the level.
    reachable: bool  # Whether any signs of these differences could reach the level after correction.
    wins: int
    ties: int
    losses: int
    different: bool
    equivalence: Equivalence | None = None


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
    populations: Populations | None = None  # None where there is one task.


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All that `compare` found."""

    measure: str
    settings: Settings
    systems: list[SystemScores]
    tie_groups: dict[str, int]  # The number of a system's first letter.
    pairs: list[Pair]
    letters: dict[str, str]  # Two systems share a letter exactly where they do not differ on the macro-average.
    ranks: dict[str, Rank]
    judged_at_10: dict[str, float | None] = {}
    # The share of each system's top ten that somebody judged, mean of the tasks; empty where that is not known.

    def _repr_html_(self) -> str:
        from ..core.table import html_tables
        from .tables import comparison_tables

        return html_tables(comparison_tables(self))


class _Lines(NamedTuple):
    """The tests of all pairs on one task or average."""

    line: Line
    tested: PairTests
    adjusted: Float64
    critical: float
    spreads: list[Spread | None]
    signs: Float64  # pairs × queries


def compare(
    scores: ScoreSet, settings: Settings = Settings(), *, margin: float | None = None  # noqa: B008
) -> Comparison:  # fmt: skip
    """Compare every pair of systems; with a `margin` (0–1), also whether they are equivalent.

    Corrected p values are over tasks × pairs for the lines of tasks, and over pairs for each of the two averages.
    """
    if len(scores.systems) < 2:
        raise UsageError("a comparison needs at least two systems")
    pairs = all_pairs(len(scores.systems))
    bootstrap = Bootstrap(scores.matrices, settings)
    flips = SignFlips(scores.matrices, draws=settings.flips, seed=settings.seed)
    weights, count, level = Weights.of(scores.matrices), len(scores.tasks), settings.level
    of_tasks = [np.eye(count)[t] for t in range(count)]
    family = step_down([flips.line(w) for w in of_tasks], pairs, level)
    tasks = [_test(flips, scores, pairs, w, family.p[t], family.critical, level) for t, w in enumerate(of_tasks)]
    averages = []
    for average in weights:
        alone = step_down([flips.line(average)], pairs, level)
        averages.append(_test(flips, scores, pairs, average, alone.p[0], alone.critical, level))
    macro, by_query = averages
    different = np.zeros((len(scores.systems),) * 2, dtype=bool)
    first, second = np.array(pairs).T
    different[first, second] = different[second, first] = macro.adjusted < 1.0 - level
    standing = standings_of(bootstrap, different)
    return Comparison(
        measure=scores.measure.key,
        settings=settings,
        systems=score_intervals(scores, settings, bootstrap=bootstrap),
        tie_groups=dict(zip(scores.systems, standing.groups, strict=True)),
        pairs=[
            Pair(
                first=scores.systems[first],
                second=scores.systems[second],
                tasks={
                    task.name: _line(lines, row, pairs, level, margin)
                    for task, lines in zip(scores.tasks, tasks, strict=True)
                },
                macro=_overall(_line(macro, row, pairs, level, margin), scores),
                query_weighted=_overall(_line(by_query, row, pairs, level, margin), scores),
                moved=most_moved(scores, first, second),
                populations=populations(
                    [m[second] - m[first] for m in scores.matrices],
                    (float(macro.tested.low[row]), float(macro.tested.high[row])),
                    float(macro.tested.p[row]),
                    level,
                ),
            )
            for row, (first, second) in enumerate(pairs)
        ],
        letters=dict(zip(scores.systems, standing.letters, strict=True)),
        ranks=dict(zip(scores.systems, standing.ranks, strict=True)),
    )


def _test(
    flips: SignFlips, scores: ScoreSet, pairs: Pairs, weights: Float64, adjusted: Float64, critical: float, level: float
) -> _Lines:
    line = flips.exact_line(weights)
    used = [(m, w) for m, w in zip(scores.matrices, weights.tolist(), strict=True) if w]
    spreads = [spread([m[second] - m[first] for m, _ in used], [w for _, w in used]) for first, second in pairs]
    tested = widened(pair_tests(line, pairs, level), spreads, line.weights, level)
    raw = np.concatenate([m for m, _ in used], axis=1)
    first, second = np.array(pairs).T
    differences = raw[second] - raw[first]
    signs = np.where(np.abs(differences) <= SAME, 0.0, np.sign(differences))
    # A pair by itself can be exact where the family is drawn: the correction never makes p smaller.
    return _Lines(line, tested, np.maximum(adjusted, tested.p), critical, spreads, signs)


def _line(lines: _Lines, row: int, pairs: Pairs, level: float, margin: float | None) -> Difference:
    tested, of, signs, alpha = lines.tested, lines.spreads[row], lines.signs[row], 1.0 - level
    differing = int(np.count_nonzero(signs))
    difference, different = float(tested.difference[row]), bool(lines.adjusted[row] < alpha)
    reachable = different or bool(2.0 ** (1 - differing) < alpha and tested.most[row] > lines.critical)
    detectable = None
    if of is not None and reachable:
        values = lines.line.differences(*pairs[row])
        detectable = detectable_difference(values, lines.line.weights, lines.critical, of.freedom, alpha=alpha)
    return Difference(
        difference=difference,
        low=float(tested.low[row]),
        high=float(tested.high[row]),
        n=len(signs),
        p=float(tested.p[row]),
        p_adjusted=float(lines.adjusted[row]),
        exact=tested.exact[row],
        t_test=None if of is None else t_test(of),
        effect=None if of is None else effect_size(of, len(signs)),
        detectable=detectable,
        reachable=reachable,
        wins=int((signs > 0).sum()),
        ties=int((signs == 0).sum()),
        losses=int((signs < 0).sum()),
        different=different,
        equivalence=None
        if margin is None
        else equivalence(
            lines.line, pairs[row], margin, alpha, of=of, difference=difference, p_adjusted=float(lines.adjusted[row])
        ),
    )


def _overall(line: Difference, scores: ScoreSet) -> OverallDifference:
    fields = {name: getattr(line, name) for name in line.__struct_fields__}
    return OverallDifference(**fields, tasks=len(scores.tasks), of_tasks=scores.of_tasks, complete=scores.complete)


def most_moved(scores: ScoreSet, first: int, second: int) -> list[Moved]:
    """The queries with the largest differences, either way; those that do not differ are not listed."""
    moved = [
        Moved(task=task.name, query_id=query_id, first=a, second=b, difference=b - a)
        for task in scores.tasks
        for query_id, a, b in zip(task.query_ids, *task.scores[[first, second]].tolist(), strict=True)
        if abs(b - a) > SAME
    ]
    return sorted(moved, key=lambda m: (-abs(m.difference), m.task, m.query_id))[:MOVED]


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """A system's place by macro-average, 1 the best.

    `low` to `high` are the ranks that the tests leave open, for all systems together: one below all that are
    significantly better, one above all that are significantly worse. `bootstrap_low` to `bootstrap_high` hold the
    middle share of the ranks over resampled queries, and `best` is how often it was first there (ties share it).
    """

    rank: int
    low: int
    high: int
    best: float
    bootstrap_low: int
    bootstrap_high: int


class Standings(msgspec.Struct, frozen=True, kw_only=True):
    """Letters and ranks of systems, in the order that they were given in."""

    letters: list[str]
    groups: list[int]  # The number of each system's first letter.
    ranks: list[Rank]


def standings(
    matrices: Sequence[Float64], settings: Settings = Settings(), *, bootstrap: Bootstrap | None = None  # noqa: B008
) -> Standings:  # fmt: skip
    """Letters and ranks by macro-average; `matrices` holds systems × queries of each task.

    They are those of `compare`, in less time: all signs are drawn only where fewer leave a p in doubt. A `bootstrap` of
    the same matrices need not be drawn again.
    """
    systems = len(matrices[0])
    pairs = all_pairs(systems)
    different = np.zeros((systems, systems), dtype=bool)
    if pairs:
        most = min(settings.flips, max(_FEWEST_DRAWS, _MOST_CELLS // len(pairs)))
        draws, alpha = min(_FIRST_DRAWS, most), 1.0 - settings.level
        p = _corrected_p(matrices, pairs, settings, draws)
        if draws < most and (np.abs(p - alpha) < _DOUBT * np.sqrt(alpha * settings.level / draws)).any():
            p = _corrected_p(matrices, pairs, settings, most)
        first, second = np.array(pairs).T
        different[first, second] = different[second, first] = p < alpha
    return standings_of(bootstrap or Bootstrap(matrices, settings), different)


def _corrected_p(matrices: Sequence[Float64], pairs: Pairs, settings: Settings, draws: int) -> Float64:
    """The p of every pair on the macro-average, corrected for all pairs; no less than the exact one of few queries."""
    line = SignFlips(matrices, draws=draws, seed=settings.seed).line(Weights.of(matrices).macro)
    p: Float64 = step_down([line], pairs, settings.level).p[0]
    for place in np.flatnonzero(p < 1.0 - settings.level).tolist():
        values = line.differences(*pairs[place])
        if np.count_nonzero(values) <= EXACT_MOST:
            p[place] = max(p[place], exact_p(values))
    return p


def standings_of(bootstrap: Bootstrap, different: Bools) -> Standings:
    """Letters and ranks from the pairs that differ and from resampled macro-averages."""
    value, replicates = bootstrap.macro()
    order = np.argsort(-value, kind="stable").tolist()
    groups = letter_groups(different, order)
    return Standings(
        letters=["".join(letter(g) for g, members in enumerate(groups) if i in members) for i in range(len(value))],
        groups=[1 + next(g for g, members in enumerate(groups) if i in members) for i in range(len(value))],
        ranks=_ranks(value, replicates, different, bootstrap.settings.level),
    )


def _ranks(value: Float64, replicates: Float64, different: Bools, level: float) -> list[Rank]:
    better = value[None, :] > value[:, None]  # row: a system, column: one that is above it
    tail = (1.0 - level) / 2.0
    places = _places(replicates)
    first = places == 1
    best = (first / first.sum(axis=0)).mean(axis=1)
    low, high = np.quantile(places, (tail, 1.0 - tail), axis=1, method="inverted_cdf")
    return [
        Rank(
            rank=1 + int((value > value[i] + SAME).sum()),
            low=1 + int((different[i] & better[i]).sum()),
            high=len(value) - int((different[i] & ~better[i]).sum()),
            best=float(best[i]),
            bootstrap_low=int(low[i]),
            bootstrap_high=int(high[i]),
        )
        for i in range(len(value))
    ]


def _places(scores: Float64) -> Int64:
    """The rank of each row in each column, highest first; equal scores share the better rank."""
    order = np.argsort(-scores, axis=0, kind="stable")
    ordered = np.take_along_axis(scores, order, axis=0)
    place = np.broadcast_to(np.arange(1, len(scores) + 1)[:, None], scores.shape).copy()
    place[1:][ordered[:-1] - ordered[1:] <= SAME] = 0
    places = np.empty(scores.shape, dtype=np.int64)
    np.put_along_axis(places, order, np.maximum.accumulate(place, axis=0), axis=0)
    return places


def letter_groups(different: Bools, order: Iterable[int]) -> list[set[int]]:
    """Groups of systems none of which differ, such that every pair that does not differ shares one.

    Each group starts with the first pair, in `order`, that shares none yet, and takes in whoever differs from nobody
    in it. So groups are few, and two systems share one exactly where they do not differ.
    """
    ranked = list(order)
    alike = ~different
    groups: list[set[int]] = []
    together = np.eye(len(ranked), dtype=bool)
    for place, first in enumerate(ranked):
        for second in ranked[place + 1 :]:
            if not alike[first, second] or together[first, second]:
                continue
            members = [first, second]
            open_to = alike[first] & alike[second]
            for other in ranked:
                if open_to[other] and other not in (first, second):
                    members.append(other)
                    open_to = open_to & alike[other]
            together[np.ix_(members, members)] = True
            groups.append(set(members))
        if not any(first in group for group in groups):
            groups.append({first})
    return groups


def letter(number: int) -> str:
    """Small letters, then capitals, then numbers in parentheses."""
    return ascii_letters[number] if number < len(ascii_letters) else f"({number + 1})"
