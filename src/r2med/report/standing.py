"""Intervals and tie groups of a whole collection."""

from __future__ import annotations

from typing import NamedTuple

from ..scoring import Measure
from ..scoring.compare import tie_groups
from ..scoring.intervals import Settings, SystemScores, score_intervals
from .collection import CollectionResults

MANY_SYSTEMS, MANY_QUERIES = 100, 20_000
AT_ONCE = 50
"""Systems resampled together: the means of more would not fit comfortably in memory."""


class Standing(NamedTuple):
    """What the statistics say about the systems of a collection."""

    scores: dict[str, SystemScores]
    groups: dict[str, int]


def standing(results: CollectionResults, measure: Measure) -> Standing:
    """Intervals of every system, and tie groups among those that have every task."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for system, of_system in results.systems.items():
        readable = tuple(t for t in results.tasks if t in of_system and results.matrix(t, measure, [system]))
        if readable:
            alike.setdefault(readable, []).append(system)
    settings = usual_settings(results, few=len(results.systems) <= MANY_SYSTEMS)
    scores: dict[str, SystemScores] = {}
    for tasks, systems in alike.items():
        for begin in range(0, len(systems), AT_ONCE):
            chunk = results.score_set(measure, systems[begin : begin + AT_ONCE], tasks)
            if chunk is not None:
                scores |= {s.name: s for s in score_intervals(chunk, settings)}
    complete = [s for tasks, systems in alike.items() if set(results.whole) <= set(tasks) for s in systems]
    return Standing(scores, groups_of(results, measure, complete))


def groups_of(results: CollectionResults, measure: Measure, complete: list[str]) -> dict[str, int]:
    """Tie groups among systems that have every task; none where there are fewer than two of them."""
    whole = results.score_set(measure, complete, results.whole) if len(complete) > 1 else None
    if whole is None:
        return {}
    # Holm divides by the number of systems: p must be able to get that small.
    settings = Settings(resamples=max(usual_settings(results).resamples, 40 * len(complete)))
    return dict(zip(whole.systems, tie_groups(whole.matrices, settings), strict=True))


def usual_settings(results: CollectionResults, *, few: bool = True) -> Settings:
    """How finely to resample: less finely where there is so much that chance hardly matters."""
    queries = sum(info.queries for info in results.infos.values())
    return Settings(resamples=10_000 if few and queries <= MANY_QUERIES else 2_000)
