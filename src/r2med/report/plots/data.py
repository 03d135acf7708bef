"""From stored results to the numbers of a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from ...core import ResultError, UsageError
from ...results import TaskResult
from ...scoring import Measure
from ...scoring.score_set import ScoreSet
from ..stored import by_system

Side = Literal["document", "query"]
Axis = Literal["seconds", "cost"]
OVERHEAD = ("load", "score")  # not the system's own time


class Cost(NamedTuple):
    """What a system reaches and what a query costs it."""

    system: str
    score: float
    per_query: float
    cached: bool
    # Some embeddings came from the cache, so the time is less than a first run takes.


class CutPoint(NamedTuple):
    """One system on one task: how much it never saw, and its score."""

    system: str
    task: str
    share: float
    score: float


class FamilyPoint(NamedTuple):
    """Queries of one family on which two systems got the same pair of scores."""

    family: str
    first: float
    second: float
    queries: int


def system_costs(results: Sequence[TaskResult], measure: Measure, axis: Axis) -> tuple[list[Cost], list[str]]:
    """Mean over tasks against seconds or dollars a query, and which systems are left out, lacking task or price."""
    grouped = by_system(results)
    whole = {r.task.full_name for r in results}
    costs, left_out = [], []
    for name, of_system in grouped.items():
        if set(of_system) != whole:
            left_out.append(f"{name} is left out: it has {len(of_system)} of {len(whole)} tasks")
            continue
        queries = sum(r.task.queries for r in of_system.values())
        spent = [_seconds(r) if axis == "seconds" else _dollars(r) for r in of_system.values()]
        known = [s for s in spent if s is not None]
        if len(known) < len(spent):
            left_out.append(f"{name} is left out: its price is not known")
            continue
        score = sum(r.measures[measure.key] for r in of_system.values()) / len(of_system)
        costs.append(Cost(name, score, sum(known) / queries, any(_cached(r) for r in of_system.values())))
    if not costs:
        raise UsageError("no system is left to draw: " + "; ".join(left_out))
    return costs, left_out


def cut_points(results: Iterable[TaskResult], measure: Measure, side: Side) -> list[CutPoint]:
    """Share of tokens that were cut off, from the notes of results whose models count them."""
    points = []
    for result in results:
        note = _table(_table(result.notes, "truncation"), side)
        tokens, cut = note.get("tokens"), note.get("tokens_cut")
        if isinstance(tokens, int) and isinstance(cut, int) and tokens:
            score = result.measures[measure.key]
            points.append(CutPoint(result.system.name, result.task.name, cut / tokens, score))
    if not points:
        raise ResultError("none of these results says what was truncated: only models with a length limit do")
    return points


def family_points(scores: ScoreSet, families: Mapping[str, str]) -> list[FamilyPoint]:
    """Pairs of per-query scores of the first two systems, counted by task family."""
    counts: dict[tuple[str, float, float], int] = {}
    for task in scores.tasks:
        for first, second in zip(*task.scores[:2].tolist(), strict=True):
            key = (families.get(task.name) or task.name, round(first, 4), round(second, 4))
            counts[key] = counts.get(key, 0) + 1
    return [FamilyPoint(*key, count) for key, count in counts.items()]


def _seconds(result: TaskResult) -> float:
    return sum(value for stage, value in result.seconds.items() if stage not in OVERHEAD)


def _dollars(result: TaskResult) -> float | None:
    """What was paid, 0 where nothing was bought; None where a price was not known."""
    found = list(_values(result.notes, "cost"))
    if any(v is None for v in found):
        return None
    return float(sum(v for v in found if isinstance(v, int | float)))


def _cached(result: TaskResult) -> bool:
    return any(isinstance(v, int) and v > 0 for v in _values(result.notes, "cached"))


def _values(notes: Mapping[str, object], key: str) -> Iterator[object]:
    for name, value in notes.items():
        if name == key and not isinstance(value, dict):
            yield value
        elif isinstance(value, dict):
            yield from _values(value, key)


def _table(notes: Mapping[str, object], key: str) -> dict[str, object]:
    value = notes.get(key)
    return value if isinstance(value, dict) else {}
