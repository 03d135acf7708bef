"""An experiment as a graph of stages: what is printed is what runs.

Each stage has a key made of everything that its value depends on: task content, parameters, and the keys of the stages
it needs. Two systems that ask for the same thing ask for the same key, and it is there once. What the stages will take
is counted where it can be, estimated where it must be, else left empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from .._version import __version__
from ..core import Task, UsageError, fingerprint
from ..core.budget import Timed
from ..core.queries import Queries
from ..expand import Expander, Expansions
from ..fuse import Fusion
from ..llm import asked_since
from ..results import SCHEMA, ResultStore, TaskResult
from ..retrieve import Retriever, Work
from ..tasks.catalogue import remember
from . import stages
from .stages import Ranked
from .system import System

Kind = Literal["load", "prepare", "expand", "search", "fuse", "rerank", "score"]
Values = Mapping[str, Any]


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


def result_fingerprint(system: System, task: Task, depth: int) -> str:
    """Hash of all that a result depends on."""
    parts = {"version": __version__, "schema": SCHEMA, "depth": depth, "task": task.fingerprint}
    return fingerprint("result", parts | {"system": system.describe(), "facts": system.task_facts(task)})


def why_stale(stored: TaskResult, system: System, task: Task, depth: int) -> str:
    """Which of its inputs changed since a result was stored."""
    if unknown := system.unknown_state():
        name, why = next(iter(unknown.items()))
        return f"{name} may have changed: {why}; give it a `version` to reuse its results"
    if stored.task.fingerprint != task.fingerprint:
        return "the data changed"
    if stored.system.description != system.describe():
        return "the system's parameters or files changed"
    if stored.depth != depth:
        return f"it was made at depth {stored.depth}"
    if stored.environment.get("versions", {}).get("r2med") == __version__:  # type: ignore[attr-defined]
        return "what came with the task changed"
    return "it was made by another version of r2med"


def check_names(systems: Sequence[System]) -> list[System]:
    """Every system once; two different ones under one name are refused."""
    found: dict[str, System] = {}
    for system in systems:
        other = found.setdefault(system.name, system)
        if other is not system and fingerprint("system", other.describe()) != fingerprint("system", system.describe()):
            raise UsageError(
                f"two different systems are called {system.name}: give their objects a `name` or a `version`"
            )
    return list(found.values())


class TaskSource(Protocol):
    """A task that can be loaded."""

    @property
    def full_name(self) -> str:
        """How the task is called in results."""

    def load(self) -> Task:
        """Read it."""


def plan_experiment(
    refs: Sequence[TaskSource],
    systems: Sequence[System],
    store: ResultStore,
    *,
    depth: int = 1000,
    overwrite: bool = False,
    provenance: Mapping[str, object] | None = None,
) -> Iterator[Plan]:
    """The plan of one task after the other, each loaded when it is its turn."""
    chosen = check_names(systems)
    for ref in refs:
        begin = time.perf_counter()
        task = ref.load()
        remember(task)
        planner = Planner(task, depth, store, time.perf_counter() - begin, provenance or {})
        yield planner.plan(chosen, overwrite=overwrite)


class Planner:
    """Makes the stages of systems on one task."""

    def __init__(
        self, task: Task, depth: int, store: ResultStore, loading: float, provenance: Mapping[str, object]
    ) -> None:
        self.task, self.depth, self.store, self.loading = task, depth, store, loading
        self.provenance = provenance
        self.steps: dict[str, Step] = {}
        self.queries = Queries.of(task)
        self.system = ""

    def plan(self, systems: Sequence[System], *, overwrite: bool) -> Plan:
        """All stages of all systems whose result is not there."""
        made = Plan(self.task, self.depth, [], list(systems), {}, {}, {})
        for system in systems:
            expected = result_fingerprint(system, self.task, self.depth)
            made.expected[system.name] = expected
            stored = None if overwrite else self.store.find(system.name, self.task.collection, self.task.name)
            stale = "" if stored is None else self._stale(stored, system, expected)
            if stored is not None and not stale:
                made.kept[system.name] = stored
                continue
            if stale:
                made.stale[system.name] = stale
            self._score(system, expected)
        made.steps = list(self.steps.values())
        return made

    def _stale(self, stored: TaskResult, system: System, expected: str) -> str:
        """Why a stored result does not count; empty where it does."""
        if unwanted := system.unwanted_answers(stored):
            return f"it has answers that are asked for again ({unwanted})"
        if stored.fingerprint != expected:
            return why_stale(stored, system, self.task, self.depth)
        if stored.task.family != self.task.family:  # models are told by it what to look for
            return "the task's family changed"
        if lost := self.store.lost(stored):
            return f"{lost} is gone"
        used = self.store.generations(stored)
        newer = any(asked_since(of.method, of.digest, of.prompts, of.again) for of in used)
        return "answers that it was made from were asked for again" if newer else ""

    def _add(
        self, kind: Kind, facts: object, what: str, needs: Sequence[str], part: object, do: Callable[[Values], Any]
    ) -> str:
        """The key of a stage; it is new, or another system has asked for it already."""
        key = fingerprint(kind, [facts, list(needs)])
        self.steps.setdefault(key, Step(key, kind, what, tuple(needs), self.system, part, do))
        self._used(key)
        return key

    def _used(self, key: str) -> None:
        step = self.steps[key]
        if self.system not in step.systems:
            step.systems.append(self.system)
            for need in step.needs:
                self._used(need)

    def _load(self) -> str:
        task = self.task
        return self._add("load", task.fingerprint, task.full_name, (), task, lambda values: task)

    def ranking(self, system: System) -> str:
        """The key of the stage that makes a system's ranking; its stages are added to those there are."""
        self.system = system.name
        first = [self._searched(system, retriever) for retriever in system.retrievers]
        last = self._fused(system, system.fusion, first) if system.fusion else first[0]
        for place in range(len(system.rerankings)):
            last = self._reranked(system, place, last)
        return last

    def _score(self, system: System, expected: str) -> str:
        last = self.ranking(system)

        def do(values: Values) -> TaskResult:
            return stages.score_and_store(
                system, values[last], self.task, self.store,
                depth=self.depth, loading=self.loading, fingerprint=expected, provenance=self.provenance,
            )  # fmt: skip

        return self._add("score", expected, system.name, [last], system, do)

    def _fused(self, system: System, fusion: Fusion, first: list[str]) -> str:
        task, names, name = self.task, [r.name for r in system.retrievers], system.spec.first_stage

        def do(values: Values) -> Ranked:
            return stages.fuse(fusion, [values[key] for key in first], names, task, self.depth, name)

        return self._add("fuse", [fusion.describe(), task.qrels.fingerprint, self.depth, name], name, first, fusion, do)

    def _reranked(self, system: System, place: int, first: str) -> str:
        reranking = system.rerankings[place]
        links = (str(each.spec) for each in system.rerankings[: place + 1])
        name = "+".join([system.spec.first_stage, *links])
        facts = [reranking.describe(), self.queries.fingerprint, name]

        def do(values: Values) -> Ranked:
            return stages.rerank(reranking, values[first], self.task, name)

        return self._add("rerank", facts, str(reranking.spec), [first], reranking, do)

    def _searched(self, system: System, retriever: Retriever) -> str:
        prepared = self._prepared(retriever)
        facts: list[object] = [retriever.name, retriever.describe(), self.queries.fingerprint, self.depth]
        expander, policy = system.expander, system.policy

        def search(values: Values) -> Ranked:
            return stages.search(retriever, values[prepared], self.queries, self.depth)

        if expander is None:
            return self._add("search", facts, retriever.name, [prepared], retriever, search)
        expanded = self._expanded(expander, system)

        def search_expanded(values: Values) -> Ranked:
            index, texts = values[prepared], values[expanded]
            return stages.search_expanded(retriever, index, expander, texts, policy, self.task, self.depth)

        what = f"{expander.name}+{retriever.name}"
        return self._add("search", [*facts, policy], what, [prepared, expanded], retriever, search_expanded)

    def _expanded(self, expander: Expander, system: System) -> str:
        facts = [expander.name, expander.describe(), expander.task_facts(self.task), self.task.fingerprint]

        def do(values: Values) -> Timed[Expansions]:
            return stages.expand(expander, self.task, system.on_expand)

        return self._add("expand", facts, expander.name, [self._load()], expander, do)

    def _prepared(self, retriever: Retriever) -> str:
        """The documents made ready for one retriever; raw and expanded queries search the same index."""
        task = self.task
        described = [retriever.describe(), retriever.task_facts(task), task.documents.fingerprint, task.family]
        return self._add(
            "prepare", [retriever.name, *described], retriever.name, [self._load()], retriever,
            lambda values: Timed.of(lambda: retriever.prepare(task)),
        )  # fmt: skip


Cached = Literal["yes", "partly", "no", "unknown"]


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
