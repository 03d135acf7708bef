"""Building Nano tasks, the same bytes every time; and whether one ranks systems as its full task does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..core import DataError, Run, Task, UsageError
from ..core.atomic import atomic_folder, write_bytes
from ..core.options import Options
from ..retrieve import Retriever, get_retriever
from ..scoring import MAIN, Measure, score
from ..scoring.hits import Float64
from ..scoring.intervals import Estimate
from ..tasks import TaskRef, stats, write_task
from ..tasks.formats.parquet import write_candidates
from ..tasks.load import check_file_names
from ..tasks.nano import Pool, PoolSettings, build_pool
from ..tasks.nano.figures import TaskFigures
from ..tasks.nano.folder import (
    CardEntry,
    Metadata,
    TaskManifest,
    dataset_card,
    set_name,
    split_name,
    task_manifest,
    unify_schemas,
    write_manifest,
    write_metadata,
)
from .nano_profile import Safeguard, make_candidates, measure

HARD_DEPTH = 500

Notify = Callable[[str, str], None]  # called with (task, what is being done)


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
    safeguard: Safeguard | None = None,
    name: str = "",
    title: str = "",
    language: str = "",
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
    group = set_name(refs, splits, title)
    built, cards = [], []
    with atomic_folder(out) as folder:
        for ref, split in zip(refs, splits, strict=True):
            clock = {"": time.perf_counter()}
            notify(ref.full_name, "reading")
            source = ref.load()
            clock["read"] = time.perf_counter()
            pool, described = _pool(source, settings, split, bm25, dense, notify)
            clock["pool"] = time.perf_counter()
            notify(ref.full_name, "retrieving candidates")
            candidates = make_candidates(pool.task, bm25, dense, safeguard)
            clock["profiles"] = time.perf_counter()
            notify(ref.full_name, "writing")
            # Without intervals: what is built must not change with the way they are computed.
            measured = measure(pool.task, candidates.runs, set(candidates.safeguarded), split=split, intervals=False)
            # Where it comes from, without the folders of whoever builds it.
            origin = ref.source if ref.entry or ref.path is None else ref.path.resolve().name
            manifest = task_manifest(source, pool, settings, described, source_name=origin)
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
                set=group,
                language=language or ("en" if ref.entry else ""),
                dataset=ref.entry.dataset if ref.entry else "",
            )
            write_task(pool.task, folder, to="nano", split=split)
            for config, run in candidates.runs.items():
                write_candidates(run, folder, config, split)
            write_metadata(folder, metadata)
            cards.append(CardEntry(split, list(candidates.runs), manifest, measured.figures, metadata.licence))
            clock["write"] = time.perf_counter()
            seconds = {stage: end - begin for (_, begin), (stage, end) in pairwise(clock.items())}
            notify(ref.full_name, "done")
            built.append(Built(split, measured.figures, manifest, seconds))
        unify_schemas(folder)
        write_bytes(folder / "README.md", dataset_card(cards, group).encode())
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


SYSTEMS = (
    "bm25",
    "bm25-lucene",
    "bm25-nano",
    "bm25:k1=1.2,b=0.75",
    "bm25-lucene:k1=1.2,b=0.75",
    "bm25:k1=0.4,b=0.2",
    "bm25:analyzer=whitespace",
    "bm25-lucene:analyzer=whitespace",
)
RESAMPLES = 2000
FEW = 5


class SystemPair(msgspec.Struct):
    """One system on both tasks, over the same queries."""

    name: str
    full: float
    nano: float
    full_rank: float
    nano_rank: float


class Fidelity(msgspec.Struct):
    """Agreement of two rankings of systems; intervals from a paired bootstrap over the shared queries."""

    full: str
    nano: str
    measure: str
    queries: int
    queries_left_out: int
    systems: list[SystemPair]
    spearman: Estimate
    kendall: Estimate
    inflation: Estimate
    note: str = ""


def compare(
    full: Task,
    nano: Task,
    systems: Sequence[str | Retriever],
    measure: Measure = MAIN,
    *,
    options: Options | None = None,
) -> Fidelity:
    """Score every system on both tasks and compare how the tasks rank them."""
    if len(systems) < 2:
        raise UsageError("an order needs at least two systems")
    retrievers = [get_retriever(s, options) if isinstance(s, str) else s for s in systems]
    names = [r.name for r in retrievers]
    if repeated := next((n for n in names if names.count(n) > 1), None):
        raise UsageError(f"system {repeated!r} is named twice")
    judged = set(full.qrels.query_ids)
    shared = [q.id for q in nano.queries if q.id in judged and q.id in nano.qrels.query_ids]
    if not shared:
        raise DataError(f"{full.full_name} and {nano.full_name} have no judged query in common")
    scores = [np.stack([_scores(r, task, shared, measure) for r in retrievers]) for task in (full, nano)]
    means = [matrix.mean(axis=1) for matrix in scores]
    resampled = _resampled(scores, len(shared))
    ranks = [_ranks(-m[None, :])[0] + 1 for m in means]
    return Fidelity(
        full=full.full_name,
        nano=nano.full_name,
        measure=str(measure),
        queries=len(shared),
        queries_left_out=len(full.queries) - len(shared),
        systems=[
            SystemPair(name, float(means[0][i]), float(means[1][i]), float(ranks[0][i]), float(ranks[1][i]))
            for i, name in enumerate(names)
        ],
        spearman=_estimate(spearman(*(m[None, :] for m in means)), spearman(*resampled), len(shared)),
        kendall=_estimate(kendall(*(m[None, :] for m in means)), kendall(*resampled), len(shared)),
        inflation=_estimate(
            (means[1] - means[0]).mean(keepdims=True), (resampled[1] - resampled[0]).mean(axis=1), len(shared)
        ),
        note=f"The order of {len(names)} systems says little; name more." if len(names) < FEW else "",
    )


def _scores(retriever: Retriever, task: Task, query_ids: list[str], measure: Measure) -> Float64:
    depth = min(measure.cutoff or 1000, 1000)
    evaluation = score(retriever.retrieve(task, depth=depth), task.qrels, [measure])
    return evaluation.per_query[measure.key][evaluation.query_ids.positions(query_ids)]


def _resampled(scores: Sequence[Float64], queries: int) -> list[Float64]:
    """Means of every system on both tasks over the same resampled queries: resamples × systems each."""
    rng = np.random.Generator(np.random.PCG64(0))
    drawn = rng.multinomial(queries, np.full(queries, 1 / queries), size=RESAMPLES) / queries
    return [drawn @ matrix.T for matrix in scores]


def _estimate(value: Float64, replicates: Float64, n: int) -> Estimate:
    low, high = np.percentile(replicates, [2.5, 97.5]).tolist()
    return Estimate(float(value[0]), low, high, n)


def _ranks(values: Float64) -> Float64:
    """Ranks from 0 within each row, ascending; equal values share their mean rank."""
    less = (values[:, None, :] < values[:, :, None]).sum(axis=2)
    equal = (values[:, None, :] == values[:, :, None]).sum(axis=2)
    return np.asarray(less + (equal - 1) / 2)


def _ratio(numerator: Float64, denominator: Float64) -> Float64:
    out: Float64 = np.zeros(len(numerator))
    return np.divide(numerator, denominator, out=out, where=denominator > 0)


def spearman(left: Float64, right: Float64) -> Float64:
    """Rank correlation of each row of `left` with its row of `right`; 0 where all values of a row are equal."""
    a, b = _ranks(left), _ranks(right)
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    scale = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return _ratio((a * b).sum(axis=1), scale)


def kendall(left: Float64, right: Float64) -> Float64:
    """Kendall's tau-b of each row of `left` with its row of `right`; 0 where all values of a row are equal."""
    first, second = np.triu_indices(left.shape[1], k=1)
    a, b = (np.sign(m[:, first] - m[:, second]) for m in (left, right))
    scale = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return _ratio((a * b).sum(axis=1), scale)
