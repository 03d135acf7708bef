"""A part of a task, for looking at a reranker before hours are spent on it."""

from __future__ import annotations

from dataclasses import replace

from ..core import Qrels, Task, UsageError


def first_queries(task: Task, count: int) -> Task:
    """The same documents with only the first queries and their judgments."""
    if count < 1:
        raise UsageError(f"a task needs at least one query, not {count}")
    kept = task.queries[:count]
    ids = {query.id for query in kept}
    return replace(task, queries=kept, qrels=Qrels.from_judgments(j for j in task.qrels if j.query_id in ids))
