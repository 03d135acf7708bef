"""Models whose work is done by a pool: they look like the driver's own, and hand everything on in shards.

A shard is cut so that a worker puts the same texts into the same batches as the driver alone would: a window of the
order that the model works in. A model that takes one text at a time does not care, and gets shards that are small
enough to keep every worker busy to the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.columns import Int64
from ...core.options import Options
from ...core.queries import Side
from ...core.spec import Spec
from ...rerank.pairs import Pairs, PairScorer, Scored
from ...retrieve.encoders import BaseEncoder, Batch, Encoder
from ...retrieve.encoders.base import WorkOrder
from ...retrieve.encoders.devices import DTYPES
from .jobs import Component, EncodeJob, ScoreJob
from .pool import Pool

MOST_TEXTS = 256
SHARDS_PER_WORKER = 4
PORTABLE = ("trust_remote_code", "allow_pickle", "batch_tokens", "threads")
"""Options that go to workers; device, cache, budget and progress stay with the driver."""


def portable(spec: Spec, options: Options, described: dict[str, object]) -> tuple[Spec, Options]:
    """A spec for another machine: its own device, the driver's precision."""
    kept = Options(**{name: getattr(options, name) for name in PORTABLE})
    own = {key: value for key, value in spec.options.items() if key in PORTABLE}
    if described.get("dtype") in DTYPES and described.get("backend") == "transformers":
        spec = spec.with_parameters(dtype=str(described["dtype"]))
    return replace(spec, options=own), kept


class RemoteModels:
    """Puts the pool behind encoders and scorers."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def encoder(self, encoder: Encoder, spec: Spec, options: Options) -> Encoder:
        """An encoder that describes itself here and encodes there."""
        component = Component("retriever", *portable(spec, options, encoder.describe("document")))
        return PooledEncoder(encoder, component, self.pool)

    def scorer(self, scorer: PairScorer, spec: Spec, options: Options) -> PairScorer:
        """The same for what scores pairs."""
        return PooledScorer(scorer, Component("reranker", *portable(spec, options, scorer.describe())), self.pool)


def shards(work: WorkOrder, workers: int) -> list[Int64]:
    """An order of work in shards: whole windows, or as small as suits the workers where any cut will do."""
    window = work.window
    if work.free:
        window = min(max(-(-len(work.order) // (SHARDS_PER_WORKER * max(workers, 1))), 1), MOST_TEXTS)
    return [work.order[begin : begin + window] for begin in range(0, len(work.order), window)]


class PooledEncoder(BaseEncoder):
    """An encoder that describes itself here and encodes elsewhere."""

    def __init__(self, encoder: Encoder, component: Component, pool: Pool) -> None:
        super().__init__()
        self.inner, self.component, self.pool = encoder, component, pool
        self.name, self.cacheable = encoder.name, getattr(encoder, "cacheable", True)

    def describe(self, side: Side) -> dict[str, object]:
        """Everything besides text and instruction that changes a vector."""
        return self.inner.describe(side)

    def max_length(self, side: Side) -> int | None:
        """Where texts are cut, in tokens."""
        return self.inner.max_length(side)

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        """Encode all texts, a shard at a time."""
        dealt = shards(self.inner.work_order(texts), self.pool.workers.size)
        expected = self.describe(side)
        jobs = (
            EncodeJob(self.component, expected, side, instruction, [texts[i] for i in rows.tolist()]) for rows in dealt
        )
        for number, made in self.pool.map(jobs):
            self.notes += Counter(made.notes)
            yield Batch(dealt[number], made.vectors, made.tokens)


class PooledScorer:
    """A cross-encoder that describes itself here and scores elsewhere."""

    distributable = False

    def __init__(self, scorer: PairScorer, component: Component, pool: Pool) -> None:
        self.inner, self.component, self.pool = scorer, component, pool
        self.name, self.kind, self.keeps_scores = scorer.name, scorer.kind, scorer.keeps_scores
        self.notes: Counter[str] = Counter()

    def describe(self) -> dict[str, object]:
        """Everything besides the two texts that changes a score."""
        return self.inner.describe()

    def max_length(self) -> int | None:
        """Where pairs are cut, in tokens."""
        return self.inner.max_length()

    def work_order(self, pairs: Pairs) -> WorkOrder:
        """That of the scorer."""
        return self.inner.work_order(pairs)

    def stream(self, pairs: Pairs, family: str = "") -> Iterator[Scored]:
        """Score all pairs, a shard at a time."""
        dealt = shards(self.work_order(pairs), self.pool.workers.size)
        for number, made in self.pool.map(self._job(pairs.take(rows), family) for rows in dealt):
            self.notes += Counter(made.notes)
            yield Scored(dealt[number], made.scores, made.cut)

    def _job(self, pairs: Pairs, family: str) -> ScoreJob:
        queries, query = np.unique(pairs.query, return_inverse=True)
        documents, document = np.unique(pairs.document, return_inverse=True)
        given: dict[str, Any] = {
            "queries": [pairs.queries[i] for i in queries.tolist()],
            "documents": [pairs.documents[i] for i in documents.tolist()],
            "query": query.reshape(-1).astype(np.int32),
            "document": document.reshape(-1).astype(np.int32),
        }
        return ScoreJob(self.component, self.describe(), family, **given)
