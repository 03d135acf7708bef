"""How large the embedding cache is, and making it smaller."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from .shards import SUFFIX, DamagedShard, open_shard
from .vectors import LABEL, EmbeddingCache

STALE_SECONDS = 24 * 3600.0
"""A temporary file this old belongs to a process that was killed."""


class SetInfo(NamedTuple):
    """One set of the cache: a model, a side, an instruction."""

    folder: Path
    label: str
    """What people call the model; empty if nobody said."""
    about: dict[str, Any]
    """What its fingerprint stands for."""
    bytes: int
    shards: int
    last_used: float
    """Seconds since 1970."""


class Pruned(NamedTuple):
    """What was removed."""

    sets: int
    damaged: int
    temporary: int
    bytes: int


def list_sets(cache: EmbeddingCache) -> list[SetInfo]:
    """All sets, the one used last first."""
    return sorted(_sets(cache.root), key=lambda info: info.last_used, reverse=True)


def _sets(root: Path) -> Iterator[SetInfo]:
    for folder in root.glob("*/"):
        about = folder / "set.json"
        try:
            facts = msgspec.json.decode(about.read_bytes(), type=dict[str, Any])
            used = about.stat().st_mtime
        except (OSError, ValueError, RecursionError):
            facts, used = {}, 0.0
        sizes = [path.stat().st_size for path in folder.glob(f"*/*{SUFFIX}")]
        yield SetInfo(folder, str(facts.pop(LABEL, "")), facts, sum(sizes), len(sizes), used)


def prune(cache: EmbeddingCache, *, max_bytes: int | None = None, unused_days: float | None = None) -> Pruned:
    """Remove damaged shards, what killed processes left, and sets: the unused, then the oldest until it fits."""
    removed = damaged = temporary = freed = 0
    for path in cache.root.glob(f"*/*/*{SUFFIX}"):
        try:
            open_shard(path, check=True)
        except DamagedShard:
            freed += _remove(path)
            damaged += 1
        except OSError:
            pass  # gone meanwhile
    for path in [*cache.root.glob("*/*/.*.tmp"), *cache.root.glob("*/.*.tmp")]:
        if time.time() - path.stat().st_mtime > STALE_SECONDS:
            freed += _remove(path)
            temporary += 1
    kept = list_sets(cache)
    total = sum(info.bytes for info in kept)
    for info in reversed(kept):
        unused = unused_days is not None and time.time() - info.last_used > unused_days * 86_400
        if unused or (max_bytes is not None and total > max_bytes):
            shutil.rmtree(info.folder, ignore_errors=True)
            total -= info.bytes
            freed += info.bytes
            removed += 1
    return Pruned(removed, damaged, temporary, freed)


def _remove(path: Path) -> int:
    size = path.stat().st_size
    with suppress(FileNotFoundError):
        path.unlink()
    return size
