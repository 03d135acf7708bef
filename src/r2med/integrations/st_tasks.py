"""Which tasks an evaluator runs on, and what its figures are called."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..core import Task, UnknownName, UsageError
from ..tasks import TaskRef, collections, resolve

PREFIX = {"nano": "NanoR2MED", "mini": "MiniR2MED", "r2med": "R2MED"}


class NamedTask(NamedTuple):
    """A task, the name it was asked for by, and the name in front of its figures."""

    asked: str
    label: str
    task: Task


def tasks_for(dataset_names: Sequence[str] | None, dataset_id: str) -> list[NamedTask]:
    """All tasks of `dataset_id` (a collection or a folder), or those named: within it, or by full name or path."""
    if dataset_names is not None and not dataset_names:
        raise UsageError("dataset_names is empty; None stands for all tasks")
    if dataset_names is None:
        refs = [(ref.name, ref) for ref in resolve(dataset_id)]
    elif isinstance(dataset_names, str):
        raise UsageError(f"dataset_names is a list of names: [{dataset_names!r}]")
    else:
        refs = [(name, ref) for name in dataset_names for ref in _named(name, dataset_id)]
    found = [NamedTask(name, label(ref), ref.load()) for name, ref in refs]
    labels = [one.label for one in found]
    if twice := next((one for one in labels if labels.count(one) > 1), None):
        raise UsageError(f"two of the tasks would both be called {twice!r}")
    return found


def _named(name: str, dataset_id: str) -> list[TaskRef]:
    if dataset_id in collections():
        try:
            return resolve(f"{dataset_id}/{name}")
        except UnknownName:
            return resolve(name)  # the whole name of a task elsewhere, or a folder
    inside = {ref.name: ref for ref in resolve(dataset_id)}
    return [inside[name]] if name in inside else resolve(name)


def label(ref: TaskRef) -> str:
    """`NanoR2MEDBiology`, `MiniR2MEDBiology`, or a folder's own name in letters, digits and underscores."""
    if ref.collection in PREFIX:
        return PREFIX[ref.collection] + ref.name.replace("-", "")
    return re.sub(r"\W+", "_", ref.name).strip("_") or "task"


def group(tasks: Sequence[NamedTask]) -> str:
    """What the average over the tasks is called: after their collection, for Mini's figures are not NanoR2MED's."""
    prefixes = {PREFIX.get(one.task.collection, "own") for one in tasks}
    return prefixes.pop() if len(prefixes) == 1 else "mixed"


def prompts_for(
    prompts: str | Mapping[str, str] | None, tasks: Sequence[NamedTask], kind: str
) -> dict[str, str | None]:
    """A prompt for each task: one for all, or a dict by the names that were asked for."""
    if prompts is None or isinstance(prompts, str):
        return {one.label: prompts for one in tasks}
    if missing := [one.asked for one in tasks if one.asked not in prompts and one.label not in prompts]:
        raise UsageError(f"no {kind} prompt for {', '.join(missing)}")
    return {one.label: prompts[one.asked] if one.asked in prompts else prompts[one.label] for one in tasks}
