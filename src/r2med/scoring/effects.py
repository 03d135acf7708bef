"""How large a difference is and how well it is known: standard errors, t-tests, power, effect sizes, equivalence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from ..core import UsageError
from .intervals import student_cdf, student_quantile, two_sided_p
from .measures import Float64
from .significance import ENDS, SAME, SLACK, Line, PairTests

Verdict = Literal["better", "worse", "equivalent", "undecided"]
POWER = 0.8


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
    deviation: float  # of single queries, within tasks


def spread(differences: Sequence[Float64], weights: Sequence[float]) -> Spread | None:
    """The mean difference and its standard error; None where nothing varies.

    Several tasks have several variances: the degrees of freedom are Welch and Satterthwaite's. A task of one query has
    none of its own and takes the mean variance of the others.
    """
    variances = [float(values.var(ddof=1)) for values in differences if len(values) > 1]
    if not variances and len(differences) > 1:
        variances = [float(np.concatenate(differences).var(ddof=1))]
    usual = float(np.mean(variances)) if variances else 0.0
    mean, variance, pooled, within = 0.0, 0.0, 0.0, 0.0
    for values, weight in zip(differences, weights, strict=True):
        mean += weight * float(values.mean())
        own = float(values.var(ddof=1)) if len(values) > 1 else usual
        part = weight * weight * own / len(values)
        variance += part
        pooled += part * part / max(len(values) - 1, 1)
        within += abs(weight) * own
    if variance < 1e-28:
        return None
    deviation = math.sqrt(within / sum(map(abs, weights)))
    return Spread(mean, math.sqrt(variance), variance * variance / pooled, deviation)


def t_test(of: Spread) -> TTest:
    """Two-sided paired t-test."""
    t = of.mean / of.error
    return TTest(t, of.freedom, two_sided_p(t, of.freedom))


def effect_size(of: Spread, queries: int) -> float:
    """The mean difference over the standard deviation of single differences, corrected for few queries (Hedges)."""
    correction = 1.0 - 3.0 / (4.0 * queries - 5.0) if queries > 2 else 1.0
    return correction * of.mean / of.deviation


def widened(tested: PairTests, spreads: Sequence[Spread | None], weights: Float64, level: float) -> PairTests:
    """Intervals that hold both the differences that randomisation does not reject and Student's interval.

    Randomisation alone is over-confident where most queries tie, Student's alone where tasks pull in different
    directions. Beside 0 the randomisation test decides, so that interval and p never disagree. Where every query
    differs alike, or none does, queries not seen could change as much as the same confidence allows.
    """
    low, high, tail = tested.low.copy(), tested.high.copy(), (1.0 - level) / 2.0
    unseen = 1.0 - tail ** float((weights**2).sum())
    for row, of in enumerate(spreads):
        if tested.most[row] == 0.0:
            low[row], high[row] = -unseen, unseen
            continue
        if of is None:
            centre, reach = float(tested.difference[row]) * (1.0 - unseen), unseen
        else:
            centre, reach = of.mean, student_quantile(1.0 - tail, round(of.freedom, 6)) * of.error
        ends = max(centre - reach, -ENDS), min(centre + reach, ENDS)
        if tested.low[row] <= 0.0 or ends[0] > 0.0:
            low[row] = min(low[row], ends[0])
        if tested.high[row] >= 0.0 or ends[1] < 0.0:
            high[row] = max(high[row], ends[1])
    return tested._replace(low=low, high=high)


def detectable_difference(
    values: Float64, weights: Float64, critical: float, freedom: float, *, alpha: float = 0.05
) -> float | None:
    """The smallest true difference that the starred test would find 80 times in 100; None where none would do.

    `values` are the differences of queries times their `weights`, and `critical` is the |z| that gets a star. The true
    difference is thought to lie in as large a share of the queries as differ here. It makes the squares under z larger
    as well, and other queries may hold too few that differ for any p below `alpha`: with few such queries no
    difference is large enough.
    """
    differing = values != 0.0
    inside = weights[differing]
    share = float(inside.sum())
    enough = _chance_of_enough(len(values), int(differing.sum()), alpha)
    if enough <= POWER:
        return None
    noise = float(((values[differing] - values.sum() / share * inside) ** 2).sum())
    squares, luck = float((inside**2).sum()) / share**2, student_quantile(POWER / enough, freedom)

    def needed(true: float) -> float:
        added = true**2 * squares
        # How many queries differ is chance, too. z grows with the root of their number, so it counts by half.
        return critical * math.sqrt(noise + added) + luck * math.sqrt(noise + added * (1.0 - share) / 4.0)

    if needed(ENDS) > ENDS:
        return None
    low, high = 0.0, ENDS
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if needed(middle) > middle else (low, middle)
    return high


def _chance_of_enough(queries: int, differing: int, alpha: float) -> float:
    """How likely so many other queries hold as many that differ as a p below alpha takes: 2 to 1 − their number."""
    least, share = math.floor(2.0 - math.log2(alpha)), differing / queries
    fewer = (math.comb(queries, m) * share**m * (1.0 - share) ** (queries - m) for m in range(min(least, queries + 1)))
    return 1.0 - sum(fewer)


class Equivalence(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a difference is smaller than a margin: two one-sided tests against the margin, either way.

    `p_not_worse` is small where the second system is not worse than the first by the margin, `p_not_better` where it
    is not better by the margin, `p` is the larger of both: small where the two are equivalent. These tests stand for
    one line, uncorrected.
    """

    margin: float
    p: float
    p_not_worse: float
    p_not_better: float
    equivalent: bool
    not_worse: bool
    verdict: Verdict


