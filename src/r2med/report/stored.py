"""Stored results as per-query scores side by side: what intervals, tie groups and pictures are made from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import ResultError, UnknownName, UsageError
from ..results import ResultStore, TaskResult
from ..scoring import MAIN, Measure
from ..scoring.score_set import ScoreSet, TaskScores
from ..tasks import collections


def by_system(results: Sequence[TaskResult]) -> dict[str, dict[str, TaskResult]]:
    """`{system: {task: result}}`, in order of appearance."""
    grouped: dict[str, dict[str, TaskResult]] = {}
    for result in results:
        grouped.setdefault(result.system.name, {})[result.task.name] = result
    return grouped


def select(store: ResultStore, *, collection: str = "", systems: Sequence[str] = ()) -> list[TaskResult]:
    """Results of one collection; all systems, or those named, in the order named."""
    if not store.root.is_dir():
        raise ResultError(f"{store.root}: no such folder of results (r2med run makes one)")
    found = [r for r in store if collection in ("", r.task.collection)]
    if not found:
        where = f" on {collection}" if collection else ""
        raise ResultError(f"{store.root} holds no results{where} (r2med run makes some)")
    if not systems:
        return found
    grouped = by_system(found)
    for name in systems:
        if name not in grouped:
            raise UnknownName("system", name, grouped, hint=f"in {store.root} (it has {', '.join(grouped)})")
    return [result for name in systems for result in grouped[name].values()]


def the_collection(store: ResultStore, asked: str = "") -> str:
    """The collection to look at: the one asked for, else the one that has results."""
    if asked:
        return asked
    found = list(dict.fromkeys(r.task.collection for r in select(store)))
    if len(found) > 1:
        named = ", ".join(c or "folders of your own" for c in found)
        raise UsageError(f"{store.root} holds results of {named}: say which with --collection")
    return found[0]


def task_names(collection: str, present: Sequence[str]) -> list[str]:
    """All tasks of a collection in the order of the paper; for folders of one's own, those that are there."""
    known = collections().get(collection)
    return [entry.name for entry in known.tasks] if known else list(present)


def score_set(store: ResultStore, results: Sequence[TaskResult], measure: Measure = MAIN) -> ScoreSet:
    """Per-query scores on the tasks that all systems have; other data behind one of them is refused."""
    grouped = by_system(results)
    if not grouped:
        raise UsageError("there are no results to look at")
    present = list(dict.fromkeys(r.task.name for r in results))
    whole = task_names(results[0].task.collection, present)
    shared = [t for t in whole if all(t in of_system for of_system in grouped.values())]
    if not shared:
        raise UsageError(f"{', '.join(grouped)} have no task in common")
    tasks = [_task_scores(store, [of_system[t] for of_system in grouped.values()], measure) for t in shared]
    return ScoreSet(tuple(grouped), tuple(tasks), len(whole), measure)


def _task_scores(store: ResultStore, results: Sequence[TaskResult], measure: Measure) -> TaskScores:
    first = results[0]
    for other in results[1:]:
        if other.task.fingerprint != first.task.fingerprint:
            raise ResultError(
                f"{first.task.full_name}: {first.system.name} and {other.system.name} were run on different data; "
                f"run one of them again"
            )
    try:
        columns = [store.per_query(r, measure.key) for r in results]
    except KeyError:
        raise UsageError(f"{first.task.full_name}: {measure} is not among the stored measures") from None
    except OSError as error:
        raise ResultError(f"{error.filename}: cannot be read ({error.strerror})") from None
    ids = tuple(columns[0])
    if any(set(c) != set(ids) for c in columns):
        raise ResultError(f"{first.task.full_name}: the systems were scored on different queries")
    return TaskScores(first.task.name, ids, np.array([[c[i] for i in ids] for c in columns], dtype=np.float64))
