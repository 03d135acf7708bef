"""From names and folders to tasks: finding, loading, converting them, and putting folders under a name."""

from __future__ import annotations

import shlex
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..core import DataError, IdTable, Task, TextColumn, Unavailable, UsageError
from ..core.files import atomic_folder, exists, typed_path, wrong_files
from ..core.stores import JoinedStore, Store, open_store
from ..core.table import counted
from ..core.untrusted import component
from .catalogue import (
    TaskEntry,
    built_in,
    collections,
    drop_in,
    find_tasks,
    fold,
    is_catalogue_name,
    locate,
    remember,
    snapshot,
    unknown_task,
)
from .formats import UNMARKED, Expansion, Format, check_expansions, detect, get_format, layouts, write_task
from .own import Added, OwnTask, add, check_name, find_own, own_collection, own_names

PlaceOf = Callable[[str, str, int], tuple[str, int | None]]
"""Gives the file and line where an id of a `document` or `query` stands for the n-th time."""


class TaskRef(NamedTuple):
    """A task that can be loaded: from the catalogue, or from a folder of the user's own."""

    name: str
    collection: str
    entry: TaskEntry | None
    path: Path | None
    split: str = ""  # of a folder that holds several tasks: which of them
    judged: str = ""  # which judgments, where a folder has several
    fingerprint: str = ""  # of a task of one's own collections: what it has to hold

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
        if self.fingerprint and self.path is not None and not exists(self.path):
            moved = f"r2med data add {self.collection} {self._typed('NEW-FOLDER')}"
            gone = f"r2med data remove {self.full_name}"
            raise DataError(f"is not there any more (it was {self.full_name}): {moved}, or {gone}", path=self.path)
        if self.path is not None:
            return self.path
        if self.entry is None:
            raise Unavailable("this task is not on this machine")
        raise Unavailable(
            f"{self.full_name} is not on this machine: r2med data download {self.full_name}, "
            f"or put its files into {drop_in(self.entry)}, or give a folder instead of the name"
        )

    @property
    def mark(self) -> str:
        """The split of the judgments as the name ends with it; nothing for those of test or without a name."""
        return f"@{self.judged}" if self.judged and self.name.endswith(f"@{self.judged}") else ""

    def _typed(self, folder: str) -> str:
        """What is typed to put the task into a collection again, from some folder."""
        name = self.name.removesuffix(self.mark)
        usual = self.split or name == Path(folder).name.removesuffix(".zip")
        return shlex.quote(f"{'' if usual else f'{name}='}{folder}{self.mark}")

    def store(self) -> Store:
        """Its files; documents that several tasks share lie apart."""
        store = open_store(self.present())
        shared = self.entry.corpus if self.entry else ""
        return JoinedStore(store, open_store(built_in(shared))) if shared else store

    def load(self) -> Task:
        """Read it, and refuse what cannot be searched or is not what the catalogue says."""
        path = self.present()
        if self.entry is not None and path == snapshot(self.entry) and (wrong := wrong_files(path)):
            again = f"r2med data download --force {self.full_name}"
            raise DataError(f"was changed since it was downloaded ({again})", path=path / wrong[0])
        store = self.store()
        layout, splits = detect(store)
        if self.split not in splits:
            raise DataError(f"holds no task {self.split!r} (it has {', '.join(splits)})", path=path)
        judged = layout.judgment_splits(store.names())
        if self.entry is not None and judged and judged[0] not in UNMARKED:
            raise DataError(f"has judgments of {judged[0]}, and {self.full_name} is a test set", path=path)
        task = self._task(layout, store)
        if self.entry is None:
            _tell_of_strangers(task, path)
        elif wrong := self.entry.differences(task):
            raise DataError(f"is not {self.full_name} as published: it has {', '.join(wrong)}", path=path)
        if self.fingerprint not in ("", task.fingerprint):
            again = f"r2med data add {self.collection} {self._typed(str(path))}"
            raise DataError(
                f"has changed since it became {self.full_name} (fingerprint {self.fingerprint[:8]}, now "
                f"{task.fingerprint[:8]}): {again} takes it as it is now",
                path=path,
            )
        return task

    def _task(self, layout: Format, store: Store) -> Task:
        queries, documents, qrels, _ = layout.read(store, self.split or self.judged)
        for kind, number in (("documents", len(documents)), ("queries", len(queries)), ("judgments", len(qrels))):
            if not number:
                raise DataError(f"there are no {kind}", path=self.path)
        place_of = partial(layout.place_of, store)
        check_texts("document", documents.ids, (documents.texts, documents.titles), place_of)
        asked = IdTable(query.id for query in queries)
        check_texts("query", asked, (TextColumn.from_texts(query.text for query in queries),), place_of)
        task = Task(
            name=self.name,
            collection=self.collection,
            queries=queries,
            documents=documents,
            qrels=qrels,
            family=self.entry.family if self.entry else "",
            source=self.source,
            revision=self.entry.revision if self.entry else "",
            extra={"layout": layout.name, "path": str(self.path or ""), "split": self.split, "judged": self.judged},
            candidates=lambda config: layout.candidates(store, config, self.split, task.query_ids, documents.ids),
            published=self.published,
        )
        return task

    def published(self, method: str, llm: str) -> Mapping[str, Sequence[str]]:
        """The texts that come with it, by method and chat model."""
        there = {f"{e.method}:{e.llm}": e.texts for e in self.expansions()}
        if f"{method}:{llm}" in there:
            return there[f"{method}:{llm}"]
        raise UsageError(f"{self.full_name} comes without {method} of {llm} (it has {', '.join(there) or 'none'})")

    def expansions(self) -> list[Expansion]:
        """The generated texts that come with it."""
        store = self.store()
        layout, _ = detect(store)
        # The hub writes `huatuo_o1_70b` (a split may hold no hyphen) where everyone else writes `huatuo-o1-70b`.
        found = [e._replace(llm=e.llm.replace("_", "-")) for e in layout.expansions(store, self.split)]
        check_expansions(found, store.path)
        return found


