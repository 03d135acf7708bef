"""Dense retrieval: an encoder, the cache of its vectors, exact search.

The first look may be at smaller vectors: half precision, 8 bits, one bit, fewer dimensions.

    bge:variant=int8            bge:dimension=256            bge:variant=binary,oversample=10

A cut to the first dimensions (of a Matryoshka model) is scaled to length one again if the vectors had it. The best
`oversample × depth` candidates of the small vectors are ranked by the full ones; `oversample=0` leaves the ranking as
the small vectors gave it. Queries are never made smaller than float32.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from ..cache import EmbeddingCache
from ..core import Run, Task, UsageError
from ..core.budget import together
from ..core.columns import Int32
from ..core.options import Options
from ..core.queries import Explanation, Queries, QueryText, Side
from ..core.spec import Spec
from ..models import Card
from ..models.prompts import names_of
from .cards import ModelParameters, ModelRetriever, card_of, with_paper_pack, wording_of
from .contract import Build, Work, check_depth
from .embed import Embedded, embed, remaining_work, verify_cache
from .encoders import Encoder, load_encoder, truncation
from .encoders.torch_models import resolve_devices
from .feedback import feed_back_vectors
from .rows import PrefixRows, SmallRows, UnitRows, make_small
from .sparse import TopK
from .vectors import FirstStage, Float32, MemoryPlan, Rows, gpu_first_stage, order_exactly, search, unit

Similarity = Literal["cosine", "dot"]
Precision = Literal["float32", "float16", "bfloat16", "int8", "binary"]
OVERSAMPLE = 4
SEPARATORS = {"bert": " [SEP] ", "mpnet": " </s> ", "roberta": " </s> ", "xlm-roberta": " </s> "}
"""What stands between two texts in models that were trained on pairs; all others get a line break."""


class Variant(NamedTuple):
    """How documents are held for the first look, and whether a second one follows."""

    precision: Precision = "float32"
    dimension: int | None = None
    oversample: int = OVERSAMPLE
    """Candidates per wanted document that are rescored; 0: none are."""

    def __str__(self) -> str:
        cut = f"@{self.dimension}" if self.dimension else ""
        rescoring = "" if self.exact or self.oversample == OVERSAMPLE else f":x{self.oversample}"
        return self.precision + cut + rescoring

    @property
    def exact(self) -> bool:
        """Whether it is plain float32 search."""
        return self.precision == "float32" and self.dimension is None


@dataclass(frozen=True)
class DenseParameters(ModelParameters):
    """What may be set on a dense model."""

    similarity: Annotated[Similarity, Meta(description="how vectors are compared")] | None = None
    variant: Annotated[Precision, Meta(description="how documents are held in memory")] = "float32"
    dimension: Annotated[int, Meta(ge=1, description="dimensions that the first look compares")] | None = None
    dim: Annotated[int, Meta(ge=1, description="length of a vector, cut and scaled again (Matryoshka)")] | None = None
    oversample: Annotated[int, Meta(ge=0, description="candidates that full vectors rescore; 0: none")] = OVERSAMPLE

    host: Annotated[str, Meta(description="the server of an API, where it is not the model's own")] | None = None

    def changed(self, card: Card) -> Card:
        """The card as these parameters set it."""
        if self.host is not None and not card.is_api:
            raise UsageError(f"{card.name} runs on this machine: leave out host={self.host}")
        if self.dim is not None and self.dimension is not None and self.dimension >= self.dim:
            raise UsageError(f"dimension={self.dimension} cuts nothing off vectors of dim={self.dim}: leave it out")
        card = super().changed(card)
        return card if self.dim is None else card.cut(self.dim)

    @property
    def held(self) -> Variant:
        """How documents are held for the first look."""
        held = Variant(self.variant, self.dimension, self.oversample)
        if held.exact and self.oversample != OVERSAMPLE:
            raise UsageError(f"oversample={self.oversample} changes nothing without a variant or a dimension")
        return held


class DenseRetriever(ModelRetriever):
    """Ranks documents by the inner product or cosine of their vectors with the query's.

    Nothing is loaded before a text has to be encoded.
    """

    kind = "dense"
    encoder: Encoder

    def __init__(
        self,
        encoder: Encoder,
        spec: Spec,
        *,
        card: Card | None = None,
        similarity: Similarity | None = None,
        variant: Variant | None = None,
        options: Options | None = None,
        cache: EmbeddingCache | None = None,
    ) -> None:
        super().__init__(card, spec, encoder, options or Options())
        self.similarity: Similarity = similarity or (card.similarity if card else "cosine")
        self.variant = variant or Variant()
        self._cache = cache
        if self.options.device is not None:
            resolve_devices(self.options.device)  # search runs there too, whatever the backend does

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> DenseRetriever:
        """The retriever of a model card."""
        spec = with_paper_pack(spec)
        given, options = spec.values(DenseParameters), build.options.changed(spec.options)
        card = given.changed(card_of(spec))
        encoder = load_encoder(card, options, dtype=given.precision(card))
        card = getattr(encoder, "card", card)
        host = getattr(encoder, "other_host", "") or None
        if given.host not in (None, host):
            raise UsageError(f"{spec} names a server that would not be asked: set {card.url_variable} to its address")
        if given.max_length is not None and card.is_api and not (host or card.service_tokenizer):
            raise UsageError(f"{card.name} is cut by its service, where max_length is not looked at: leave it out")
        if host:
            spec = spec.with_parameters(host=host)
        return cls(encoder, spec, card=card, similarity=given.similarity, variant=given.held, options=options)

    @cached_property
    def cache(self) -> EmbeddingCache | None:
        """Where vectors are kept; None for an encoder whose vectors cannot be known again."""
        if not self.options.cache or not getattr(self.encoder, "cacheable", True):
            return None
        return self._cache or EmbeddingCache()

    @property
    def unit_length(self) -> bool:
        """Whether the model's vectors have length one already."""
        return self.card is not None and self.card.normalize

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {
            **super().describe(),
            "similarity": self.similarity,
            "variant": str(self.variant),
            # Vectors that the model made of length one were once cut without being scaled again.
            **({"cut": "unit"} if self.variant.dimension and self.unit_length else {}),
        }

    def separator(self) -> str | None:
        """What its tokenizer puts between two texts."""
        return None if self.card is None else SEPARATORS.get(self.card.architecture, "\n")

    def embed(self, texts: Sequence[str], side: Side, instruction: str, *, of_query: bool = False) -> Embedded:
        """Vectors of texts, through the cache; those of queries only where the options let them be kept."""
        kept = not of_query or self.options.keep_queries
        return embed(self.encoder, texts, side, instruction, cache=self.cache if kept else None, options=self.options)

    def _texts(self, task: Task, side: Side) -> Sequence[str]:
        return task.documents.contents if side == "document" else task.query_texts

    def estimate(self, task: Task, side: Side) -> Work:
        """What one side of a task has left to encode."""
        instruction = self.instruction(side, *names_of(task))
        work = remaining_work(self.encoder, self._texts(task, side), side, instruction, self.cache)
        price = self.card.price.per_million if self.card and self.card.price else None
        return work._replace(dollars=None if price is None else work.tokens / 1e6 * price)

    def prepare(self, task: Task) -> DenseIndex:
        """Encode the documents."""
        self.about(task)
        instruction = self.instruction("document", *names_of(task))
        documents = self.embed(self._texts(task, "document"), "document", instruction)
        verified = self._verified(task) if self.options.verify else None
        return DenseIndex(self, task, documents, verified)

    def about(self, task: Task) -> None:
        """Tell the encoder which task is at hand; only somebody's own may want to know."""

    def _verified(self, task: Task) -> dict[str, object]:
        if self.cache is None:
            raise UsageError("there is no cache to verify")
        texts, instruction = self._texts(task, "document"), self.instruction("document", *names_of(task))
        return verify_cache(self.encoder, texts, "document", instruction, self.cache, self.options.verify)

    def rank(self, queries: Float32, rows: Rows, task: Task, depth: int) -> TopK:
        """The best documents of query vectors."""
        stage, memory = gpu_first_stage(self.options.device, self.options.memory), self.options.memory
        ties = task.documents.ids.tie_rank
        if self.variant.exact:
            return search(queries, rows, ties, depth, first_stage=stage, memory=memory)
        scaled = self.similarity == "cosine" or self.unit_length
        return search_variant(queries, rows, self.variant, ties, depth, scaled=scaled, first_stage=stage, memory=memory)


