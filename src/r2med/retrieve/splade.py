"""Learned sparse retrieval: a masked language model says which words a text is about, and how much.

The weight of a term is the largest log(1 + relu(logit)) over the text's tokens; search is the exact search over
postings that BM25 uses.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core import Run, Task, UsageError
from ..core.columns import Int32, Int64
from ..models import Card
from .embed import Progress
from .encoders.batching import pad
from .encoders.hub_folder import load_masked_lm
from .encoders.load import make_options, model_folder
from .encoders.protocol import Float32, Side
from .encoders.torch_encoder import Replica, TorchEncoder
from .sparse import Postings, SparseQueries, search
from .truncation import positives_cut, truncation_note


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
    """Term weights from a masked language model in torch."""

    def replica(self, side: Side, worker: int) -> Replica:
        """The model with its language head, one per device."""
        place = worker % len(self.devices)
        key = self.folders[side], place
        with self._lock:
            if key not in self._replicas:
                model = load_masked_lm(self.folders[side], self.options, self.devices[place], self.dtype)
                self._replicas[key] = Replica.of(model, self.devices[place])
            return self._replicas[key]

    def forward(self, batch: list[list[int]], side: Side, instruction: str, worker: int) -> Float32:
        """Weights of all terms, most of them zero."""
        import torch

        del instruction
        replica, tokenizer = self.replica(side, worker), self.tokenizer(side)
        with torch.inference_mode():
            arrays = pad(batch, tokenizer.pad_token_id or 0)
            ids, mask = (torch.from_numpy(a).to(replica.device) for a in arrays)
            logits: Any = replica.model(input_ids=ids, attention_mask=mask).logits.float()
            weights = torch.log1p(torch.relu(logits)) * mask.unsqueeze(-1)
            return np.asarray(weights.amax(dim=1).cpu().numpy(), dtype=np.float32)

    def sparse(
        self, texts: Sequence[str], side: Side, instruction: str, on_progress: Progress | None = None
    ) -> tuple[SparseMatrix, Int32]:
        """Term weights of all texts, and their lengths in tokens."""
        terms: list[Int32] = [np.empty(0, np.int32)] * len(texts)
        weights: list[Float32] = [np.empty(0, np.float32)] * len(texts)
        tokens = np.zeros(len(texts), dtype=np.int32)
        size = done = 0
        for batch in self.stream(texts, side, instruction):
            tokens[batch.rows] = batch.tokens
            for row, vector in zip(batch.rows.tolist(), batch.vectors, strict=True):
                terms[row] = np.flatnonzero(vector).astype(np.int32)
                weights[row] = vector[terms[row]]
            size = batch.vectors.shape[1]
            done += len(batch.rows)
            if on_progress is not None:
                on_progress(done, len(texts))
        indptr = np.concatenate(([0], np.cumsum([len(t) for t in terms]))).astype(np.int64)
        empty_terms, empty_weights = [np.empty(0, np.int32)], [np.empty(0, np.float32)]
        return (
            SparseMatrix(indptr, np.concatenate(terms or empty_terms), np.concatenate(weights or empty_weights), size),
            tokens,
        )


class SpladeRetriever:
    """Ranks by the inner product of term weights."""

    kind = "sparse"

    def __init__(
        self,
        card: Card,
        *,
        name: str = "",
        folder: Path | None = None,
        on_progress: Progress | None = None,
        **options: object,
    ) -> None:
        if card.backend != "transformers":
            raise UsageError(f"{card.name}: learned sparse models run in transformers, not in {card.backend}")
        made = make_options(**options)
        if made.max_length is not None:
            card = card.replace(query_length=made.max_length, document_length=made.max_length)
        self.card = card
        self.name = name or card.name
        self.encoder = SpladeEncoder(card, model_folder(card, folder), made)
        self.on_progress = on_progress

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {
            "kind": self.kind,
            "query": self.encoder.describe("query"),
            "document": self.encoder.describe("document"),
            "instructions": self.card.describe().get("instructions", {}),
        }

    def retrieve(self, task: Task, *, depth: int = 1000) -> Run:
        """The best `depth` documents of each query among those that share a term with it."""
        if depth < 1:
            raise UsageError(f"depth must be 1 or more, not {depth}")
        begin = time.perf_counter()
        prefixes = {
            side: self.card.prefix(side, self.card.instruction(side, task.family)) for side in ("query", "document")
        }
        documents, tokens = self.encoder.sparse(
            task.documents.contents, "document", prefixes["document"], self.on_progress
        )
        queries, query_tokens = self.encoder.sparse(task.query_texts, "query", prefixes["query"])
        weighted = SparseQueries(queries.indptr, queries.terms, queries.weights.astype(np.float64))
        ids = task.documents.ids
        top = search(documents.postings(), weighted, ids.tie_rank, min(depth, len(ids)))
        limit = self.encoder.max_length("document")
        notes: dict[str, object] = {
            "truncation": {
                "query": truncation_note(query_tokens, self.encoder.max_length("query")),
                "document": {**truncation_note(tokens, limit), **positives_cut(task, tokens, limit)},
            },
            "terms_per_document": round(len(documents.terms) / max(len(ids), 1), 1),
            "seconds": {"total": round(time.perf_counter() - begin, 4)},
        }
        return Run(task.query_ids, ids, *top, name=self.name, notes=notes)
