"""Cross-encoders: a pair goes in, a score comes out. The loop that all backends share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..core import ModelError
from ..core.columns import Int64
from ..retrieve.encoders.batching import halving, plan
from .pairs import Float32, Pairs, Scored
from .tokens import PairIds, PairTokenizer

WINDOW = 8192
"""Pairs tokenized and sorted by length together; two windows are in memory at a time."""


class CrossEncoder(ABC):
    """What ONNX and torch share: tokens, batches of like length under a token budget, checks."""

    kind = "cross-encoder"
    keeps_scores = True

    def __init__(self, name: str, *, query_prefix: str = "", document_prefix: str = "") -> None:
        self.name = name
        self.notes: Counter[str] = Counter()
        self.query_prefix, self.document_prefix = query_prefix, document_prefix

    @property
    @abstractmethod
    def tokenizer(self) -> PairTokenizer:
        """Loaded on first use."""

    @abstractmethod
    def batching(self) -> tuple[int, int, int]:
        """Tokens of a batch, pairs of a batch, workers."""

    @abstractmethod
    def forward(self, batch: list[PairIds], worker: int) -> Float32:
        """One score per pair."""

    @abstractmethod
    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether a smaller batch may succeed where this one failed."""

    def stream(self, pairs: Pairs, family: str = "") -> Iterator[Scored]:
        """Score all pairs, a batch at a time; the next window is tokenized while this one is scored."""
        del family
        budget, most, workers = self.batching()
        order = np.lexsort((pairs.document, pairs.query))
        windows = [order[start : start + WINDOW] for start in range(0, len(order), WINDOW)]
        slots = list(range(workers))

        def work(job: tuple[Int64, list[PairIds]]) -> Scored:
            rows, batch = job
            worker = slots.pop()
            try:
                scores = halving(lambda part: self.forward(part, worker), batch, self)
            finally:
                slots.append(worker)
            return self._checked(rows, scores, batch, pairs)

        with ThreadPoolExecutor(workers) as pool, ThreadPoolExecutor(1) as ahead:
            try:
                upcoming = ahead.submit(self.tokenize, pairs.take(windows[0])) if windows else None
                for number, rows in enumerate(windows):
                    assert upcoming is not None
                    items = upcoming.result()
                    if number + 1 < len(windows):
                        upcoming = ahead.submit(self.tokenize, pairs.take(windows[number + 1]))
                    groups = plan([len(item) for item in items], budget, most)
                    yield from pool.map(work, [(rows[group], [items[i] for i in group]) for group in groups])
            finally:
                # A failure or an interrupt must not wait for a window of work that nobody will see.
                pool.shutdown(wait=True, cancel_futures=True)
                ahead.shutdown(wait=True, cancel_futures=True)

    def tokenize(self, pairs: Pairs) -> list[PairIds]:
        """Pairs as tokens; a text that occurs several times is read once."""
        tokenizer = self.tokenizer
        used_queries, query = np.unique(pairs.query, return_inverse=True)
        used_documents, document = np.unique(pairs.document, return_inverse=True)
        left = tokenizer.texts([self.query_prefix + pairs.queries[i] for i in used_queries.tolist()])
        right = tokenizer.texts([self.document_prefix + pairs.documents[i] for i in used_documents.tolist()])
        places = zip(query.reshape(-1).tolist(), document.reshape(-1).tolist(), strict=True)
        return [tokenizer.pair(left[q], right[d]) for q, d in places]

    def _checked(self, rows: Int64, scores: Float32, batch: list[PairIds], pairs: Pairs) -> Scored:
        if scores.shape != (len(rows),):
            raise ModelError(f"{self.name} returned an array of shape {scores.shape} for {len(rows)} pairs")
        bad = np.flatnonzero(~np.isfinite(scores))
        if len(bad):
            query, document = pairs.texts(rows[bad[:1]])[0]
            shown = f"{' '.join(query.split())[:40]!r} with {' '.join(document.split())[:40]!r}"
            raise ModelError(f"{self.name} returned a score that is not finite for {shown}")
        return Scored(rows, scores, np.array([item.cut for item in batch], dtype=np.int32).reshape(-1, 2))
