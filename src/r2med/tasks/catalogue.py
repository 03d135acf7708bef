"""What there is: the collections, their tasks and the many names people give them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from ..core import UnknownName
from ..core.toml import loads

COLLECTION_NAMES = ("mini", "nano", "r2med")


class TaskEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a collection, as published."""

    name: str
    family: str
    scenario: str
    queries: int
    documents: int
    judgments: int
    description: str
    revision: str = ""
    split: str = ""
    aliases: tuple[str, ...] = ()
    collection: str = ""
    dataset: str = ""
    layout: str = ""
    licence: str = ""

    @property
    def full_name(self) -> str:
        """`collection/name`."""
        return f"{self.collection}/{self.name}"


class Collection(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of tasks."""

    name: str
    title: str
    summary: str
    licence: str
    layout: str
    task: tuple[TaskEntry, ...]
    dataset: str = ""
    homepage: str = ""

    @property
    def tasks(self) -> tuple[TaskEntry, ...]:
        """The tasks, in the order of the paper."""
        return self.task


@cache
def collections() -> dict[str, Collection]:
    """All collections by name."""
    return {name: _read(name) for name in COLLECTION_NAMES}


def _read(name: str) -> Collection:
    data: dict[str, Any] = loads(files(__package__).joinpath(f"collections/{name}.toml").read_text("utf-8"))
    shared = {key: data[key] for key in ("layout", "licence")} | {"collection": data["name"]}
    for entry in data["task"]:
        entry.update(shared | {"dataset": data.get("dataset", "").format(task=entry["name"])})
    return msgspec.convert(data, Collection)


def entries(collection: str | None = None) -> Iterable[TaskEntry]:
    """Tasks of one collection, or of all."""
    for c in collections().values():
        if collection in (None, c.name):
            yield from c.tasks


@cache
def _names() -> dict[str, TaskEntry]:
    """Every spelling of every task.

    A bare name or alias without a collection means R2MED itself, unless the alias belongs to one collection only.
    """
    names: dict[str, TaskEntry] = {}
    for collection in ("mini", "nano", "r2med"):  # the last one wins a bare name
        for entry in collections()[collection].tasks:
            names[_fold(entry.full_name)] = entry
            names[_fold(entry.name)] = entry
            names.update((_fold(alias), entry) for alias in entry.aliases)
    upstream = {entry.name: entry.aliases for entry in collections()["r2med"].tasks}
    for collection in ("mini", "nano"):
        for entry in collections()[collection].tasks:
            names.update((_fold(f"{collection}/{alias}"), entry) for alias in upstream[entry.name])
    return names


def find_tasks(spec: str) -> tuple[TaskEntry, ...]:
    """The tasks a name stands for: a collection, `collection/task`, or an alias of a task."""
    folded = _fold(spec)
    if folded in collections():
        return collections()[folded].tasks
    if folded in _names():
        return (_names()[folded],)
    known = [*collections(), *(e.full_name for e in entries()), *(e.name for e in entries("r2med"))]
    known += [alias for e in entries() for alias in e.aliases]
    raise UnknownName("task", spec, known, hint="(r2med tasks lists them; a folder or .zip works too)")


def _fold(name: str) -> str:
    return name.casefold().replace("_", "-").replace(" ", "-").strip("/")
