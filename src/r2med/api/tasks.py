"""Tasks of a call: by name, by folder, or loaded already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..core import Task, UsageError
from ..tasks import TaskRef, load, resolve_all

__all__ = ["LoadedTask", "loaded", "resolve_tasks"]


class LoadedTask(NamedTuple):
    """A task that is in memory already, where a reference to one is asked for."""

    task: Task

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def collection(self) -> str:
        return self.task.collection

    @property
    def full_name(self) -> str:
        return self.task.full_name

    def load(self) -> Task:
        return self.task


def resolve_tasks(tasks: str | Task | Iterable[Any]) -> list[TaskRef | LoadedTask]:
    """The tasks that names, folders or loaded tasks stand for, each once and on this machine.

    Two different tasks of one name are refused: they would share their results.
    """
    found: dict[str, TaskRef | LoadedTask] = {}
    for spec in [tasks] if isinstance(tasks, str | Task) else tasks:
        for ref in _references(spec):
            first = found.setdefault(ref.full_name, ref)
            if first is not ref and not _same(first, ref):
                raise UsageError(f"two different tasks are called {ref.full_name!r}: rename one")
    if not found:
        raise UsageError("no tasks are given")
    return list(found.values())


def _references(spec: str | Task | TaskRef | LoadedTask) -> Iterator[TaskRef | LoadedTask]:
    if not isinstance(spec, str):
        yield LoadedTask(spec) if isinstance(spec, Task) else spec
        return
    for ref in resolve_all([spec]):
        ref.present()
        yield ref


def _same(first: TaskRef | LoadedTask, second: TaskRef | LoadedTask) -> bool:
    if isinstance(first, TaskRef) and isinstance(second, TaskRef):
        parts = [(ref.present().resolve(), ref.split, ref.judged) for ref in (first, second)]
        return parts[0] == parts[1]
    return first.load().fingerprint == second.load().fingerprint


def loaded(task: Task | str) -> Task:
    """A task, read where only its name is given."""
    return task if isinstance(task, Task) else load(task)
