"""Loading a task by its name or its path, and writing it in any layout."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..core import DataError, IdTable, Task, TextColumn, Unavailable, UsageError
from ..core.atomic import atomic_folder
from ..core.files import wrong_files
from ..core.places import exists, typed_path
from ..core.stores import Store, open_store
from ..core.untrusted import component
from .catalogue import TaskEntry, collections, drop_in, find_tasks, locate, snapshot
from .formats import Expansion, Format, Parts, detect, get_format, layouts


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

    @property
    def source(self) -> str:
        """Where the data come from."""
        return self.entry.dataset or "built in" if self.entry else str(self.path)

    def present(self) -> Path:
        """Where it lies on this machine; an error that says how to get it where it does not."""
        if self.path is not None:
            return self.path
        if self.entry is None:
            raise Unavailable("this task is not on this machine")
        raise Unavailable(
            f"{self.full_name} is not on this machine: r2med data download {self.full_name}, "
            f"or put its files into {drop_in(self.entry)}, or give a folder instead of the name"
        )

    def load(self) -> Task:
        """Read it, and refuse what cannot be searched or is not what the catalogue says."""
        path = self.present()
        if self.entry is not None and path == snapshot(self.entry) and (wrong := wrong_files(path)):
            again = f"r2med data download --force {self.full_name}"
            raise DataError(f"was changed since it was downloaded ({again})", path=path / wrong[0])
        store = open_store(path)
        layout, splits = detect(store)
        if self.split not in splits:
            raise DataError(f"holds no task {self.split!r} (it has {', '.join(splits)})", path=path)
        task = self._task(layout, store)
        if self.entry is not None and self.entry.fingerprint not in ("", task.fingerprint):
            raise DataError(
                f"is not {self.full_name} as published: its fingerprint is {task.fingerprint}, "
                f"not {self.entry.fingerprint}",
                path=path,
            )
        return task

    def _task(self, layout: Format, store: Store) -> Task:
        queries, documents, qrels = layout.read(store, self.split)
        for kind, number in (("documents", len(documents)), ("queries", len(queries)), ("judgments", len(qrels))):
            if not number:
                raise DataError(f"there are no {kind}", path=self.path)
        task = Task(
            name=self.name,
            collection=self.collection,
            queries=queries,
            documents=documents,
            qrels=qrels,
            family=self.entry.family if self.entry else "",
            source=self.source,
            revision=self.entry.revision if self.entry else "",
            extra={"layout": layout.name, "path": str(self.path or ""), "split": self.split},
            candidates=lambda config: layout.candidates(store, config, self.split, documents.ids),
            published=self.published,
        )
        _check("document", documents.ids, (documents.texts, documents.titles), layout, store)
        _check("query", task.query_ids, (task.query_texts,), layout, store)
        return task

    def published(self, method: str, llm: str) -> Mapping[str, Sequence[str]]:
        """The texts that come with it, by method and chat model."""
        there = {f"{e.method}:{e.llm}": e.texts for e in self.expansions()}
        if f"{method}:{llm}" in there:
            return there[f"{method}:{llm}"]
        raise UsageError(f"{self.full_name} comes without {method} of {llm} (it has {', '.join(there) or 'none'})")

    def expansions(self) -> list[Expansion]:
        """The generated texts that come with it."""
        store = open_store(self.present())
        layout, _ = detect(store)
        # The hub writes `huatuo_o1_70b` (a split may hold no hyphen) where everyone else writes `huatuo-o1-70b`.
        found = [e._replace(llm=e.llm.replace("_", "-")) for e in layout.expansions(store, self.split)]
        check_expansions(found, store.path)
        return found


def check_expansions(expansions: Iterable[Expansion], place: Path) -> None:
    """Refuse sets of texts whose names cannot be file names, or of which one would overwrite another."""
    seen: set[tuple[str, str]] = set()
    for method, llm, _ in expansions:
        name = component(method, "method", path=place), component(llm, "model", path=place).replace("_", "-")
        if name in seen:
            raise DataError(f"holds {method} of {llm} twice", path=place)
        seen.add(name)


def _check(kind: str, ids: IdTable, columns: Iterable[TextColumn | None], layout: Format, store: Store) -> None:
    """Refuse ids that stand twice and texts with a NUL character, naming the file and the line."""
    if repeated := ids.duplicates():
        path, line = layout.place_of(store, kind, repeated[0], 2)
        raise DataError(f"{kind} id {repeated[0]!r} stands {list(ids).count(repeated[0])} times", path=path, line=line)
    for column in columns:
        if column is not None and (index := column.find_byte(0)) >= 0:
            path, line = layout.place_of(store, kind, ids[index], 1)
            raise DataError(f"{kind} {ids[index]!r} holds a NUL character", path=path, line=line)


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


def resolve_all(specs: Iterable[str]) -> list[TaskRef]:
    """The tasks that names and folders stand for, each once; several may be given in one text, with commas.

    Two different tasks of one name are refused: they would share their results.
    """
    found: dict[str, TaskRef] = {}
    for spec in specs:
        for part in [spec] if exists(typed_path(spec)) else spec.split(","):
            for ref in resolve(part.strip()):
                first = found.setdefault(ref.full_name, ref)
                if first.path != ref.path and first.present().resolve() != ref.present().resolve():
                    raise UsageError(f"{first.path} and {ref.path} are both called {ref.full_name!r}: rename one")
    return list(found.values())


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
    # A name becomes a folder or a file when the task, or a result on it, is written.
    name = component(path.resolve().name.removesuffix(".zip"), "task", path=path)
    if splits == [""]:
        return [TaskRef(name, "", None, path)]
    by_split = {e.split: e.name for c in collections().values() for e in c.tasks if e.split}
    return [TaskRef(by_split.get(split, split), name, None, path, split) for split in splits]


def _task_folders(path: Path) -> list[Path]:
    children = sorted(path.iterdir()) if path.is_dir() else []
    stores = ((child, open_store(child).names()) for child in children if child.is_dir() or child.suffix == ".zip")
    return [child for child, names in stores if any(layout.splits(names) for layout in layouts().values())]


def load(spec: str | Path) -> Task:
    """Load one task by name, alias or path."""
    refs = _refs(spec)
    if len(refs) != 1:
        names = ", ".join(r.full_name for r in refs)
        raise UsageError(f"{str(spec)!r} stands for {len(refs)} tasks ({names}); name one of them")
    return refs[0].load()


def load_all(spec: str | Path) -> list[Task]:
    """Load every task that `spec` stands for."""
    return [ref.load() for ref in _refs(spec)]


def _refs(spec: str | Path) -> list[TaskRef]:
    return resolve(spec) if isinstance(spec, str) else from_path(spec)


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
