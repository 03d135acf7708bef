"""Models whose work is done by a pool: they look like the driver's own, and hand everything on in shards.

A shard is cut so that a worker puts the same texts into the same batches as the driver alone would: a window of the
order that the encoder works in. A model that takes one text at a time does not care, and gets shards that are small
enough to keep every worker busy to the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...core.columns import Int64
from ...rerank import cross_encoder
from ...rerank.onnx_cross_encoder import OnnxCrossEncoder
from ...rerank.pairs import Pairs, PairScorer, Scored
from ...retrieve.encoders import custom
from ...retrieve.encoders.batching import WINDOW, text_lengths
from ...retrieve.encoders.custom import CustomEncoder
from ...retrieve.encoders.onnx import OnnxEncoder, find_onnx, scales_batches
from ...retrieve.encoders.protocol import BaseEncoder, Batch, Encoder, Side
from .jobs import EncodeJob, ScoreJob
from .pool import Pool
from .protocol import Recipe

MOST_TEXTS = 256
SHARDS_PER_WORKER = 4
CUSTOM_WINDOW = getattr(custom, "CHUNK", 1024)
PAIR_WINDOW: int = cross_encoder.WINDOW


def one_at_a_time(model: object) -> bool:
    """Whether a text's neighbours have no say in its vector or score, because it has none."""
    if isinstance(model, OnnxEncoder):
        return scales_batches(find_onnx(*model._source[:2]))
    return isinstance(model, OnnxCrossEncoder) and scales_batches(find_onnx(model.folder))


def cut(order: Int64, window: int, *, free: bool, workers: int) -> list[Int64]:
    """An order of work in shards: whole windows, or as small as suits the workers where that is `free`."""
    if free:
        window = min(max(-(-len(order) // (SHARDS_PER_WORKER * max(workers, 1))), 1), MOST_TEXTS)
    return [order[begin : begin + window] for begin in range(0, len(order), window)]


class PooledEncoder(BaseEncoder):
    """An encoder that describes itself here and encodes elsewhere."""

    def __init__(self, encoder: Encoder, recipe: Recipe, pool: Pool) -> None:
        super().__init__()
        self.inner, self.recipe, self.pool = encoder, recipe, pool
        self.name = encoder.name
        self._free: bool | None = None

    @property
    def cacheable(self) -> bool:
        """Whether its vectors are kept."""
        return bool(getattr(self.inner, "cacheable", True))

    def describe(self, side: Side) -> dict[str, object]:
        """Everything besides text and instruction that changes a vector."""
        return self.inner.describe(side)

    def max_length(self, side: Side) -> int | None:
        """Where texts are cut, in tokens."""
        return self.inner.max_length(side)

    def shards(self, texts: Sequence[str]) -> list[Int64]:
        """Positions of the texts of each shard, in the order they are encoded in."""
        if isinstance(self.inner, CustomEncoder):
            return cut(np.arange(len(texts)), CUSTOM_WINDOW, free=False, workers=1)
        if self._free is None:
            self._free = one_at_a_time(self.inner)
        order = np.argsort(-text_lengths(texts), kind="stable")
        return cut(order, WINDOW, free=self._free, workers=self.pool.workers.size)

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        """Encode all texts, a shard at a time."""
        shards = self.shards(texts)
        expected = self.describe(side)
        jobs = (
            EncodeJob(self.recipe, expected, side, instruction, [texts[i] for i in rows.tolist()]) for rows in shards
        )
        for number, made in self.pool.map(jobs):
            self.notes += Counter(made.notes)
            yield Batch(shards[number], made.vectors, made.tokens)


class PooledScorer:
    """A cross-encoder that describes itself here and scores elsewhere."""

    def __init__(self, scorer: PairScorer, recipe: Recipe, pool: Pool) -> None:
        self.inner, self.recipe, self.pool = scorer, recipe, pool
        self.name, self.kind, self.keeps_scores = scorer.name, scorer.kind, scorer.keeps_scores
        self.notes: Counter[str] = Counter()

    def describe(self) -> dict[str, object]:
        """Everything besides the two texts that changes a score."""
        return self.inner.describe()

    def max_length(self) -> int | None:
        """Where pairs are cut, in tokens."""
        return self.inner.max_length()

    def stream(self, pairs: Pairs, family: str = "") -> Iterator[Scored]:
        """Score all pairs, a shard at a time."""
        order = np.lexsort((pairs.document, pairs.query))
        free = one_at_a_time(self.inner)
        shards = cut(order, PAIR_WINDOW, free=free, workers=self.pool.workers.size)
        for number, made in self.pool.map(self._job(pairs.take(rows), family) for rows in shards):
            self.notes += Counter(made.notes)
            yield Scored(shards[number], made.scores, made.cut)

    def _job(self, pairs: Pairs, family: str) -> ScoreJob:
        queries, query = np.unique(pairs.query, return_inverse=True)
        documents, document = np.unique(pairs.document, return_inverse=True)
        given: dict[str, Any] = {
            "queries": [pairs.queries[i] for i in queries.tolist()],
            "documents": [pairs.documents[i] for i in documents.tolist()],
            "query": query.reshape(-1).astype(np.int32),
            "document": document.reshape(-1).astype(np.int32),
        }
        return ScoreJob(self.recipe, self.describe(), family, **given)
