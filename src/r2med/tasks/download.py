"""Getting tasks from the Hugging Face hub: pinned, resumable, hashed, checked against the catalogue."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from ..core import DataError, MissingExtra, R2MedError, Unavailable
from ..core.hub import PURPOSE, Repository, library, offline
from ..core.hub import download as hub_download
from ..core.plugins import is_installed
from .catalogue import TaskEntry, drop_in, locate, snapshot
from .formats import get_format
from .load import TaskRef


class Downloaded(NamedTuple):
    """One task that is now on this machine, or why it is not."""

    task: str
    path: str
    queries: int
    documents: int
    judgments: int
    fetched: bool
    error: str = ""


EXTRAS = {"hub": "huggingface_hub", "parquet": "pyarrow"}
"""What downloading and reading takes: a dataset of the hub may be parquet whatever its repository holds elsewhere."""


def to_fetch(entries: Iterable[TaskEntry]) -> list[TaskEntry]:
    """The tasks that are not on this machine."""
    return [entry for entry in entries if locate(entry) is None]


def missing_extras() -> list[str]:
    """The extras that downloading takes and that are not installed."""
    return [extra for extra, module in EXTRAS.items() if not is_installed(module)]


def download_all(
    entries: Iterable[TaskEntry], *, force: bool = False, notify: Callable[[str, str], None] | None = None
) -> list[Downloaded]:
    """Fetch tasks one after the other, going on past one that fails; where all fail, the first error is raised.

    What cannot work for lack of an extra is refused before anything is fetched. Where nobody is notified, the hub's
    client shows bars of its own on a terminal.
    """
    bars, notify = notify is None and sys.stderr.isatty(), notify or (lambda task, what: None)
    wanted = {entry.full_name: entry for entry in entries}
    if (force or to_fetch(wanted.values())) and (missing := missing_extras()):
        raise MissingExtra(PURPOSE, ",".join(missing))
    done, first = list[Downloaded](), None
    for entry in wanted.values():
        notify(entry.full_name, "begun")
        try:
            done.append(download(entry, force=force, progress=bars))
        except R2MedError as error:
            first = first or error
            done.append(Downloaded(entry.full_name, "", 0, 0, 0, False, str(error)))
        notify(entry.full_name, "done")
    if first and all(one.error for one in done):
        raise first
    return done


def download(entry: TaskEntry, *, force: bool = False, progress: bool = False) -> Downloaded:
    """Fetch a task into the hub's own cache, check the hash of every file, and read it: it must be as published."""
    present = locate(entry)
    cached = present is None or present == snapshot(entry)
    path = fetch(entry, force=force, progress=progress) if force or cached else present
    task = TaskRef(entry.name, entry.collection, entry, path, entry.split).load()
    counts = (len(task.queries), len(task.documents), len(task.qrels))
    return Downloaded(entry.full_name, str(path), *counts, force or present is None)


def fetch(entry: TaskEntry, *, force: bool = False, progress: bool = False) -> Path:
    """The task's folder in the hub's cache, downloaded where it is not there whole."""
    if not entry.dataset:
        raise DataError(f"{entry.full_name} is built in; there is nothing to download")
    if not force and (folder := _cached(entry)) is not None:
        return folder
    repository = repository_of(entry)
    if offline():
        raise Unavailable(
            f"{entry.full_name} is not in the cache and HF_HUB_OFFLINE forbids the network: {repository.advice}"
        )
    patterns = get_format(entry.layout).hub_patterns(entry.split)

    def choose(names: list[str]) -> list[str]:
        return [n for n in names if patterns is None or any(fnmatchcase(n, pattern) for pattern in patterns)]

    return hub_download(repository, choose, force=force, progress=progress).folder


def repository_of(entry: TaskEntry) -> Repository:
    """Where a task lies on the hub."""
    advice = f"put the files into {drop_in(entry)}, or give r2med a folder instead of the name"
    return Repository(entry.dataset, entry.revision, "dataset", entry.full_name, advice)


def _cached(entry: TaskEntry) -> Path | None:
    """The snapshot that is here, if an earlier download was not interrupted."""
    if snapshot(entry) is None:
        return None
    patterns = get_format(entry.layout).hub_patterns(entry.split)
    wanted = {"repo_type": "dataset", "revision": entry.revision, "allow_patterns": patterns}
    try:
        found = library(PURPOSE).snapshot_download(entry.dataset, local_files_only=True, **wanted)
    except FileNotFoundError:
        return None
    return Path(found)
