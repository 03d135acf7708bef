"""An executor with workers, and the models whose work they do.

A model behind a pool looks like the driver's own and hands everything on in shards. A shard is cut so that a worker
puts the same texts into the same batches as the driver alone would: a window of the order that the model works in. A
model that takes one text at a time does not care, and gets shards that are small enough to keep every worker busy to
the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.columns import Int64
from ..core.options import Options
from ..core.queries import Side
from ..core.spec import Spec
from ..rerank import Reranker
from ..rerank.pointwise import Pairs, PairScorer, Scored
from ..retrieve import Retriever
from ..retrieve.encoders import BaseEncoder, Batch, TermBatch, TokenBatch, WorkOrder
from ..retrieve.encoders.torch_models import DTYPES
from .run import Executor
from .workers import Component, Job, Pool, Workers

MOST_TEXTS = 256
SHARDS_PER_WORKER = 4
PORTABLE = ("trust_remote_code", "allow_pickle", "batch_tokens", "threads")
"""Options that go to workers; device, cache, budget and progress stay with the driver."""


class PoolExecutor(Executor):
    """Models encode and score on workers; the rest is the driver's, which alone writes results and caches.

    Models behind an API stay with the driver too: their keys are in its environment, and a network needs no cores.
    """

    def __init__(self, name: str, workers: Workers, tell: Callable[[str], None]) -> None:
        self.name = name
        self.pool = Pool(workers)
        self._tell = tell
        self._components: list[Retriever | Reranker] = []

    def __enter__(self) -> PoolExecutor:
        try:
            self.pool.workers.start()
        except BaseException:
            self.pool.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for component in self._components:
            component.distribute(None)
        self._components.clear()
        self.pool.close()
        if self.pool.deaths:
            lost = "1 worker was" if self.pool.deaths == 1 else f"{self.pool.deaths} workers were"
            self._tell(f"{lost} lost on the way; what was not finished was done by others.")

    def adopt(self, components: Iterable[Retriever | Reranker]) -> None:
        for component in components:
            component.distribute(self)
            self._components.append(component)

    def provenance(self) -> Mapping[str, object]:
        return {"executor": self.name, "workers": self.pool.workers.size}

    def encoder(self, encoder: Any, spec: Spec, options: Options) -> PooledEncoder:
        """An encoder that describes itself here and encodes there."""
        return PooledEncoder(encoder, _component("retriever", spec, options, encoder.describe("document")), self.pool)

    def scorer(self, scorer: PairScorer, spec: Spec, options: Options) -> PairScorer:
        """The same for what scores pairs."""
        return PooledScorer(scorer, _component("reranker", spec, options, scorer.describe()), self.pool)


def _component(kind: Any, spec: Spec, options: Options, described: Mapping[str, object]) -> Component:
    """A component for another machine: its own device, the driver's precision."""
    kept = Options(**{name: getattr(options, name) for name in PORTABLE})
    own = {key: value for key, value in spec.options.items() if key in PORTABLE}
    if described.get("dtype") in DTYPES and described.get("backend") == "transformers":
        spec = spec.with_parameters(dtype=str(described["dtype"]))
    return Component(kind, replace(spec, options=own), kept)


def shards(work: WorkOrder, workers: int) -> list[Int64]:
    """An order of work in shards: whole windows, or as small as suits the workers where any cut will do."""
    window = work.window
    if work.free:
        window = min(max(-(-len(work.order) // (SHARDS_PER_WORKER * max(workers, 1))), 1), MOST_TEXTS)
    return [work.order[begin : begin + window] for begin in range(0, len(work.order), window)]


class PooledEncoder(BaseEncoder):
    """An encoder that describes itself here and encodes elsewhere."""

    def __init__(self, encoder: Any, component: Component, pool: Pool) -> None:
        super().__init__()
        self.inner, self.component, self.pool = encoder, component, pool
        self.name, self.cacheable = encoder.name, getattr(encoder, "cacheable", True)

    def describe(self, side: Side) -> dict[str, object]:
        return dict(self.inner.describe(side))

    def max_length(self, side: Side) -> int | None:
        limit: int | None = self.inner.max_length(side)
        return limit

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        return self._away("stream", texts, side, instruction)

    def stream_terms(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[TermBatch]:
        return self._away("stream_terms", texts, side, instruction)

    def stream_states(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[TokenBatch]:
        return self._away("stream_states", texts, side, instruction)

    def _away(self, method: str, texts: Sequence[str], side: Side, instruction: str) -> Iterator[Any]:
        expected = self.describe(side)

        def job(rows: Int64) -> Job:
            some = [texts[i] for i in rows.tolist()]
            return Job(self.component, expected, (side,), method, (some, side, instruction))

        return _made_elsewhere(self, self.inner.work_order(texts), job)


class PooledScorer:
    """A cross-encoder that describes itself here and scores elsewhere."""

    distributable = False

    def __init__(self, scorer: PairScorer, component: Component, pool: Pool) -> None:
        self.inner, self.component, self.pool = scorer, component, pool
        self.name, self.kind, self.keeps_scores = scorer.name, scorer.kind, scorer.keeps_scores
        self.notes: Counter[str] = Counter()

    def describe(self) -> dict[str, object]:
        return self.inner.describe()

    def max_length(self) -> int | None:
        return self.inner.max_length()

    def work_order(self, pairs: Pairs) -> WorkOrder:
        return self.inner.work_order(pairs)

    def stream(self, pairs: Pairs, names: tuple[str, ...] = ()) -> Iterator[Scored]:
        expected = self.describe()

        def job(rows: Int64) -> Job:
            return Job(self.component, expected, (), "stream", (_alone(pairs.take(rows)), names))

        return _made_elsewhere(self, self.work_order(pairs), job)


def _made_elsewhere(model: PooledEncoder | PooledScorer, work: WorkOrder, job: Callable[[Int64], Job]) -> Iterator[Any]:
    """Batches of all rows, a shard at a time, as workers finish them."""
    dealt = shards(work, model.pool.workers.size)
    for number, done in model.pool.map(job(rows) for rows in dealt):
        model.notes += Counter(done.notes)
        for batch in done.batches:
            yield batch._replace(rows=dealt[number][batch.rows])


def _alone(pairs: Pairs) -> Pairs:
    """Pairs with the texts they need and no others."""
    queries, query = np.unique(pairs.query, return_inverse=True)
    documents, document = np.unique(pairs.document, return_inverse=True)
    return Pairs(
        [pairs.queries[i] for i in queries.tolist()],
        [pairs.documents[i] for i in documents.tolist()],
        query.reshape(-1).astype(np.int32),
        document.reshape(-1).astype(np.int32),
    )
