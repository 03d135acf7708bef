"""The texts behind results, and what can be measured of them.

Tasks of the catalogue are read, and folders that were named when the app was started. A result also says which folder
it was made from, but anybody can write that: such a path is shown, never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...core import R2MedError, Task
from ...results import TaskInfo
from ...results.index import Kept
from ...tasks import Stats, Tendencies, collections, resolve, stats, tendencies
from ...tasks.audit import audit
from ...tasks.audit.findings import TaskAudit
from ...tasks.load import from_path

BUDGET = 160 << 20
"""Bytes of text kept."""
AUDIT_UP_TO = 500
"""Documents: larger tasks are audited by the command."""


class Behind(NamedTuple):
    """A task with its texts, or why they are not here."""

    task: Task | None
    why: str = ""


class TaskFacts(NamedTuple):
    """Figures about a task that do not depend on results."""

    stats: Stats
    tendencies: Tendencies
    audit: TaskAudit | None


def measure_task(task: Task) -> TaskFacts:
    """Measure a task; one with few documents is audited, too."""
    small = len(task.documents) <= AUDIT_UP_TO
    return TaskFacts(stats(task), tendencies(task), audit([task]).tasks[0] if small else None)


class TaskTexts:
    """Loads tasks when they are looked at and keeps the latest."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = tuple(folders)
        self._kept: Kept[str, Behind] = Kept(BUDGET, lambda b: b.task.documents.texts.nbytes if b.task else 0)

    def of(self, info: TaskInfo) -> Behind:
        """The task that a result was made on, if it is here and unchanged."""
        return self._kept.get(info.fingerprint, lambda: self._load(info))

    def _load(self, info: TaskInfo) -> Behind:
        try:
            if info.collection in collections():
                refs = resolve(info.full_name)
            else:
                refs = [ref for folder in self._folders for ref in from_path(folder) if ref.name == info.name]
            if not refs:
                return Behind(None, f"Name its folder when starting: --tasks {info.source or 'FOLDER'}")
            task = refs[0].load()
        except R2MedError as error:
            return Behind(None, f"{error}.")
        if task.fingerprint != info.fingerprint:
            return Behind(None, f"{info.full_name} on this machine is not what these results were made on.")
        return Behind(task)
