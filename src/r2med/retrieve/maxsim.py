"""Late interaction: a query's score is the sum, over its tokens, of the best match among the document's tokens.

Exact and over the whole corpus: documents are encoded a batch at a time, compared with all queries at once and
forgotten. Token vectors are not cached: those of a passage take as much room as two hundred passages' own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from ..cache import text_keys
from ..core import Run, Task, UsageError
from ..core.columns import Int32
from ..models import Card
from .embed import Progress
from .encoders.load import make_options, model_folder
from .encoders.protocol import Float32, Side
from .encoders.token_states import TextStates, TokenEncoder, token_encoder
from .rows import unit
from .sparse import top_k
from .truncation import positives_cut, truncation_note

QUERY_TOKENS = 8192
"""Query tokens compared at once: with a batch of documents, some 50 MB of similarities."""


class Scorer(Protocol):
    """Anything that scores documents against queries token by token."""

    def __call__(self, queries: list[Float32], documents: list[Float32]) -> Float32:
        """Scores, queries × documents."""
        ...


def maxsim(queries: list[Float32], documents: list[Float32]) -> Float32:
    """MaxSim of every query with every document; each is a matrix of token vectors with at least one row."""
    sizes = np.array([len(d) for d in documents])
    tokens = np.concatenate(documents)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    scores = np.empty((len(queries), len(documents)), dtype=np.float32)
    for first, last in _spans([len(q) for q in queries], QUERY_TOKENS):
        with np.errstate(all="ignore"):  # BLAS may raise flags over finite numbers
            similarities = np.concatenate(queries[first:last]) @ tokens.T
        best = np.maximum.reduceat(similarities, starts, axis=1)
        bounds = np.concatenate(([0], np.cumsum([len(q) for q in queries[first:last]])[:-1]))
        scores[first:last] = np.add.reduceat(best.astype(np.float64), bounds, axis=0)
    return scores


def _spans(sizes: list[int], most: int) -> list[tuple[int, int]]:
    """Runs of neighbours whose sizes add up to `most` at most, one at least."""
    spans, first, total = [], 0, 0
    for i, size in enumerate(sizes):
        if i > first and total + size > most:
            spans.append((first, i))
            first, total = i, 0
        total += size
    return [*spans, (first, len(sizes))] if sizes else []


class MaxSimRetriever:
    """ColBERT-style retrieval with any model that gives a vector per token."""

    kind = "late-interaction"

    def __init__(
        self,
        card: Card,
        *,
        name: str = "",
        folder: Path | None = None,
        encoder: TokenEncoder | None = None,
        on_progress: Progress | None = None,
        **options: object,
    ) -> None:
        made = make_options(**options)
        if made.max_length is not None:
            card = card.replace(query_length=made.max_length, document_length=made.max_length)
        self.card = card
        self.name = name or card.name
        self.encoder = encoder or token_encoder(card, model_folder(card, folder), made)
        self.on_progress = on_progress

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {
            "kind": self.kind,
            "query": self.encoder.describe("query"),
            "document": self.encoder.describe("document"),
            "instructions": self.card.describe().get("instructions", {}),
        }

    def _states(self, texts: Sequence[str], side: Side, family: str) -> list[TextStates]:
        prefix = self.card.prefix(side, self.card.instruction(side, family))
        made: list[TextStates | None] = [None] * len(texts)
        for batch in self.encoder.stream_states(texts, side, prefix):
            for item in batch:
                made[item.row] = item
        return [m for m in made if m is not None]

    def retrieve(self, task: Task, *, depth: int = 1000) -> Run:
        """The best `depth` documents of each query."""
        if depth < 1:
            raise UsageError(f"depth must be 1 or more, not {depth}")
        begin = time.perf_counter()
        queries = self._states(task.query_texts, "query", task.family)
        vectors = [self._ready(q.states) for q in queries]
        scores, tokens = self._score(vectors, task)
        limit = self.encoder.max_length("document")
        ids = task.documents.ids
        top = top_k(scores, ids.tie_rank, min(depth, len(ids)))
        notes: dict[str, object] = {
            "truncation": {
                "query": truncation_note(np.array([q.tokens for q in queries], np.int32), self.card.length("query")),
                "document": {**truncation_note(tokens, limit), **positives_cut(task, tokens, limit)},
            },
            "seconds": {"encode": round(time.perf_counter() - begin, 4)},
        }
        return Run(task.query_ids, ids, *top, name=self.name, notes=notes)

    def _ready(self, states: Float32) -> Float32:
        return unit(states) if self.card.normalize else states

    def _score(self, queries: list[Float32], task: Task) -> tuple[Float32, Int32]:
        """Scores of all pairs; equal texts are scored once, so that they tie."""
        texts = task.documents.contents
        keys = text_keys(texts)
        _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        scores = np.empty((len(queries), len(first)), dtype=np.float32)
        tokens = np.empty(len(first), dtype=np.int32)
        prefix = self.card.prefix("document", self.card.instruction("document", task.family))
        done = 0
        for batch in self.encoder.stream_states(texts.take(first.tolist()), "document", prefix):
            rows = np.array([item.row for item in batch])
            if queries:
                scores[:, rows] = maxsim(queries, [self._ready(item.states) for item in batch])
            tokens[rows] = [item.tokens for item in batch]
            done += len(batch)
            if self.on_progress is not None:
                self.on_progress(done, len(first))
        back = inverse.reshape(-1)
        return np.ascontiguousarray(scores[:, back]), tokens[back]
