"""The main job: every system on every task, nothing twice.

An experiment is planned as a graph of stages, task by task, and what is printed is what runs. Each stage has a key made
of everything that its value depends on: task content, parameters, and the keys of the stages it needs. Two systems that
ask for the same thing ask for the same key, and it is there once. An `Executor` says where models do their work: in
this process, in processes of this machine, on a Ray cluster.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from .._version import __version__
from ..core import DataError, R2MedError, ResultError, Run, Task, UsageError, fingerprint
from ..core.budget import Timed
from ..core.queries import Queries
from ..expand import Expander, Expansions
from ..fuse import Fusion
from ..llm import asked_since
from ..rerank import Reranker
from ..results import SCHEMA, ResultStore, TaskResult
from ..results.schema import ProgressFile
from ..retrieve import Retriever
from ..tasks.catalogue import remember
from . import stages
from .stages import Kind, Plan, Ranked, Step, Values
from .system import System

EXECUTORS = ("local", "ray")
Notify = Callable[[str, str, str], None]
"""Called with (system, task, what): "running", "done", "kept" or "stale: why"; with empty names "total: N" for the
number of results to come and "note: TEXT" for what must be said of a system."""


class TaskSource(Protocol):
    """A task that can be loaded."""

    @property
    def full_name(self) -> str:
        """How the task is called in results."""

    def load(self) -> Task:
        """Read it."""


class Executor:
    """Does all stages in this process, one after the other."""

    name = "local"

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the workers."""

    def adopt(self, components: Iterable[Retriever | Reranker]) -> None:
        """Let the models of these components run on workers."""

    def provenance(self) -> Mapping[str, object]:
        """What a result says about where it was made."""
        return {}


