"""Size, power and coverage of every procedure of `r2med compare`, by simulation, beside scipy's; and its speed.

    python benchmarks/inference.py [TRIALS]

Scores are skewed with many zeros, as nDCG has; "ties" makes 70 % of the differences 0. With few trials the figures are
± 0.02 or so; 2,000 trials make them ± 0.01.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core, before numpy is imported

import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from common import report, seconds
from intervals import make
from scipy import stats

from r2med.scoring.effects import equivalence, spread, widened
from r2med.scoring.hits import Float64
from r2med.scoring.intervals import Bootstrap, Settings
from r2med.scoring.ranks import standings
from r2med.scoring.score_set import Weights
from r2med.scoring.significance import Line, SignFlips, all_pairs, pair_tests, step_down

SIZES, TIES = (12, 50, 100, 876), (0.0, 0.7)
ONE, ALPHA, DRAWS = np.ones(1), 0.05, 2_000


class Pair(NamedTuple):
    """What the procedures said about one pair."""

    rejected: bool
    t_rejected: bool
    covered: bool
    t_covered: bool
    equivalent: bool


def one_pair(rng: np.random.Generator, n: int, ties: float, true: float, seed: int) -> Pair:
    shift = true / (1.0 - ties)
    differences = rng.normal(shift, 0.2, n) * (rng.random(n) >= ties)
    line = SignFlips([np.stack((np.zeros(n), differences))], draws=DRAWS, seed=seed).exact_line(ONE)
    tested = widened(pair_tests(line, [(0, 1)], 1 - ALPHA), [spread([differences], [1.0])], line.weights, 1 - ALPHA)
    judged = equivalence(
        line,
        (0, 1),
        0.03,
        ALPHA,
        of=spread([differences], [1.0]),
        difference=float(differences.mean()),
        p_adjusted=1.0,
    )
    student = stats.ttest_1samp(differences, 0.0) if np.ptp(differences) else None
    low, high = student.confidence_interval(1 - ALPHA) if student else (0.0, 0.0)
    return Pair(
        bool(tested.p[0] < ALPHA),
        bool(student and student.pvalue < ALPHA),
        bool(tested.low[0] <= true <= tested.high[0]),
        bool(low <= true <= high),
        judged.equivalent,
    )


def pairs(trials: int) -> None:
    print("one pair, 95 %: size, power at 3 standard errors, coverage; t is scipy's; equivalent: claimed at the margin")
    print(f"{'n':>5} {'ties':>5} {'size':>7} {'t':>7} {'power':>7} {'t':>7} {'cover':>7} {'t':>7} {'equivalent':>11}")
    for n in SIZES:
        for ties in TIES:
            rng = np.random.default_rng(n)
            effect = 3.0 * 0.2 * np.sqrt((1.0 - ties) / n)
            null = [one_pair(rng, n, ties, 0.0, seed) for seed in range(trials)]
            real = [one_pair(rng, n, ties, effect, seed) for seed in range(trials)]
            edge = [one_pair(rng, n, ties, 0.03, seed) for seed in range(trials)]
            figures = [
                np.mean([p.rejected for p in null]), np.mean([p.t_rejected for p in null]),
                np.mean([p.rejected for p in real]), np.mean([p.t_rejected for p in real]),
                np.mean([p.covered for p in real]), np.mean([p.t_covered for p in real]),
                np.mean([p.equivalent for p in edge]),
            ]  # fmt: skip
            print(f"{n:>5} {ties:>5.0%} " + " ".join(f"{f:>7.3f}" for f in figures))


def family(rng: np.random.Generator, systems: int, n: int, better: float, noisy: bool) -> Float64:
    """Systems that share difficulty; the last is better, and one may be much noisier than the others."""
    spread_of = np.full((systems, 1), 0.1)
    spread_of[0] = 0.4 if noisy else 0.1
    scores: Float64 = rng.beta(0.6, 1.4, size=n) + rng.normal(size=(systems, n)) * spread_of
    scores[-1] += better
    return scores


def tukey(line: Line, chosen: list[tuple[int, int]]) -> list[bool]:
    """Randomised Tukey HSD by the same draws: the range of all systems decides about every pair."""
    widest = line.sums.max(axis=0) - line.sums.min(axis=0)
    totals = line.scores.sum(axis=1)
    bar = np.quantile(widest, 1 - ALPHA)
    return [bool(abs(totals[b] - totals[a]) > bar) for a, b in chosen]


def holm(line: Line, chosen: list[tuple[int, int]]) -> list[bool]:
    p = pair_tests(line, chosen, 1 - ALPHA).p
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return [bool(value < ALPHA) for value in corrected]


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
    for n in (12, 50, 100):
        for noisy in (False, True):
            wrong, found = dict.fromkeys(procedures, 0), dict.fromkeys(procedures, 0.0)
            rng = np.random.default_rng(n)
            for seed in range(trials):
                equal, unequal = (
                    SignFlips([family(rng, 8, n, better, noisy)], draws=DRAWS, seed=seed).line(ONE)
                    for better in (0.0, 0.55 / np.sqrt(n))
                )
                for name, decide in procedures.items():
                    wrong[name] += any(decide(equal, chosen))
                    starred = decide(unequal, chosen)
                    found[name] += float(np.mean([starred[i] for i in real]))
            cells = " ".join(f"{wrong[name] / trials:>15.3f} {found[name] / trials:>6.3f}" for name in procedures)
            print(f"{n:>5} {'one is noisy' if noisy else 'alike':>12} {cells}")


def scores(trials: int) -> None:
    print("\ncoverage of 95 % intervals of scores: BCa (the default), percentile, scipy's t; hit: shares of 0 and 1")
    print(f"{'n':>5} {'scores':>12} {'BCa':>7} {'percentile':>11} {'t':>7}")
    kinds: dict[str, tuple[Callable[[np.random.Generator, int], Float64], float]] = {
        "skewed": (lambda rng, n: rng.beta(0.5, 1.5, size=n), 0.25),
        "90 % zeros": (lambda rng, n: rng.beta(1.0, 1.0, size=n) * (rng.random(n) < 0.1), 0.05),
        "hit, 0.9": (lambda rng, n: (rng.random(n) < 0.9).astype(np.float64), 0.9),
    }
    for n in SIZES:
        for name, (draw, true) in kinds.items():
            rng, held = np.random.default_rng(n), np.zeros(3)
            for seed in range(trials):
                values = draw(rng, n)
                for i, method in enumerate(("bca", "percentile")):
                    settings = Settings(resamples=1_000, seed=seed, method=method)  # type: ignore[arg-type]
                    bounds = Bootstrap([values[None]], settings).scores(ONE)
                    held[i] += bounds.low[0] <= true <= bounds.high[0]
                reach = stats.t.ppf(1 - ALPHA / 2, n - 1) * values.std(ddof=1) / np.sqrt(n)
                held[2] += abs(values.mean() - true) <= reach
            print(f"{n:>5} {name:>12} {held[0] / trials:>7.3f} {held[1] / trials:>11.3f} {held[2] / trials:>7.3f}")


def ranks(trials: int) -> None:
    print("\nranks of 6 systems a point apart: share of samples whose intervals hold all true ranks, and each rank")
    for n in (50, 100, 876):
        rng, both, each, drawn = np.random.default_rng(n), 0, 0.0, 0.0
        for seed in range(trials):
            easy = rng.beta(0.6, 1.4, size=n)
            matrix = np.stack([easy + 0.01 * i + rng.normal(0.0, 0.15, n) for i in range(6)])
            found = standings([matrix], Settings(resamples=200, seed=seed)).ranks
            inside = [r.low <= 6 - i <= r.high for i, r in enumerate(found)]
            both, each = both + all(inside), each + float(np.mean(inside))
            drawn += float(np.mean([r.bootstrap_low <= 6 - i <= r.bootstrap_high for i, r in enumerate(found)]))
        print(
            f"{n:>5}  by tests: all {both / trials:.3f}, each {each / trials:.3f}; "
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
    families(max(trials // 2, 50))
    scores(max(trials // 2, 50))
    ranks(max(trials // 4, 25))
    sys.exit(not speed())


if __name__ == "__main__":
    main()
