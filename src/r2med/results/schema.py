"""What a result file holds."""

from __future__ import annotations

import msgspec

SCHEMA = 1


class SystemInfo(msgspec.Struct, kw_only=True):
    """The system that was run."""

    name: str
    kind: str
    description: dict[str, object]


class TaskInfo(msgspec.Struct, kw_only=True):
    """The task it was run on."""

    name: str
    collection: str
    family: str
    source: str
    revision: str
    fingerprint: str
    queries: int
    documents: int
    judgments: int

    @property
    def full_name(self) -> str:
        """How the task is called in tables."""
        return f"{self.collection}/{self.name}" if self.collection else self.name


class TaskResult(msgspec.Struct, kw_only=True):
    """One system on one task: `<task>.json`."""

    schema: int
    fingerprint: str
    system: SystemInfo
    task: TaskInfo
    measures: dict[str, float]
    depth: int
    missing_queries: int
    queries_without_positives: int
    seconds: dict[str, float]
    notes: dict[str, object] = {}
    environment: dict[str, object] = {}


class QueryScores(msgspec.Struct, kw_only=True):
    """One line of `<task>.queries.jsonl`."""

    query_id: str
    measures: dict[str, float]
