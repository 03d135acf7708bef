"""A dense retriever as a reranker: candidates by the similarity of their vectors, through the embedding cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ..core.columns import Int32
from ..retrieve.dense import DenseRetriever
from ..retrieve.embed import Embedded
from ..retrieve.encoders.protocol import Side
from ..retrieve.rows import unit
from .pairs import Pairs, Scored

BLOCK = 4096


class VectorScorer:
    """Inner products or cosines of cached vectors; the vectors are kept, scores need not be."""

    kind = "dense"
    keeps_scores = False

    def __init__(self, retriever: DenseRetriever) -> None:
        self.retriever = retriever
        self.name = retriever.name
        self.notes: Counter[str] = Counter()

    def describe(self) -> dict[str, object]:
        """What the retriever says of itself."""
        return {"scorer": "vectors", **self.retriever.describe()}

    def max_length(self) -> int | None:
        """Where documents are cut."""
        return self.retriever.encoder.max_length("document")

    def stream(self, pairs: Pairs, family: str = "") -> Iterator[Scored]:
        """Encode what has no vector yet, then multiply."""
        used_queries, query = np.unique(pairs.query, return_inverse=True)
        used_documents, document = np.unique(pairs.document, return_inverse=True)
        query, document = query.reshape(-1), document.reshape(-1)
        left = self.retriever.embed([pairs.queries[i] for i in used_queries.tolist()], "query", family)
        right = self.retriever.embed([pairs.documents[i] for i in used_documents.tolist()], "document", family)
        self.notes.update(vectors_cached=left.cached + right.cached, vectors_made=left.encoded + right.encoded)
        cut = np.column_stack((self._cut(right, "document")[document], self._cut(left, "query")[query]))
        scale = self.retriever.similarity == "cosine"
        for start in range(0, len(pairs), BLOCK):
            rows = np.arange(start, min(start + BLOCK, len(pairs)))
            a, b = left.rows.take(query[rows]), right.rows.take(document[rows])
            if scale:
                a, b = unit(a), unit(b)
            exact = np.einsum("ij,ij->i", a.astype(np.float64), b.astype(np.float64))
            yield Scored(rows, exact.astype(np.float32), cut[rows].astype(np.int32))

    def _cut(self, made: Embedded, side: Side) -> Int32:
        limit = self.retriever.encoder.max_length(side)
        if limit is None:
            return np.full(len(made.tokens), -1, dtype=np.int32)
        return np.where(made.tokens >= 0, np.maximum(made.tokens - limit, 0), -1).astype(np.int32)
