"""The texts behind results: tasks of the catalogue, and folders that were named when the app was started.

A result also says which folder it was made from, but anybody can write that: such a path is shown, never read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ....core import R2MedError, Task
from ....results import TaskInfo
from ....tasks import collections, resolve
from ....tasks.load import TaskRef, from_path

BUDGET = 160 << 20  # bytes of text kept


class Behind(NamedTuple):
    """A task with its texts, or why they are not here."""

    task: Task | None
    why: str = ""


class Texts:
    """Loads tasks when they are looked at and keeps the latest."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = tuple(folders)
        self._kept: OrderedDict[str, Behind] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, info: TaskInfo) -> Behind:
        """The task that a result was made on, if it is here and unchanged."""
        with self._lock:
            known = self._kept.get(info.fingerprint)
            if known is None:
                known = self._kept[info.fingerprint] = self._load(info)
                while len(self._kept) > 1 and sum(_size(b) for b in self._kept.values()) > BUDGET:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(info.fingerprint)
            return known

    def _load(self, info: TaskInfo) -> Behind:
        named = info.collection in collections()
        try:
            refs = resolve(info.full_name) if named else self._own(info)
            if not refs:
                return Behind(None, f"Name its folder when starting: --tasks {info.source or 'FOLDER'}")
            task = refs[0].load()
        except R2MedError as error:
            return Behind(None, f"{error}.")
        if task.fingerprint != info.fingerprint:
            return Behind(None, f"{info.full_name} on this machine is not what these results were made on.")
        return Behind(task)

    def _own(self, info: TaskInfo) -> list[TaskRef]:
        refs = [ref for folder in self._folders for ref in from_path(folder)]
        return [ref for ref in refs if ref.name == info.name]


def _size(behind: Behind) -> int:
    return behind.task.documents.texts.nbytes if behind.task else 0
