"""From a results folder to scores side by side: the same queries, the same data, or a refusal that names both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core import R2MedError, ResultError, Task, UnknownName, UsageError
from ..results import ResultStore, TaskInfo, TaskResult
from ..results.store import slug
from ..scoring import CUTOFFS, MAIN, Measure
from ..scoring.score_set import ScoreSet, TaskScores
from ..tasks import collections, resolve
from ..tasks.load import from_path

Stored = dict[str, dict[str, TaskResult]]
"""System to task, by its full name, to result."""


class StoredScores(NamedTuple):
    """Scores of the tasks that all systems have, the results behind them, and tasks that only some have."""

    scores: ScoreSet
    results: Stored
    left_out: tuple[str, ...]


def by_system(results: Iterable[TaskResult]) -> Stored:
    """Results in order of appearance."""
    grouped: Stored = {}
    for result in results:
        grouped.setdefault(result.system.name, {})[result.task.full_name] = result
    return grouped


def select(store: ResultStore, *, collection: str = "", systems: Sequence[str] = ()) -> list[TaskResult]:
    """Results of one collection or of all; every system, or those named, in the order named.

    A system is named as its results name it, or by its folder. A name given twice, or one without results, is refused.
    """
    if not store.root.is_dir():
        raise ResultError(f"{store.root}: no such folder of results (r2med run makes one)")
    found: list[TaskResult] = []
    for asked in systems:
        of_system = _of_system(store, asked)
        if any(r.system.name == of_system[0].system.name for r in found):
            raise UsageError(f"system {of_system[0].system.name!r} is given twice")
        inside = [r for r in of_system if collection in ("", r.task.collection)]
        if not inside:
            raise UsageError(f"{of_system[0].system.name} has no results on {collection} in {store.root}")
        found += inside
    if not systems:
        found = [r for r in store if collection in ("", r.task.collection)]
    if not found:
        where = f" on {collection}" if collection else ""
        raise ResultError(f"{store.root} holds no results{where} (r2med run makes some)")
    return found


def _of_system(store: ResultStore, asked: str) -> list[TaskResult]:
    folder = store.root / slug(Path(asked).name if Path(asked).is_dir() else asked)
    found = [r for p in sorted(folder.glob("*/*.json")) if (r := store.read(p)) is not None]
    if not found:
        known = sorted({p.parent.parent.name for p in store.root.glob("*/*/*.json")})
        raise UnknownName("system", asked, known, hint=f"(in {store.root}: {', '.join(known) or 'none'})")
    if stranger := next((r for r in found if slug(r.system.name) != folder.name), None):
        raise ResultError(f"{folder}: holds a result of {stranger.system.name!r}; move it back or remove it")
    return found


def the_collection(store: ResultStore, asked: str = "") -> str:
    """The collection to look at: the one asked for, else the one that has results."""
    if asked:
        return asked
    found = list(dict.fromkeys(r.task.collection for r in select(store)))
    if len(found) > 1:
        raise UsageError(f"{store.root} holds results of {_named(found)}: say which with --collection")
    return found[0]


def _named(several: Iterable[str]) -> str:
    return ", ".join(c or "folders of your own" for c in several)


def task_names(collection: str, present: Sequence[str]) -> list[str]:
    """All tasks of a collection in the order of the paper; for folders of one's own, those that are there."""
    known = collections().get(collection)
    return [entry.name for entry in known.tasks] if known else list(present)


def stored_scores(
    store: ResultStore, systems: Sequence[str], measure: Measure, *, collection: str = "", tasks: Iterable[str] = ()
) -> StoredScores:
    """Per-query scores of `systems` on the tasks that all of them have; `tasks` narrows further."""
    results = by_system(select(store, collection=collection, systems=systems))
    shared, wanted = _shared(results), frozenset(tasks)
    if absent := sorted(wanted - set(shared)):
        raise UsageError(f"not every system has results on {', '.join(absent)}")
    chosen = [t for t in shared if not wanted or t in wanted]
    scores = score_set(store, [of_system[t] for of_system in results.values() for t in chosen], measure)
    inside = next(iter(results.values()))[chosen[0]].task.collection
    peers = dict.fromkeys(t for of in results.values() for t, r in of.items() if r.task.collection == inside)
    whole = max(scores.of_tasks, len(peers))
    return StoredScores(replace(scores, of_tasks=whole), results, tuple(t for t in peers if t not in chosen))


def score_set(store: ResultStore, results: Sequence[TaskResult], measure: Measure = MAIN) -> ScoreSet:
    """Per-query scores on the tasks that all systems have, in the order of the paper.

    Tasks of one collection only: an average over Mini and R2MED would mean nothing.
    """
    grouped = by_system(results)
    shared = _shared(grouped)
    infos = {r.task.full_name: r.task for r in results}
    if len(several := sorted({infos[t].collection for t in shared})) > 1:
        raise UsageError(f"the systems share tasks of several collections ({_named(several)}): choose by --collection")
    whole = task_names(infos[shared[0]].collection, [infos[t].name for t in shared])
    tasks = [
        _task_scores(store, t, {s: of_system[t] for s, of_system in grouped.items()}, measure)
        for t in sorted(shared, key=lambda t: whole.index(infos[t].name) if infos[t].name in whole else len(whole))
    ]
    return ScoreSet(tuple(grouped), tuple(tasks), max(len(whole), len(tasks)), measure)


def _shared(results: Stored) -> list[str]:
    """The tasks that every system has."""
    if not results:
        raise UsageError("there are no results to look at")
    first, *others = results.values()
    if not (shared := [t for t in first if all(t in other for other in others)]):
        raise UsageError(f"{' and '.join(results)} have no task in common")
    return shared


def _task_scores(store: ResultStore, task: str, results: Mapping[str, TaskResult], measure: Measure) -> TaskScores:
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
    rows = np.array([[column[q] for q in query_ids] for column in columns.values()], dtype=np.float64)
    return TaskScores(task, query_ids, rows)


def _per_query(store: ResultStore, result: TaskResult, measure: Measure) -> dict[str, float]:
    place = f"{result.system.name} on {result.task.full_name}"
    if measure.key not in result.measures:
        raise UsageError(f"{place}: no {measure} is stored (cut-offs: {', '.join(map(str, CUTOFFS))})")
    try:
        scores = store.per_query(result, measure.key)
    except (OSError, KeyError, ValueError, RecursionError) as error:
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
