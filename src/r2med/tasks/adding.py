"""Putting folders under a name: what `r2med data add` does."""

from __future__ import annotations

from collections.abc import Sequence

from ..core import UsageError
from ..core.files import exists, typed_path
from ..core.untrusted import component
from .load import TaskRef, chosen
from .own import Added, OwnTask, add, check_name, remember


def add_folders(name: str, folders: Sequence[str]) -> list[Added]:
    """Put the tasks in folders under a name, as `r2med data add` does; each is read once, for its fingerprint."""
    check_name(name)
    if not folders:
        raise UsageError("no folder is given")
    tasks = []
    for ref in (ref for text in folders for ref in _folder_refs(text)):
        task = ref.load()
        remember(task)
        tasks.append(
            OwnTask(
                name=ref.name,
                path=str(ref.present().absolute()),
                split=ref.split,
                judged=ref.judged,
                fingerprint=task.fingerprint,
                queries=len(task.queries),
                documents=len(task.documents),
                judgments=len(task.qrels),
            )
        )
    return add(name, tasks)


def _folder_refs(text: str) -> list[TaskRef]:
    """The tasks of `FOLDER`, `FOLDER@SPLIT` or, under another name, `TASK=FOLDER`."""
    given, equals, folder = text.partition("=")
    if not (given and equals) or "/" in given or exists(typed_path(text)):
        given, folder = "", text
    before, at, part = folder.rpartition("@")
    if not at or exists(typed_path(folder)):
        before, part = folder, ""
    refs = chosen(typed_path(before), part)
    if not given:
        return refs
    if len(refs) > 1:
        raise UsageError(f"{folder} holds {len(refs)} tasks, which keep their names: leave out {given}=")
    if any(c in given for c in "@,="):
        raise UsageError(f"{given!r} cannot name a task: it holds one of @ , =")
    return [refs[0]._replace(name=component(given, "task") + refs[0].mark)]