def equivalence(
    line: Line,
    pair: tuple[int, int],
    margin: float,
    alpha: float,
    *,
    of: Spread | None,
    difference: float,
    p_adjusted: float,
) -> Equivalence:
    """Judge one pair on one line against plus and minus the margin, by randomisation and by Student's t.

    The larger p counts: randomisation alone claims too much where most queries tie. Where nothing differs, p is the
    chance that these queries show nothing although a share of the margin differs. `p_adjusted` decides whether one is
    better; the better one is not worse by the margin either.
    """
    if not 0 < margin < 1:
        raise UsageError(f"a margin lies between 0 and 100 points, got {100 * margin:g}")
    first, second = pair
    values = line.scores[second] - line.scores[first]
    signed = (line.sums[second] - line.sums[first]).astype(np.float64)
    slack = SLACK * float(np.linalg.norm(values) + margin * np.linalg.norm(line.weights))
    p = [
        _one_sided(difference + margin, signed + margin * line.balance, slack, line),
        _one_sided(margin - difference, margin * line.balance - signed, slack, line),
    ]
    if of is not None:
        distances = (margin + of.mean) / of.error, (margin - of.mean) / of.error
        p = [max(drawn, 1.0 - student_cdf(t, of.freedom)) for drawn, t in zip(p, distances, strict=True)]
    elif not np.abs(values).max() > SAME:
        p = [(1.0 - margin) ** (1.0 / float((line.weights**2).sum()))] * 2
    different = p_adjusted < alpha
    if different:
        side = 0 if difference > 0 else 1
        p[side] = min(p[side], p_adjusted)
    equivalent = max(p) < alpha
    verdict: Verdict = "equivalent" if equivalent else "undecided"
    if different:
        verdict = "better" if difference > 0 else "worse"
    return Equivalence(
        margin=margin,
        p=max(p),
        p_not_worse=p[0],
        p_not_better=p[1],
        equivalent=equivalent,
        not_worse=p[0] < alpha,
        verdict=verdict,
    )


def _one_sided(observed: float, drawn: Float64, slack: float, line: Line) -> float:
    """How often random signs give at least what was observed; of all patterns, half have the first sign turned."""
    reached = int((drawn >= observed - slack).sum())
    if line.exact:
        return (reached + int((-drawn >= observed - slack).sum())) / (2 * len(drawn))
    return (reached + 1) / (len(drawn) + 1)
