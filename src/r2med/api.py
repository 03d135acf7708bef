"""The few calls of a notebook."""

from __future__ import annotations

from collections.abc import Iterable

from .core import Qrels, Run, Task
from .retrieve import Retriever, get_retriever
from .scoring import STANDARD, Evaluation, Measure, evaluate_run


def evaluate(
    system: Run | Retriever | str,
    task: Task | Qrels,
    *,
    measures: Iterable[Measure | str] = STANDARD,
    depth: int = 1000,
) -> Evaluation:
    """Score a run, or retrieve with a retriever (or the name of one) and score that."""
    chosen = [Measure.parse(m) if isinstance(m, str) else m for m in measures]
    if isinstance(system, Run):
        return evaluate_run(system, task.qrels if isinstance(task, Task) else task, chosen)
    if not isinstance(task, Task):
        raise TypeError("a retriever needs a task, not judgments alone")
    retriever = get_retriever(system) if isinstance(system, str) else system
    return evaluate_run(retriever.retrieve(task, depth=depth), task.qrels, chosen)
