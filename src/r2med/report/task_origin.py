"""What a task is and where it comes from: its set, family, language, terms and sources."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..core.table import NONE, Table, markdown_text
from ..tasks.catalogue import TaskEntry, collections, entries
from ..tasks.nano.figures import Inspected
from ..text.english import NANO_STOP_WORDS

_WORD = re.compile(r"\w+")


def catalogue_entry(name: str) -> TaskEntry | None:
    """The catalogue's entry of a task, under its full name."""
    return next((entry for entry in entries() if entry.full_name == name), None)


def set_of(page: Inspected, group: str = "") -> str:
    """The set that a task belongs to: as it was built, as the catalogue has it, else the group's name."""
    if page.metadata and page.metadata.set:
        return page.metadata.set
    entry = None if page.metadata else entry_of(page)
    return collections()[entry.collection].title if entry else group or page.task.collection or page.split


def description(page: Inspected) -> str:
    """What the task is, in words: ours for a task of the catalogue, the builder's for others."""
    entry = entry_of(page)
    return entry.description if entry else page.metadata.description if page.metadata else ""


def family(page: Inspected) -> str:
    """The family of the task, where it has one."""
    entry = entry_of(page)
    return entry.family if entry else page.metadata.family if page.metadata else ""


def language(page: Inspected) -> str:
    """As stated, or English where a sixth of the queries' words are English function words."""
    if page.metadata and page.metadata.language:
        return page.metadata.language
    if entry_of(page):
        return "en"
    words = [word for query in page.task.queries for word in _WORD.findall(query.text.lower())]
    return "en" if words and sum(word in NANO_STOP_WORDS for word in words) / len(words) >= 1 / 6 else "not stated"


def licence(page: Inspected) -> str:
    """The terms of the data, empty where they are not given."""
    entry = entry_of(page)
    return page.metadata.licence if page.metadata else entry.licence if entry else ""


def entry_of(page: Inspected) -> TaskEntry | None:
    """The catalogue's entry of the task, or of the one that it was built from; NanoR2MED's own folder says neither."""
    if page.metadata:
        return catalogue_entry(page.metadata.task)
    published = (entry for entry in entries("nano") if entry.split == page.split)
    return catalogue_entry(page.task.full_name) or next(published, None)


class Source(NamedTuple):
    """Something that a task comes from; a year or an address that is not known is None."""

    title: str
    type: str
    year: str | None = None
    address: str | None = None


PAPER = Source(
    "R2MED: A Benchmark for Reasoning-Driven Medical Retrieval", "paper", "2025", "https://arxiv.org/abs/2505.14558"
)


def sources(page: Inspected) -> list[Source]:
    """What the task comes from."""
    entry, m = entry_of(page), page.metadata
    if entry is None:
        given = m.source if m else page.task.source or page.task.full_name
        return [Source(given, "source of the task", address=m.dataset or None if m else None)]
    collection = collections()[entry.collection]
    of_collection = Source(collection.title, "collection", address=collection.homepage or None)
    if not entry.dataset:
        return [of_collection]
    dataset = Source(entry.dataset, "dataset", address=f"https://huggingface.co/datasets/{entry.dataset}")
    return [PAPER, of_collection, dataset]


def source_table(found: Iterable[Source]) -> Table:
    """Sources, each once."""
    rows = [[markdown_text(cell or NONE) for cell in source] for source in dict.fromkeys(found)]
    return Table(["Title", "Type", "Year", "Address"], rows, left=4)
