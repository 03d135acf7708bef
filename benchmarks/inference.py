"""Size, power and coverage of every procedure of `r2med compare`, by simulation, beside scipy's and statsmodels'.

    python benchmarks/inference.py [TRIALS]

Scores are skewed with many zeros, as nDCG has; "ties" makes 70 % of the differences 0. With 400 trials the figures are
± 0.02 or so; 2,000 trials make them ± 0.01. The last line is its speed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core, before numpy is imported

import sys
import warnings
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
from common import report, seconds
from intervals import make
from scipy import optimize, stats
from statsmodels.regression.mixed_linear_model import MixedLM
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

from r2med.scoring.compare import standings
from r2med.scoring.effects import detectable_difference, equivalence, spread, widened
from r2med.scoring.evaluation import Weights
from r2med.scoring.intervals import Bootstrap, Settings
from r2med.scoring.measures import Float64
from r2med.scoring.populations import populations
from r2med.scoring.significance import Line, SignFlips, all_pairs, pair_tests, step_down

SIZES, TIES = (12, 50, 100, 876), (0.0, 0.7)
ONE, ALPHA, DRAWS, DEVIATION = np.ones(1), 0.05, 2_000, 0.2
TASKS, OF_TASKS, MODELS = 8, 0.05, 25  # the standard deviation of tasks; samples that a mixed model is fitted to


def differences_of(rng: np.random.Generator, n: int, ties: float, true: float) -> Float64:
    """Of n queries; where some tie, the others carry the whole difference."""
    found: Float64 = rng.normal(true / (1.0 - ties), DEVIATION, n) * (rng.random(n) >= ties)
    return found


class Pair(NamedTuple):
    """What the procedures said about one pair; the second of each two is scipy's or statsmodels'."""

    rejected: bool
    t_rejected: bool
    covered: bool
    t_covered: bool
    equivalent: bool
    tost: bool


def one_pair(differences: Float64, true: float, margin: float, seed: int) -> Pair:
    n = len(differences)
    line = SignFlips([np.stack((np.zeros(n), differences))], draws=DRAWS, seed=seed).exact_line(ONE)
    of = spread([differences], [1.0])
    tested = widened(pair_tests(line, [(0, 1)], 1 - ALPHA), [of], line.weights, 1 - ALPHA)
    mean = float(differences.mean())
    judged = equivalence(line, (0, 1), margin, ALPHA, of=of, difference=mean, p_adjusted=1.0)
    student = stats.ttest_1samp(differences, 0.0) if np.ptp(differences) else None
    low, high = student.confidence_interval(1 - ALPHA) if student else (0.0, 0.0)
    return Pair(
        bool(tested.p[0] < ALPHA),
        bool(student and student.pvalue < ALPHA),
        bool(tested.low[0] <= true <= tested.high[0]),
        bool(low <= true <= high),
        judged.equivalent,
        bool(student and DescrStatsW(differences).ttost_mean(-margin, margin)[0] < ALPHA),
    )


def pairs(trials: int) -> None:
    print("one pair: size, power and coverage at 3 standard errors; t is scipy's")
    print("equivalent within 3 standard errors: claimed at the margin (size) and at 0 (power); TOST is statsmodels'")
    titles = ("size", "t", "power", "t", "cover", "t", "eq size", "TOST", "eq power", "TOST")
    print(f"{'n':>5} {'ties':>5} " + " ".join(f"{title:>8}" for title in titles))
    for n, ties in product(SIZES, TIES):
        rng = np.random.default_rng(n)
        effect = 3.0 * DEVIATION * np.sqrt((1.0 - ties) / n)
        null, real = (
            np.mean([one_pair(differences_of(rng, n, ties, true), true, effect, s) for s in range(trials)], axis=0)
            for true in (0.0, effect)
        )
        figures = [*null[:2], *real[:4], *real[4:], *null[4:]]
        print(f"{n:>5} {ties:>5.0%} " + " ".join(f"{f:>8.3f}" for f in figures))


def detectable(trials: int) -> None:
    print("\nthe difference said to get a star in 80 % of samples, in how many it does; and statsmodels' for a t-test")
    print(f"{'n':>5} {'ties':>5} {'points':>8} {'power':>7} {'t, points':>10} {'cannot':>8}")
    for n, ties in product(SIZES, TIES):
        rng, said, starred, deviations = np.random.default_rng(n), [], 0, []
        for seed in range(trials):
            differences = differences_of(rng, n, ties, 0.0)
            deviations.append(differences.std(ddof=1))
            _, critical = star(differences, seed)
            found = detectable_difference(differences / n, np.full(n, 1 / n), critical, n - 1)
            if found is not None:
                said.append(found)
                share = float((differences != 0.0).mean())
                starred += star(differences_of(rng, n, 1.0 - share, found), seed)[0]
        print(
            f"{n:>5} {ties:>5.0%} {100 * np.median(said or [np.nan]):>8.2f} {starred / max(len(said), 1):>7.3f} "
            f"{100 * found_by_t(n) * np.median(deviations):>10.2f} {1 - len(said) / trials:>8.0%}"
        )


def found_by_t(n: int) -> float:
    """The effect that a t-test finds with 80 % power; `solve_power` of statsmodels finds no end where n is large."""
    found = optimize.brentq(lambda effect: TTestPower().power(effect, n, ALPHA) - 0.8, 0.5 / n**0.5, 6.0 / n**0.5)
    return float(found)


def star(differences: Float64, seed: int) -> tuple[bool, float]:
    """Whether a pair alone gets a star, and the |z| that gets one."""
    flips = SignFlips([np.stack((np.zeros(len(differences)), differences))], draws=DRAWS, seed=seed)
    found = step_down([flips.line(ONE)], [(0, 1)], 1 - ALPHA)
    p = max(found.p[0][0], pair_tests(flips.exact_line(ONE), [(0, 1)], 1 - ALPHA).p[0])
    return bool(p < ALPHA), found.critical


def family(rng: np.random.Generator, systems: int, n: int, better: float, kind: str) -> Float64:
    """Systems that share difficulty; the last is better, and one may be much noisier than the others."""
    spread_of = np.full((systems, 1), 0.1)
    spread_of[0] = 0.4 if kind == "one is noisy" else 0.1
    easy = rng.beta(0.6, 1.4, size=n)
    own = rng.normal(size=(systems, n)) * spread_of
    own[-1] += better
    if kind == "ties":
        own *= rng.random((systems, n)) >= TIES[1]
    scores: Float64 = easy + own
    return scores


def tukey(line: Line, chosen: list[tuple[int, int]]) -> list[bool]:
    """Randomised Tukey HSD by the same draws: the range of all systems decides about every pair."""
    widest = line.sums.max(axis=0) - line.sums.min(axis=0)
    totals = line.scores.sum(axis=1)
    bar = np.quantile(widest, 1 - ALPHA)
    return [bool(abs(totals[b] - totals[a]) > bar) for a, b in chosen]


def holm(line: Line, chosen: list[tuple[int, int]]) -> list[bool]:
    p = pair_tests(line, chosen, 1 - ALPHA).p
    return [bool(rejected) for rejected in multipletests(p, ALPHA, "holm")[0]]


def step(line: Line, chosen: list[tuple[int, int]]) -> list[bool]:
    return [bool(value < ALPHA) for value in step_down([line], chosen, 1 - ALPHA).p[0]]


def families(trials: int) -> None:
    procedures: dict[str, Callable[[Line, list[tuple[int, int]]], list[bool]]] = {
        "step-down": step, "Tukey HSD": tukey, "Holm": holm
    }  # fmt: skip
    print("\n8 systems, 28 pairs: P(any star) where none differ, and the share of 7 true differences that is starred")
    print(f"{'n':>5} {'systems':>12} " + " ".join(f"{name + ' size':>15} {'power':>6}" for name in procedures))
    chosen = all_pairs(8)
    real = [i for i, (_, second) in enumerate(chosen) if second == 7]
    for n, kind in product(SIZES, ("alike", "one is noisy", "ties")):
        wrong, found = dict.fromkeys(procedures, 0), dict.fromkeys(procedures, 0.0)
        rng = np.random.default_rng(n)
        for seed in range(trials):
            equal, unequal = (
                SignFlips([family(rng, 8, n, better, kind)], draws=DRAWS, seed=seed).line(ONE)
                for better in (0.0, 0.55 / np.sqrt(n))
            )
            for name, decide in procedures.items():
                wrong[name] += any(decide(equal, chosen))
                starred = decide(unequal, chosen)
                found[name] += float(np.mean([starred[i] for i in real]))
        cells = " ".join(f"{wrong[name] / trials:>15.3f} {found[name] / trials:>6.3f}" for name in procedures)
        print(f"{n:>5} {kind:>12} {cells}")


def mixed_model(differences: list[Float64]) -> float:
    """The standard deviation of tasks by restricted maximum likelihood."""
    values, groups = np.concatenate(differences), np.repeat(np.arange(TASKS), [len(d) for d in differences])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where the estimate is 0
        fitted = MixedLM(values, np.ones(len(values)), groups).fit(reml=True, method=["bfgs", "powell"])
    return float(np.sqrt(fitted.cov_re[0, 0]))


def tasks(trials: int) -> None:
    print(f"\n{TASKS} tasks of n queries: size, power and coverage of both populations where new tasks are meant;")
    print("and the standard deviation of tasks (root mean square), ours and that of statsmodels' mixed model")
    titles = ("size", "power", "cover", "cover of other queries", "ours", "REML")
    print(f"{'n':>5} {'ties':>5} " + " ".join(f"{title:>{max(len(title), 7)}}" for title in titles))
    for n, ties in product(SIZES, TIES):
        rng, counts = np.random.default_rng(n), np.zeros(4)
        deviations, theirs = [], []
        effect = 4.0 * np.sqrt((OF_TASKS**2 + DEVIATION**2 * (1.0 - ties) / n) / TASKS)
        for seed, true in product(range(trials), (0.0, effect)):
            found = [differences_of(rng, n, ties, true + rng.normal(0.0, OF_TASKS)) for _ in range(TASKS)]
            line = SignFlips([np.stack((np.zeros(n), d)) for d in found], draws=DRAWS, seed=seed)
            weights = np.full(TASKS, 1 / TASKS)
            tested = pair_tests(line.line(weights), [(0, 1)], 1 - ALPHA)
            tested = widened(tested, [spread(found, list(weights))], weights, 1 - ALPHA)
            ends = float(tested.low[0]), float(tested.high[0])
            asked = populations(found, ends, float(tested.p[0]), 1 - ALPHA)
            assert asked is not None
            rejected = asked.p_other_tasks is not None and asked.p_other_tasks < ALPHA
            if true:
                wide, narrow = asked.other_tasks, asked.other_queries
                counts[1:] += rejected, wide.low <= true <= wide.high, narrow.low <= true <= narrow.high
            else:
                counts[0] += rejected
                if seed < MODELS:
                    deviations.append(asked.deviation_of_tasks)
                    theirs.append(mixed_model(found))
        size, power, cover, too_narrow = counts / trials
        ours, reml = (100 * np.sqrt(np.mean(np.square(values))) for values in (deviations, theirs))
        print(
            f"{n:>5} {ties:>5.0%} {size:>7.3f} {power:>7.3f} {cover:>7.3f} {too_narrow:>22.3f}",
            f"{ours:>7.2f} {reml:>7.2f}",
        )


def peer_interval(values: Float64, name: str, seed: int) -> tuple[float, float]:
    """The BCa interval of a mean by scipy, the exact one of a share by statsmodels."""
    if name.startswith("hit"):
        low, high = proportion_confint(values.sum(), len(values), ALPHA, "beta")
        return float(low), float(high)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where all values are equal it has none
        rng = np.random.default_rng(seed)
        found = stats.bootstrap((values,), np.mean, n_resamples=1_000, method="BCa", rng=rng).confidence_interval
    return float(found.low), float(found.high)


def scores(trials: int) -> None:
    print("\ncoverage of 95 % intervals of scores; hit: shares of 0 and 1")
    print("ours: BCa (the default), percentile; scipy's BCa, or statsmodels' exact interval of a share; scipy's t")
    print(f"{'n':>5} {'scores':>12} {'BCa':>7} {'percentile':>11} {'theirs':>7} {'t':>7}")
    kinds: dict[str, tuple[Callable[[np.random.Generator, int], Float64], float]] = {
        "skewed": (lambda rng, n: rng.beta(0.5, 1.5, size=n), 0.25),
        "90 % zeros": (lambda rng, n: rng.beta(1.0, 1.0, size=n) * (rng.random(n) < 0.1), 0.05),
        "hit, 0.9": (lambda rng, n: (rng.random(n) < 0.9).astype(np.float64), 0.9),
    }
    for n, (name, (draw, true)) in product(SIZES, kinds.items()):
        rng, held = np.random.default_rng(n), np.zeros(4)
        for seed in range(trials):
            values = draw(rng, n)
            for i, method in enumerate(("bca", "percentile")):
                settings = Settings(resamples=1_000, seed=seed, method=method)  # type: ignore[arg-type]
                bounds = Bootstrap([values[None]], settings).scores(ONE)
                held[i] += bounds.low[0] <= true <= bounds.high[0]
            low, high = peer_interval(values, name, seed)
            held[2] += low <= true <= high
            reach = stats.t.ppf(1 - ALPHA / 2, n - 1) * values.std(ddof=1) / np.sqrt(n)
            held[3] += abs(values.mean() - true) <= reach
        bca, percentile, theirs, student = held / trials
        print(f"{n:>5} {name:>12} {bca:>7.3f} {percentile:>11.3f} {theirs:>7.3f} {student:>7.3f}")


def ranks(trials: int) -> None:
    print("\nranks of 6 systems a point apart: share of samples whose intervals hold all true ranks, and each rank")
    for n, ties in product(SIZES, TIES):
        rng, both, each, drawn = np.random.default_rng(n), 0, 0.0, 0.0
        for seed in range(trials):
            own = 0.01 * np.arange(6)[:, None] + rng.normal(0.0, 0.15, (6, n))
            matrix = rng.beta(0.6, 1.4, size=n) + own * (rng.random((6, n)) >= ties)
            found = standings([matrix], Settings(resamples=200, seed=seed)).ranks
            inside = [r.low <= 6 - i <= r.high for i, r in enumerate(found)]
            both, each = both + all(inside), each + float(np.mean(inside))
            drawn += float(np.mean([r.bootstrap_low <= 6 - i <= r.bootstrap_high for i, r in enumerate(found)]))
        print(
            f"{n:>5} {ties:>5.0%}  by tests: all {both / trials:.3f}, each {each / trials:.3f}; "
            f"by bootstrap: each {drawn / trials:.3f}"
        )


def speed() -> bool:
    made = make()
    weights, chosen = Weights.of(made.matrices), all_pairs(len(made.systems))

    def whole() -> None:
        flips = SignFlips(made.matrices, draws=100_000)
        step_down([flips.line(row) for row in np.eye(len(made.tasks))], chosen, 0.95)
        for average in weights:
            step_down([flips.line(average)], chosen, 0.95)

    print()
    name = "CPU seconds of 100,000 sign flips, 20 systems × 876 queries, 8 tasks and both averages"
    return report(name, min(seconds(whole, 3)), 3.0, at_least=False)


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    pairs(trials)
    detectable(max(trials // 2, 50))
    families(max(trials // 2, 50))
    tasks(max(trials // 4, 50))
    scores(max(trials // 2, 50))
    ranks(max(trials // 4, 25))
    sys.exit(not speed())


if __name__ == "__main__":
    main()
