"""The main job: every system on every task, nothing twice."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..core import R2MedError, ResultError, Run, Task
from ..results import ResultStore, TaskResult
from ..results.schema import ProgressFile
from ..retrieve import Retriever
from .executors import Executor
from .plan import Plan, Planner, Step, TaskSource, check_names, plan_experiment
from .system import System

Notify = Callable[[str, str, str], None]
"""Called with (system, task, what): "running", "done", "kept" or "stale: why"; with empty names "total: N" for the
number of results to come and "note: TEXT" for what must be said of a system."""


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
    for warning in dict.fromkeys(s.expander.warning for s in systems if s.expander and s.expander.warning):
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
