"""Folders, how much lies in them, and how much still fits."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from ..core.places import home, hub_cache
from .findings import Place

PATIENCE = 0.4
"""Seconds after which a folder is large enough to be called `at least`."""


def places(results: Path) -> list[Place]:
    """The home with each of its caches, the hub's cache, and the results."""
    root = home()
    inside = sorted(p for p in _children(root) if p.is_dir())
    return [
        look_at(f"home ({root.name})", root, free=True),
        *(look_at(f"home/{path.name}", path) for path in inside),
        look_at("hub cache", hub_cache()),
        look_at("results", results, free=True),
    ]


def look_at(name: str, path: Path, *, free: bool = False) -> Place:
    """One folder; it need not exist."""
    size, complete = size_of(path)
    return Place(
        name=name,
        path=str(path),
        exists=path.is_dir(),
        bytes=size,
        complete=complete,
        free_bytes=free_space(path) if free else None,
    )


def size_of(path: Path, patience: float = PATIENCE) -> tuple[int, bool]:
    """Bytes of all files below, each counted once though linked, and whether there was time to see all of them."""
    until, total, waiting, seen = time.monotonic() + patience, 0, [str(path)], set[tuple[int, int]]()
    while waiting:
        if time.monotonic() > until:
            return total, False
        try:
            with os.scandir(waiting.pop()) as inside:
                for entry in inside:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        facts = entry.stat(follow_symlinks=False)
                        if (facts.st_dev, facts.st_ino) not in seen:
                            seen.add((facts.st_dev, facts.st_ino))
                            total += facts.st_size
        except OSError:
            continue  # gone meanwhile, or not ours to read
    return total, True


def free_space(path: Path) -> int | None:
    """Free bytes on the disk that holds a folder, or would hold it."""
    try:
        return shutil.disk_usage(nearest_existing(path)).free
    except OSError:
        return None


def nearest_existing(path: Path) -> Path:
    """The folder itself or the closest one above it that is there."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _children(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []
