"""The main job: every system on every task, nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from .._version import __version__
from ..core import ResultError, Run, Task, fingerprint
from ..rerank import safeguards, without
from ..rerank.safeguard import RANK as SAFEGUARD_RANK
from ..results import SCHEMA, ResultStore, SystemInfo, TaskInfo, TaskResult
from ..results.progress import ProgressFile
from ..results.provenance import environment
from ..scoring import evaluate_run
from ..scoring.before_after import before_after
from ..tasks import TaskRef
from .system import Memo, Reranking, Stage, System

Notify = Callable[[str, str, str], None]
"""Called with (system, task, what): "running", "done", "kept", or "stale: why"."""


class Outcome(NamedTuple):
    """The results of one call, and how many of them were there already."""

    results: list[TaskResult]
    kept: int


def run_experiment(
    refs: Sequence[TaskRef],
    systems: Sequence[System],
    store: ResultStore,
    *,
    depth: int = 1000,
    overwrite: bool = False,
    notify: Notify = lambda system, task, what: None,
) -> Outcome:
    """Run what is not done; a result made from other data, parameters or versions counts as not done."""
    results, kept = list[TaskResult](), 0
    live = ProgressFile(store.root)
    live.begin(len(refs) * len(systems))

    def tell(system: System, task: Task, what: str) -> None:
        notify(system.name, task.full_name, what)
        live.step(system.name, task.full_name, finished=what in ("done", "kept"))

    try:
        for ref in refs:
            start = time.perf_counter()
            task = ref.load()
            loading = time.perf_counter() - start
            memo: Memo = {}
            for system in systems:
                expected = result_fingerprint(system, task, depth)
                stored = None if overwrite else store.read(store.path(system.name, task.collection, task.name))
                if stored is not None and stored.fingerprint == expected:
                    tell(system, task, "kept")
                    results.append(stored)
                    kept += 1
                    continue
                if stored is not None:
                    tell(system, task, f"stale: {why_stale(stored, system, task, depth)}")
                tell(system, task, "running")
                results.append(run_one(system, task, store, depth, memo, loading, expected))
                tell(system, task, "done")
    finally:
        live.end()
    return Outcome(results, kept)


def run_one(
    system: System, task: Task, store: ResultStore, depth: int, memo: Memo, loading: float, expected: str
) -> TaskResult:
    """Run, score and store one system on one task."""
    stage = system.run(task, depth, memo)
    start = time.perf_counter()
    evaluation = evaluate_run(stage.run, task.qrels)
    scoring = time.perf_counter() - start
    notes = dict(stage.notes)
    if stage.candidates is not None and system.reranking is not None:
        notes["before_after"] = reranking_effect(stage, system.reranking, task)
    if dangling := dangling_judgments(task):
        notes["judgments_of_missing_documents"] = dangling
    result = TaskResult(
        schema=SCHEMA,
        fingerprint=expected,
        system=SystemInfo(name=system.name, kind=system.kind, description=system.describe()),
        task=task_info(task),
        measures=evaluation.means | evaluation.micro_recall,
        depth=depth,
        missing_queries=judged_without_results(stage.run, task),
        queries_without_positives=evaluation.without_positives,
        seconds={"load": loading, **stage.seconds, "score": scoring},
        notes=notes,
        environment=environment(),
    )
    store.write(result, stage.run, evaluation, expansions=stage.expansions)
    return result


def reranking_effect(stage: Stage, reranking: Reranking, task: Task) -> dict[str, object]:
    """The first stage's measures, the reranker's, the oracle's; a Nano safeguard's share apart."""
    assert stage.candidates is not None
    effect = before_after(stage.candidates, stage.run, task.qrels, reranking.depth, rest=reranking.rest)
    found = effect.as_notes()
    appended = safeguards(stage.candidates) if stage.candidates.depth == SAFEGUARD_RANK else None
    if appended is not None and (appended >= 0).any():
        plain = before_after(
            without(stage.candidates, appended), without(stage.run, appended), task.qrels, reranking.depth,
            rest=reranking.rest,
        )  # fmt: skip
        found["without_safeguard"] = plain.as_notes()
    return found


def judged_without_results(run: Run, task: Task) -> int:
    """Judged queries for which nothing was retrieved: they score 0."""
    rows = run.query_ids.positions(task.qrels.query_ids)
    lengths = np.append(run.lengths(), 0)  # the last place stands for a query the run lacks (-1)
    return int((lengths[rows] == 0).sum())


def result_fingerprint(system: System, task: Task, depth: int) -> str:
    """Hash of all that a result depends on."""
    parts = {"version": __version__, "schema": SCHEMA, "depth": depth, "task": task.fingerprint}
    return fingerprint("result", parts | {"system": system.describe()})


def why_stale(stored: TaskResult, system: System, task: Task, depth: int) -> str:
    """Which of its inputs changed since a result was stored."""
    if stored.task.fingerprint != task.fingerprint:
        return "the data changed"
    if stored.system.description != system.describe():
        return "the system's parameters changed"
    if stored.depth != depth:
        return f"it was made at depth {stored.depth}"
    return "it was made by another version of r2med"


def task_info(task: Task) -> TaskInfo:
    """A task as results name it."""
    return TaskInfo(
        name=task.name,
        collection=task.collection,
        family=task.family,
        source=task.source,
        revision=task.revision,
        fingerprint=task.fingerprint,
        queries=len(task.qrels.query_ids),
        documents=len(task.documents),
        judgments=len(task.qrels),
    )


def dangling_judgments(task: Task) -> int:
    """Positive judgments of documents that the corpus does not hold: nobody can find them."""
    absent = task.documents.ids.positions(task.qrels.doc_ids)[task.qrels.docs] < 0
    return int((absent & (task.qrels.grades > 0)).sum())


def check_writable(store: ResultStore) -> None:
    """Fail before hours of work, not after them."""
    probe = store.root / ".r2med-probe"
    try:
        store.root.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise ResultError(f"{store.root}: cannot be written ({error.strerror or error})") from None


def by_system(results: Iterable[TaskResult]) -> dict[str, list[TaskResult]]:
    """Results grouped by system, in order of appearance."""
    grouped: dict[str, list[TaskResult]] = {}
    for result in results:
        grouped.setdefault(result.system.name, []).append(result)
    return grouped
