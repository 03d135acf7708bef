"""From a name or a path to a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..core import DataError, IdTable, Task, TextColumn, Unavailable, UsageError
from ..core.places import exists, typed_path
from ..core.stores import Store, find, open_store
from .catalogue import TaskEntry, collections, find_tasks
from .formats import FORMATS, detect
from .jsonl import line_of
from .parts import Expansion, Format, Parts
from .places import drop_in, locate


class TaskRef(NamedTuple):
    """A task that can be loaded: from the catalogue, or from a folder of the user's own."""

    name: str
    collection: str
    entry: TaskEntry | None
    path: Path | None
    split: str = ""

    @property
    def full_name(self) -> str:
        """How the task is called in results."""
        return f"{self.collection}/{self.name}" if self.collection else self.name

    def present(self) -> Path:
        """Where it lies on this machine; an error that says how to get it where it does not."""
        if self.path is None:
            raise Unavailable(absent_message(self.entry))
        return self.path

    def load(self) -> Task:
        """Read it."""
        store = open_store(self.present())
        layout, splits = detect(store)
        if self.split not in splits:
            raise DataError(f"holds no task {self.split!r} (it has {', '.join(splits)})", path=self.path)
        return make_task(layout.read(store, self.split), self, source=self.source, layout=layout.name)

    def expansions(self) -> Iterator[Expansion]:
        """The generated texts that come with it."""
        store = open_store(self.present())
        layout, _ = detect(store)
        yield from layout.expansions(store, self.split)

    @property
    def source(self) -> str:
        """Where the data come from."""
        return self.entry.dataset or "built in" if self.entry else str(self.path)


def absent_message(entry: TaskEntry | None) -> str:
    """What to do about a task that is not on this machine."""
    if entry is None:
        return "this task is not on this machine"
    return (
        f"{entry.full_name} is not on this machine: r2med data download {entry.full_name}, "
        f"or put its files into {drop_in(entry)}, or give a folder instead of the name"
    )


def resolve(spec: str) -> list[TaskRef]:
    """The tasks that `spec` names.

    A catalogue name wins over a folder of the same name; write `./name` for the folder.
    """
    looks_like_path = spec.startswith((".", "/", "~")) or spec.endswith(".zip")
    path = typed_path(spec)
    if not looks_like_path:
        try:
            return [TaskRef(e.name, e.collection, e, locate(e), e.split) for e in find_tasks(spec)]
        except UsageError:
            if not exists(path):
                raise
    return from_path(path)


def from_path(path: Path) -> list[TaskRef]:
    """The tasks in a folder or zip: one task, the splits of a Nano folder, or a folder of task folders."""
    store = open_store(path)
    try:
        _, splits = detect(store)
    except DataError:
        inside = _task_folders(path)
        if not inside:
            raise
        return [ref for folder in inside for ref in from_path(folder)]
    if splits == [""]:
        return [TaskRef(_path_name(path), "", None, path)]
    by_split = {e.split: e.name for c in collections().values() for e in c.tasks if e.split}
    return [TaskRef(by_split.get(s, s), _path_name(path), None, path, s) for s in splits]


def _task_folders(path: Path) -> list[Path]:
    found = []
    for child in sorted(path.iterdir()) if path.is_dir() else ():
        if child.is_dir() or child.suffix == ".zip":
            store = open_store(child)
            if any(layout.splits(store.names()) for layout in FORMATS.values()):
                found.append(child)
    return found


def _path_name(path: Path) -> str:
    return path.resolve().name.removesuffix(".zip")


def make_task(parts: Parts, ref: TaskRef, *, source: str, layout: str) -> Task:
    """Name the parts and refuse what cannot be searched."""
    place = ref.path or Path(ref.full_name)
    queries, documents, qrels = parts
    for kind, number in (("documents", len(documents)), ("queries", len(queries)), ("judgments", len(qrels))):
        if not number:
            raise DataError(f"there are no {kind}", path=place)
    entry = ref.entry
    task = Task(
        name=ref.name,
        collection=ref.collection,
        queries=queries,
        documents=documents,
        qrels=qrels,
        family=entry.family if entry else "",
        source=source,
        revision=entry.revision if entry else "",
        extra={"layout": layout, "path": str(ref.path or ""), "split": ref.split},
    )
    _check("document", documents.ids, (documents.texts, documents.titles), ref)
    _check("query", task.query_ids, (task.query_texts,), ref)
    return task


def _check(kind: str, ids: IdTable, columns: Iterable[TextColumn | None], ref: TaskRef) -> None:
    if repeated := ids.duplicates():
        path, line = _place(ref, kind, repeated[0], occurrence=2)
        raise DataError(f"{kind} id {repeated[0]!r} stands {list(ids).count(repeated[0])} times", path=path, line=line)
    for column in columns:
        if column is not None and (index := column.find_byte(0)) >= 0:
            path, line = _place(ref, kind, ids[index])
            raise DataError(f"{kind} {ids[index]!r} holds a NUL character", path=path, line=line)


def _place(ref: TaskRef, kind: str, identifier: str, *, occurrence: int = 1) -> tuple[str | Path, int | None]:
    """File and line of a record, as far as the layout has them."""
    if ref.path is None:
        return ref.full_name, None
    store = open_store(ref.path)
    name = find(store, *(["corpus.jsonl"] if kind == "document" else ["query.jsonl", "queries.jsonl"]))
    if name is None:
        return ref.path, None
    return store.label(name), line_of(store, name, identifier, occurrence=occurrence)


def load(spec: str | Path) -> Task:
    """Load one task by name, alias or path."""
    refs = resolve(str(spec)) if isinstance(spec, str) else from_path(spec)
    if len(refs) != 1:
        names = ", ".join(r.full_name for r in refs)
        raise UsageError(f"{str(spec)!r} stands for {len(refs)} tasks ({names}); name one of them")
    return refs[0].load()


def load_all(spec: str | Path) -> list[Task]:
    """Load every task that `spec` stands for."""
    refs = resolve(str(spec)) if isinstance(spec, str) else from_path(spec)
    return [ref.load() for ref in refs]


def open_layout(path: Path) -> tuple[Store, Format, list[str]]:
    """Store, layout and splits of a path, for commands that look at files rather than tasks."""
    store = open_store(path)
    layout, splits = detect(store)
    return store, layout, splits
