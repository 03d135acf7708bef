"""From any layout to any other."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..core import IdTable, Task, UsageError
from ..core.atomic import atomic_folder
from .formats import get_format
from .load import TaskRef
from .parts import Expansion, Parts

WITHOUT_EXPANSIONS = ("mteb", "nano")


class Converted(NamedTuple):
    """One written task."""

    task: str
    path: str
    fingerprint: str
    expansions_left_out: int
    """Sets of generated texts that the new layout has no place for."""


def convert(refs: list[TaskRef], destination: Path, *, to: str, compress: str = "none") -> list[Converted]:
    """Write tasks in the layout `to`.

    One task goes right into `destination`; several go into a folder each, except for Nano, whose one folder holds
    every task as a split. Nothing is left behind when one of them fails.
    """
    get_format(to)
    written = []
    if not refs:
        raise UsageError("nothing to convert")
    if repeated := IdTable(ref.name for ref in refs).duplicates():
        raise UsageError(f"two of the tasks are called {repeated[0]!r}; convert them into a folder each")
    inside = len(refs) > 1 and to != "nano"
    with atomic_folder(destination) as folder:
        for ref in refs:
            task = ref.load()
            target = folder / task.name if inside else folder
            generated = list(ref.expansions())
            write_task(task, target, to=to, compress=compress, expansions=generated, split=ref.split)
            shown = destination / task.name if inside else destination
            lost = len(generated) if to in WITHOUT_EXPANSIONS else 0
            written.append(Converted(task.full_name, str(shown), task.fingerprint, lost))
    return written


def write_task(
    task: Task,
    folder: Path,
    *,
    to: str,
    compress: str = "none",
    expansions: list[Expansion] | None = None,
    split: str = "",
) -> None:
    """Write one task into `folder`; `split` is what a layout with several tasks calls it, by default its name."""
    parts = Parts(task.queries, task.documents, task.qrels)
    folder.mkdir(parents=True, exist_ok=True)
    get_format(to).write(parts, folder, split=split or task.name, compress=compress, expansions=expansions or [])
