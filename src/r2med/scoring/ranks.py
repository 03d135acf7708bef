"""Where systems stand: letters of those that do not differ, ranks with intervals, the chance to be the best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_letters

import msgspec
import numpy as np

from .hits import Bools, Float64, Int64
from .intervals import Bootstrap, Settings
from .score_set import Weights
from .significance import EXACT_MOST, SAME, Pairs, SignFlips, all_pairs, exact_p, step_down

_MOST_CELLS = 100_000_000  # pairs × draws: so many systems are tested with fewer draws
_FEWEST_DRAWS, _FIRST_DRAWS = 2_000, 20_000
_DOUBT = 2.5  # standard deviations of a p of independent draws: nearer to the level, it is drawn more often


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
