"""Running plans: a stage begins when those it needs are there, on a worker if the executor takes it, else here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..results import TaskResult
from .executors import Executor, Ticket
from .plan import Plan, Step


class Finished(NamedTuple):
    """A system has its result on a task."""

    plan: Plan
    step: Step
    result: TaskResult


class Work:
    """One plan under way."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.values: dict[str, Any] = {}
        self.waiting = list(plan.steps)
        self.away: dict[Ticket, Step] = {}
        self._users: dict[str, int] = {}
        for step in plan.steps:
            for need in step.needs:
                self._users[need] = self._users.get(need, 0) + 1

    @property
    def over(self) -> bool:
        """Whether all stages are done."""
        return not self.waiting and not self.away

    def ready(self) -> list[Step]:
        """Stages that can begin, in the plan's order."""
        return [step for step in self.waiting if all(need in self.values for need in step.needs)]

    def done(self, step: Step, value: object) -> None:
        """Keep a value for those who need it, and let go of those that nobody needs any more."""
        if self._users.get(step.key):
            self.values[step.key] = value
        for need in step.needs:
            self._users[need] -= 1
            if not self._users[need]:
                del self.values[need]


def run_plans(
    plans: Iterator[Plan],
    executor: Executor,
    on_plan: Callable[[Plan], None],
    on_step: Callable[[Plan, Step], None],
) -> Iterator[Plan | Finished]:
    """Do all stages of all plans; yields every plan once and every result as it is stored.

    An executor with workers has the next task planned while the last one is not finished, so that nobody idles.
    """
    active: list[Work] = []
    coming = next(plans, None)
    while coming is not None or active:
        while coming is not None and len(active) < executor.tasks_at_once:
            on_plan(coming)
            active.append(Work(coming))
            yield coming
            coming = next(plans, None) if len(active) < executor.tasks_at_once else None
        send_away(active, executor, on_step)
        here = next(((work, step) for work in active for step in work.ready()), None)
        if here is None:
            fetch(active, executor)
        else:
            work, step = here
            on_step(work.plan, step)
            work.waiting.remove(step)
            value = step.do(work.values)
            work.done(step, value)
            if step.kind == "score":
                yield Finished(work.plan, step, value)
        active = [work for work in active if not work.over]
        if coming is None and len(active) < executor.tasks_at_once:
            coming = next(plans, None)


def send_away(active: list[Work], executor: Executor, on_step: Callable[[Plan, Step], None]) -> None:
    """Begin on workers what they take."""
    for work in active:
        for step in work.ready():
            ticket = executor.take(step, work.plan, work.values)
            if ticket is not None:
                on_step(work.plan, step)
                work.waiting.remove(step)
                work.away[ticket] = step


def fetch(active: list[Work], executor: Executor) -> None:
    """Wait for the next stage that a worker finishes."""
    owners = {ticket: work for work in active for ticket in work.away}
    if owners:
        ticket, value = executor.wait(list(owners))
        owners[ticket].done(owners[ticket].away.pop(ticket), value)
