"""`oracle`: expand with the true answer. No system: the ceiling that a perfect inference gives each retriever."""

from __future__ import annotations

from ..core import Task, UsageError
from .protocol import FREE, Plan, Progress
from .values import MISSING, Expansion, Expansions


class Oracle:
    """The expander that reads the answer; its results are a bound, never a contender."""

    name = "oracle"
    method = "oracle"
    warning = "the oracle reads the true answer: its score is a ceiling, not a result"

    def describe(self) -> dict[str, object]:
        return {"method": self.method}

    def plan(self, task: Task, *, limit: int | None = None) -> Plan:
        return FREE

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        if not any(query.answer for query in task.queries):
            raise UsageError(f"{task.full_name} has no answers: there is no oracle for it")
        items = {
            q.id: Expansion(
                query_id=q.id,
                original=q.text,
                texts=(q.answer,) if q.answer else (),
                statuses=("ok" if q.answer else MISSING,),
            )
            for q in task.queries[:limit]
        }
        if on_progress:
            on_progress(len(items), len(items))
        return Expansions(self.method, self.describe(), items)
