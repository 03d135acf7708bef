"""Converting tasks from any layout to any other."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..core import Task, UsageError
from ..core.atomic import atomic_folder
from ..core.untrusted import component
from .formats import Expansion, Parts, get_format
from .load import TaskRef, check_expansions


class Converted(NamedTuple):
    """One written task."""

    task: str
    path: str
    fingerprint: str
    expansions_left_out: int  # sets of generated texts that the new layout has no place for


def convert(refs: list[TaskRef], destination: Path, *, to: str, compress: str = "none") -> list[Converted]:
    """Write tasks in the layout `to`.

    One task goes right into `destination`; several go into a folder each, named after them, or together into a layout
    that holds several. Nothing is left behind when one of them fails.
    """
    layout, written = get_format(to), []
    if not refs:
        raise UsageError("nothing to convert")
    check_file_names(ref.name for ref in refs)
    apart = len(refs) > 1 and not layout.holds_several
    with atomic_folder(destination) as folder:
        for ref in refs:
            task, generated = ref.load(), ref.expansions()
            below = component(task.name, "task") if apart else ""
            write_task(task, folder / below, to=to, compress=compress, expansions=generated, split=ref.split)
            lost = 0 if layout.holds_expansions else len(generated)
            written.append(Converted(task.full_name, str(destination / below), task.fingerprint, lost))
    return written


def check_file_names(names: Iterable[str]) -> None:
    """Refuse names that would be one file, on any file system: some fold case, some compose accents."""
    seen: dict[str, str] = {}
    for name in names:
        folded = unicodedata.normalize("NFC", name).casefold()
        if (first := seen.get(folded)) is not None:
            same = f"two of the tasks are called {name!r}" if first == name else f"{first!r} and {name!r} are one file"
            raise UsageError(f"{same}{'' if first == name else ' on some systems'}; write them into a folder each")
        seen[folded] = name


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
    check_expansions(expansions or (), folder)
    folder.mkdir(parents=True, exist_ok=True)
    get_format(to).write(parts, folder, split=split or task.name, compress=compress, expansions=expansions or [])
