"""Pairs of a query and a document, and what scores them one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..core.columns import Int32, Int64
from ..retrieve.encoders.base import WorkOrder

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Pairs:
    """Pairs as positions in two lists of texts."""

    queries: Sequence[str]
    documents: Sequence[str]
    query: Int32
    document: Int32

    def __len__(self) -> int:
        return len(self.query)

    def take(self, rows: Int64) -> Pairs:
        """Some of the pairs."""
        return replace(self, query=self.query[rows], document=self.document[rows])

    def texts(self, rows: Int64) -> list[tuple[str, str]]:
        """Both texts of some pairs."""
        return [
            (self.queries[q], self.documents[d])
            for q, d in zip(self.query[rows].tolist(), self.document[rows].tolist(), strict=True)
        ]


class Scored(NamedTuple):
    """Scores of some pairs, in whatever order the scorer found fastest."""

    rows: Int64
    """Positions among the pairs."""
    scores: Float32
    """NaN where the scorer could not tell."""
    cut: Int32
    """How many tokens of the document and of the query were cut off, pairs × 2; -1 where the scorer cannot say."""


class PairScorer(Protocol):
    """A model that scores pairs."""

    name: str
    kind: str
    notes: Counter[str]
    """What went wrong and was repaired on the way, counted."""
    keeps_scores: bool
    """Whether scores go into the cache: not where they are cheaper to make than to find."""
    distributable: bool
    """Whether a worker can hold the model that scores."""

    def describe(self) -> dict[str, object]:
        """Everything besides the two texts that changes a score, as plain data: the cache key."""
        ...

    def max_length(self) -> int | None:
        """Where pairs are cut, in tokens; None if the backend cannot say."""
        ...

    def work_order(self, pairs: Pairs) -> WorkOrder:
        """How pairs are dealt out to workers."""
        ...

    def stream(self, pairs: Pairs, names: tuple[str, ...] = ()) -> Iterator[Scored]:
        """Score all pairs, some at a time, so that finished ones can be kept when a later one fails."""
        ...


def by_query(pairs: Pairs, window: int, *, free: bool = False) -> WorkOrder:
    """Pairs in the order of their queries, so that a query is read once."""
    return WorkOrder(np.lexsort((pairs.document, pairs.query)), window, free)


def not_cut(count: int) -> Int32:
    """For scorers that cannot say what they cut."""
    return np.full((count, 2), -1, dtype=np.int32)
