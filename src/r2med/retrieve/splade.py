"""Learned sparse retrieval: a model says which words a text is about, and how much.

A masked language model (SPLADE) weighs every term there is: by the largest log(1 + relu(logit)) over the text's tokens.
A model with a head of its own (BGE-M3) weighs the tokens of the text: by the largest relu(head) of each. Search is the
exact search over postings that BM25 uses.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core import Run, Task, UsageError
from ..core.columns import Int32, Int64
from ..core.queries import Explanation, Queries, Share, Side, largest_first
from ..core.spec import Spec
from ..models.prompts import names_of
from .cards import ModelParameters, ModelRetriever, card_of
from .contract import Build, check_depth, check_queries
from .encoders import Float32, TermBatch, model_folder, truncation
from .encoders.batching import pad
from .encoders.torch_encoder import Replica, TorchEncoder
from .encoders.torch_models import load_masked_lm, mixed_precision
from .sparse import Postings, SparseQueries, mean_terms, search

EXPLAINED = "A sum over the terms that the model gives both texts, whether they stand in them or not."


class SparseMatrix(NamedTuple):
    """Term weights of texts (CSR)."""

    indptr: Int64
    terms: Int32
    weights: Float32
    size: int
    """Number of terms there are."""

    def postings(self) -> Postings:
        """The same weights by term."""
        order = np.argsort(self.terms, kind="stable")
        texts = np.repeat(np.arange(len(self.indptr) - 1, dtype=np.int32), np.diff(self.indptr))
        counts = np.bincount(self.terms, minlength=self.size)
        return Postings(np.concatenate(([0], np.cumsum(counts))).astype(np.int64), texts[order], self.weights[order])


class SpladeEncoder(TorchEncoder):
    """Term weights from a model in torch: from its language head, or from a head for tokens where the card has one."""

    def load(self, folder: Path, device: str) -> Replica:
        """The model with its head."""
        if self.card.head:
            return super().load(folder, device)
        return Replica.of(load_masked_lm(folder, self.options, device, self.dtype), device)

    def forward(self, batch: list[list[int]], side: Side, instruction: str, worker: int) -> Float32:
        """Weights of all terms, most of them zero."""
        import torch

        del instruction
        replica, tokenizer = self.replica(side, worker), self.tokenizer(side)
        with torch.inference_mode(), mixed_precision(self.dtype, replica.device):
            arrays = pad(batch, tokenizer.pad_token_id or 0)
            ids, mask = (torch.from_numpy(a).to(replica.device) for a in arrays)
            made: Any = replica.model(input_ids=ids, attention_mask=mask)
            if replica.projection is not None:
                weights = torch.relu(replica.projection(made.last_hidden_state.float())).squeeze(-1) * mask
                terms = torch.zeros(len(ids), replica.model.config.vocab_size, device=ids.device)
                terms.scatter_reduce_(1, ids, weights, "amax")
                terms[:, _marks(tokenizer)] = 0
            else:
                terms = (torch.log1p(torch.relu(made.logits.float())) * mask.unsqueeze(-1)).amax(dim=1)
            return np.asarray(terms.cpu().numpy(), dtype=np.float32)

    def stream_terms(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[TermBatch]:
        """Term weights of all texts, a batch at a time."""
        for rows, vectors, tokens in self.stream(texts, side, instruction):
            terms = [np.flatnonzero(vector).astype(np.int32) for vector in vectors]
            weights = [vector[held] for vector, held in zip(vectors, terms, strict=True)]
            yield TermBatch(rows, terms, weights, tokens, vectors.shape[1])


def _marks(tokenizer: Any) -> list[int]:
    """Tokens that are no words: those that begin, end and fill up texts, and that of unknown words."""
    named = (tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id)
    return [token for token in named if token is not None]


class SpladeRetriever(ModelRetriever):
    """Ranks by the inner product of term weights."""

    kind = "sparse"
    encoder: SpladeEncoder

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> SpladeRetriever:
        """The retriever of a model card."""
        given, options = spec.values(ModelParameters), build.options.changed(spec.options)
        card = given.changed(card_of(spec))
        if card.backend != "transformers":
            raise UsageError(f"{card.name}: learned sparse models run in transformers, not in {card.backend}")
        return cls(card, spec, SpladeEncoder(card, model_folder(card), options, dtype=given.precision(card)), options)

    def prepare(self, task: Task) -> SpladeIndex:
        """The documents are encoded when they are first searched."""
        return SpladeIndex(self, task)


class SpladeIndex:
    """Term weights of a task's documents."""

    def __init__(self, retriever: SpladeRetriever, task: Task) -> None:
        self.retriever, self.task = retriever, task

    def _encode(self, texts: Sequence[str], side: Side, *, progress: bool) -> tuple[SparseMatrix, Int32]:
        """Term weights of all texts, and their lengths in tokens."""
        prefix = self.retriever.instruction(side, *names_of(self.task))
        terms: list[Int32] = [np.empty(0, np.int32)] * len(texts)
        weights: list[Float32] = [np.empty(0, np.float32)] * len(texts)
        tokens = np.zeros(len(texts), dtype=np.int32)
        size = done = 0
        for batch in self.retriever.encoder.stream_terms(texts, side, prefix):
            size, tokens[batch.rows] = batch.size, batch.tokens
            for row, held, weight in zip(batch.rows.tolist(), batch.terms, batch.weights, strict=True):
                terms[row], weights[row] = held, weight
            done += len(batch.rows)
            if progress:
                self.retriever.options.progress(done, len(texts))
        indptr = np.concatenate(([0], np.cumsum([len(t) for t in terms]))).astype(np.int64)
        held, weighed = (
            np.concatenate([*terms, np.empty(0, np.int32)]),
            np.concatenate([*weights, np.empty(0, np.float32)]),
        )
        return SparseMatrix(indptr, held, weighed, size), tokens

    @cached_property
    def documents(self) -> tuple[SparseMatrix, Int32]:
        """Made once, whatever searches follow."""
        return self._encode(self.task.documents.contents, "document", progress=True)

    @cached_property
    def postings(self) -> Postings:
        """The documents' weights by term."""
        return self.documents[0].postings()

    def search(self, queries: Queries, depth: int) -> Run:
        """The best `depth` documents of each query among those that share a term with it."""
        check_depth(depth)
        begin = time.perf_counter()
        retriever, ids = self.retriever, self.task.documents.ids
        documents, tokens = self.documents
        weighted, query_tokens = self._weighted(queries)
        top = search(self.postings, weighted, ids.tie_rank, min(depth, len(ids)))
        notes: dict[str, object] = {
            "truncation": truncation(retriever.encoder, self.task, query_tokens, tokens),
            "terms_per_document": round(len(documents.terms) / max(len(ids), 1), 1),
            "seconds": {"total": round(time.perf_counter() - begin, 4)},
        }
        return Run(queries.ids, ids, *top, name=retriever.name, notes=notes)

    def explain(self, queries: Queries, documents: Sequence[int]) -> list[Explanation]:
        """What each term of the model's vocabulary adds: its weight in the document times that in the query."""
        weighted = self._weighted(queries)[0].first()
        names = self.retriever.encoder.tokenizer("query").convert_ids_to_tokens(list(weighted))
        rows, shares = np.asarray(documents, dtype=np.int32), [list[Share]() for _ in documents]
        for (term, weight), name in zip(weighted.items(), names, strict=True):
            for place, impact in enumerate(self.postings.of(term, rows).tolist()):
                if impact:
                    factors = (("in the document", impact), ("in the query", weight))
                    shares[place].append(Share(str(name), weight * impact, factors))
        return [Explanation(EXPLAINED, largest_first(found)) for found in shares]

    def _weighted(self, queries: Queries) -> tuple[SparseQueries, Int32]:
        """Terms of each query; of several texts, the weighted mean of theirs."""
        check_queries(queries, self.retriever.name)
        groups = queries.texts
        made, tokens = self._encode([part.text for group in groups for part in group], "query", progress=False)
        single = SparseQueries(made.indptr, made.terms, made.weights.astype(np.float64))
        return mean_terms(single, groups), tokens
