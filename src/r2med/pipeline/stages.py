"""What each kind of stage does, given the values of those before it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core import Run, Task, UsageError
from ..expand import Expander, Expansions
from ..expand.custom import METHOD as CUSTOM
from ..rerank import safeguards, without
from ..rerank.safeguard import RANK as SAFEGUARD_RANK
from ..results import SCHEMA, ResultStore, SystemInfo, TaskInfo, TaskResult
from ..results.provenance import environment
from ..retrieve import Retriever
from ..retrieve.bm25 import BM25, BM25Index
from ..scoring import score
from ..scoring.before_after import before_after
from .expanding import expansion_notes, retrieve_expanded
from .fusing import Fusion
from .system import Reranking, Stage, System

__all__ = ["Expanded", "Indexed", "Scorer", "Stage", "expand", "fuse", "index", "rerank", "retrieve"]


class Indexed(NamedTuple):
    """An index, and what making it took."""

    made: BM25Index
    seconds: float


class Expanded(NamedTuple):
    """Expansions, and what making them took."""

    expansions: Expansions
    seconds: float


def index(retriever: BM25, task: Task) -> Indexed:
    """Index the documents."""
    start = time.perf_counter()
    return Indexed(retriever.index(task), time.perf_counter() - start)


def expand(expander: Expander, task: Task, on_progress: Callable[[int, int], None] | None) -> Expanded:
    """Expand every query."""
    start = time.perf_counter()
    made = expander.expand(task, on_progress=on_progress)
    # Somebody's own expander may have nothing to add to any query; an LLM without an answer has failed.
    if task.queries and expander.method != CUSTOM and not any(item.usable for item in made):
        raise UsageError(f"{expander.name} has no usable text for any query of {task.full_name}")
    return Expanded(made, time.perf_counter() - start)


def ready(retriever: Retriever, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """What a retriever takes besides a task, out of earlier stages, and what those took."""
    if "index" in inputs and isinstance(retriever, BM25):
        shared, seconds = inputs["index"]
        own = BM25Index(retriever.parameters, shared.counts, lengths=shared.lengths, postings=shared.postings)
        return {"index": own}, seconds
    return dict(inputs), sum(made.seconds for made in inputs.values())


def retrieve(retriever: Retriever, task: Task, depth: int, inputs: Mapping[str, Any]) -> Stage:
    """Rank the documents for the queries as they are."""
    given, before = ready(retriever, inputs)
    start = time.perf_counter()
    run = retriever.retrieve(task, depth=depth, **given)
    return Stage(run, {"retrieve": before + time.perf_counter() - start}, dict(run.notes))


def retrieve_expansions(
    retriever: Retriever,
    expander: Expander,
    expanded: Expanded,
    policy: str | None,
    task: Task,
    depth: int,
    inputs: Mapping[str, Any],
) -> Stage:
    """Rank the documents for what was made of the queries."""
    given, before = ready(retriever, inputs)
    start = time.perf_counter()
    run, used = retrieve_expanded(retriever, task, expanded.expansions, policy, depth, **given)
    seconds = {"expand": expanded.seconds, "retrieve": before + time.perf_counter() - start}
    notes = {**run.notes, "expansion": expansion_notes(expander, expanded.expansions, used)}
    return Stage(run, seconds, notes, expansions=expanded.expansions)


def fuse(fusion: Fusion, made: Sequence[Stage], names: Sequence[str], task: Task, depth: int, name: str) -> Stage:
    """One ranking from several."""
    seconds: dict[str, float] = {}
    notes: dict[str, object] = {}
    for retriever, stage in zip(names, made, strict=True):
        seconds |= {f"{retriever}.{key}": value for key, value in stage.seconds.items()}
        notes |= {retriever: stage.notes} if stage.notes else {}
    start = time.perf_counter()
    run = fusion.fuse([s.run for s in made], task, depth, name)
    seconds["fuse"] = time.perf_counter() - start
    return Stage(run, seconds, notes | run.notes, expansions=made[0].expansions)


def rerank(reranking: Reranking, first: Stage, task: Task, name: str) -> Stage:
    """The best candidates in a new order."""
    start = time.perf_counter()
    candidates = Run(first.run.query_ids, first.run.doc_ids, first.run.docs, first.run.scores, name=first.run.name)
    run = reranking.reranker.rerank(task, candidates, reranking.depth, rest=reranking.rest).renamed(name)
    seconds = first.seconds | {"rerank": time.perf_counter() - start}
    return Stage(run, seconds, first.notes | run.notes, candidates, first.expansions)


class Scorer(NamedTuple):
    """The last stage: measures what a system ranked and stores it. The driver does this, and nobody else."""

    store: ResultStore
    task: Task
    depth: int
    loading: float
    fingerprint: str
    provenance: Mapping[str, object]

    def score(self, system: System, stage: Stage) -> TaskResult:
        """Score and store one system on the task."""
        task = self.task
        start = time.perf_counter()
        evaluation = score(stage.run, task.qrels)
        scoring = time.perf_counter() - start
        notes = dict(stage.notes)
        if stage.candidates is not None and system.reranking is not None:
            notes["before_after"] = reranking_effect(stage, system.reranking, task)
        if dangling := dangling_judgments(task):
            notes["judgments_of_missing_documents"] = dangling
        result = TaskResult(
            schema=SCHEMA,
            fingerprint=self.fingerprint,
            system=SystemInfo(name=system.name, kind=system.kind, description=system.describe()),
            task=task_info(task),
            measures=evaluation.to_dict(),
            depth=self.depth,
            missing_queries=judged_without_results(stage.run, task),
            queries_without_positives=evaluation.without_positives,
            seconds={"load": self.loading, **stage.seconds, "score": scoring},
            notes=notes,
            environment={**environment(), **self.provenance},
        )
        self.store.write(result, stage.run, evaluation, expansions=stage.expansions)
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
