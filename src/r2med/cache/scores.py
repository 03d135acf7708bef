"""Scores of pairs in the cache: finding stored ones, storing new ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from ..core.columns import Int32, Int64
from .shards import Float32, Keys, ShardSet
from .vectors import CachedRows

FLUSH_SECONDS = 10.0
Scored = TypeVar("Scored", bound=tuple[Int64, Float32, Int32])
"""Positions of some pairs, their scores (NaN: no opinion), and the tokens cut off document and query."""


def find_scores(shards: ShardSet, keys: Keys) -> tuple[Float32, Int32, Int64]:
    """Scores and cut tokens of stored pairs, and the positions of pairs that are not stored."""
    found = shards.find(keys)
    known = np.flatnonzero(found.row >= 0)
    scores = np.full(len(keys), np.nan, dtype=np.float32)
    cut = np.full((len(keys), 2), -1, dtype=np.int32)
    if len(known):
        rows = CachedRows(shards, found).take(known)
        scores[known], cut[known] = rows[:, 0], rows[:, 1:].astype(np.int32)
    return scores, cut, np.flatnonzero(found.row < 0)


def store_scores(shards: ShardSet, keys: Keys, stream: Iterator[Scored]) -> Iterator[Scored]:
    """Pass scores on and store them every few seconds, also when the stream breaks; NaN (no opinion) is not stored."""
    group: list[Scored] = []
    since = time.monotonic()

    def flush() -> None:
        rows, scores, cut = (np.concatenate([scored[i] for scored in group]) for i in range(3))
        group.clear()
        kept = ~np.isnan(scores)
        if kept.any():
            values = np.column_stack((scores[kept], cut[kept])).astype(np.float32)
            shards.append(keys[rows[kept]], np.full(int(kept.sum()), -1, dtype=np.int32), values)

    try:
        for scored in stream:
            group.append(scored)
            yield scored
            if time.monotonic() - since > FLUSH_SECONDS:
                flush()
                since = time.monotonic()
    finally:
        if group:
            flush()
