"""The stages of an experiment: what each kind does, given the values of those before it, and what it will take.

What a stage takes is counted where it can be, estimated where it must be, else left empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from ..core import Run, Task, UsageError
from ..core.budget import Account, Timed, in_turn, saved_seconds
from ..core.queries import Queries
from ..expand import Expander, Expansions, queries_for
from ..expand.policy import queries_without_text
from ..fuse import Fusion
from ..llm import Answers, watch_answers
from ..rerank import Rest, safeguards, without
from ..rerank.contract import SAFEGUARD_RANK
from ..results import SCHEMA, ResultStore, SystemInfo, TaskInfo, TaskResult
from ..results.beside import UsedGenerations
from ..results.schema import environment
from ..retrieve import Index, Retriever, Work
from ..scoring import score
from ..scoring.evaluation import before_after, judged_without_results
from .system import Reranking, System

Kind = Literal["load", "prepare", "expand", "search", "fuse", "rerank", "score"]
Values = Mapping[str, Any]
Cached = Literal["yes", "partly", "no", "unknown"]


@dataclass
class Step:
    """One stage: what it makes, out of what, and for which systems."""

    key: str
    kind: Kind
    what: str  # the component that does it, by name
    needs: tuple[str, ...]
    owner: str  # the system that asked for it first
    part: Any = field(repr=False)  # the retriever, expander, fusion, reranking or system behind it
    do: Callable[[Values], Any] = field(repr=False)  # makes the value out of those of the stages it needs
    systems: list[str] = field(default_factory=list)


@dataclass
class Plan:
    """All stages of one task, each behind those it needs; results that are there already need none."""

    task: Task
    depth: int
    steps: list[Step]
    systems: list[System]
    kept: dict[str, TaskResult]  # by system
    stale: dict[str, str]  # why a stored result of a system does not count
    expected: dict[str, str]  # fingerprint of each system's result


class Ranked(NamedTuple):
    """A ranking, what each step towards it took, and the candidates a reranker got."""

    run: Run
    seconds: dict[str, float]
    reused: dict[str, Account]
    """What each step took from the cache."""
    notes: dict[str, Any]
    candidates: Run | None = None
    expansions: Expansions | None = None
    answers: Answers | None = None  # Stored answers of chat models that rerankers read.

    @property
    def generations(self) -> list[UsedGenerations]:
        """All stored answers of chat models that it was made from, in a fixed order."""
        used: Answers = {}
        for answers in (self.expansions.answers if self.expansions else {}, self.answers or {}):
            for name, found in answers.items():
                used.setdefault(name, set()).update(found)
        return [
            UsedGenerations(
                method=method,
                digest=digest,
                prompts=sorted({prompt for prompt, _ in used[method, digest]}),
                again=sorted({mark for _, mark in used[method, digest] if mark}),
            )
            for method, digest in sorted(used)
        ]


def expand(expander: Expander, task: Task, on_progress: Callable[[int, int], None] | None) -> Timed[Expansions]:
    """Expand every query."""
    with watch_answers() as used:
        made = Timed.of(lambda: expander.expand(task, on_progress=on_progress))
    # Somebody's own expander may have nothing to add to any query; a chat model without an answer has failed.
    if task.queries and expander.needs_text and not any(item.usable or any(item.raw) for item in made.value):
        raise _no_text(expander, task)
    return Timed(replace(made.value, answers=used), made.seconds)


def _no_text(expander: Expander, task: Task) -> UsageError:
    return UsageError(f"{expander.name} has no usable text for any query of {task.full_name}")


def search(retriever: Retriever, index: Timed[Index], queries: Queries, depth: int) -> Ranked:
    """Rank the documents for queries."""
    found = Timed.of(lambda: index.value.search(queries, depth))
    run, took = found.value, {"retrieve": index.seconds + found.seconds}
    return Ranked(run.renamed(retriever.name), took, {"retrieve": run.reused}, dict(run.notes))


def search_expanded(
    retriever: Retriever,
    index: Timed[Index],
    expander: Expander,
    expanded: Timed[Expansions],
    policy: str | None,
    task: Task,
    depth: int,
) -> Ranked:
    """Rank the documents for what was made of the queries; the notes say what that was."""
    queries, used = queries_for(retriever, task, expanded.value, policy)
    without = queries_without_text(task, expanded.value, used)
    if task.queries and expander.needs_text and without == len(task.queries):
        raise _no_text(expander, task)
    ranked = search(retriever, index, queries, depth)
    notes: dict[str, object] = {
        "method": expanded.value.method,
        "expander": expander.name,
        "policy": used.name,
        "policy_settings": used.describe(),
        **expanded.value.summary(),
        "raw_query_used": without,
        **({"warning": expander.warning} if expander.warning else {}),
    }
    return ranked._replace(
        seconds={"expand": expanded.seconds, **ranked.seconds},
        reused={"expand": expanded.value.reused, **ranked.reused},
        notes={**ranked.notes, "expansion": notes},
        expansions=expanded.value,
    )


def fuse(fusion: Fusion, made: Sequence[Ranked], names: Sequence[str], task: Task, depth: int, name: str) -> Ranked:
    """One ranking from several."""
    seconds: dict[str, float] = {}
    reused: dict[str, Account] = {}
    notes: dict[str, object] = {}
    for retriever, stage in zip(names, made, strict=True):
        seconds |= {f"{retriever}.{key}": value for key, value in stage.seconds.items()}
        reused |= {f"{retriever}.{key}": account for key, account in stage.reused.items()}
        notes |= {retriever: stage.notes} if stage.notes else {}
    fused = Timed.of(lambda: fusion.fuse([s.run for s in made], task, depth, name))
    run, seconds["fuse"] = fused.value, fused.seconds
    return Ranked(run, seconds, reused, notes | run.notes, expansions=made[0].expansions)


def rerank(reranking: Reranking, first: Ranked, task: Task, name: str) -> Ranked:
    """The best candidates in a new order; what an earlier reranker of the system said is kept behind its own."""
    given = Run(first.run.query_ids, first.run.doc_ids, first.run.docs, first.run.scores, name=first.run.name)
    reranker, depth, rest = reranking.reranker, reranking.depth, reranking.rest
    with watch_answers() as used:
        reranked = Timed.of(lambda: reranker.rerank(task, given, depth, rest=rest))
    run, seconds = reranked.value.renamed(name), reranked.seconds
    reused = in_turn(first.reused.get("rerank", {}), reranked.value.reused)
    used |= {store: found | used.get(store, set()) for store, found in (first.answers or {}).items()}
    notes = first.notes | run.notes
    if first.candidates is not None:
        before = first.notes.get("reranked_before", [])
        notes["reranked_before"] = [*(before if isinstance(before, list) else []), first.notes.get("rerank")]
        seconds += first.seconds["rerank"]
    return Ranked(
        run,
        first.seconds | {"rerank": seconds},
        first.reused | {"rerank": reused},
        notes,
        first.candidates or given,
        first.expansions,
        used,
    )


def score_and_store(
    system: System,
    stage: Ranked,
    task: Task,
    store: ResultStore,
    *,
    depth: int,
    loading: float,
    fingerprint: str,
    provenance: Mapping[str, object],
) -> TaskResult:
    """The last stage: measure what a system ranked and store it. The driver does this, and nobody else."""
    scored = Timed.of(lambda: score(stage.run, task.qrels))
    evaluation, scoring = scored.value, scored.seconds
    notes = dict(stage.notes)
    if stage.candidates is not None and system.rerankings:
        notes["before_after"] = reranking_effect(stage, system.rerankings, task)
    if unknown := system.unknown_state():
        notes["not_reused"] = unknown
    if dangling := dangling_judgments(task):
        notes["judgments_of_missing_documents"] = dangling
    if alike := queries_with_one_score(stage.run):
        notes["queries_with_one_score"] = alike
    result = TaskResult(
        schema=SCHEMA,
        fingerprint=fingerprint,
        system=SystemInfo(name=system.name, kind=system.kind, description=system.describe(), spec=system.spec.data()),
        task=task_info(task),
        measures=evaluation.to_dict(),
        depth=depth,
        missing_queries=judged_without_results(stage.run, task.qrels),
        queries_without_positives=evaluation.without_positives,
        judged_at_10=evaluation.judged_at_10,
        seconds={"load": loading, **stage.seconds, "score": scoring},
        saved_seconds=saved_seconds(stage.reused),
        notes=notes,
        environment={**environment(), **provenance},
    )
    store.write(result, stage.run, evaluation, expansions=stage.expansions, generations=stage.generations)
    return result


def reranking_effect(stage: Ranked, rerankings: Sequence[Reranking], task: Task) -> dict[str, object]:
    """The first stage's measures, those behind the last reranker, the oracle's; a Nano safeguard's share apart."""
    assert stage.candidates is not None
    depth = max(reranking.depth for reranking in rerankings)
    rest: Rest = "drop" if any(reranking.rest == "drop" for reranking in rerankings) else "keep"
    effect = before_after(stage.candidates, stage.run, task.qrels, depth, rest=rest)
    found = effect.as_notes()
    appended = safeguards(stage.candidates) if stage.candidates.depth == SAFEGUARD_RANK else None
    if appended is not None and (appended >= 0).any():
        plain = before_after(
            without(stage.candidates, appended), without(stage.run, appended), task.qrels, depth, rest=rest
        )
        found["without_safeguard"] = plain.as_notes()
    return found


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


