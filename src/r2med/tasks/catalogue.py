"""The catalogue: collections, their tasks, the names people give them, and where tasks lie on this machine.

`R2MED_HOME/places` has a file per task of one's own that something was run on, named by the task's fingerprint, with
its folder: results find their texts again, and a folder that was changed or replaced is not read as what it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ..core import DataError, ResultError, Task, UnknownName
from ..core.files import home, hub_cache, parse_toml, write_bytes
from ..core.stores import FolderStore
from ..core.untrusted import component, file_name, inside
from .formats import layouts

COLLECTION_NAMES = ("mini@1", "mini-dev", "mini", "nano", "r2med")
"""The last one that has a task of a bare name is meant by it."""


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
    fingerprint: str = ""
    """Of the published content, where it is known: other content is refused under this name."""
    split: str = ""
    aliases: tuple[str, ...] = ()
    collection: str = ""
    dataset: str = ""
    layout: str = ""
    licence: str = ""
    folder: str = ""
    """Of a task that is built in: where it lies beside this file."""
    corpus: str = ""
    """Of a task that is built in: the folder of its documents, where other tasks have the same."""

    @property
    def full_name(self) -> str:
        """`collection/name`."""
        return f"{self.collection}/{self.name}"

    def differences(self, task: Task) -> list[str]:
        """In what a task that was read differs from the published one, as far as the catalogue knows it."""
        counts = {
            "queries": (len(task.queries), self.queries),
            "documents": (len(task.documents), self.documents),
            "judgments": (len(task.qrels), self.judgments),
        }
        found = [f"{have:,} {kind} instead of {wanted:,}" for kind, (have, wanted) in counts.items() if have != wanted]
        if self.fingerprint not in ("", task.fingerprint):
            found.append(f"the fingerprint {task.fingerprint}, not {self.fingerprint}")
        return found


class Collection(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of tasks."""

    name: str
    title: str
    summary: str
    licence: str
    layout: str
    tasks: tuple[TaskEntry, ...] = msgspec.field(name="task")  # in the order of the paper
    dataset: str = ""
    homepage: str = ""


@cache
def collections() -> dict[str, Collection]:
    """All collections by name."""
    return {name: _read(name) for name in COLLECTION_NAMES}


def _read(name: str) -> Collection:
    data: dict[str, Any] = parse_toml(files(__package__).joinpath(f"collections/{name}.toml").read_text("utf-8"))
    shared = {key: data[key] for key in ("layout", "licence")} | {"collection": data["name"]}
    for entry in data["task"]:
        named = {key: data.get(key, "").format(task=entry["name"]) for key in ("dataset", "folder")}
        entry.update(shared | named)
    return msgspec.convert(data, Collection)


def entries(collection: str | None = None) -> Iterable[TaskEntry]:
    """Tasks of one collection, or of all."""
    for c in collections().values():
        if collection in (None, c.name):
            yield from c.tasks


@cache
def _names() -> dict[str, TaskEntry]:
    """Every spelling of every task; R2MED's own aliases name the tasks of the other collections too."""
    names: dict[str, TaskEntry] = {}
    upstream = {entry.name: entry.aliases for entry in entries("r2med")}
    for entry in entries():
        spellings = [entry.full_name, entry.name, *entry.aliases]
        spellings += [f"{entry.collection}/{alias}" for alias in upstream[entry.name] if entry.collection != "r2med"]
        names.update((fold(spelling), entry) for spelling in spellings)
    return names


def find_tasks(spec: str) -> tuple[TaskEntry, ...]:
    """The tasks a name stands for: a collection, `collection/task`, or an alias of a task."""
    folded = fold(spec)
    if folded in collections():
        return collections()[folded].tasks
    if folded in _names():
        return (_names()[folded],)
    raise unknown_task(spec)


def unknown_task(spec: str, others: Iterable[str] = ()) -> UnknownName:
    """The error for a name that nobody knows; `others` are known names beside those of the catalogue."""
    known = [*collections(), *(e.full_name for e in entries()), *(e.name for e in entries("r2med")), *others]
    known += [alias for e in entries() for alias in e.aliases]
    collection, slash, _ = fold(spec).partition("/")
    inside_it = [name for name in known if slash and fold(name).startswith(f"{collection}/")]
    listed = f"r2med tasks {collection}" if inside_it else "r2med tasks"
    return UnknownName("task", spec, inside_it or known, hint=f"({listed} lists them; a folder or .zip works too)")


def is_catalogue_name(spec: str) -> bool:
    """Whether a name stands for a collection or a task of the catalogue."""
    return fold(spec) in collections() or fold(spec) in _names()


def fold(name: str) -> str:
    """A name as it is compared: in lower case, with hyphens."""
    return name.casefold().replace("_", "-").replace(" ", "-").strip("/")


def built_in(folder: str) -> Path:
    """A folder that ships with the package."""
    return inside(Path(str(files(__package__))), folder, "task")


def drop_in(entry: TaskEntry) -> Path:
    """Where a user without network puts a task's folder: no download, no configuration."""
    return inside(home() / "data", entry.full_name, "task")


def locate(entry: TaskEntry) -> Path | None:
    """The folder or zip that holds a catalogue task on this machine, or None."""
    if entry.folder:
        return built_in(entry.folder)
    own = drop_in(entry)
    candidates = [own, own.with_name(own.name + ".zip")]
    if entry.split:  # a Nano folder holds all tasks of a collection; any other layout holds one
        candidates.append(own.parent)
    for candidate in candidates:
        if candidate.is_file() or _holds(candidate, entry):
            return candidate
    return snapshot(entry)


def snapshot(entry: TaskEntry) -> Path | None:
    """The task's snapshot in the hub cache, if it has been downloaded."""
    repository = hub_cache() / component(f"datasets--{entry.dataset.replace('/', '--')}", "dataset")
    reference = inside(repository, f"refs/{entry.revision}", "revision")
    commit = reference.read_text().strip() if reference.is_file() else entry.revision
    folder = repository / "snapshots" / component(commit, "revision", path=reference)
    return folder if _holds(folder, entry) else None


def _holds(folder: Path, entry: TaskEntry) -> bool:
    if not folder.is_dir():
        return False
    try:
        names = FolderStore(folder).names()
        return any(layout.has_task(names, entry.split) for layout in layouts().values())
    except DataError:
        return False  # loading it by its path says what is wrong with it


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task lies."""

    path: str  # A folder or a zip, from the root on.
    split: str = ""  # Of a folder that holds several tasks: which of them.
    judged: str = ""  # Which judgments, where there are several.


def remember(task: Task) -> None:
    """Keep where a task of one's own lies, so that its texts are found again by the results that are made on it."""
    path = task.extra.get("path")
    if not path or task.collection in collections():
        return
    parts = {key: task.extra.get(key, "") for key in ("split", "judged")}
    new = msgspec.json.encode(Place(path=str(Path(path).absolute()), **parts))
    file = _place(task.fingerprint)
    with suppress(OSError, ResultError):  # a home that cannot be written costs the texts of later pages, nothing else
        if not file.is_file() or file.read_bytes() != new:
            write_bytes(file, new)


def remembered(fingerprint: str) -> Place | None:
    """Where the task with that fingerprint lay when something was last run on it."""
    try:
        return msgspec.json.decode(_place(fingerprint).read_bytes(), type=Place)
    except (OSError, ValueError, RecursionError):
        return None


def _place(fingerprint: str) -> Path:
    return home() / "places" / f"{file_name(fingerprint)}.json"