def search_variant(
    queries: Float32,
    rows: Rows,
    variant: Variant,
    tie_rank: Int32,
    depth: int,
    *,
    scaled: bool,
    first_stage: FirstStage | None = None,
    memory: int | None = None,
) -> TopK:
    """Search the small vectors, then rank what they found by the full ones; `scaled`: vectors have length one."""
    small_queries, small = queries, rows
    if variant.dimension is not None:
        if variant.dimension > rows.shape[1]:
            raise UsageError(f"vectors of {rows.shape[1]} dimensions cannot be cut to {variant.dimension}")
        small_queries, small = (
            np.ascontiguousarray(queries[:, : variant.dimension]),
            PrefixRows(rows, variant.dimension),
        )
        if scaled:
            small_queries, small = unit(small_queries), UnitRows(small)
    if variant.precision != "float32":
        small = make_small(small, variant.precision, memory)
    wanted = max(variant.oversample, 1) * depth
    rest = memory if memory is None or not isinstance(small, SmallRows) else memory - small.nbytes
    found = search(small_queries, small, tie_rank, wanted, first_stage=first_stage, memory=rest)
    if not variant.oversample:
        return found
    plan = MemoryPlan.within(memory, len(queries), rows.shape[1], found.docs.shape[1])
    return order_exactly(queries, rows, found, tie_rank, min(depth, found.docs.shape[1]), plan)[0]