def _tell_of_strangers(task: Task, path: Path) -> None:
    """Say where judgments name queries or documents that are not there: no system can earn what these count for."""
    queries = [query_id for query_id in task.qrels.query_ids if query_id not in task.query_ids]
    documents = [doc_id for doc_id in task.qrels.doc_ids if doc_id not in task.documents.ids]
    for kind, strangers in (("query", queries), ("document", documents)):
        if strangers:
            others = f" and {len(strangers) - 1:,} more" if len(strangers) > 1 else ""
            told = f"{path}: judgments name the {kind} {strangers[0]!r}{others}, not there and never found"
            warnings.warn(f"{told} (r2med data validate {shlex.quote(str(path))})", stacklevel=3)


def check_texts(kind: str, ids: IdTable, columns: Iterable[TextColumn | None], place_of: PlaceOf) -> None:
    """Refuse ids that stand twice and texts with a NUL character, naming the file and the line."""
    if repeated := ids.duplicates():
        path, line = place_of(kind, repeated[0], 2)
        raise DataError(f"{kind} id {repeated[0]!r} stands {list(ids).count(repeated[0])} times", path=path, line=line)
    for column in columns:
        if column is not None and (index := column.find_byte(0)) >= 0:
            path, line = place_of(kind, ids[index], 1)
            raise DataError(f"{kind} {ids[index]!r} holds a NUL character", path=path, line=line)


def resolve(spec: str | Path) -> list[TaskRef]:
    """The tasks that `spec` names; a path means a folder or zip.

    A name of the catalogue or of one's own collections wins over a folder of the same name; write `./name` for the
    folder. `folder@dev` are the judgments of a split, or one task of a folder that holds several.
    """
    if isinstance(spec, Path):
        return chosen(spec.expanduser(), "")
    if not (spec := spec.strip()):
        raise UsageError("an empty text names no task")
    place = given_path(spec)
    if place is not None:
        return chosen(*place)
    if exists(typed_path(spec)):
        warnings.warn(f"{spec} means the collection or task of that name; write ./{spec} for the folder", stacklevel=2)
    if is_catalogue_name(spec):
        return [TaskRef(e.name, e.collection, e, locate(e), e.split) for e in find_tasks(spec)]
    found = find_own(spec)
    if found is None:
        raise unknown_task(spec, own_names())
    return [
        TaskRef(task.name, found[0], None, Path(task.path), task.split, task.judged, task.fingerprint)
        for task in found[1]
    ]


def given_path(spec: str) -> tuple[Path, str] | None:
    """The folder or zip that a text means and what is chosen of it; None for the name of a collection or task."""
    written = spec.startswith((".", "/", "~")) or spec.endswith(".zip")
    path, (before, at, part) = typed_path(spec), spec.rpartition("@")
    if not written and (is_catalogue_name(spec) or find_own(spec) is not None):
        return None
    if at and not exists(path) and exists(typed_path(before)):
        return typed_path(before), part
    return (path, "") if written or exists(path) else None