def queries_with_one_score(run: Run) -> int:
    """Queries whose documents, two or more, all have the same score: their order says nothing."""
    lengths = run.lengths()
    several = np.flatnonzero(lengths > 1)
    return int((run.scores[several, 0] == run.scores[several, lengths[several] - 1]).sum())


class StageEstimate(msgspec.Struct, kw_only=True):
    """One stage of a plan, as it is printed."""

    task: str
    stage: str
    what: str  # the part that does it
    key: str
    needs: list[str] = []  # keys of the stages whose values it takes
    systems: list[str] = []  # whose result depends on it
    cached: Cached = "no"  # `yes`: nothing is left to do; `unknown`: it depends on what an earlier stage makes
    texts: int | None = None  # texts, generations or pairs in all
    missing: int | None = None  # those that are not kept from an earlier run
    tokens: int | None = None  # about; of those that are missing
    dollars: float | None = None  # at most; None where no price is known
    seconds: float | None = None  # at the speed measured last; None where nothing was measured


def estimate_all(plans: Iterable[Plan]) -> list[StageEstimate]:
    """Every stage of every task, in the order of the plan; results that are there already come as one stage each."""
    found: list[StageEstimate] = []
    for plan in plans:
        found += [estimate(step, plan) for step in plan.steps]
        for system in plan.systems:
            if system.name in plan.kept:
                key = plan.expected[system.name]
                found.append(
                    StageEstimate(
                        task=plan.task.full_name, stage="score", what=system.name, key=key, systems=[system.name],
                        cached="yes", dollars=0.0, seconds=0.0,
                    )
                )  # fmt: skip
    return found


