"""Where tasks lie on this machine. Nothing is imported or touched to find out."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from ..core.places import home, hub_cache
from .catalogue import TaskEntry


def drop_in(entry: TaskEntry) -> Path:
    """Where a user without network puts a task's folder: no download, no configuration."""
    return home() / "data" / entry.collection / entry.name


def locate(entry: TaskEntry) -> Path | None:
    """The folder or zip that holds a catalogue task on this machine, or None."""
    if entry.collection == "mini":
        return Path(str(files("r2med.tasks").joinpath("mini", entry.name)))
    own = drop_in(entry)
    for candidate in (own, own.with_name(own.name + ".zip"), own.parent):
        if candidate.is_file() or (candidate.is_dir() and _holds(candidate, entry)):
            return candidate
    return snapshot(entry)


def _holds(folder: Path, entry: TaskEntry) -> bool:
    if entry.layout == "nano":
        return all(any(folder.glob(f"**/{config}/{entry.split}*.parquet")) for config in ("corpus", "queries", "qrels"))
    return all(any(folder.glob(part)) for part in ("corpus*", "quer*", "qrels*"))


def snapshot(entry: TaskEntry) -> Path | None:
    """The task's snapshot in the hub cache, if it has been downloaded."""
    repository = hub_cache() / f"datasets--{entry.dataset.replace('/', '--')}"
    reference = repository / "refs" / entry.revision
    commit = reference.read_text().strip() if reference.is_file() else entry.revision
    folder = repository / "snapshots" / commit
    return folder if folder.is_dir() and _holds(folder, entry) else None


def size_on_disk(path: Path) -> int:
    """Bytes of a file or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
