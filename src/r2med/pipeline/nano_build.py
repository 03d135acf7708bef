"""Building Nano tasks: pool, candidates, files; the same bytes every time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..core import Run, Task, UsageError
from ..core.atomic import atomic_folder, write_bytes
from ..retrieve import Retriever
from ..tasks import TaskRef, stats, write_task
from ..tasks.convert import check_file_names
from ..tasks.formats.parquet import write_candidates
from ..tasks.nano.card import CardEntry, dataset_card
from ..tasks.nano.figures import TaskFigures
from ..tasks.nano.folder import (
    Metadata,
    TaskManifest,
    split_name,
    task_manifest,
    unify_schemas,
    write_manifest,
    write_metadata,
)
from ..tasks.nano.pool import Pool, PoolSettings, build_pool
from .nano_candidates import make_candidates
from .nano_profile import measure

HARD_DEPTH = 500

Notify = Callable[[str, str], None]
"""Called with (task, what is being done)."""


class Built(NamedTuple):
    """One finished task."""

    split: str
    figures: TaskFigures
    manifest: TaskManifest
    seconds: dict[str, float]

    def summary(self) -> dict[str, object]:
        """What `r2med nano build --json` prints."""
        facts = msgspec.to_builtins(self.manifest)
        del facts["pool"]
        return {**facts, "profiles": msgspec.to_builtins(self.figures.profiles), "seconds": self.seconds}


def build_nano(
    refs: Sequence[TaskRef],
    out: Path,
    settings: PoolSettings,
    *,
    bm25: Retriever,
    dense: Retriever | None,
    name: str = "",
    description: str = "",
    licence: str = "",
    notify: Notify = lambda task, what: None,
) -> list[Built]:
    """Build one folder with every task as a split. It appears whole or not at all."""
    if not refs:
        raise UsageError("there is nothing to build from")
    if len(refs) > 1 and (name or description):
        raise UsageError("a name or a description can be given to one task only")
    splits = [split_name(ref, name) for ref in refs]
    check_file_names(splits)
    built, cards = [], []
    with atomic_folder(out) as folder:
        for ref, split in zip(refs, splits, strict=True):
            clock = _Clock()
            notify(ref.full_name, "reading")
            source = ref.load()
            clock.lap("read")
            pool, described = _pool(source, settings, split, bm25, dense, notify)
            clock.lap("pool")
            notify(ref.full_name, "retrieving candidates")
            candidates = make_candidates(pool.task, bm25, dense)
            clock.lap("profiles")
            notify(ref.full_name, "writing")
            # Without intervals: what is built must not change with the way they are computed.
            measured = measure(pool.task, candidates.runs, set(candidates.safeguarded), split=split, intervals=False)
            manifest = task_manifest(source, pool, settings, described, source_name=_source(ref))
            metadata = Metadata(
                task=ref.full_name,
                split=split,
                source=manifest.source,
                revision=manifest.revision,
                description=description or (ref.entry.description if ref.entry else ""),
                family=ref.entry.family if ref.entry else "",
                licence=licence or (ref.entry.licence if ref.entry else ""),
                fingerprint=manifest.fingerprint,
                stats=stats(pool.task),
                figures=measured.figures,
                retrievers=candidates.retrievers,
                safeguarded_queries=candidates.safeguarded,
            )
            write_task(pool.task, folder, to="nano", split=split)
            for config, run in candidates.runs.items():
                write_candidates(run, folder, config, split)
            write_metadata(folder, metadata)
            cards.append(CardEntry(split, list(candidates.runs), manifest, measured.figures, metadata.licence))
            clock.lap("write")
            notify(ref.full_name, "done")
            built.append(Built(split, measured.figures, manifest, clock.laps))
        unify_schemas(folder)
        write_bytes(folder / "README.md", dataset_card(cards).encode())
        write_manifest(folder, {b.split: b.manifest for b in built})
    return built


def _pool(
    source: Task, settings: PoolSettings, split: str, bm25: Retriever, dense: Retriever | None, notify: Notify
) -> tuple[Pool, list[dict[str, Any]]]:
    """The pool, and the retrievers whose candidates filled it."""
    runs: list[Run] = []
    described: list[dict[str, Any]] = []
    if settings.fill == "hard":
        for retriever in (bm25, *([dense] if dense else [])):
            notify(source.full_name, f"hard negatives of {retriever.name}")
            runs.append(retriever.retrieve(source, depth=HARD_DEPTH).renamed(retriever.name))
            described.append({"name": retriever.name, "depth": HARD_DEPTH, **retriever.describe()})
    return build_pool(source, settings, runs, name=split), described


def _source(ref: TaskRef) -> str:
    """Where a task comes from, without the folders of whoever built it."""
    return ref.source if ref.entry or ref.path is None else ref.path.resolve().name


class _Clock:
    """Seconds since the last lap."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now
