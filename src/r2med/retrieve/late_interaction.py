"""Late interaction: a query's score is the sum, over its tokens, of the best match among the document's tokens.

Exact and over the whole corpus: documents are encoded a batch at a time, compared with all queries at once and
forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from ..cache import text_keys
from ..core import Run, Task
from ..core.columns import Int32, Int64
from ..core.options import Options
from ..core.queries import Queries, QueryText, Side
from ..core.spec import Spec
from ..core.typed import Explanation, Share, largest_first
from ..models import Card
from .cards import ModelParameters, card_of, instructed, instructed_for, prefix_for
from .contract import Build, Remote, Retriever, check_depth
from .encoders import Float32, model_folder
from .encoders.base import TokenBatch
from .encoders.token_states import TokenEncoder, token_encoder
from .rows import unit
from .sparse import top_k
from .truncation import positives_cut, truncation_note

QUERY_TOKENS = 4096
"""Query tokens compared at once: with a batch of documents, some 50 MB of similarities."""

EXPLAINED = "A sum over the query's tokens: the cosine of each with the token of the document that is most like it."


def maxsim(queries: list[Float32], documents: list[Float32]) -> Float32:
    """MaxSim of every query with every document; each is a matrix of token vectors with at least one row.

    In float64: the last bits of a float32 product depend on what else is multiplied at once.
    """
    sizes = np.array([len(d) for d in documents])
    tokens = np.concatenate(documents).astype(np.float64)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    scores = np.empty((len(queries), len(documents)), dtype=np.float32)
    for first, last in _spans([len(q) for q in queries], QUERY_TOKENS):
        with np.errstate(all="ignore"):  # BLAS may raise flags over finite numbers
            similarities = np.concatenate(queries[first:last]).astype(np.float64) @ tokens.T
        best = np.maximum.reduceat(similarities, starts, axis=1)
        bounds = np.concatenate(([0], np.cumsum([len(q) for q in queries[first:last]])[:-1]))
        scores[first:last] = np.add.reduceat(best, bounds, axis=0)
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


def token_shares(query: Float32, names: list[str], document: Float32, tokens: list[str], weight: float) -> list[Share]:
    """What each token of a query adds to its MaxSim with a document, and the token of the document that it met."""
    with np.errstate(all="ignore"):
        similarities = query @ document.T
    best = similarities.argmax(axis=1).tolist()
    return [
        Share(name, weight * float(similarities[row, place]), match=tokens[place])
        for row, (name, place) in enumerate(zip(names, best, strict=True))
    ]


class MaxSimRetriever(Retriever):
    """ColBERT-style retrieval with any model that gives a vector per token."""

    kind = "late-interaction"
    prepares = "encode documents"

    def __init__(self, card: Card, spec: Spec, encoder: TokenEncoder, options: Options) -> None:
        self.card, self.spec, self.encoder, self.options = card, spec, encoder, options
        self._own_encoder = encoder

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> MaxSimRetriever:
        """The retriever of a model card."""
        given, options = spec.values(ModelParameters), build.options.changed(spec.options)
        card = given.changed(card_of(spec))
        return cls(card, spec, token_encoder(card, model_folder(card), options, dtype=given.precision(card)), options)

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {
            "kind": self.kind,
            "query": self.encoder.describe("query"),
            "document": self.encoder.describe("document"),
            **instructed(self.spec, self.card),
        }

    def task_facts(self, task: Task) -> dict[str, object]:
        """What the model is told before the texts of this task, where a prompt pack says it."""
        return instructed_for(self.spec, self.card, task)

    def distribute(self, remote: Remote | None) -> None:
        """Let workers encode."""
        own = self._own_encoder
        self.encoder = own if remote is None else remote.encoder(own, self.spec, self.options)

    def prepare(self, task: Task) -> MaxSimIndex:
        """Nothing is kept: token vectors of a passage take as much room as two hundred passages' own."""
        return MaxSimIndex(self, task)


