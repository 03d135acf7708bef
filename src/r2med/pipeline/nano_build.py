"""Building Nano tasks, the same bytes every time; and whether one ranks systems as its full task does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..core import DataError, Run, Task, UsageError
from ..core.files import atomic_folder, write_bytes
from ..core.options import Options
from ..retrieve import Retriever
from ..scoring import MAIN, Measure, score
from ..scoring.intervals import Estimate
from ..scoring.measures import Bools, Float64
from ..scoring.significance import SignFlips, all_pairs, step_down
from ..tasks import TaskRef, stats, write_task
from ..tasks.formats.arrow import pyarrow
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
from .run import rank_systems
from .system import Builder, System, SystemSpec

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
    pyarrow()  # what is missing is said before anything is encoded
    if dense is not None:
        dense.check()
    splits = [split_name(ref, name) for ref in refs]
    check_file_names(splits)
    group = set_name(refs, splits, title)
    if dense is not None:  # minutes or hours: what cannot be built is refused before them
        for ref in refs:
            notify(ref.full_name, "checking")
            build_pool(ref.load(), replace(settings, fill="source-order"))
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
            about = (metadata.licence, metadata.language, ref.entry is not None)
            cards.append(CardEntry(split, list(candidates.runs), manifest, measured.figures, *about))
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
DEEPEST = 1000
RESAMPLES = 2000
FEW = 5


class SystemPair(msgspec.Struct):
    """One system on both tasks, each over all its judged queries."""

    name: str
    full: float
    nano: float
    full_rank: float
    nano_rank: float


class Fidelity(msgspec.Struct):
    """Agreement of two rankings of systems, with bias-corrected bootstrap intervals over queries.

    The full task counts with all its queries: on the same queries, chance would pass for agreement. `inflation` is the
    mean gain of the Nano on the queries that both have. Reversals are pairs of systems that the two order differently;
    those that matter differ significantly on the full task.
    """

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
    tau_ap: Estimate | None = None
    pairs: int = 0
    significant_pairs: int = 0
    reversals: int = 0
    significant_reversals: int = 0


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
    with Builder(options) as builder:
        built = [builder.build(SystemSpec.typed(s)) if isinstance(s, str) else System((s,)) for s in systems]
        return _compare(full, nano, built, measure)


def _compare(full: Task, nano: Task, systems: Sequence[System], measure: Measure) -> Fidelity:
    names = [system.name for system in systems]
    if repeated := next((n for n in names if names.count(n) > 1), None):
        raise UsageError(f"system {repeated!r} is named twice")
    judged = set(full.qrels.query_ids)
    shared = [q.id for q in nano.queries if q.id in judged and q.id in nano.qrels.query_ids]
    if not shared:
        raise DataError(f"{full.full_name} and {nano.full_name} have no judged query in common")
    order = [*shared, *(q for q in full.qrels.query_ids if q not in set(shared))]
    ids = (order, [*shared, *(q for q in nano.qrels.query_ids if q not in set(shared))])
    scores = [_scores(systems, task, wanted, measure) for task, wanted in zip((full, nano), ids, strict=True)]
    means = [matrix.mean(axis=1) for matrix in scores]
    drawn, drawn_shared = _resampled(scores, len(shared))
    ranks = [_ranks(-m[None, :])[0] + 1 for m in means]
    rows = [m[None, :] for m in means]
    of_shared = [matrix[:, : len(shared)].mean(axis=1) for matrix in scores]
    different = _different(scores[0])
    turned = np.sign(means[0][:, None] - means[0]) * np.sign(means[1][:, None] - means[1]) < 0
    upper = np.triu(np.ones_like(turned), k=1).astype(bool)
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
        spearman=_estimate(spearman(*rows), spearman(*drawn), len(shared)),
        kendall=_estimate(kendall(*rows), kendall(*drawn), len(shared)),
        inflation=_estimate(
            (of_shared[1] - of_shared[0]).mean(keepdims=True),
            (drawn_shared[1] - drawn_shared[0]).mean(axis=1),
            len(shared),
        ),
        note=f"The order of {len(names)} systems says little; name more." if len(names) < FEW else "",
        tau_ap=_estimate(tau_ap(*rows), tau_ap(*drawn), len(shared)),
        pairs=int(upper.sum()),
        significant_pairs=int((different & upper).sum()),
        reversals=int((turned & upper).sum()),
        significant_reversals=int((turned & different & upper).sum()),
    )


def _scores(systems: Sequence[System], task: Task, query_ids: list[str], measure: Measure) -> Float64:
    """One measure of every system, a row each, on some queries."""
    whole = any(system.fusion is not None or system.rerankings for system in systems)
    depth = measure.cutoff or DEEPEST
    depth = max(depth, DEEPEST) if whole else depth  # what stands behind the cut-off counts there
    runs = rank_systems(task, systems, depth=depth)
    scored = [score(runs[system.name], task.qrels, [measure]).per_query[measure] for system in systems]
    return np.stack(scored)[:, task.qrels.query_ids.positions(query_ids)]


def _different(scores: Float64) -> Bools:
    """Which pairs of systems differ significantly, 5 % over all pairs."""
    pairs = all_pairs(len(scores))
    line = SignFlips([scores], draws=10 * RESAMPLES).line(np.ones(1))
    first, second = np.array(pairs).T
    found = np.zeros((len(scores), len(scores)), dtype=bool)
    found[first, second] = found[second, first] = step_down([line], pairs, 0.95).p[0] < 0.05
    return found


def _resampled(scores: Sequence[Float64], shared: int) -> tuple[list[Float64], list[Float64]]:
    """Means of every system on both tasks over resampled queries, resamples × systems each: of all, of the shared ones.

    Queries that both tasks have are drawn together, those of one task by themselves.
    """
    rng = np.random.Generator(np.random.PCG64(0))
    both = rng.multinomial(shared, np.full(shared, 1 / shared), size=RESAMPLES)
    means, of_shared = [], []
    for matrix in scores:
        own = matrix.shape[1] - shared
        sums = both @ matrix[:, :shared].T
        of_shared.append(sums / shared)
        if own:
            sums = sums + rng.multinomial(own, np.full(own, 1 / own), size=RESAMPLES) @ matrix[:, shared:].T
        means.append(sums / matrix.shape[1])
    return means, of_shared


def _estimate(value: Float64, replicates: Float64, n: int) -> Estimate:
    """With a bias-corrected interval: resampled orders agree less than the orders themselves."""
    observed = float(value[0])
    edge = 0.5 / len(replicates)
    below = float((replicates < observed - 1e-12).mean() + (np.abs(replicates - observed) <= 1e-12).mean() / 2)
    bias = NormalDist().inv_cdf(min(max(below, edge), 1.0 - edge))
    places = [NormalDist().cdf(2.0 * bias + z) for z in (-1.959964, 1.959964)]
    low, high = np.quantile(replicates, places).tolist()
    return Estimate(observed, min(low, observed), max(high, observed), n)


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


def tau_ap(left: Float64, right: Float64) -> Float64:
    """τ_AP of each row of `right` against its row of `left`: τ that weighs disagreement at the top more (Yilmaz 2008).

    Each system but the best of `right` counts the share of those above it that `left` has above it, too; ties half.
    """
    systems = right.shape[1]
    order = np.argsort(-right, axis=1, kind="stable")
    ranked = np.take_along_axis(left, order, axis=1)
    right_ranked = np.take_along_axis(right, order, axis=1)
    total = np.zeros(len(left))
    for place in range(1, systems):
        agree = np.sign(ranked[:, :place] - ranked[:, place : place + 1])
        agree = np.where(right_ranked[:, :place] == right_ranked[:, place : place + 1], 0.0, agree)
        total += agree.mean(axis=1)
    return np.asarray(total / (systems - 1))
