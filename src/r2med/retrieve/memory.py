"""How much of a search is held at once.

Document vectors are read from mapped shards, block by block: those pages are the system's to drop and count for
nothing here. What a search needs of its own are scores, running rankings and the rows it looks at twice; a
`MemoryPlan` cuts these to a number of bytes. Its sizes change no bit of a result.
"""

from __future__ import annotations

from typing import NamedTuple

from ..core import UsageError
from ..core.parameters import show_size
from .sparse import available_cores

DOCUMENT_BLOCK = 4096
CELLS = 8 << 20
"""Scores held at once: 32 MB."""
QUERIES_AT_ONCE = 2048
FEWEST_QUERIES = 8
PER_CANDIDATE = 80
"""Bytes that merging and exact scores take for each candidate of each query under way."""


class MemoryPlan(NamedTuple):
    """What a search holds at once."""

    queries: int = QUERIES_AT_ONCE
    cells: int = CELLS
    """Scores."""
    piece: int = DOCUMENT_BLOCK
    """Rows that are made ready (gathered, scaled) in one go."""
    gather: int | None = None
    """Rows that each thread looks at twice in one go; None: all of a query's."""

    @classmethod
    def within(cls, memory: int | None, queries: int, dimension: int, depth: int) -> MemoryPlan:
        """The plan in `memory` bytes for a search of so many queries to a depth; None: what is fastest."""
        if memory is None:
            return cls()
        fixed = queries * (16 * depth + 4 * dimension) + 4 * dimension * DOCUMENT_BLOCK
        per_query = 8 * DOCUMENT_BLOCK + PER_CANDIDATE * depth + 8 * dimension
        least = fixed + 4 * FEWEST_QUERIES * per_query
        if memory < least:
            raise UsageError(
                f"searching {queries} queries to depth {depth} in vectors of {dimension} dimensions takes "
                f"{show_size(least)} of memory at least; {memory:,} bytes are too few"
            )
        free = memory - fixed
        at_once = min(max(free // 2 // per_query, FEWEST_QUERIES), QUERIES_AT_ONCE)
        row = 12 * max(dimension, 1)
        return cls(
            queries=at_once,
            cells=max(min(free // 8 // 4, CELLS), at_once * DOCUMENT_BLOCK),
            piece=min(max(free // 8 // row, 16), DOCUMENT_BLOCK),
            gather=max(free // 8 // row // available_cores(), 8),
        )
