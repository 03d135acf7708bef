"""An experiment as a graph of stages: what is printed is what runs.

Each stage has a key made of everything that its value depends on: task content, parameters, and the keys of the stages
it needs. Two systems that ask for the same thing ask for the same key, and it is there once. Executors know no other
order of work than this graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..core import Run, Task, fingerprint
from ..expand import Expander
from ..results import ResultStore, TaskResult
from ..retrieve import Retriever
from ..retrieve.bm25 import BM25
from ..retrieve.dense import SIDES, DenseRetriever
from ..retrieve.embed import identity
from ..retrieve.encoders.protocol import Side
from ..tasks import TaskRef
from . import stages
from .fingerprints import result_fingerprint, why_stale
from .system import Reranking, System

Kind = Literal[
    "load", "index", "encode documents", "encode queries", "expand", "retrieve", "fuse", "rerank", "score"
]  # fmt: skip
Values = Mapping[str, Any]


@dataclass
class Step:
    """One stage: what it makes, out of what, and for which systems."""

    key: str
    kind: Kind
    what: str
    """The part that does it, by name."""
    needs: tuple[str, ...]
    owner: str
    """The system that asked for it first."""
    part: Any = field(repr=False)
    """The retriever, expander, fusion, reranking or system behind it."""
    do: Callable[[Values], Any] = field(repr=False)
    """Makes the value out of those of the stages it needs."""
    systems: list[str] = field(default_factory=list)


@dataclass
class Plan:
    """All stages of one task, each behind those it needs; results that are there already need none."""

    task: Task
    depth: int
    steps: list[Step]
    systems: list[System]
    kept: dict[str, TaskResult]
    """By system."""
    stale: dict[str, str]
    """Why a stored result of a system does not count."""


def plan_experiment(
    refs: Sequence[TaskRef],
    systems: Sequence[System],
    store: ResultStore,
    *,
    depth: int = 1000,
    overwrite: bool = False,
    provenance: Mapping[str, object] | None = None,
) -> Iterator[Plan]:
    """The plan of one task after the other, each loaded when it is its turn."""
    for ref in refs:
        begin = time.perf_counter()
        task = ref.load()
        planner = Planner(task, depth, store, time.perf_counter() - begin, provenance or {})
        yield planner.plan(systems, overwrite=overwrite)


class Planner:
    """Makes the stages of systems on one task."""

    def __init__(
        self, task: Task, depth: int, store: ResultStore, loading: float, provenance: Mapping[str, object]
    ) -> None:
        self.task, self.depth, self.store, self.loading = task, depth, store, loading
        self.provenance = provenance
        self.steps: dict[str, Step] = {}
        self.queries = fingerprint("queries", [list(task.query_ids), list(task.query_texts)])
        self.system = ""

    def plan(self, systems: Sequence[System], *, overwrite: bool) -> Plan:
        """All stages of all systems whose result is not there."""
        made = Plan(self.task, self.depth, [], list(systems), {}, {})
        for system in systems:
            expected = result_fingerprint(system, self.task, self.depth)
            path = self.store.path(system.name, self.task.collection, self.task.name)
            stored = None if overwrite else self.store.read(path)
            if stored is not None and stored.fingerprint == expected:
                made.kept[system.name] = stored
                continue
            if stored is not None:
                made.stale[system.name] = why_stale(stored, system, self.task, self.depth)
            self.system = system.name
            self._score(system, expected)
        made.steps = list(self.steps.values())
        return made

    def _add(
        self, kind: Kind, facts: object, what: str, needs: Sequence[str], part: object, do: Callable[[Values], Any]
    ) -> str:
        """The key of a stage; it is new, or another system has asked for it already."""
        key = fingerprint(kind, [facts, list(needs)])
        step = self.steps.setdefault(key, Step(key, kind, what, tuple(needs), self.system, part, do))
        if self.system not in step.systems:
            step.systems.append(self.system)
        for need in needs:
            self._used(need)
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

    def _score(self, system: System, expected: str) -> str:
        last = self._ranked(system)
        scorer = stages.Scorer(self.store, self.task, self.depth, self.loading, expected, self.provenance)
        return self._add(
            "score", expected, system.name, [last], system, lambda values: scorer.score(system, values[last])
        )  # fmt: skip

    def _ranked(self, system: System) -> str:
        first = [self._retrieved(system, retriever) for retriever in system.retrievers]
        key = self._fused(system, first) if system.fusion else first[0]
        return self._reranked(system, system.reranking, key) if system.reranking else key

    def _fused(self, system: System, first: list[str]) -> str:
        fusion, names, name = system.fusion, [r.name for r in system.retrievers], system.first_stage
        assert fusion is not None
        task, depth = self.task, self.depth

        def do(values: Values) -> stages.Stage:
            return stages.fuse(fusion, [values[key] for key in first], names, task, depth, name)

        return self._add("fuse", [fusion.describe(), task.qrels.fingerprint, depth, name], name, first, fusion, do)

    def _reranked(self, system: System, reranking: Reranking, first: str) -> str:
        task, name = self.task, system.name

        def do(values: Values) -> stages.Stage:
            return stages.rerank(reranking, values[first], task, name)

        what = f"{reranking.reranker.name}@{reranking.depth}"
        return self._add("rerank", [reranking.describe(), self.queries, name], what, [first], reranking, do)

    def _retrieved(self, system: System, retriever: Retriever) -> str:
        ready = self._prepared(retriever, queries=system.expander is None)
        needs = list(ready.values())
        expander, policy, task, depth = system.expander, system.policy, self.task, self.depth
        facts: list[object] = [retriever.name, retriever.describe(), task.documents.fingerprint, self.queries, depth]
        if expander is None:

            def do(values: Values) -> stages.Stage:
                return stages.retrieve(retriever, task, depth, {name: values[key] for name, key in ready.items()})

            return self._add("retrieve", facts, retriever.name, needs or [self._load()], retriever, do)
        expanded = self._expanded(expander, system)

        def do_expanded(values: Values) -> stages.Stage:
            inputs = {name: values[key] for name, key in ready.items()}
            return stages.retrieve_expansions(retriever, expander, values[expanded], policy, task, depth, inputs)

        what = f"{expander.name}+{retriever.name}"
        return self._add("retrieve", [*facts, policy], what, [*needs, expanded], retriever, do_expanded)

    def _expanded(self, expander: Expander, system: System) -> str:
        task, watch = self.task, system.on_expand
        facts = [expander.name, expander.describe(), task.fingerprint]
        return self._add(
            "expand", facts, expander.name, [self._load()], expander,
            lambda values: stages.expand(expander, task, watch),
        )  # fmt: skip

    def _prepared(self, retriever: Retriever, *, queries: bool) -> dict[str, str]:
        """The stages that a kind of retriever stands on: an index, or vectors of both sides."""
        if type(retriever) is BM25:
            return {"index": self._indexed(retriever)}
        if not isinstance(retriever, DenseRetriever):
            return {}
        sides: tuple[Side, ...] = SIDES if queries else ("document",)
        return {("documents" if side == "document" else "queries"): self._encoded(retriever, side) for side in sides}

    def _indexed(self, retriever: BM25) -> str:
        task = self.task
        facts = {k: v for k, v in retriever.describe().items() if k != "query"}  # how queries are weighed comes later
        return self._add(
            "index", [facts, task.documents.fingerprint], retriever.name, [self._load()], retriever,
            lambda values: stages.index(retriever, task),
        )  # fmt: skip

    def _encoded(self, retriever: DenseRetriever, side: Side) -> str:
        task, encoder = self.task, retriever.encoder
        facts: list[object] = [
            identity(encoder, side, retriever.instruction(side, task.family)),
            encoder.max_length(side),
            task.documents.fingerprint if side == "document" else self.queries,
        ]
        if retriever.cache is None:
            facts.append(retriever.name)  # nothing tells one state of such a model from the next
        kind: Kind = "encode documents" if side == "document" else "encode queries"
        return self._add(
            kind, facts, retriever.name, [self._load()], retriever, lambda values: retriever.encode(task, side)
        )  # fmt: skip


def ranking(value: object) -> Run:
    """The run behind the value of a stage that ranks."""
    assert isinstance(value, stages.Stage)
    return value.run
