"""What every retriever is."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..core import Run, Task


@runtime_checkable
class Retriever(Protocol):
    """Ranks the documents of a task.

    `name` is what a user types and results are filed under; `kind` is one of lexical, dense, sparse, late-interaction,
    stored, custom. What happened on the way (truncation, cache hits, tokens) goes into the run's `notes`.
    """

    name: str
    kind: str

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings, as plain data: part of the result's fingerprint."""
        ...

    def retrieve(self, task: Task, *, depth: int = 1000) -> Run:
        """The best `depth` documents of each query."""
        ...
