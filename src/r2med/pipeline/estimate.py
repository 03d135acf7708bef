"""What the stages of a plan will take: counted where it can be, estimated where it must be, else left empty."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ..core import Task
from ..expand import Expander
from ..retrieve import Work
from .plan import Plan, Step

Cached = Literal["yes", "partly", "no", "unknown"]


class StageEstimate(msgspec.Struct, kw_only=True):
    """One stage of a plan, as it is printed."""

    task: str
    stage: str
    what: str
    # The part that does it.
    key: str
    needs: list[str] = []
    # Keys of the stages whose values it takes.
    systems: list[str] = []
    # Whose result depends on it.
    cached: Cached = "no"
    # `yes`: nothing is left to do; `unknown`: it depends on what an earlier stage makes.
    texts: int | None = None
    # Texts, generations or pairs in all.
    missing: int | None = None
    # Those that are not kept from an earlier run.
    tokens: int | None = None
    # About; of those that are missing.
    dollars: float | None = None
    # At most; None where no price is known.
    seconds: float | None = None
    # At the speed measured last; None where nothing was measured.


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
    made = StageEstimate(
        task=plan.task.full_name,
        stage=step.kind,
        what=step.what,
        key=step.key,
        needs=list(step.needs),
        systems=list(step.systems),
    )
    for name, value in _facts(step, plan.task).items():
        setattr(made, name, value)
    return made


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
