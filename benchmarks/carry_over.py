"""Does a macro difference on R2MED carry over to a new task? Published figures of each task, system against system.

    python benchmarks/carry_over.py [PROTOCOL]

Takes the twenty best systems of the ledger that have all eight tasks under one protocol, the paper's by default.
"""

from __future__ import annotations

import sys
from itertools import combinations

import numpy as np
from scipy import stats

from r2med.results.ledger import ledger, same_figures
from r2med.results.protocols import MAIN_PROTOCOL

MEASURE, TASKS, BEST = "ndcg_at_10", 8, 20
NEAR, FAR = 1.5, 2.5  # points


def best_systems(protocol: str) -> list[list[float]]:
    """The scores × 100 of the best systems, task by task, each system once."""
    figures = [f for f in ledger().select(collection="r2med") if f.protocol == protocol]
    of_tasks = [first.tasks(MEASURE) for first, *_ in same_figures(figures, MEASURE, TASKS)]
    whole = [[100 * tasks[name] for name in sorted(tasks)] for tasks in of_tasks if len(tasks) == TASKS]
    return sorted(whole, key=sum, reverse=True)[:BEST]


def main() -> None:
    protocol = sys.argv[1] if len(sys.argv) > 1 else MAIN_PROTOCOL["r2med"]
    pairs = [np.subtract(a, b) for a, b in combinations(best_systems(protocol), 2)]
    errors = [float(d.std(ddof=1)) / np.sqrt(TASKS) for d in pairs]
    two_points = [d for d in pairs if NEAR <= abs(float(d.mean())) <= FAR]
    passed = sum(float(stats.ttest_1samp(d, 0.0).pvalue) < 0.05 for d in two_points)
    print(f"{protocol}: {len(pairs)} pairs of the {BEST} best systems")
    print(f"standard error of a macro difference over tasks, median pair: {np.median(errors):.1f} points")
    print(f"{NEAR} to {FAR} points apart: {len(two_points)} pairs, of which {passed} pass a t-test over tasks at 5 %")


if __name__ == "__main__":
    main()
