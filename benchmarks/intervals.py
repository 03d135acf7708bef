"""10,000 stratified resamples of 876 queries × 20 systems, against scipy's bootstrap of the macro-average alone."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core, before numpy is imported

import statistics
import sys
from collections.abc import Callable

import numpy as np
from common import report, seconds
from scipy import stats

from r2med.scoring.compare import compare, standings
from r2med.scoring.evaluation import ScoreSet, TaskScores
from r2med.scoring.intervals import Settings, score_intervals

SIZES = (103, 77, 88, 97, 118, 150, 114, 129)  # R2MED's tasks: 876 queries
SYSTEMS, RESAMPLES = 20, 10_000


def make() -> ScoreSet:
    rng = np.random.default_rng(0)
    tasks = []
    for t, size in enumerate(SIZES):
        scores = np.clip(rng.beta(0.6, 1.4, size=size) + rng.normal(0.0, 0.15, size=(SYSTEMS, size)), 0.0, 1.0)
        tasks.append(TaskScores(f"t{t}", tuple(f"q{q}" for q in range(size)), scores))
    return ScoreSet(tuple(f"s{s}" for s in range(SYSTEMS)), tuple(tasks), len(SIZES))


def median(work: Callable[[], object], repeat: int = 5) -> float:
    return statistics.median(seconds(work, repeat))


def macro(*tasks: np.ndarray[tuple[int, ...], np.dtype[np.float64]], axis: int = -1) -> object:
    return np.mean([t.mean(axis=axis) for t in tasks], axis=0)


def main() -> None:
    scores = make()
    ours = median(lambda: score_intervals(scores, Settings(method="bca")))
    plain = median(lambda: score_intervals(scores, Settings(method="percentile")))
    peer = median(
        lambda: [
            stats.bootstrap(
                [m[i] for m in scores.matrices], macro, n_resamples=RESAMPLES, method="BCa", vectorized=True, batch=500
            )
            for i in range(SYSTEMS)
        ],
        1,
    )
    everything, groups = median(lambda: compare(scores), 1), median(lambda: standings(scores.matrices))
    print(f"tasks, macro and query-weighted: BCa {ours:.2f} s, percentile {plain:.2f} s")
    print(f"scipy, BCa of the macro-average alone, system by system: {peer:.2f} s")
    print(f"all {SYSTEMS * (SYSTEMS - 1) // 2} pairs with tests: {everything:.2f} s; letters and ranks: {groups:.2f} s")
    met = report("CPU seconds of 10,000 resamples × 876 queries × 20 systems", ours, 2.0, at_least=False)
    met &= report("scipy, macro alone / r2med, tasks and both averages", peer / ours, 5.0)
    sys.exit(not met)


if __name__ == "__main__":
    main()
