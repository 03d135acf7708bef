"""Feedback within the candidates: passages that resemble the best one move up.

Passages that answer a question are often alike, also where each shares few words with the question. This is the score
regularisation of Diaz (2005) with a fixed weight: it needs no query encoder, no training and no chat model, only the
documents' vectors, which a dense first stage has made already.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, cast

import numpy as np
from msgspec import Meta

from ..core import Run, Task, UsageError
from ..core.options import Names, declared_parameters
from ..core.registry import Entry
from ..core.spec import Spec
from ..models.prompts import names_of
from ..retrieve import Build, retrievers
from ..retrieve.contract import on_task
from ..retrieve.vectors import unit
from .contract import DEPTH, Float64, Reranker, Rest, blend, check_depth, on_scale, reordered, rerankers, top_pairs

if TYPE_CHECKING:
    from ..retrieve.dense import DenseRetriever

VECTORS = Spec("bge-small")


@dataclass(frozen=True)
class NeighboursParameters:
    """What may be set on `neighbours`."""

    model: Annotated[
        Spec, Meta(description="the dense model whose document vectors are compared"), Names(retrievers.parse)
    ] = VECTORS
    seeds: Annotated[int, Meta(ge=1, description="best candidates that the others are compared with")] = 1
    weight: Annotated[float, Meta(ge=0, le=1, description="weight of the likeness; the first stage's has the rest")] = (
        0.5
    )


class Neighbours(Reranker):
    """Candidates by their first-stage score and their likeness to the best candidates, both scaled to 0–1."""

    kind = "dense"

    def __init__(self, retriever: DenseRetriever, spec: Spec, given: NeighboursParameters) -> None:
        self.retriever, self.spec, self.given = retriever, spec, given

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> Reranker:
        """The reranker of a spec, on the dense retriever that it names."""
        given = spec.values(NeighboursParameters)
        found = build.retriever(given.model)
        if found.kind != "dense" or not hasattr(found, "embed"):
            raise UsageError(f"{spec}: {given.model} is a {found.kind} retriever and has no vectors of documents")
        retriever = cast("DenseRetriever", found)
        if not retriever.variant.exact or retriever.spec.get("similarity") is not None:
            raise UsageError(
                f"{spec}: whole vectors are compared by cosine: leave out variant, dimension and similarity"
            )
        return cls(retriever, rerankers.changed(spec, model=retriever.spec), given)

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        shape = {"seeds": self.given.seeds, "weight": self.given.weight}
        return {"kind": "neighbours", **shape, "vectors": self.retriever.describe()}

    def rerank(self, task: Task, candidates: Run, depth: int = DEPTH, *, rest: Rest = "keep") -> Run:
        """Reorder the first `depth` candidates of each query."""
        check_depth(depth, rest)
        begin = time.perf_counter()
        candidates = on_task(candidates, task)
        _, docs, width = top_pairs(candidates, depth)
        used = np.unique(docs)
        texts = [task.documents.contents[i] for i in used.tolist()]
        self.retriever.about(task)
        made = self.retriever.embed(texts, "document", self.retriever.instruction("document", *names_of(task)))
        table = np.full((len(candidates), width), np.nan, dtype=np.float32)
        for row, length in enumerate(np.minimum(candidates.lengths(), width).tolist()):
            vectors = unit(made.rows.take(np.searchsorted(used, candidates.docs[row, :length])))
            first = candidates.scores[row, :length].astype(np.float64)
            likeness = self._likeness(vectors.astype(np.float64), first)
            table[row, :length] = blend(likeness, first, self.given.weight, "min-max")
        run = reordered(candidates, table, rest, f"{candidates.name}.{self.name}@{depth}")
        account = {"vectors_cached": made.cached, "vectors_made": made.encoded}
        seconds = round(time.perf_counter() - begin, 4)
        said = {"reranker": self.name, "depth": depth, "rest": rest, **account, "seconds": seconds}
        run.notes, run.reused = {**candidates.notes, "rerank": said}, made.reused
        return run

    def _likeness(self, vectors: Float64, first: Float64) -> Float64:
        """The mean cosine with the seeds, which count by their scores."""
        seeds = min(self.given.seeds, len(vectors))
        weights = on_scale(first, "min-max")[:seeds]
        if not weights.sum() > 0:
            weights = np.ones(seeds)
        return np.asarray(vectors @ (weights @ vectors[:seeds]) / weights.sum())


rerankers.add(
    Entry(
        "neighbours",
        Neighbours.from_spec,
        "feedback: candidates that resemble the best one move up, by the vectors of their texts",
        declared_parameters(NeighboursParameters),
    )
)
