"""What every reader returns and every writer takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from ..core import DataError, Documents, Qrels, Query
from ..core.compression import SUFFIXES
from ..core.stores import Store
from .jsonl import read_records


class Parts(NamedTuple):
    """The content of a task, before it has a name."""

    queries: tuple[Query, ...]
    documents: Documents
    qrels: Qrels


class Expansion(NamedTuple):
    """Generated texts that come with a task: one or several per query, by method and model."""

    method: str
    llm: str
    texts: dict[str, tuple[str, ...]]


class Format(Protocol):
    """One on-disk layout of a task."""

    name: str
    summary: str

    def splits(self, names: list[str]) -> list[str]:
        """Tasks in a store with these file names: [""] for one unnamed task, [] where the layout does not fit."""
        ...

    def read(self, store: Store, split: str) -> Parts:
        """Read one task."""
        ...

    def expansions(self, store: Store, split: str) -> Iterator[Expansion]:
        """Read the generated texts beside the task."""
        ...

    def write(self, parts: Parts, folder: Path, *, split: str, compress: str, expansions: list[Expansion]) -> None:
        """Write one task into `folder`."""
        ...


class HydocRecord(msgspec.Struct):
    """A line of R2MED's `query_with_hydoc.jsonl`."""

    id: str
    hy_doc: str | list[str]
    text: str = ""


METHODS = ("hyde", "query2doc", "lamer", "search-o1", "search-r1")


def read_hydoc(store: Store, name: str, method: str, llm: str) -> Expansion:
    """Generated texts from a `query_with_hydoc.jsonl`."""
    texts: dict[str, tuple[str, ...]] = {}
    for number, record in read_records(store, name, HydocRecord):
        if record.id in texts:
            raise DataError(f"query {record.id!r} stands twice", path=store.label(name), line=number)
        texts[record.id] = (record.hy_doc,) if isinstance(record.hy_doc, str) else tuple(record.hy_doc)
    return Expansion(method, llm, texts)


def expansion_files(names: list[str]) -> Iterator[tuple[str, str, str]]:
    """(method, llm, file) of the JSON-lines expansions among `names`, in either of the two spellings in use."""
    for name in names:
        parts = name.split("/")
        stem = _strip(parts[-1])
        if len(parts) == 3 and parts[0] in METHODS and stem == "query_with_hydoc.jsonl":
            yield parts[0], llm_name(parts[1]), name
        elif len(parts) == 2 and parts[0] in METHODS and stem.endswith(".jsonl"):
            yield parts[0], llm_name(stem.removesuffix(".jsonl")), name


def llm_name(split: str) -> str:
    """The hub writes `huatuo_o1_70b` (a split may hold no hyphen) where everyone else writes `huatuo-o1-70b`."""
    return split.replace("_", "-")


def _strip(name: str) -> str:
    for suffix in SUFFIXES[1:]:
        name = name.removesuffix(suffix)
    return name
