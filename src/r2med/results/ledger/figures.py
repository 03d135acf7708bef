"""A published figure: one system on one collection, and who says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

Kind = Literal["retriever", "fused", "reranker", "expansion"]
MICRO = "recall_micro"  # counts positive judgments rather than queries, so its average does too


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where figures come from, and all that they share."""

    id: str
    title: str
    url: str
    date: str
    # When published, or when read where the place changes: YYYY-MM.
    protocol: str
    # Name of the protocol they were made under.
    collection: str
    measured: bool
    # Whether r2med made them; False for everything that others published.
    scale: Literal[1, 100]
    # The highest possible score, as the file writes it.
    tolerance: float = 0.3
    # How far, in points of 100, a faithful repetition may be off.
    tasks: tuple[str, ...] = ()
    queries: tuple[int, ...] = ()
    positives: tuple[int, ...] = ()
    # Positive judgments of each task.
    fingerprints: tuple[str, ...] = ()
    # Of the tasks' data, where the figures hold for exactly these texts.
    note: str = ""


class Figure(NamedTuple):
    """One system of one source. All values are in 0–1."""

    system: str
    label: str
    kind: Kind
    source: Source
    per_task: Mapping[str, Mapping[str, float]]
    # Measure → task → value.
    average: Mapping[str, float]
    # Measure → mean over tasks where only that was published.

    @property
    def collection(self) -> str:
        """The collection it was measured on."""
        return self.source.collection

    @property
    def protocol(self) -> str:
        """The protocol it was measured under."""
        return self.source.protocol

    @property
    def average_only(self) -> bool:
        """No figures of single tasks were published."""
        return not self.per_task

    def tasks(self, measure: str) -> Mapping[str, float]:
        """Values of each task; empty where none were published."""
        return self.per_task.get(measure, {})

    def macro(self, measure: str) -> float | None:
        """Mean over the tasks, computed where the tasks are known; None where the measure was not published."""
        values = self.tasks(measure)
        return sum(values.values()) / len(values) if values else self.average.get(measure)

    def by_query(self, measure: str) -> float | None:
        """Mean over queries (over positives for micro recall); None where counts or tasks are unknown."""
        values, counts = self.tasks(measure), self._counts(measure)
        if not values or len(counts) != len(values):
            return None
        return sum(n * v for n, v in zip(counts, values.values(), strict=True)) / sum(counts)

    def _counts(self, measure: str) -> Sequence[int]:
        return self.source.positives if measure.startswith(MICRO) else self.source.queries
