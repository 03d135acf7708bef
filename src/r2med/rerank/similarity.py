"""Reranking by similarity: one vector per text, or one per token (MaxSim), made once, compared and forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ..cache import Int16, TokenPiece
from ..core import UsageError
from ..core.budget import Account, together
from ..core.columns import Int32
from ..core.options import Options
from ..core.queries import Explanation, Side, largest_first
from ..models import Card
from ..retrieve.dense import DenseRetriever
from ..retrieve.embed import Embedded
from ..retrieve.encoders import TokenEncoder, WorkOrder, model_folder, token_encoder
from ..retrieve.maxsim import EXPLAINED, STORED, fixed_point, maxsim, token_shares
from ..retrieve.vectors import unit
from .pointwise import Pairs, Scored, by_query

BLOCK = 4096


class VectorScorer:
    """Inner products or cosines of a dense retriever's cached vectors; the vectors are kept, scores need not be."""

    kind = "dense"
    keeps_scores = False
    distributable = False

    def __init__(self, retriever: DenseRetriever) -> None:
        if not retriever.variant.exact:
            raise UsageError(f"{retriever.name} compares whole vectors as a reranker: leave out variant and dimension")
        self.retriever = retriever
        self.name = retriever.name
        self.notes: Counter[str] = Counter()
        self.reused: Account = {}

    def describe(self) -> dict[str, object]:
        """What the retriever says of itself."""
        return {"scorer": "vectors", **self.retriever.describe()}

    def max_length(self) -> int | None:
        """Where documents are cut."""
        return self.retriever.encoder.max_length("document")

    def work_order(self, pairs: Pairs) -> WorkOrder:
        """Never dealt out: the encoder is."""
        return by_query(pairs, BLOCK)

    def stream(self, pairs: Pairs, names: tuple[str, ...] = ()) -> Iterator[Scored]:
        """Encode what has no vector yet, then multiply."""
        used_queries, query = np.unique(pairs.query, return_inverse=True)
        used_documents, document = np.unique(pairs.document, return_inverse=True)
        query, document = query.reshape(-1), document.reshape(-1)
        left = self._embed([pairs.queries[i] for i in used_queries.tolist()], "query", names)
        right = self._embed([pairs.documents[i] for i in used_documents.tolist()], "document", names)
        self.notes.update(vectors_cached=left.cached + right.cached, vectors_made=left.encoded + right.encoded)
        self.reused = together((left.reused, right.reused))
        cut = np.column_stack((self._cut(right, "document")[document], self._cut(left, "query")[query]))
        scale = self.retriever.similarity == "cosine"
        for start in range(0, len(pairs), BLOCK):
            rows = np.arange(start, min(start + BLOCK, len(pairs)))
            a, b = left.rows.take(query[rows]), right.rows.take(document[rows])
            if scale:
                a, b = unit(a), unit(b)
            exact = np.einsum("ij,ij->i", a.astype(np.float64), b.astype(np.float64))
            yield Scored(rows, exact.astype(np.float32), cut[rows].astype(np.int32))

    def _embed(self, texts: list[str], side: Side, names: tuple[str, ...]) -> Embedded:
        instruction = self.retriever.instruction(side, *names)
        return self.retriever.embed(texts, side, instruction, of_query=side == "query")

    def _cut(self, made: Embedded, side: Side) -> Int32:
        limit = self.retriever.encoder.max_length(side)
        if limit is None:
            return np.full(len(made.tokens), -1, dtype=np.int32)
        return np.where(made.tokens >= 0, np.maximum(made.tokens - limit, 0), -1).astype(np.int32)


