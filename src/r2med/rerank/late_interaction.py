"""MaxSim over a few candidates: each document's token vectors are made once, compared and forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..core import UsageError
from ..models import Card
from ..retrieve.encoders.load import Options, model_folder
from ..retrieve.encoders.protocol import Float32, Side
from ..retrieve.encoders.token_states import TokenEncoder, token_encoder
from ..retrieve.maxsim import maxsim
from ..retrieve.rows import unit
from .pairs import Pairs, Scored


class MaxSimScorer:
    """Late interaction with any model that gives a vector per token, trained for it or not."""

    kind = "late-interaction"
    keeps_scores = True

    def __init__(
        self,
        card: Card,
        options: Options,
        *,
        folder: Path | None = None,
        name: str = "",
        encoder: TokenEncoder | None = None,
    ) -> None:
        if card.kind not in ("dense", "late-interaction"):
            raise UsageError(f"{card.name} is a {card.kind} model and gives no vectors of tokens")
        self.card = card
        self.name = name or card.name
        self.encoder = encoder or token_encoder(card, model_folder(card, folder), options)
        self.notes: Counter[str] = Counter()

    def describe(self) -> dict[str, object]:
        """Everything besides the texts and the maximum length that changes a score."""
        sides: tuple[Side, Side] = ("query", "document")
        return {
            "scorer": "maxsim",
            **{side: {k: v for k, v in self.encoder.describe(side).items() if k != "max_length"} for side in sides},
            "query_length": self.encoder.max_length("query"),
            "instructions": self.card.describe().get("instructions", {}),
            "templates": [self.card.query_template, self.card.document_template],
        }

    def max_length(self) -> int | None:
        """Where documents are cut."""
        return self.encoder.max_length("document")

    def _prefix(self, side: Side, family: str) -> str:
        return self.card.prefix(side, self.card.instruction(side, family))

    def _cut(self, tokens: int, side: Side) -> int:
        limit = self.encoder.max_length(side)
        return max(tokens - limit, 0) if limit is not None else 0

    def stream(self, pairs: Pairs, family: str = "") -> Iterator[Scored]:
        """Queries first, all at once; then documents, each with the queries it is a candidate of."""
        queries, cut_queries = self._queries(pairs, family)
        used, where = np.unique(pairs.document, return_inverse=True)
        where = where.reshape(-1)
        by_document = np.argsort(where, kind="stable")
        bounds = np.searchsorted(where[by_document], np.arange(len(used) + 1))
        texts = [pairs.documents[i] for i in used.tolist()]
        for batch in self.encoder.stream_states(texts, "document", self._prefix("document", family)):
            for item in batch:
                rows = by_document[bounds[item.row] : bounds[item.row + 1]]
                asked = pairs.query[rows].tolist()
                scores = maxsim([queries[q] for q in asked], [unit(item.states)])[:, 0]
                cut = [(self._cut(item.tokens, "document"), cut_queries[q]) for q in asked]
                yield Scored(rows, scores, np.array(cut, dtype=np.int32))

    def _queries(self, pairs: Pairs, family: str) -> tuple[dict[int, Float32], dict[int, int]]:
        used = np.unique(pairs.query).tolist()
        states: dict[int, Float32] = {}
        cut: dict[int, int] = {}
        texts = [pairs.queries[i] for i in used]
        for batch in self.encoder.stream_states(texts, "query", self._prefix("query", family)):
            for item in batch:
                states[used[item.row]] = unit(item.states)
                cut[used[item.row]] = self._cut(item.tokens, "query")
        return states, cut
