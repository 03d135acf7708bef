"""From a results folder to scores side by side: the same queries, the same data, or a refusal that names both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ..core import R2MedError, ResultError, Task, UnknownName, UsageError
from ..results import ResultStore, TaskInfo, TaskResult
from ..results.store import slug
from ..scoring import CUTOFFS, Measure
from ..scoring.measures import Float64
from ..scoring.score_set import ScoreSet, TaskScores
from ..tasks import resolve
from ..tasks.catalogue import collections
from ..tasks.load import from_path

Stored = dict[str, dict[str, TaskResult]]
"""System to task to result."""


class StoredScores(NamedTuple):
    """Scores of the tasks that all systems have, the results behind them, and tasks that only some have."""

    scores: ScoreSet
    results: Stored
    left_out: tuple[str, ...]


def stored_results(store: ResultStore, systems: Iterable[str]) -> Stored:
    """The results of each system, named as results name it, or by its folder."""
    if not store.root.is_dir():
        raise ResultError(f"{store.root}: no such results folder (r2med run fills one)")
    found: Stored = {}
    for asked in systems:
        folder = store.root / slug(Path(asked).name if Path(asked).is_dir() else asked)
        of_system = [r for p in sorted(folder.glob("*/*.json")) if (r := store.read(p)) is not None]
        if not of_system:
            known = sorted({p.parent.parent.name for p in store.root.glob("*/*/*.json")})
            raise UnknownName("system", asked, known, hint=f"(in {store.root}: {', '.join(known) or 'none'})")
        name = of_system[0].system.name
        if stranger := next((r for r in of_system if slug(r.system.name) != folder.name), None):
            raise ResultError(f"{folder}: holds a result of {stranger.system.name!r}; move it back or remove it")
        if name in found:
            raise UsageError(f"system {name!r} is given twice")
        found[name] = {r.task.full_name: r for r in of_system}
    return found


def stored_scores(
    store: ResultStore, systems: Sequence[str], measure: Measure, *, collection: str = "", tasks: Iterable[str] = ()
) -> StoredScores:
    """Per-query scores of `systems` on the tasks that all of them have.

    Tasks of one collection only: an average over Mini and R2MED would mean nothing. `tasks` narrows further.
    """
    results = stored_results(store, systems)
    wanted = frozenset(tasks)
    named = list(dict.fromkeys(task for of_system in results.values() for task in of_system))
    shared = [t for t in named if all(t in of_system for of_system in results.values())]
    infos = {t: next(r[t].task for r in results.values() if t in r) for t in named}
    if wanted and (absent := sorted(wanted - set(shared))):
        raise UsageError(f"not every system has results on {', '.join(absent)}")
    chosen = _one_collection([t for t in shared if not wanted or t in wanted], infos, collection)
    if not chosen:
        of = f" of collection {collection!r}" if collection else ""
        raise UsageError(f"{' and '.join(results)} have no task{of} in common")
    inside = infos[chosen[0]].collection
    peers = [t for t in named if infos[t].collection == inside]
    catalogue = collections().get(inside)
    scores = ScoreSet(
        systems=tuple(results),
        tasks=tuple(_task_scores(store, t, {s: r[t] for s, r in results.items()}, measure) for t in chosen),
        of_tasks=max(len(catalogue.tasks) if catalogue else 0, len(peers)),
        measure=measure,
    )
    return StoredScores(scores, results, tuple(t for t in peers if t not in chosen))


def _one_collection(tasks: list[str], infos: dict[str, TaskInfo], collection: str) -> list[str]:
    inside = sorted({infos[t].collection for t in tasks})
    if collection:
        return [t for t in tasks if infos[t].collection == collection]
    if len(inside) > 1:
        names = ", ".join(c or "folders of one's own" for c in inside)
        raise UsageError(f"the systems share tasks of several collections ({names}); choose one with --collection")
    return tasks


def _task_scores(store: ResultStore, task: str, results: dict[str, TaskResult], measure: Measure) -> TaskScores:
    (first, reference), *others = results.items()
    for name, result in others:
        if result.task.fingerprint != reference.task.fingerprint:
            raise ResultError(
                f"{first!r} and {name!r} were scored on different data of {task} (fingerprints "
                f"{reference.task.fingerprint[:8]} and {result.task.fingerprint[:8]}): run one of them again"
            )
    columns = {name: _per_query(store, result, measure) for name, result in results.items()}
    query_ids = tuple(columns[first])
    for name, column in columns.items():
        if column.keys() != columns[first].keys():
            raise ResultError(
                f"{first!r} and {name!r} have scores of different queries on {task}: run one of them again"
            )
    rows: Float64 = np.array([[column[q] for q in query_ids] for column in columns.values()], dtype=np.float64)
    return TaskScores(task, query_ids, rows)


def _per_query(store: ResultStore, result: TaskResult, measure: Measure) -> dict[str, float]:
    place = f"{result.system.name} on {result.task.full_name}"
    if measure.key not in result.measures:
        raise UsageError(f"{place}: no {measure} is stored (cut-offs: {', '.join(map(str, CUTOFFS))})")
    try:
        scores = store.per_query(result, measure.key)
    except (OSError, KeyError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ResultError(f"{place}: the per-query scores cannot be read ({error}); run it again") from None
    mean = sum(scores.values()) / len(scores) if scores else float("nan")
    if len(scores) != result.task.queries or not abs(mean - result.measures[measure.key]) < 1e-9:
        raise ResultError(f"{place}: the per-query scores do not add up to the stored score; run it again")
    return scores


def task_behind(info: TaskInfo) -> Task | None:
    """The task that a result was made on, where it is on this machine and unchanged."""
    try:
        refs = resolve(info.full_name) if info.collection in collections() else from_path(Path(info.source))
        for ref in refs:
            if ref.name == info.name:
                task = ref.load()
                return task if task.fingerprint == info.fingerprint else None
    except R2MedError:
        return None
    return None
