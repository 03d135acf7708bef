"""Scores of the candidate profiles, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..core import Run, Task
from ..scoring import parse_measures, score
from ..scoring.evaluation import Evaluation
from ..scoring.hits import Float64
from ..scoring.intervals import Bootstrap, Settings
from ..tasks.nano.figures import ROLES, Contrast, ProfileFigures, TaskFigures
from ..tasks.nano.names import role_of
from ..tasks.stats import stats
from .nano_profiles import without_safeguard

MEASURES = parse_measures(["nDCG@10", "hit@10", "R@100", "R@1000", "hit@1000"])
INTERVALS = Settings(resamples=2000, seed=0)


class Measured(NamedTuple):
    """The figures of a task with what they were made of."""

    figures: TaskFigures
    per_query: dict[str, Float64]
    contrasts: list[Contrast]


def measure(
    task: Task, runs: Mapping[str, Run], safeguarded: set[str], *, split: str = "", intervals: bool = True
) -> Measured:
    """Score every profile of a task; `per_query` holds nDCG@10 by role."""
    profiles: dict[str, ProfileFigures] = {}
    per_query: dict[str, Float64] = {}
    for config, run in sorted(runs.items(), key=lambda item: ROLES.index(role_of(item[0]))):
        role = role_of(config)
        scored = without_safeguard(run, safeguarded) if role == "hybrid" else run
        evaluation = score(scored, task.qrels, MEASURES)
        per_query[role] = evaluation.per_query["ndcg_at_10"]
        profiles[role] = _figures(config, run, scored, evaluation, task, intervals=intervals)
    measured = stats(task)
    figures = TaskFigures(
        task=task.name,
        split=split or task.name,
        queries=measured.queries,
        documents=measured.documents,
        positives=measured.positives,
        positives_per_query=measured.positives_mean,
        positives_min=measured.positives_min,
        positives_median=measured.positives_median,
        positives_max=measured.positives_max,
        multi_positive_queries=measured.multi_positive_queries,
        query_chars_mean=measured.query_chars_mean,
        document_chars_mean=measured.document_chars_mean,
        profiles=profiles,
    )
    return Measured(figures, per_query, contrasts(figures.best, per_query) if intervals else [])


def _figures(
    config: str, run: Run, scored: Run, evaluation: Evaluation, task: Task, *, intervals: bool
) -> ProfileFigures:
    means = evaluation.means
    low, high = mean_interval(evaluation.per_query["ndcg_at_10"]) if intervals else (0.0, 0.0)
    return ProfileFigures(
        profile=config,
        top_k=int(scored.lengths().max(initial=0)),
        ndcg_at_10=means["ndcg_at_10"],
        hit_at_10=means["hit_at_10"],
        recall_at_100=evaluation.micro_recall["recall_micro_at_100"],
        recall_macro_at_100=means["recall_at_100"],
        ndcg_at_10_interval=(low, high) if intervals else None,
        positives_covered=evaluation.micro_recall["recall_micro_at_1000"],
        queries_covered=means["hit_at_1000"],
        safeguard_rows=_safeguards(run, scored),
    )


def _safeguards(run: Run, scored: Run) -> int:
    return int((run.lengths() > scored.lengths()).sum()) if run is not scored else 0


def mean_interval(values: Float64) -> tuple[float, float]:
    """A 95 % interval of the mean over queries."""
    bounds = Bootstrap([values[None, :]], INTERVALS).bounds(np.ones((1, 1)), np.ones(1))
    return float(bounds.low[0]), float(bounds.high[0])


def contrasts(best: str, per_query: Mapping[str, Float64]) -> list[Contrast]:
    """The best profile against each of the others, on the same queries."""
    names = list(per_query)
    if len(names) < 2:
        return []
    others = [name for name in names if name != best]
    wanted = np.zeros((len(others), len(names)))
    wanted[:, names.index(best)] = 1.0
    for row, name in enumerate(others):
        wanted[row, names.index(name)] = -1.0
    bounds = Bootstrap([np.stack([per_query[n] for n in names])], INTERVALS).bounds(wanted, np.ones(1))
    return [
        Contrast(best, name, float(bounds.value[i]), float(bounds.low[i]), float(bounds.high[i]))
        for i, name in enumerate(others)
    ]
