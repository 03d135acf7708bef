"""Everything a task page tells, gathered."""

from __future__ import annotations

from typing import NamedTuple

from ...core import Task
from ..audit import Lure, SystemAudit, TaskAudit, Tendencies
from .figures import Contrast, TaskFigures
from .metadata import Metadata


class Tercile(NamedTuple):
    """A third of the queries, by the words they share with their positives, and each profile's nDCG@10 on it."""

    name: str
    queries: int
    low: float
    high: float
    ndcg_at_10: dict[str, float]


class Inspected(NamedTuple):
    """One task, looked at from all sides."""

    task: Task
    split: str
    figures: TaskFigures
    contrasts: list[Contrast]
    audit: TaskAudit
    audit_settings: dict[str, float | int | str]
    scores: list[SystemAudit]
    lures: list[Lure]
    tendencies: Tendencies
    terciles: list[Tercile]
    unsolved: int
    metadata: Metadata | None
