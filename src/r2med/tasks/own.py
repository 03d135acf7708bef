"""Collections of one's own, folders of tasks under a name; and the list of these and of the catalogue's tasks.

`R2MED_HOME/collections` has a file per collection, with the folder and the fingerprint of each of its tasks: a folder
that was changed or replaced is not read as what it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ..core import DataError, UnknownName, UsageError
from ..core.files import exists, home, locked, write_bytes
from ..core.untrusted import component, file_name
from .catalogue import (
    Place,
    TaskEntry,
    collections,
    entries,
    find_tasks,
    fold,
    is_catalogue_name,
    locate,
    unknown_task,
)

SCHEMA = 1
UNGROUPED = "own"  # what results on folders without a collection are listed under
NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,62}[a-z0-9])?")
State = Literal["added", "unchanged", "changed", "moved"]


class OwnTask(Place, frozen=True, kw_only=True):
    """One task of a collection."""

    name: str
    fingerprint: str  # Of the content when it was added.
    queries: int
    documents: int
    judgments: int


class OwnCollection(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of one's own under a name."""

    schema: int
    name: str
    tasks: tuple[OwnTask, ...]


class Added(NamedTuple):
    """One task after `add`: whether it is new, and if not, what became of it."""

    collection: str
    task: OwnTask
    state: State


def check_name(name: str) -> str:
    """A name for a collection as it is filed, in lower case; one that means something else already is refused."""
    folded = fold(name)
    if not NAME.fullmatch(folded) or "/" in name or folded.endswith(".zip"):
        raise UsageError(
            f"{name!r} cannot name a collection: it takes up to 64 letters, digits, dots and hyphens, and begins and "
            "ends with a letter or digit"
        )
    if folded == UNGROUPED:
        raise UsageError(f"{name!r} stands for folders that belong to no collection; choose another name")
    if is_catalogue_name(folded):
        what = "collection" if folded in collections() else "task"
        raise UsageError(f"{name!r} is the name of a {what} of r2med; choose another name")
    return folded


def own_collection(name: str) -> OwnCollection | None:
    """The collection of that name, in any spelling; None where there is none."""
    folded = fold(name)
    return _read(_file(folded), folded) if NAME.fullmatch(folded) else None


def own_collections() -> list[OwnCollection]:
    """All collections of one's own, by name."""
    folder = _folder()
    files = sorted(path for path in folder.glob("*.json") if not path.name.startswith(".")) if folder.is_dir() else []
    found = [made for path in files if (made := _read(path)) is not None]
    return sorted(found, key=lambda made: made.name)


def own_names() -> list[str]:
    """The names of one's own collections and of their tasks; what cannot be read has none."""
    with suppress(DataError):
        return [name for c in own_collections() for name in (c.name, *(f"{c.name}/{t.name}" for t in c.tasks))]
    return []


def find_own(spec: str) -> tuple[str, Sequence[OwnTask]] | None:
    """The collection and the tasks that `mine` or `mine/task` stands for; None where there are none."""
    name, slash, asked = spec.partition("/")
    made = own_collection(name)
    if made is None:
        return None
    found = [task for task in made.tasks if not slash or fold(task.name) == fold(asked)]
    return (made.name, found) if found else None


def add(name: str, tasks: Iterable[OwnTask]) -> list[Added]:
    """Put tasks under a name, beside those that it has; all of them or, at an error, none.

    A task that it has already is read anew: its folder may have moved, or may hold other content by now.
    """
    name = check_name(name)
    with locked(_folder()):
        before = own_collection(name)
        there = {fold(task.name): task for task in (before.tasks if before else ())}
        done, seen = list[Added](), set[str]()
        for task in tasks:
            key = fold(component(task.name, "task", path=task.path))
            if key in seen:
                raise UsageError(f"two of the folders would be {name}/{task.name}: name one as TASK=FOLDER")
            seen.add(key)
            done.append(Added(name, task, _state(name, task, there.get(key))))
            there[key] = task
        _check_different(name, list(there.values()))
        _write(OwnCollection(schema=SCHEMA, name=name, tasks=tuple(there.values())))
    return done


def _state(name: str, task: OwnTask, before: OwnTask | None) -> State:
    if before is None:
        return "added"
    place, old = ((t.path, t.split, t.judged) for t in (task, before))
    if task.fingerprint == before.fingerprint:
        return "unchanged" if place == old and task.name == before.name else "moved"
    if place != old:
        raise UsageError(
            f"{name}/{before.name} is {before.path}, which holds other data than {task.path}: name the new one as "
            f"TASK=FOLDER, or first r2med data remove {name}/{before.name}"
        )
    return "changed"


def _check_different(name: str, tasks: Sequence[OwnTask]) -> None:
    """The same data twice would count twice in every mean."""
    first: dict[str, OwnTask] = {}
    for task in tasks:
        other = first.setdefault(task.fingerprint, task)
        if other is not task:
            raise UsageError(f"{other.path} and {task.path} hold the same data: {name} takes one of them")


def remove(spec: str) -> list[str]:
    """Forget a collection, or one task of it; returns the full names. Folders and results stay where they are."""
    name, slash, rest = spec.partition("/")
    folded, known = fold(name), own_names()
    with locked(_folder()):
        path = _file(folded) if NAME.fullmatch(folded) else None
        if path is None or not path.is_file():
            listed = f"(yours: {', '.join(n for n in known if '/' not in n) or 'none'}; others cannot be removed)"
            raise UnknownName("collection", name, known, hint=listed)
        if not slash:
            names = [n for n in known if n.startswith(f"{folded}/")]
            path.unlink()  # also one that cannot be read
            return names
        made, gone = _read(path, folded), find_own(spec)
        if made is None or gone is None:
            raise UnknownName("task", spec, known, hint=f"({folded} has no task {rest})")
        if left := tuple(task for task in made.tasks if task not in gone[1]):
            _write(msgspec.structs.replace(made, tasks=left))
        else:
            path.unlink()
        return [f"{made.name}/{task.name}" for task in gone[1]]


def _folder() -> Path:
    return home() / "collections"


def _file(name: str) -> Path:
    return _folder() / f"{file_name(name)}.json"


def _write(made: OwnCollection) -> None:
    write_bytes(_file(made.name), msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n")


def _read(path: Path, name: str = "") -> OwnCollection | None:
    try:
        made = msgspec.json.decode(path.read_bytes(), type=OwnCollection)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        advice = f"r2med data remove {name or path.stem}"
        raise DataError(f"is no list of a collection ({error}); {advice} removes it", path=path) from None
    if made.schema != SCHEMA or path != _file(made.name) or not made.tasks:
        raise DataError("is no list of a collection of this r2med; remove it", path=path)
    return made


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
