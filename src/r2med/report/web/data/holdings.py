"""What there is of one collection: systems, tasks, and which results can stand side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ....results import TaskInfo
from ....tasks import collections
from ...stored import task_names
from .shelf import Entry, Shelf

OWN = "own"  # how addresses name tasks that belong to no collection
ORDER = ("r2med", "nano", "mini")


@dataclass(frozen=True)
class Holdings:
    """One collection. Results on other data than most are left out of `systems` and named in `problems`."""

    collection: str
    tasks: tuple[str, ...]
    whole: tuple[str, ...]
    infos: dict[str, TaskInfo]
    systems: dict[str, dict[str, Entry]]
    problems: tuple[str, ...]

    @property
    def title(self) -> str:
        """Name for people."""
        known = collections().get(self.collection)
        return known.title if known else self.collection or "Folders of your own"

    @property
    def slug(self) -> str:
        """Name in addresses."""
        return self.collection or OWN

    def complete(self, system: str) -> bool:
        """Whether a system has every task of the collection."""
        return set(self.whole) <= set(self.systems[system])

    def entry(self, system: str, task: str) -> Entry | None:
        """One result."""
        return self.systems.get(system, {}).get(task)


def held(shelf: Shelf) -> dict[str, Holdings]:
    """Every collection that has results, by its name in addresses, the largest first."""
    grouped: dict[str, list[Entry]] = {}
    for entry in shelf.entries:
        grouped.setdefault(entry.result.task.collection, []).append(entry)
    order = [c for c in ORDER if c in grouped] + sorted(c for c in grouped if c not in ORDER)
    found = (_holdings(c, grouped[c]) for c in order)
    return {h.slug: h for h in found}


def _holdings(collection: str, entries: Sequence[Entry]) -> Holdings:
    data: dict[str, Counter[str]] = {}
    for entry in entries:
        data.setdefault(entry.result.task.name, Counter())[entry.result.task.fingerprint] += 1
    usual = {task: counts.most_common(1)[0][0] for task, counts in data.items()}
    systems: dict[str, dict[str, Entry]] = {}
    infos: dict[str, TaskInfo] = {}
    problems = []
    for entry in entries:
        info = entry.result.task
        if info.fingerprint != usual[info.name]:
            problems.append(f"{entry.system} on {info.full_name} was made on other data than most; run it again")
            continue
        systems.setdefault(entry.system, {})[info.name] = entry
        infos.setdefault(info.name, info)
    whole = tuple(task_names(collection, sorted(infos)))
    present = tuple(t for t in whole if t in infos) + tuple(t for t in sorted(infos) if t not in whole)
    return Holdings(collection, present, whole, infos, systems, tuple(problems))
