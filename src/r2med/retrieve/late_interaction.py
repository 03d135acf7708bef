"""Late interaction (ColBERT): a vector for each token, and exact MaxSim over the whole corpus.

The vectors of the documents' tokens are the index: they lie in the cache of vectors, by the content of their texts,
and are read from mapped files.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from msgspec import Meta

from ..cache import EmbeddingCache, Int16
from ..core import Run, Task
from ..core.columns import Int32
from ..core.options import Options
from ..core.queries import Explanation, Queries, QueryText, Side, largest_first
from ..core.spec import Spec
from ..models import Card
from ..models.prompts import names_of
from .cards import ModelParameters, ModelRetriever, card_of
from .contract import Build, Work, check_depth, check_queries
from .embed import EmbeddedTokens, embed_tokens, remaining_work, token_identity
from .encoders import Float32, TokenEncoder, model_folder, token_encoder, truncation
from .maxsim import EXPLAINED, STORED, fixed_point, maxsim, token_shares
from .sparse import TopK, shares, top_k
from .vectors import CELLS


@dataclass(frozen=True)
class InteractionParameters(ModelParameters):
    """What may be set on a model of late interaction."""

    query_length: Annotated[int, Meta(ge=2, description="tokens that a query keeps or is filled up to")] | None = None

    def changed(self, card: Card) -> Card:
        """The card as these parameters set it."""
        card = super().changed(card)
        return card if self.query_length is None else card.replace(query_length=self.query_length)


class MaxSimRetriever(ModelRetriever):
    """ColBERT-style retrieval with any model that gives a vector per token."""

    kind = "late-interaction"
    encoder: TokenEncoder

    def __init__(
        self,
        card: Card,
        spec: Spec,
        encoder: TokenEncoder,
        options: Options,
        *,
        cache: EmbeddingCache | None = None,
    ) -> None:
        super().__init__(card, spec, encoder, options)
        self._cache = cache

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> MaxSimRetriever:
        """The retriever of a model card."""
        given, options = spec.values(InteractionParameters), build.options.changed(spec.options)
        card = given.changed(card_of(spec))
        encoder = token_encoder(card, model_folder(card), options, dtype=given.precision(card))
        return cls(card, spec, encoder, options)

    @cached_property
    def cache(self) -> EmbeddingCache | None:
        """Where vectors are kept; None: nowhere."""
        return (self._cache or EmbeddingCache()) if self.options.cache else None

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {**super().describe(), "stored": STORED}

    def estimate(self, task: Task, side: Side) -> Work:
        """What one side of a task has left to encode; queries are encoded each time."""
        prefix = self.instruction(side, *names_of(task))
        if side == "query":
            return remaining_work(self.encoder, task.query_texts, side, prefix, None)
        facts = token_identity(self.encoder, side, prefix)
        return remaining_work(self.encoder, task.documents.contents, side, prefix, self.cache, facts)

    def prepare(self, task: Task) -> MaxSimIndex:
        """Encode the documents."""
        texts, prefix = task.documents.contents, self.instruction("document", *names_of(task))
        made = embed_tokens(self.encoder, texts, "document", prefix, cache=self.cache, options=self.options)
        return MaxSimIndex(self, task, made)


@dataclass(frozen=True)
class MaxSimIndex:
    """The vectors of the tokens of a task's documents."""

    retriever: MaxSimRetriever
    task: Task
    documents: EmbeddedTokens

    def search(self, queries: Queries, depth: int) -> Run:
        """The best `depth` documents of each query; a query of several texts scores the weighted mean of theirs."""
        check_depth(depth)
        check_queries(queries, self.retriever.name)
        begin = time.perf_counter()
        groups, ids = queries.texts, self.task.documents.ids
        states, lengths = self._states([part.text for group in groups for part in group])
        encoded = time.perf_counter()
        top = self._rank(states, groups, min(depth, len(ids)))
        made = self.documents
        notes: dict[str, object] = {
            "truncation": truncation(self.retriever.encoder, self.task, lengths, made.tokens),
            "cache": {"cached": made.cached, "encoded": made.encoded, "damaged_shards": made.shards.damaged},
            "vectors": sum(int(piece.sizes.sum()) for piece in made.pieces()),
            "encoder": dict(made.repaired),
            "seconds": {
                "encode": round(made.seconds + encoded - begin, 4),
                "search": round(time.perf_counter() - encoded, 4),
            },
        }
        return Run(queries.ids, ids, *top, name=self.retriever.name, notes=notes, reused=made.reused)

    def _prefix(self, side: Side) -> str:
        return self.retriever.instruction(side, *names_of(self.task))

    def _states(self, texts: Sequence[str]) -> tuple[list[Int16], Int32]:
        """Token vectors of queries, and how many tokens each has."""
        states: dict[int, Int16] = {}
        tokens = np.empty(len(texts), dtype=np.int32)
        for batch in self.retriever.encoder.stream_states(texts, "query", self._prefix("query")):
            states |= dict(zip(batch.rows.tolist(), map(fixed_point, batch.states), strict=True))
            tokens[batch.rows] = batch.tokens
        return [states[row] for row in range(len(texts))], tokens

    def _rank(self, states: list[Int16], groups: Sequence[tuple[QueryText, ...]], depth: int) -> TopK:
        """The best documents, for as many queries at a time as there is room for their scores."""
        ids = self.task.documents.ids
        top = TopK(np.empty((len(groups), depth), np.int32), np.empty((len(groups), depth), np.float32))
        ends = np.cumsum([len(group) for group in groups])
        begin = 0
        while begin < len(groups) and depth:
            first = int(ends[begin]) - len(groups[begin])
            most = first + max(CELLS // len(ids), 1)
            end = max(int(np.searchsorted(ends, most, side="right")), begin + 1)
            scores = maxsim(states[first : int(ends[end - 1])], self.documents.pieces(), len(ids))
            found = top_k(_mean_scores(scores, groups[begin:end]), ids.tie_rank, depth)
            top.docs[begin:end], top.scores[begin:end] = found
            begin = end
        return top

    def explain(self, queries: Queries, documents: Sequence[int]) -> list[Explanation]:
        """What each token of the query adds, and which token of the document it met."""
        group, encoder, contents = queries.texts[0], self.retriever.encoder, self.task.documents.contents
        texts, passages = [part.text for part in group], [contents[document] for document in documents]
        states, _ = self._states(texts)
        tokens = encoder.token_names(passages, "document", self._prefix("document"))
        names = encoder.token_names(texts, "query", self._prefix("query"))
        asked = list(zip(states, names, shares([group]).tolist(), strict=True))
        found = []
        for document, named in zip(documents, tokens, strict=True):
            vectors = self.documents.of(document)
            parts = [
                share for own, names, weight in asked for share in token_shares(own, names, vectors, named, weight)
            ]
            found.append(Explanation(EXPLAINED, largest_first(parts)))
        return found


def _mean_scores(scores: Float32, groups: Sequence[tuple[QueryText, ...]]) -> Float32:
    if all(len(group) == 1 for group in groups):
        return scores
    starts = np.concatenate(([0], np.cumsum([len(group) for group in groups])[:-1]))
    return np.add.reduceat(scores * shares(groups)[:, None], starts, axis=0).astype(np.float32)
