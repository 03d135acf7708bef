"""What `r2med tasks` lists: the tasks of the catalogue and of one's own collections, and what of them is here."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..core.files import exists
from .catalogue import TaskEntry, entries, find_tasks, is_catalogue_name, locate, unknown_task
from .own import OwnTask, find_own, own_collections, own_names


class TaskListing(NamedTuple):
    """A task and what of it is on this machine."""

    name: str
    collection: str
    family: str
    queries: int
    documents: int
    judgments: int
    revision: str
    available: bool
    path: str | None
    bytes: int | None
    own: bool = False  # whether it is a task of a collection that was added here


def list_tasks(name: str = "") -> list[TaskListing]:
    """The tasks of a collection, or all of them."""
    if not name:
        own = [(made.name, task) for made in own_collections() for task in made.tasks]
        return [*map(_of_catalogue, entries()), *(_of_own(*one) for one in own)]
    if is_catalogue_name(name):
        return list(map(_of_catalogue, find_tasks(name)))
    if (found := find_own(name)) is None:
        raise unknown_task(name, own_names())
    return [_of_own(found[0], task) for task in found[1]]


def _of_catalogue(e: TaskEntry) -> TaskListing:
    path = locate(e)
    facts = (e.name, e.collection, e.family, e.queries, e.documents, e.judgments, e.revision)
    return TaskListing(*facts, path is not None, str(path) if path else None, _size(path) if path else None)


def _of_own(collection: str, t: OwnTask) -> TaskListing:
    path = Path(t.path)
    here = exists(path)
    counts = (t.queries, t.documents, t.judgments)
    return TaskListing(t.name, collection, "", *counts, "", here, t.path, _size(path) if here else None, own=True)


def _size(path: Path) -> int:
    return sum(p.stat().st_size for p in (path, *path.rglob("*")) if p.is_file())
