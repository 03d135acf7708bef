"""Dense retrieval: an encoder, the cache, exact search."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..cache import EmbeddingCache
from ..core import Run, Task, UsageError
from ..models import Card
from .embed import Embedded, Progress, embed, verify_cache
from .encoders.devices import resolve_devices
from .encoders.load import as_encoder
from .encoders.protocol import Encoder, Side
from .rows import Rows, UnitRows, unit
from .sparse import Float32, TopK
from .truncation import positives_cut, truncation_note
from .variants import Variant, search_variant
from .vectors import search

if TYPE_CHECKING:
    from .plan import SidePlan

Similarity = Literal["cosine", "dot"]
SIDES: tuple[Side, ...] = ("document", "query")


class DenseRetriever:
    """Ranks documents by the inner product or cosine of their vectors with the query's.

    `model` is a card, or anything that encodes: an `Encoder`, an object with `encode_queries` and `encode_corpus` or
    with `encode`, or its address as `module:attr`. Further `options` go to the backend (`device`, `batch_tokens`,
    `trust_remote_code`, `max_length`, …). `folder` is where a card's files lie, `document_folder` those of its second
    encoder; by default where `r2med models fetch` puts them. Nothing is loaded before a text has to be encoded.
    """

    kind = "dense"

    def __init__(
        self,
        model: Card | Encoder | object | str,
        *,
        name: str = "",
        folder: Path | None = None,
        document_folder: Path | None = None,
        similarity: Similarity | None = None,
        variant: str = "float32",
        cache: EmbeddingCache | Literal[False] | None = None,
        device: str | None = None,
        verify: int = 0,
        memory: int | None = None,
        on_progress: Progress | None = None,
        **options: object,
    ) -> None:
        if device is not None:
            resolve_devices(device)  # search runs there too, whatever the backend does
        self.encoder, self.card = as_encoder(
            model, folder=folder, document_folder=document_folder, device=device, **options
        )
        self.name = name or (self.card.name if self.card else self.encoder.name)
        self.similarity: Similarity = similarity or (self.card.similarity if self.card else "cosine")
        if self.similarity not in ("cosine", "dot"):
            raise UsageError(f"similarity must be cosine or dot, not {self.similarity!r}")
        self.variant = Variant.parse(variant)
        self.device = device
        self.verify = verify
        self.memory = memory
        """Bytes that searching may take beside the mapped vectors; None: what is fastest."""
        self.on_progress = on_progress
        self._cache = cache

    @cached_property
    def cache(self) -> EmbeddingCache | None:
        """Where vectors are kept: under `R2MED_HOME` unless told otherwise, nowhere if `cache=False`."""
        if self._cache is not None:
            return self._cache or None
        return EmbeddingCache() if getattr(self.encoder, "cacheable", True) else None

    def instruction(self, side: Side, family: str = "") -> str:
        """What stands before every text of a side, for tasks of a family."""
        return self.card.prefix(side, self.card.instruction(side, family)) if self.card else ""

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {
            "kind": self.kind,
            "query": self.encoder.describe("query"),
            "document": self.encoder.describe("document"),
            "similarity": self.similarity,
            "variant": str(self.variant),
            "instructions": self.card.describe().get("instructions", {}) if self.card else {},
        }

    def check(self) -> None:
        """Raise what would stop it later, such as a missing key; `plan` works without."""
        check = getattr(self.encoder, "check", None)
        if check is not None:
            check()

    def embed(self, texts: Sequence[str], side: Side, family: str = "") -> Embedded:
        """Vectors of texts, through the cache."""
        return embed(
            self.encoder,
            texts,
            side,
            self.instruction(side, family),
            cache=self.cache,
            on_progress=self.on_progress,
            memory=self.memory,
        )

    def texts(self, task: Task, side: Side) -> Sequence[str]:
        """What is encoded of a task on one side."""
        return task.documents.contents if side == "document" else task.query_texts

    def plan_side(self, task: Task, side: Side) -> SidePlan:
        """What one side would have to encode, counted without encoding."""
        from .plan import plan_side

        return plan_side(self.encoder, self.texts(task, side), side, self.instruction(side, task.family), self.cache)

    def cost(self, tokens: int) -> float | None:
        """Dollars for tokens; None where no price is known."""
        price = self.card.price.per_million if self.card and self.card.price else None
        return None if price is None else tokens / 1e6 * price

    def plan(self, task: Task) -> dict[str, object]:
        """What retrieving would have to encode, without encoding: for a look at the bill beforehand.

        Tokens are estimated from the length of the texts; `cost` is in dollars, None where no price is known.
        """
        sides = [self.plan_side(task, side) for side in SIDES]
        tokens = sum(s.tokens for s in sides)
        return {
            "texts": sum(s.texts for s in sides),
            "missing": sum(s.missing for s in sides),
            "tokens": tokens,
            "cost": self.cost(tokens),
        }

    def encode(self, task: Task, side: Side) -> Embedded:
        """Vectors of one side of a task, for `retrieve`."""
        return self.embed(self.texts(task, side), side, task.family)

    def retrieve(
        self,
        task: Task,
        *,
        depth: int = 1000,
        documents: Embedded | None = None,
        queries: Embedded | None = None,
    ) -> Run:
        """The best `depth` documents of each query; what `encode` has made already is not made again."""
        if depth < 1:
            raise UsageError(f"depth must be 1 or more, not {depth}")
        documents = documents or self.encode(task, "document")
        queries = queries or self.encode(task, "query")
        begin = time.perf_counter()
        notes = self._notes(task, queries, documents)
        if self.verify:
            notes["verified"] = self._verify(task)
        vectors, rows = queries.rows.read(0, len(task.queries)), documents.rows
        # What the model's card says is of length one is not scaled again.
        if self.similarity == "cosine" and not (self.card and self.card.normalize):
            vectors, rows = unit(vectors) if len(vectors) else vectors, UnitRows(rows)
        top = self._search(vectors, rows, task, depth)
        notes["seconds"] = {
            "encode": round(documents.seconds + queries.seconds, 4),
            "search": round(time.perf_counter() - begin, 4),
        }
        return Run(task.query_ids, task.documents.ids, *top, name=self.name, notes=notes)

    def _search(self, queries: Float32, rows: Rows, task: Task, depth: int) -> TopK:
        from .gpu import gpu_first_stage

        first_stage = gpu_first_stage(self.device, self.memory)
        ties = task.documents.ids.tie_rank
        if self.variant.exact:
            return search(queries, rows, ties, depth, first_stage=first_stage, memory=self.memory)
        return search_variant(
            queries, rows, self.variant, ties, depth, first_stage=first_stage, memory=self.memory
        )  # fmt: skip

    def _notes(self, task: Task, queries: Embedded, documents: Embedded) -> dict[str, object]:
        limit = self.encoder.max_length("document")
        return {
            "truncation": {
                "query": truncation_note(queries.tokens, self.encoder.max_length("query")),
                "document": {
                    **truncation_note(documents.tokens, limit),
                    **positives_cut(task, documents.tokens, limit),
                },
            },
            "cache": {
                "cached": queries.cached + documents.cached,
                "encoded": queries.encoded + documents.encoded,
                "damaged_shards": queries.damaged_shards + documents.damaged_shards,
            },
            "encoder": dict(Counter(queries.repaired) + Counter(documents.repaired)),
        }

    def _verify(self, task: Task) -> dict[str, object]:
        if self.cache is None:
            raise UsageError("there is no cache to verify")
        instruction = self.instruction("document", task.family)
        return verify_cache(self.encoder, task.documents.contents, "document", instruction, self.cache, self.verify)