class MaxSimScorer:
    """Late interaction with any model that gives a vector per token, trained for it or not."""

    kind = "late-interaction"
    keeps_scores = True
    distributable = False

    def __init__(
        self, card: Card, options: Options, *, dtype: str | None = None, encoder: TokenEncoder | None = None
    ) -> None:
        if card.kind not in ("dense", "late-interaction"):
            raise UsageError(f"{card.name} is a {card.kind} model and gives no vectors of tokens")
        self.card, self.name = card, card.name
        self.encoder = encoder or token_encoder(card, model_folder(card), options, dtype=dtype)
        self.notes: Counter[str] = Counter()

    def describe(self) -> dict[str, object]:
        """Everything besides the texts and the maximum length that changes a score."""
        sides: tuple[Side, Side] = ("query", "document")
        return {
            "scorer": "maxsim",
            "stored": STORED,
            **{side: {k: v for k, v in self.encoder.describe(side).items() if k != "max_length"} for side in sides},
            "query_length": self.encoder.max_length("query"),
            "instructions": self.card.describe().get("instructions", {}),
            "templates": [self.card.query_template, self.card.document_template],
        }

    def max_length(self) -> int | None:
        """Where documents are cut."""
        return self.encoder.max_length("document")

    def work_order(self, pairs: Pairs) -> WorkOrder:
        """Never dealt out: documents are encoded once for all their queries."""
        return by_query(pairs, len(pairs) or 1)

    def _prefix(self, side: Side, names: tuple[str, ...]) -> str:
        return self.card.prefix(side, self.card.instruction(side, *names))

    def _cut(self, tokens: int, side: Side) -> int:
        limit = self.encoder.max_length(side)
        return max(tokens - limit, 0) if limit is not None else 0

    def stream(self, pairs: Pairs, names: tuple[str, ...] = ()) -> Iterator[Scored]:
        """Queries first, all at once; then documents, each with the queries it is a candidate of."""
        queries, cut_queries = self._queries(pairs, names)
        used, where = np.unique(pairs.document, return_inverse=True)
        where = where.reshape(-1)
        by_document = np.argsort(where, kind="stable")
        bounds = np.searchsorted(where[by_document], np.arange(len(used) + 1))
        texts = [pairs.documents[i] for i in used.tolist()]
        for batch in self.encoder.stream_states(texts, "document", self._prefix("document", names)):
            for row, states, tokens in zip(batch.rows.tolist(), batch.states, batch.tokens.tolist(), strict=True):
                rows = by_document[bounds[row] : bounds[row + 1]]
                asked = pairs.query[rows].tolist()
                scores = maxsim([queries[q] for q in asked], [TokenPiece.of([fixed_point(states)])], 1)[:, 0]
                cut = [(self._cut(tokens, "document"), cut_queries[q]) for q in asked]
                yield Scored(rows, scores, np.array(cut, dtype=np.int32))

    def explain(self, query: str, documents: list[str], names: tuple[str, ...] = ()) -> list[Explanation]:
        """What each token of the query adds, and which token of the document it met."""
        one, places = np.zeros(len(documents), np.int32), np.arange(len(documents), dtype=np.int32)
        own = self._queries(Pairs([query], documents, one, places), names)[0][0]
        (asked,) = self.encoder.token_names([query], "query", self._prefix("query", names))
        tokens = self.encoder.token_names(documents, "document", self._prefix("document", names))
        found = [Explanation(EXPLAINED)] * len(documents)
        for batch in self.encoder.stream_states(documents, "document", self._prefix("document", names)):
            for row, states in zip(batch.rows.tolist(), batch.states, strict=True):
                shares = token_shares(own, asked, fixed_point(states), tokens[row], 1.0)
                found[row] = Explanation(EXPLAINED, largest_first(shares))
        return found

    def _queries(self, pairs: Pairs, names: tuple[str, ...]) -> tuple[dict[int, Int16], dict[int, int]]:
        used = np.unique(pairs.query).tolist()
        states: dict[int, Int16] = {}
        cut: dict[int, int] = {}
        texts = [pairs.queries[i] for i in used]
        for batch in self.encoder.stream_states(texts, "query", self._prefix("query", names)):
            for row, vectors, tokens in zip(batch.rows.tolist(), batch.states, batch.tokens.tolist(), strict=True):
                states[used[row]] = fixed_point(vectors)
                cut[used[row]] = self._cut(tokens, "query")
        return states, cut
