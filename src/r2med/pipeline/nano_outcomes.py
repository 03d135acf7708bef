"""What became of each query of a Nano task, and how scores depend on the words that queries share with positives."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..core import IdTable, Run, Task
from ..scoring.hits import Float64
from ..scoring.intervals import Bootstrap
from ..scoring.slices import thirds
from ..tasks.nano.figures import Outcome, Slope
from .nano_profile import INTERVALS

FEWEST_FOR_THIRDS = 9
CUTOFF = 10


def outcomes(task: Task, runs: Mapping[str, Run], per_query: Mapping[str, Float64]) -> list[Outcome]:
    """Every judged query; `runs` are by role, without appended positives."""
    found = []
    for row, query_id in enumerate(task.qrels.query_ids):
        grades = {d: g for d, g in task.qrels.of(query_id).items() if g > 0}
        ranks, best = dict[str, int | None](), dict[str, float]()
        for role, run in runs.items():
            listed = [hit.doc_id for hit in run.of(query_id)] if query_id in run.query_ids else []
            ranks[role] = next((rank for rank, doc in enumerate(listed, 1) if doc in grades), None)
            best[role] = _dcg([grades[d] for d in listed if d in grades]) / (_dcg(list(grades.values())) or 1.0)
        found.append(Outcome(query_id, {role: float(values[row]) for role, values in per_query.items()}, ranks, best))
    return found


def _dcg(grades: list[int]) -> float:
    """Discounted gain of documents in the best order."""
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(sorted(grades, reverse=True)[:CUTOFF], 1))


def slopes(overlap: Mapping[str, float], judged: IdTable, per_query: Mapping[str, Float64]) -> list[Slope]:
    """Each profile on the third of queries with the fewest shared terms against the third with the most."""
    have = [query_id for query_id in judged if query_id in overlap]
    if len(have) < FEWEST_FOR_THIRDS:
        return []
    parts, rows = thirds([overlap[query_id] for query_id in have]), judged.positions(have)
    fewest, most = rows[parts == 0], rows[parts == 2]
    if not len(fewest) or not len(most):
        return []
    found = []
    for role, values in per_query.items():
        drawn = Bootstrap([values[None, fewest], values[None, most]], INTERVALS)
        bounds = drawn.bounds(np.ones((1, 1)), np.array([-1.0, 1.0]))
        means = float(values[fewest].mean()), float(values[most].mean())
        found.append(Slope(role, *means, float(bounds.low[0]), float(bounds.high[0])))
    return found
