"""The score cache: scores by the content of both texts, in sets named by everything else that shapes them.

It has the embedding cache's files under `R2MED_HOME/rerank`: append-only shards, whole or not at all, checked byte by
byte when opened. A "vector" here is the score and how many tokens of document and query were cut.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from ..core.columns import Int32, Int64
from ..core.places import home
from .shards import Float32, Keys
from .vectors import KEY_BYTES, CachedRows, EmbeddingCache, Found, ShardSet, text_keys

FLUSH_SECONDS = 10.0


class TextPairs(Protocol):
    """Pairs as positions in two lists of texts."""

    @property
    def queries(self) -> Sequence[str]: ...
    @property
    def documents(self) -> Sequence[str]: ...
    @property
    def query(self) -> Int32: ...
    @property
    def document(self) -> Int32: ...


class ScoredPairs(Protocol):
    """Scores of some pairs."""

    @property
    def rows(self) -> Int64:
        """Positions among the pairs."""
        ...

    @property
    def scores(self) -> Float32:
        """NaN where the scorer could not tell."""
        ...

    @property
    def cut(self) -> Int32:
        """How many tokens of the document and of the query were cut off, pairs × 2."""
        ...


Scored = TypeVar("Scored", bound=ScoredPairs)


class ScoreCache:
    """All sets under one folder."""

    def __init__(self, root: Path | None = None) -> None:
        self._cache = EmbeddingCache(root if root is not None else home() / "rerank")

    def open(self, facts: dict[str, object], max_length: int | None, family: str = "", *, label: str = "") -> ShardSet:
        """The scores of one scorer; the family of tasks is part of the key where instructions depend on it."""
        return self._cache.open({**facts, "family": family}, max_length, label=label)


def pair_keys(pairs: TextPairs) -> Keys:
    """One 128-bit hash per pair, out of those of its texts."""
    used_queries, query = np.unique(pairs.query, return_inverse=True)
    used_documents, document = np.unique(pairs.document, return_inverse=True)
    left = text_keys([pairs.queries[i] for i in used_queries.tolist()])[query.reshape(-1)]
    right = text_keys([pairs.documents[i] for i in used_documents.tolist()])[document.reshape(-1)]
    both = np.ascontiguousarray(np.concatenate((left, right), axis=1)).tobytes()
    step = 2 * KEY_BYTES
    digests = b"".join(
        hashlib.blake2b(both[i : i + step], digest_size=KEY_BYTES).digest() for i in range(0, len(both), step)
    )
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2)


def lookup(shards: ShardSet, keys: Keys) -> tuple[Float32, Int32, Int64]:
    """Scores and cut tokens of what is known, and the positions of what is not."""
    found = shards.find(keys)
    known = np.flatnonzero(found.row >= 0)
    scores = np.full(len(keys), np.nan, dtype=np.float32)
    cut = np.full((len(keys), 2), -1, dtype=np.int32)
    if len(known):
        rows = CachedRows(shards, Found(found.shard[known], found.row[known])).take(np.arange(len(known)))
        scores[known], cut[known] = rows[:, 0], rows[:, 1:].astype(np.int32)
    return scores, cut, np.flatnonzero(found.row < 0)


def keeping(shards: ShardSet, keys: Keys, stream: Iterator[Scored]) -> Iterator[Scored]:
    """Pass scores on and put them on disk every few seconds, also when the stream breaks; no opinion is not kept."""
    group: list[Scored] = []
    since = time.monotonic()

    def flush() -> None:
        rows = np.concatenate([s.rows for s in group])
        scores, cut = np.concatenate([s.scores for s in group]), np.concatenate([s.cut for s in group])
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