def estimate(step: Step, plan: Plan) -> StageEstimate:
    """One stage."""
    facts = {"stage": step.kind, "what": step.what, "key": step.key} | _facts(step, plan.task)
    return StageEstimate(task=plan.task.full_name, needs=list(step.needs), systems=list(step.systems), **facts)


def _facts(step: Step, task: Task) -> dict[str, Any]:
    part = step.part
    if step.kind == "load":
        return {"cached": "yes", "texts": len(task.documents) + len(task.queries)}
    if step.kind == "prepare":
        return {"stage": part.prepares, "texts": len(task.documents), **_work(part.estimate(task, "document"))}
    if step.kind == "search":
        # What an expander makes of the queries is known when it has.
        raw = len(step.needs) == 1
        return {"texts": len(task.queries), **(_work(part.estimate(task, "query")) if raw else {"cached": "unknown"})}
    if step.kind == "expand":
        return _expanding(part, task)
    if step.kind == "rerank":
        return {"cached": "unknown", "texts": len(task.queries) * min(part.depth, len(task.documents))}
    return {}


def _work(work: Work | None) -> dict[str, Any]:
    if work is None:
        return {}
    return {
        "cached": _cached(work.distinct - work.missing, work.missing),
        "texts": work.texts,
        "missing": work.missing,
        "tokens": work.tokens,
        "dollars": work.dollars,
        "seconds": work.seconds,
    }


def _expanding(expander: Expander, task: Task) -> dict[str, Any]:
    asked = expander.plan(task)
    return {
        "cached": _cached(asked.stored, asked.calls),
        "texts": asked.calls + asked.stored,
        "missing": asked.calls,
        "tokens": asked.prompt_tokens + asked.completion_tokens,
        "dollars": asked.cost,
    }


def _cached(there: int, missing: int) -> Cached:
    if not missing:
        return "yes"
    return "partly" if there else "no"


def totals(stages: Iterable[StageEstimate]) -> dict[str, Any]:
    """Sums over what is known, and how many stages are not."""
    stages = list(stages)
    to_do = [s for s in stages if s.cached != "yes"]
    return {
        "stages": len(stages),
        "to_do": len(to_do),
        "missing": sum(s.missing or 0 for s in stages),
        "tokens": sum(s.tokens or 0 for s in stages),
        "dollars": sum(s.dollars or 0.0 for s in stages),
        "seconds": sum(s.seconds or 0.0 for s in stages),
        "without_seconds": sum(s.seconds is None for s in to_do),
    }