def chosen(path: Path, part: str) -> list[TaskRef]:
    """The tasks of a folder; which judgments are used is said where there are several and none was asked for."""
    for alternatives in _look(path) if not part else ():
        if len(alternatives) > 1:
            used, *others = [ref.judged for ref in alternatives]
            place = alternatives[0].path
            warnings.warn(
                f"{place}: the judgments of {used} are used; {place}@{others[0]} takes those of {others[0]}"
                + (f" ({', '.join(others[1:])} likewise)" if others[1:] else ""),
                stacklevel=3,
            )
    return from_path(path, part)


def resolve_all(specs: Iterable[str | Path]) -> list[TaskRef]:
    """The tasks that names and folders stand for, each once; several may be given in one text, with commas.

    Two different tasks of one name are refused: they would share their results.
    """
    found: dict[str, TaskRef] = {}
    for spec in specs:
        whole = isinstance(spec, Path) or "," not in spec or exists(typed_path(spec)) or spec in own_names()
        for part in [spec] if whole else str(spec).split(","):
            for ref in resolve(part):
                first = found.setdefault(ref.full_name, ref)
                if first.path != ref.path and first.present().resolve() != ref.present().resolve():
                    raise UsageError(f"{first.path} and {ref.path} are both called {ref.full_name!r}: rename one")
    return list(found.values())


def from_path(path: Path, part: str = "") -> list[TaskRef]:
    """The tasks in a folder or zip: one task, the splits of a Nano folder, or a folder of task folders.

    `part` chooses one of the splits, or the judgments of a split other than the usual one.
    """
    found = _look(path)
    if not part:
        return [alternatives[0] for alternatives in found]
    every = [ref for alternatives in found for ref in alternatives]
    wanted = [ref for ref in every if part in (ref.split, ref.judged) or (ref.split and part == ref.name)]
    if not wanted:
        known = dict.fromkeys(ref.split or ref.judged for ref in every)
        raise UsageError(f"{path} has no {part!r} (it has {', '.join(filter(None, known)) or 'no splits'})")
    without = [refs[0].name for refs in found if not any(ref in wanted for ref in refs)]
    if without and any(part == ref.judged for ref in wanted):
        names = f"{', '.join(without[:5])}{', …' if len(without) > 5 else ''}"
        warnings.warn(f"{path}: {counted(len(without), 'task')} without {part!r} left out ({names})", stacklevel=2)
    return wanted


def every_part(path: Path) -> list[TaskRef]:
    """The tasks in a folder or zip, with each of the judgments that there are."""
    return [ref for alternatives in _look(path) for ref in alternatives]


def _look(path: Path) -> list[list[TaskRef]]:
    """The tasks in a folder or zip; each with every set of judgments it has, the usual one first."""
    store = open_store(path)
    try:
        layout, splits = detect(store)
    except DataError:
        inside = _task_folders(path)
        if not inside:
            raise
        return [found for folder in inside for found in _look(folder)]
    # A name becomes a folder or a file when the task, or a result on it, is written.
    name = component(path.resolve().name.removesuffix(".zip"), "task", path=path)
    if splits == [""]:
        judged = layout.judgment_splits(store.names()) or [""]
        marks = {one: "" if one == judged[0] and one in UNMARKED else f"@{one}" for one in judged}
        return [[TaskRef(f"{name}{mark}", "", None, path, "", one) for one, mark in marks.items()]]
    by_split = {e.split: e.name for c in collections().values() for e in c.tasks if e.split}
    # A folder that is called like a collection is not that collection: `~` keeps their results apart.
    group = f"{name}~" if fold(name) in collections() or own_collection(name) else name
    names = {split: split if by_split.get(split, split) in splits else by_split[split] for split in splits}
    return [[TaskRef(task, group, None, path, split)] for split, task in names.items()]


def _task_folders(path: Path) -> list[Path]:
    children = sorted(path.iterdir()) if path.is_dir() else []
    stores = ((child, open_store(child).names()) for child in children if child.is_dir() or child.suffix == ".zip")
    return [child for child, names in stores if any(layout.splits(names) for layout in layouts().values())]


def load(spec: str | Path) -> Task:
    """Load one task by name, alias or path."""
    refs = resolve(spec)
    if len(refs) != 1:
        names = ", ".join(r.full_name for r in refs)
        raise UsageError(f"{str(spec)!r} stands for {len(refs)} tasks ({names}); name one of them")
    return refs[0].load()


def load_all(spec: str | Path) -> list[Task]:
    """Load every task that `spec` stands for."""
    return [ref.load() for ref in resolve(spec)]


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
    check_file_names((ref.split if layout.holds_several else "") or ref.name for ref in refs)
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
