"""Rerankers written against our own protocol by somebody else: what goes wrong in one is a line that names it."""

from __future__ import annotations

from ..core import Run, Task
from ..core.objects import answering
from ..retrieve.guarded import checked_run, described
from .protocol import Reranker, Rest


class GuardedReranker:
    """Asks, and looks at the answer before anybody builds on it."""

    def __init__(self, model: Reranker) -> None:
        self.model = model
        self.name, self.kind = model.name, model.kind

    def describe(self) -> dict[str, object]:
        """What it says of itself."""
        return described(self.model, self.name)

    def rerank(self, task: Task, candidates: Run, depth: int = 100, *, rest: Rest = "keep") -> Run:
        """Reorder the first `depth` candidates of each query."""
        asked = f"the first {depth} candidates of {len(candidates)} queries of {task.full_name}"
        with answering(self.name, asked):
            found = self.model.rerank(task, candidates, depth, rest=rest)
        return checked_run(found, task, self.name, asked)