class Vectors(NamedTuple):
    """One vector for each query, with an account of how they were made."""

    values: Float32
    parts: list[Embedded]
    averaged: int
    """Texts that were averaged; 0 where every query is one text."""


@dataclass(frozen=True)
class DenseIndex:
    """The vectors of a task's documents."""

    retriever: DenseRetriever
    task: Task
    documents: Embedded
    verified: dict[str, object] | None = None

    def search(self, queries: Queries, depth: int) -> Run:
        """The best documents of each query; a query of several texts is the mean of their vectors."""
        check_depth(depth)
        retriever, task = self.retriever, self.task
        retriever.about(task)
        made = self._encode(queries)
        begin = time.perf_counter()
        notes = self._notes(made)
        vectors, rows = made.values, self.documents.rows
        # What the model's card says is of length one is not scaled again, unless it was averaged.
        unit_length = retriever.unit_length
        if retriever.similarity == "cosine" and not (unit_length and not made.averaged):
            vectors, rows = unit(vectors) if len(vectors) else vectors, rows if unit_length else UnitRows(rows)
        for feedback in queries.feedback:
            vectors = feed_back_vectors(
                feedback, vectors, rows, retriever.rank(vectors, rows, task, feedback.documents)
            )
            if retriever.similarity == "cosine" and len(vectors):
                vectors = unit(vectors)
        top = retriever.rank(vectors, rows, task, depth)
        notes["seconds"] = {
            "encode": round(self.documents.seconds + sum(part.seconds for part in made.parts), 4),
            "search": round(time.perf_counter() - begin, 4),
        }
        reused = together(part.reused for part in (self.documents, *made.parts))
        return Run(queries.ids, task.documents.ids, *top, name=retriever.name, notes=notes, reused=reused)

    def explain(self, queries: Queries, documents: Sequence[int]) -> list[Explanation]:
        """What is compared; which words did it, a vector does not tell."""
        del queries
        what = "cosine" if self.retriever.similarity == "cosine" else "inner product"
        numbers = f"{self.documents.rows.shape[1]} numbers each"
        note = f"The {what} of two vectors ({numbers}). The model does not say what single words add."
        return [Explanation(note)] * len(documents)

    def _encode(self, queries: Queries) -> Vectors:
        prefix = self.retriever.instruction("query", *names_of(self.task))
        if queries.plain:
            made = self.retriever.embed(queries.column, "query", prefix, of_query=True)
            return Vectors(made.rows.read(0, len(queries)), [made], 0)
        return self._mean(queries.texts, prefix)

    def _mean(self, groups: Sequence[tuple[QueryText, ...]], prefix: str) -> Vectors:
        """The weighted mean of each query's vectors, of length one each where the model compares by cosine.

        A text may ask for its vector as it is.
        """
        parts = [part for group in groups for part in group]
        owners = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        sums, made = np.zeros((len(groups), 0)), list[Embedded]()
        for side, told, scaled in sorted({(part.side, part.instruction, part.scaled) for part in parts}):
            chosen = [i for i, p in enumerate(parts) if (p.side, p.instruction, p.scaled) == (side, told, scaled)]
            # Documents carry what their side always carries; only the query's instruction can be left out.
            own = prefix if side == "query" else self.retriever.instruction(side, *names_of(self.task))
            texts = [parts[i].text for i in chosen]
            before = own if told or side == "document" else ""
            made.append(self.retriever.embed(texts, side, before, of_query=True))
            vectors = made[-1].rows.read(0, len(texts))
            if self.retriever.similarity == "cosine" and scaled:
                vectors = unit(vectors)
            if not sums.shape[1]:
                sums = np.zeros((len(groups), vectors.shape[1]))
            weights = np.array([parts[i].weight for i in chosen])[:, None]
            np.add.at(sums, owners[chosen], weights * vectors)
        totals = np.bincount(owners, weights=[part.weight for part in parts], minlength=len(groups))[:, None]
        return Vectors(np.asarray(sums / totals, dtype=np.float32), made, len(parts))

    def _notes(self, made: Vectors) -> dict[str, object]:
        encoder, documents, parts = self.retriever.encoder, self.documents, [*made.parts, self.documents]
        tokens = np.concatenate([part.tokens for part in made.parts]) if made.parts else np.empty(0, np.int32)
        notes: dict[str, object] = {
            "truncation": truncation(encoder, self.task, tokens, documents.tokens),
            "cache": {
                "cached": sum(part.cached for part in parts),
                "encoded": sum(part.encoded for part in parts),
                "damaged_shards": sum(part.damaged_shards for part in parts),
            },
            "encoder": dict(sum((Counter(part.repaired) for part in parts), Counter())),
        }
        if made.averaged:
            notes["averaged_texts"] = made.averaged
        if self.retriever.card and (whose := wording_of(self.retriever.spec, self.retriever.card)):
            notes["instructions"] = whose
        return notes | ({"verified": self.verified} if self.verified is not None else {})