class MaxSimIndex:
    """The documents of a task, encoded and forgotten a batch at a time, or held where the options give room."""

    def __init__(self, retriever: MaxSimRetriever, task: Task) -> None:
        self.retriever, self.task, self.encoder = retriever, task, retriever.encoder
        self._held: list[TokenBatch] | None = None

    @property
    def nbytes(self) -> int:
        """Memory that its vectors take."""
        return sum(states.nbytes for batch in self._held or () for states in batch.states)

    def _prefix(self, side: Side) -> str:
        return prefix_for(self.retriever.card, side, self.task)

    def _ready(self, states: Float32) -> Float32:
        return unit(states) if self.retriever.card.normalize else states

    def search(self, queries: Queries, depth: int) -> Run:
        """The best `depth` documents of each query; a query of several texts scores the weighted mean of theirs."""
        check_depth(depth)
        begin = time.perf_counter()
        groups, ids = queries.texts, self.task.documents.ids
        states, lengths = self._states([part.text for group in groups for part in group])
        scores, tokens = self._score(states)
        if not queries.plain:
            scores = _mean_scores(scores, groups)
        limit = self.encoder.max_length("document")
        top = top_k(scores, ids.tie_rank, min(depth, len(ids)))
        notes: dict[str, object] = {
            "truncation": {
                "query": truncation_note(lengths, self.retriever.card.length("query")),
                "document": {**truncation_note(tokens, limit), **positives_cut(self.task, tokens, limit)},
            },
            "seconds": {"encode": round(time.perf_counter() - begin, 4)},
        }
        return Run(queries.ids, ids, *top, name=self.retriever.name, notes=notes)

    def _states(self, texts: Sequence[str]) -> tuple[list[Float32], Int32]:
        """Token vectors of queries, and how many tokens each has."""
        states: dict[int, Float32] = {}
        tokens = np.empty(len(texts), dtype=np.int32)
        for batch in self.encoder.stream_states(texts, "query", self._prefix("query")):
            states |= dict(zip(batch.rows.tolist(), map(self._ready, batch.states), strict=True))
            tokens[batch.rows] = batch.tokens
        return [states[row] for row in range(len(texts))], tokens

    def explain(self, queries: Queries, documents: Sequence[int]) -> list[Explanation]:
        """What each token of the query adds, and which token of the document it met."""
        group, contents = queries.texts[0], self.task.documents.contents
        texts, passages = [part.text for part in group], [contents[document] for document in documents]
        states, _ = self._states(texts)
        tokens = self.encoder.token_names(passages, "document", self._prefix("document"))
        weights = [part.weight / sum(p.weight for p in group) for part in group]
        asked = list(zip(states, self.encoder.token_names(texts, "query", self._prefix("query")), weights, strict=True))
        found = []
        for vectors, named in zip(self._vectors(documents, passages), tokens, strict=True):
            shares = [
                share for own, names, weight in asked for share in token_shares(own, names, vectors, named, weight)
            ]
            found.append(Explanation(EXPLAINED, largest_first(shares)))
        return found

    def _vectors(self, documents: Sequence[int], passages: list[str]) -> list[Float32]:
        """Token vectors of some documents."""
        if self._held is not None:
            by_row = {row: states for b in self._held for row, states in zip(b.rows.tolist(), b.states, strict=True)}
            return [by_row[int(self._distinct[1][document])] for document in documents]
        made: dict[int, Float32] = {}
        for batch in self.encoder.stream_states(passages, "document", self._prefix("document")):
            made |= dict(zip(batch.rows.tolist(), map(self._ready, batch.states), strict=True))
        return [made[row] for row in range(len(passages))]

    @cached_property
    def _distinct(self) -> tuple[Int64, Int64]:
        """The first document with each text, and for every document which of these it is."""
        _, first, inverse = np.unique(
            text_keys(self.task.documents.contents), axis=0, return_index=True, return_inverse=True
        )
        return first, inverse.reshape(-1)

    def _documents(self) -> Iterator[TokenBatch]:
        """Token vectors of all distinct texts; they are held for the next search if all of them find room."""
        if self._held is not None:
            yield from self._held
            return
        held, room = list[TokenBatch](), self.retriever.options.token_memory
        texts = self.task.documents.contents.take(self._distinct[0].tolist())
        for batch in self.encoder.stream_states(texts, "document", self._prefix("document")):
            ready = batch._replace(states=[self._ready(states) for states in batch.states])
            room -= sum(states.nbytes for states in ready.states)
            if room >= 0:
                held.append(ready)
            else:
                held.clear()
            yield ready
        self._held = held if room >= 0 else None

    def _score(self, queries: list[Float32]) -> tuple[Float32, Int32]:
        """Scores of all pairs; equal texts are scored once, so that they tie."""
        first, back = self._distinct
        scores = np.empty((len(queries), len(first)), dtype=np.float32)
        tokens = np.empty(len(first), dtype=np.int32)
        done = 0
        for batch in self._documents():
            if queries:
                scores[:, batch.rows] = maxsim(queries, batch.states)
            tokens[batch.rows] = batch.tokens
            done += len(batch.rows)
            self.retriever.options.progress(done, len(first))
        return np.ascontiguousarray(scores[:, back]), tokens[back]


def _mean_scores(scores: Float32, groups: Sequence[tuple[QueryText, ...]]) -> Float32:
    starts = np.concatenate(([0], np.cumsum([len(group) for group in groups])[:-1]))
    shares = np.array([part.weight / sum(p.weight for p in group) for group in groups for part in group])
    return np.add.reduceat(scores * shares[:, None], starts, axis=0).astype(np.float32)