def get_executor(
    name: str = "local",
    *,
    workers: int | None = None,
    address: str | None = None,
    device: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Executor:
    """The executor of that name; `tell` hears what a user should know about it."""
    if name not in EXECUTORS:
        raise UsageError(f"unknown executor {name!r}; known: {', '.join(EXECUTORS)}")
    if address is not None and name != "ray":
        raise UsageError("--address is the address of a Ray cluster: add --executor ray")
    if name == "ray" and device not in (None, "cpu", "cuda"):
        raise UsageError(f"Ray gives every worker a GPU of its own: --device is cpu or cuda, not {device}")
    if name == "local" and (workers or 1) == 1:
        return Executor()
    from .pooled_models import PoolExecutor

    if name == "local":
        from .workers import Processes

        return PoolExecutor("local", Processes(workers or 1, device), tell)
    from .ray_workers import RayWorkers

    return PoolExecutor("ray", RayWorkers(workers, address, device, tell), tell)


class Outcome(NamedTuple):
    """The results of one call, and how many of them were there already."""

    results: list[TaskResult]
    kept: int


def run_experiment(
    refs: Sequence[TaskSource],
    systems: Sequence[System],
    store: ResultStore,
    *,
    depth: int = 1000,
    overwrite: bool = False,
    notify: Notify = lambda system, task, what: None,
    executor: Executor | None = None,
) -> Outcome:
    """Run what is not done; a result made from other data, parameters or versions counts as not done."""
    executor = executor or Executor()
    live = ProgressFile(store.root)
    live.begin(len(refs) * len(systems))
    begun: set[tuple[str, str]] = set()
    _announce(len(refs), systems, notify)

    def tell(system: str, plan: Plan, what: str) -> None:
        notify(system, plan.task.full_name, what)
        live.step(system, plan.task.full_name, finished=what in ("done", "kept"))

    def on_step(plan: Plan, step: Step) -> None:
        if (step.owner, plan.task.full_name) not in begun:
            begun.add((step.owner, plan.task.full_name))
            if step.owner in plan.stale:
                tell(step.owner, plan, f"stale: {plan.stale[step.owner]}")
            tell(step.owner, plan, "running")
        if step.kind == "score":
            live.step(step.what, plan.task.full_name)

    plans = plan_experiment(
        refs, systems, store, depth=depth, overwrite=overwrite, provenance=executor.provenance()
    )  # fmt: skip
    made: dict[tuple[str, str], TaskResult] = {}
    order: list[tuple[str, str]] = []
    kept = 0
    try:
        for plan in plans:
            name = plan.task.full_name
            order += [(name, system.name) for system in plan.systems]
            made |= {(name, system): result for system, result in plan.kept.items()}
            kept += len(plan.kept)
            for system in plan.kept:
                tell(system, plan, "kept")
            for step, value in run_plan(plan, on_step):
                if step.kind == "score":
                    made[name, step.what] = value
                    tell(step.what, plan, "done")
    finally:
        live.end()
    return Outcome([made[key] for key in order], kept)


def run_plan(plan: Plan, on_step: Callable[[Plan, Step], None]) -> Iterator[tuple[Step, Any]]:
    """Do all stages of a plan, in its order; a value that no later stage needs is let go."""
    last = {need: step.key for step in plan.steps for need in step.needs}
    values: dict[str, Any] = {}
    for step in plan.steps:
        on_step(plan, step)
        value = step.do(values)
        if step.key in last:
            values[step.key] = value
        for need in step.needs:
            if last[need] == step.key:
                values.pop(need, None)
        yield step, value


def rank_systems(
    task: Task, systems: Sequence[System], *, depth: int, notify: Callable[[str], None] = lambda system: None
) -> dict[str, Run]:
    """The ranking of each system, by its name; what systems share is done once, and nothing is scored or stored."""
    chosen = check_names(systems)
    planner = Planner(task, depth, ResultStore("."), 0.0, {})
    wanted = {system.name: planner.ranking(system) for system in chosen}
    plan = Plan(task, depth, list(planner.steps.values()), chosen, {}, {}, {})
    ranked = {
        step.key: value.run
        for step, value in run_plan(plan, lambda _, step: notify(step.owner))
        if step.key in wanted.values()
    }
    return {name: ranked[key].renamed(name) for name, key in wanted.items()}


def _announce(tasks: int, systems: Sequence[System], notify: Notify) -> None:
    """How many results will come, and what must be said of the systems."""
    notify("", "", f"total: {tasks * len(systems)}")
    expanding = [system.expander.warning for system in systems if system.expander]
    reranking = [part.reranker.warning for system in systems for part in system.rerankings]
    for warning in dict.fromkeys(filter(None, [*expanding, *reranking])):
        notify("", "", f"note: Note: {warning}")


def check_writable(store: ResultStore) -> None:
    """Fail before hours of work, not after them."""
    try:
        store.root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=store.root):
            pass
    except OSError as error:
        raise ResultError(f"{store.root}: cannot be written ({error.strerror or error})") from None


def check_retrievers(
    refs: Sequence[TaskSource], systems: Sequence[System], store: ResultStore, *, depth: int, overwrite: bool
) -> None:
    """Raise what would stop a retriever after hours of work, such as a missing key; what is stored needs none."""
    for retriever in {r.name: r for system in systems for r in system.retrievers}.values():
        try:
            retriever.check()
        except R2MedError:
            plans = plan_experiment(refs, systems, store, depth=depth, overwrite=overwrite)
            if any(_encodes(retriever, step, plan.task) for plan in plans for step in plan.steps):
                raise


def _encodes(retriever: Retriever, step: Step, task: Task) -> bool:
    """Whether a stage makes a retriever encode; what it is to make of expanded queries is known only then."""
    if step.part is not retriever or len(step.needs) > 1:
        return False
    work = retriever.estimate(task, "document" if step.kind == "prepare" else "query")
    return work is None or work.missing > 0


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
        try:
            used = self.store.generations(stored)
        except DataError as error:
            return f"{Path(str(error.path)).name} was changed or cannot be read"
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
