"""The one reader of results folders: what there is, read when it is asked for and kept until its file changes.

Nothing outside the folders is read: a link that leads out is reported and left alone, and so is what is not a file.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from ..core import DataError, IdTable, ResultError, Run, UnknownName, UsageError
from .beside import (
    EXPANSIONS,
    GENERATIONS,
    QUERIES,
    RUN,
    Expansion,
    ScoreColumns,
    StoredRun,
    UsedGenerations,
    open_run,
    read_expansion,
    read_scores,
    read_used,
)
from .schema import TaskResult
from .store import ResultStore, collection_slug, load_run, read_key, read_result

CHECK_EVERY = 1.0
SCORES_BUDGET, RUNS_BUDGET = 512 << 20, 96 << 20
NAMED = 20  # Systems that an error message lists.
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Stamp = tuple[int, int]


class Kept(Generic[K, V]):
    """The values used last, up to a number of bytes; threads may share it."""

    def __init__(self, budget: int, size: Callable[[V], int] = lambda value: 1) -> None:
        self._budget, self._size, self._held = budget, size, 0
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made where it is not kept; two threads that ask at once may both make it."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = value
                self._held += self._size(value)
            while self._held > self._budget and len(self._values) > 1:
                self._held -= self._size(self._values.popitem(last=False)[1])
        return value


class StoredResult:
    """One result file. What is in it and beside it is read when it is first asked for, and checked."""

    def __init__(self, index: ResultIndex, root: Path, path: Path) -> None:
        self._index, self.root, self.path = index, root, path
        self.key = read_key(path)
        self.system, self.collection, self.task = self.key
        self.slug = collection_slug(self.collection)  # The collection in options and addresses.
        self.label = self.system  # The system's name; with its folder's where several folders hold it.
        self._result: TaskResult | None = None

    @property
    def full_name(self) -> str:
        return f"{self.collection}/{self.task}" if self.collection else self.task

    @property
    def result(self) -> TaskResult:
        """The whole result; one that cannot be trusted is an error."""
        if self._result is None:
            self._result = read_result(self.path)
        return self._result

    def scores(self, measures: Sequence[str]) -> ScoreColumns:
        keys = tuple(measures)
        return self._index.kept_scores.get((self, keys), lambda: read_scores(self.beside(QUERIES), self.result, keys))

    def run(self) -> StoredRun:
        """The run, opened at the queries that are asked for."""
        expected = self.result.files.get(RUN, "")
        return self._index.kept_runs.get(self, lambda: open_run(self.beside(RUN), expected=expected))

    def whole_run(self, doc_ids: IdTable | None = None) -> Run:
        """The run as a value, queries without hits included; with `doc_ids`, over that table of documents."""
        self.beside(RUN)
        return load_run(self.path, self.result, doc_ids)

    def expansion(self, query_id: str) -> Expansion | None:
        """What a query was expanded to; None where that was not kept."""
        if not self.path.with_suffix(EXPANSIONS).exists():
            return None
        return read_expansion(self.beside(EXPANSIONS), query_id, expected=self.result.files.get(EXPANSIONS, ""))

    def generations(self) -> list[UsedGenerations]:
        """The stored answers of chat models that it was made from."""
        return read_used(self.beside(GENERATIONS), expected=self.result.files.get(GENERATIONS, ""))

    def beside(self, suffix: str) -> Path:
        """A file beside the result; a link that leads out of the folder is refused."""
        path = self.path.with_suffix(suffix)
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise DataError("a link out of the results folder is not followed", path=path)
        return path


class Problem(NamedTuple):
    """A file that is not shown, and why."""

    path: Path
    message: str


class ResultIndex:
    """All results of some folders. `version` grows whenever something changed.

    Where several folders hold a system, its label names the folder, or what `names` calls it. The disk is looked at
    again after `every` seconds.
    """

    def __init__(self, roots: Sequence[Path], names: Sequence[str] = (), *, every: float = CHECK_EVERY) -> None:
        self.roots = tuple(roots)
        self._names = dict(zip(self.roots, names, strict=True)) if names else {}
        self.version = 0
        self.stored: tuple[StoredResult, ...] = ()
        self.problems: tuple[Problem, ...] = ()
        self.kept_scores: Kept[tuple[StoredResult, tuple[str, ...]], ScoreColumns] = Kept(
            SCORES_BUDGET, lambda columns: columns.nbytes
        )
        self.kept_runs: Kept[StoredResult, StoredRun] = Kept(RUNS_BUDGET, lambda run: run.nbytes)
        self._known: dict[str, tuple[Stamp, StoredResult | Problem]] = {}
        self._lock = threading.Lock()
        self._checked, self._every = 0.0, every

    def refresh(self) -> None:
        """Look at the disk again, where that is due."""
        with self._lock:
            if self.version and time.monotonic() - self._checked < self._every:
                return
            problems: list[Problem] = []
            found = [stored for root in self.roots for stored in self._scan(root, problems)]
            if tuple(found) != self.stored or tuple(problems) != self.problems or not self.version:
                _label(found, self._names or _folder_names(self.roots))
                self.stored, self.problems = tuple(found), tuple(problems)
                self.version += 1
            self._checked = time.monotonic()

    def _scan(self, root: Path, problems: list[Problem]) -> list[StoredResult]:
        """The results of one folder; a file that did not change is not read again."""
        whole, found = root.resolve(), list[StoredResult]()
        for system in _entries(whole, whole, problems):
            for collection in _entries(system.path, whole, problems) if system.is_dir() else ():
                for file in _entries(collection.path, whole, problems) if collection.is_dir() else ():
                    item = self._item(root, file) if file.name.endswith(".json") and file.is_file() else None
                    if isinstance(item, StoredResult):
                        found.append(item)
                    elif item is not None:
                        problems.append(item)
        return _one_of_each(whole, found, problems)

    def _item(self, root: Path, file: os.DirEntry[str]) -> StoredResult | Problem | None:
        try:
            status = file.stat()
        except OSError:
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        before = self._known.get(file.path)
        if before is None or before[0] != stamp:
            path = Path(file.path)
            try:
                before = (stamp, StoredResult(self, root, path))
            except ResultError as error:
                before = (stamp, Problem(path, str(error)))
            self._known[file.path] = before
        return before[1]

    def all(self) -> tuple[StoredResult, ...]:
        """Every result; a file that cannot be read is an error."""
        self.refresh()
        if self.problems:
            raise ResultError(self.problems[0].message)
        return self.stored

    def select(self, systems: Sequence[str] = (), *, collection: str = "") -> list[StoredResult]:
        """The results of one collection or of all; of every system, or of those named, in the order named.

        A system is named as its results name it, or by its folder. A name given twice, or one without results, is
        refused. The collection `own` holds the tasks that belong to none.
        """
        where = ", ".join(map(str, self.roots))
        if not any(root.is_dir() for root in self.roots):
            raise ResultError(f"{where}: no such folder of results (r2med run makes one)")
        self.refresh()
        found: list[StoredResult] = []
        for asked in systems:
            of_system = self._of_system(asked, where)
            if any(stored.label == of_system[0].label for stored in found):
                raise UsageError(f"system {of_system[0].label!r} is given twice")
            inside = [stored for stored in of_system if collection in ("", stored.slug)]
            if not inside:
                raise UsageError(f"{of_system[0].label} has no results on {collection} in {where}")
            found += inside
        if not systems:
            found = [stored for stored in self.all() if collection in ("", stored.slug)]
        if not found:
            on = f" on {collection}" if collection else ""
            raise ResultError(f"{where} holds no results{on} (r2med run makes some)")
        return found

    def _of_system(self, asked: str, where: str) -> list[StoredResult]:
        folder = Path(asked).resolve() if Path(asked).is_dir() else None
        found = [s for s in self.stored if asked in (s.label, s.system) or s.path.parents[1] == folder]
        if not found:
            found = [s for s in self.stored if s.path.parents[1].name == asked]
        if not found:
            known = list(dict.fromkeys(stored.label for stored in self.stored))
            more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
            listed = ", ".join(known[:NAMED]) + more if known else "none"
            raise UnknownName("system", asked, known, hint=f"(in {where}: {listed})")
        folders = {stored.path.parents[1] for stored in found}
        if broken := next((p for p in self.problems if folders & set(p.path.parents)), None):
            raise ResultError(broken.message)
        return found


def _one_of_each(root: Path, found: list[StoredResult], problems: list[Problem]) -> list[StoredResult]:
    """One file per system and task: that in its own place, else that of the first edition, else any."""
    store, by_key = ResultStore(root), dict[tuple[str, str, str], list[StoredResult]]()
    for stored in found:
        by_key.setdefault(stored.key, []).append(stored)
    left_out = set[StoredResult]()
    for key, copies in by_key.items():
        if len(copies) > 1:
            now, before = store.places(*key)
            best = min(copies, key=lambda s: (s.path != now, s.path != before))
            left_out.update(s for s in copies if s is not best)
            problems += [
                Problem(s.path, f"{s.path}: holds a result of {s.system!r}, as {best.path} does; remove one of them")
                for s in copies
                if s is not best and s.path != before
            ]
    return [stored for stored in found if stored not in left_out]


def _label(found: list[StoredResult], names: Mapping[Path, str]) -> None:
    """A system that stands in several folders is named after them too."""
    homes: dict[str, set[Path]] = {}
    for stored in found:
        homes.setdefault(stored.system, set()).add(stored.root)
    for stored in found:
        several = len(homes[stored.system]) > 1
        stored.label = f"{stored.system} ({names[stored.root]})" if several else stored.system


def _folder_names(roots: Sequence[Path]) -> dict[Path, str]:
    """Each folder by its own name, or by its path where another has the same."""
    names = {root: root.resolve().name for root in roots}
    often = Counter(names.values())
    return {root: name if often[name] == 1 else str(root) for root, name in names.items()}


def _entries(folder: str | Path, root: Path, problems: list[Problem]) -> list[os.DirEntry[str]]:
    """What is in a folder, but hidden names and links that lead out of the results folder."""
    try:
        with os.scandir(folder) as found:
            entries = sorted((e for e in found if not e.name.startswith(".")), key=lambda e: e.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(Problem(Path(folder), f"{folder}: cannot be read ({error.strerror or error})"))
        return []
    links = [e for e in entries if e.is_symlink() and (e.is_dir() or e.name.endswith(".json"))]
    leaving = [e for e in links if not Path(e.path).resolve().is_relative_to(root)]
    problems += [Problem(Path(e.path), f"{e.path}: a link out of the results folder is not followed") for e in leaving]
    return [e for e in entries if e not in leaving] if leaving else entries
