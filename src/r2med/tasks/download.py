"""Getting tasks from the Hugging Face hub: pinned, resumable, hashed, checked against the catalogue."""

from __future__ import annotations

import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from ..core import DataError, Unavailable, hub
from .catalogue import TaskEntry, drop_in, locate, snapshot
from .formats import get_format
from .load import TaskRef


class Downloaded(NamedTuple):
    """One task that is now on this machine."""

    task: str
    path: str
    queries: int
    documents: int
    judgments: int
    fetched: bool


def download(entry: TaskEntry, *, force: bool = False) -> Downloaded:
    """Fetch a task into the hub's own cache; check the hash of every file and the counts of the catalogue."""
    present = locate(entry)
    cached = present is None or present == snapshot(entry)
    path = fetch(entry, force=force) if force or cached else present
    task = TaskRef(entry.name, entry.collection, entry, path, entry.split).load()
    have = (len(task.queries), len(task.documents), len(task.qrels))
    want = (entry.queries, entry.documents, entry.judgments)
    if have != want:
        names = ("queries", "documents", "judgments")
        wrong = ", ".join(f"{h:,} {n} instead of {w:,}" for h, w, n in zip(have, want, names, strict=True) if h != w)
        raise DataError(f"{entry.full_name} has {wrong}", path=path)
    return Downloaded(entry.full_name, str(path), *have, force or present is None)


def fetch(entry: TaskEntry, *, force: bool = False) -> Path:
    """The download itself; a whole task in the hub's cache needs no network."""
    if not entry.dataset:
        raise DataError(f"{entry.full_name} is built in; there is nothing to download")
    if not force and (there := snapshot(entry)) is not None:
        return there
    patterns = get_format(entry.layout).hub_patterns(entry.split)

    def choose(names: list[str]) -> list[str]:
        return [name for name in names if not patterns or any(fnmatch(name, pattern) for pattern in patterns)]

    repository = hub.Repository(entry.dataset, entry.revision, "dataset")
    try:
        return hub.download(repository, choose, force=force, progress=sys.stderr.isatty()).folder
    except Unavailable as why:
        advice = f"put the files into {drop_in(entry)}, or give r2med a folder instead of the name"
        raise Unavailable(f"{why}: {advice}") from None
