"""Layouts of a task on disk: what one is, the registry of all of them, and writing a task in one.

A layout is one class: how it is called, recognised, read, written and checked. `data convert` and `data validate`,
loading, help and error messages ask the registry, so a new module in this package is all it takes to add one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

from ...core import DataError, Documents, IdTable, Qrels, Query, Run, Task, UsageError
from ...core.registry import Registry
from ...core.spec import Spec
from ...core.stores import Store
from ...core.untrusted import component

if TYPE_CHECKING:
    from ..validate import Checks

SHOWN = 5  # files named in a message
METHODS = ("hyde", "query2doc", "lamer", "search-o1", "search-r1")
"""Folders that hold generated texts in R2MED's own data; others are known by the files in them."""
JUDGMENT_SPLITS = ("test", "qrels", "default", "dev", "validation", "train")
"""Splits of judgments in the order of preference: of several, the first is used where nobody chose."""
UNMARKED = ("", "test", "qrels", "default")
"""Splits of judgments that a task's name does not mention: the test set, and judgments that belong to no split."""

formats: Registry[Format] = Registry("format", package="r2med.tasks.formats")
F = TypeVar("F", bound="type[Format]")


class Parts(NamedTuple):
    """The content of a task, before it has a name."""

    queries: tuple[Query, ...]
    documents: Documents
    qrels: Qrels
    judged: str = "test"  # the split of the judgments, for layouts that write its name


class Expansion(NamedTuple):
    """Generated texts that come with a task: one or several per query, by method and model."""

    method: str
    llm: str
    texts: dict[str, tuple[str, ...]]


class Format(ABC):
    """One layout of a task on disk."""

    name: ClassVar[str]
    summary: ClassVar[str]  # the files it consists of, in one line
    rank: ClassVar[int] = 100  # of two layouts that both fit a folder, the one with the lower rank is read
    holds_several: ClassVar[bool] = False
    """Whether one folder holds several tasks, each as a split of its own name."""
    holds_expansions: ClassVar[bool] = True  # whether it has a place for generated texts

    @abstractmethod
    def splits(self, names: list[str]) -> list[str]:
        """Tasks in a store with these files: [""] for one without a name, none where the layout does not fit."""

    def has_task(self, names: list[str], split: str) -> bool:
        """Whether a store with these files holds all that the task of a split needs."""
        return split in self.splits(names)

    def judgment_splits(self, names: list[str]) -> list[str]:
        """Splits of the judgments of a layout with one task, the usual one first; none where they have no names."""
        return []

    @abstractmethod
    def read(self, store: Store, split: str) -> Parts:
        """Read one task: of several that of a split, else with the judgments of a split or with the usual ones."""

    @abstractmethod
    def write(self, parts: Parts, folder: Path, *, split: str, compress: str, expansions: list[Expansion]) -> None:
        """Write one task into `folder`."""

    def expansions(self, store: Store, split: str) -> Iterator[Expansion]:
        """Read the generated texts beside the task."""
        return iter(())

    def candidates(self, store: Store, config: str, split: str, query_ids: IdTable, doc_ids: IdTable) -> Run:
        """A set of ranked candidates that comes with the task."""
        raise UsageError(f"{store.path} comes without candidates: layout {self.name} has none")

    def validate(self, store: Store, split: str, checks: Checks) -> None:
        """Look through one task and tell `checks` what is there and what cannot be read."""
        parts = self.read(store, split)
        for row, document in enumerate(parts.documents, start=1):
            checks.documents.check(f"corpus row {row}", document.id, document.text, document.title)
        for row, query in enumerate(parts.queries, start=1):
            checks.queries.check(f"queries row {row}", query.id, query.text)
        checks.check_judgments(parts.qrels)

    def place_of(self, store: Store, kind: str, identifier: str, occurrence: int) -> tuple[str, int | None]:
        """File and line where an id of a `document` or `query` stands for the n-th time, as far as there are lines."""
        return str(store.path), None

    def hub_patterns(self, split: str) -> list[str] | None:
        """Files of a repository on the hub that one task needs; None for all."""
        return None


def register(layout: F) -> F:
    """Class decorator: adds a layout to the registry."""
    formats.register(layout.name, summary=layout.summary)(layout)
    return layout


@cache
def layouts() -> dict[str, Format]:
    """Every layout by name, in the order in which they are tried."""
    made = [entry.make(Spec(entry.name)) for entry in formats]
    return {layout.name: layout for layout in sorted(made, key=lambda layout: layout.rank)}


def get_format(name: str) -> Format:
    """The layout called `name`."""
    if name not in layouts():
        raise formats.unknown(name)
    return layouts()[name]


def preferred(splits: Iterable[str]) -> list[str]:
    """Splits of judgments, the one first that is used where nobody chose."""
    rank = {split: number for number, split in enumerate(JUDGMENT_SPLITS)}
    return sorted(set(splits), key=lambda split: (rank.get(split, len(rank)), split))


def detect(store: Store) -> tuple[Format, list[str]]:
    """The layout of a store and the tasks in it."""
    names = store.names()
    for layout in layouts().values():
        try:
            splits = layout.splits(names)
        except DataError as error:
            raise type(error)(error.message, path=error.path or store.path) from None
        if splits:
            return layout, splits
    expected = "; ".join(f"{layout.name}: {layout.summary}" for layout in layouts().values())
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    held = ", ".join(names[:SHOWN]) + more if names else "no files"
    raise DataError(f"is in no layout r2med knows ({expected}); it holds {held}", path=store.path)


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
    judged = task.extra.get("judged", "")
    parts = Parts(task.queries, task.documents, task.qrels, "test" if judged in UNMARKED else judged)
    check_expansions(expansions or (), folder)
    folder.mkdir(parents=True, exist_ok=True)
    get_format(to).write(parts, folder, split=split or task.name, compress=compress, expansions=expansions or [])


def check_expansions(expansions: Iterable[Expansion], place: Path) -> None:
    """Refuse sets of texts whose names cannot be file names, or of which one would overwrite another."""
    seen: set[tuple[str, str]] = set()
    for method, llm, _ in expansions:
        name = component(method, "method", path=place), component(llm, "model", path=place).replace("_", "-")
        if name in seen:
            raise DataError(f"holds {method} of {llm} twice", path=place)
        seen.add(name)
