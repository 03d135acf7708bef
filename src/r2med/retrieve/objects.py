"""Whatever people bring, as a retriever: a retriever, a searcher, an encoder, a function, or the class of one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..core import ModelError, Task, UsageError
from ..core.addresses import made
from ..core.objects import answering, name_of
from .dense import DenseRetriever, Similarity
from .embed import Embedded
from .encoders.calling import encodes
from .encoders.custom import CustomEncoder, to_numpy
from .encoders.protocol import Encoder, Side
from .guarded import GuardedRetriever, is_ours
from .protocol import Retriever
from .rows import Rows
from .sparse import Float32, TopK, top_k

BLOCK = 4096
Compare = Callable[[Any, Any], Any]
_GENERIC = ("device", "trust_remote_code", "on_progress", "max_cost", "verify", "cache")
"""What a command says to all of its retrievers; one that has no use for it does not mind."""


class ObjectRetriever(DenseRetriever):
    """Ranks by the vectors of somebody's encoder, compared as that encoder compares them.

    An object with a `similarity` of its own (sentence-transformers, MTEB) is asked what that is: cosine and inner
    product go the exact way all dense retrieval goes here, anything else (Euclidean, say) is left to the object. One
    without is compared by cosine, whatever the length of its vectors.
    """

    def __init__(self, model: Any, *, name: str = "", similarity: Similarity | None = None, **options: Any) -> None:
        encoder = model if isinstance(model, Encoder) else CustomEncoder(model, name=name)
        found = similarity or (comparison(encoder.model) if isinstance(encoder, CustomEncoder) else "cosine")
        self.compare: Compare | None = found if callable(found) else None
        chosen: Similarity = "dot" if callable(found) else found
        super().__init__(encoder, name=name, similarity=chosen, **options)
        if self.compare is not None and not self.variant.exact:
            raise UsageError(f"{self.name} compares vectors in a way of its own: there are no variants of it")

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return super().describe() | ({"similarity": "own"} if self.compare else {})

    def encode(self, task: Task, side: Side) -> Embedded:
        """Vectors of one side of a task; an object that asks for the facts of the task gets them."""
        if isinstance(self.encoder, CustomEncoder):
            self.encoder.task = task
        return super().encode(task, side)

    def _search(self, queries: Float32, rows: Rows, task: Task, depth: int) -> TopK:
        if self.compare is None:
            return super()._search(queries, rows, task, depth)
        parts = []
        for begin in range(0, rows.shape[0], BLOCK):
            end = min(begin + BLOCK, rows.shape[0])
            with answering(self.name, f"comparing documents {begin}–{end - 1}"):
                scores = np.asarray(to_numpy(self.compare(queries, rows.read(begin, end))), dtype=np.float32)
            if scores.shape != (len(queries), end - begin) or not np.isfinite(scores).all():
                what = f"shape {scores.shape} or numbers that are not finite"
                raise ModelError(f"{self.name} compares documents {begin}–{end - 1} to {what}")
            parts.append(scores)
        return top_k(np.concatenate(parts, axis=1), task.documents.ids.tie_rank, min(depth, rows.shape[0]))


def comparison(model: Any) -> Similarity | Compare:
    """How an object compares vectors: tried on four small ones, since libraries differ in what they call it."""
    similarity = getattr(model, "similarity", None)
    if not callable(similarity):
        return "cosine"
    queries = np.array([[3.0, 4.0, 0.0, 1.0], [-1.0, 0.5, 2.0, 0.0]], dtype=np.float32)
    documents = np.array([[0.5, 0.0, 7.0, -2.0], [1.0, 1.0, 1.0, 1.0]], dtype=np.float32)
    compare = partial(in_its_arrays, similarity)
    try:
        found = np.asarray(to_numpy(compare(queries, documents)), dtype=np.float32)
    except Exception:  # it may want another width than four
        return _named(model) or compare
    product = queries @ documents.T
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(documents, axis=1)
    if found.shape == product.shape:
        if np.allclose(found, product / lengths, atol=1e-5):
            return "cosine"
        if np.allclose(found, product, atol=1e-4):
            return "dot"
    return compare


def in_its_arrays(similarity: Compare, queries: Float32, documents: Float32) -> Any:
    """What a similarity says; one that is written for torch, and cannot take our arrays, gets tensors."""
    try:
        return similarity(queries, documents)
    except (TypeError, AttributeError):
        if (torch := sys.modules.get("torch")) is None:
            raise
        return similarity(torch.tensor(queries), torch.tensor(documents))


def _named(model: Any) -> Similarity | None:
    for holder in (model, getattr(model, "mteb_model_meta", None)):
        said = getattr(holder, "similarity_fn_name", None)
        said = str(getattr(said, "value", said))
        if said in ("dot", "dot_product"):
            return "dot"
        if said == "cosine":
            return "cosine"
    return None


def is_searcher(model: Any) -> bool:
    """MTEB's `SearchProtocol`."""
    return callable(getattr(model, "index", None)) and callable(getattr(model, "search", None))


def scores_pairs(model: Any) -> bool:
    """Whether an object is a reranker and no retriever: it predicts, and neither encodes nor searches."""
    return callable(getattr(model, "predict", None)) and not (encodes(model) or is_searcher(model))


def as_retriever(model: Any, *, name: str = "", **options: Any) -> Retriever:
    """An object as a retriever; `options` are those of `DenseRetriever` and concern encoders only."""
    model = made(model, name or name_of(model))
    if isinstance(model, Retriever):
        _refuse(name or model.name, options)
        return model if is_ours(model, Retriever) else GuardedRetriever(model)
    if is_searcher(model):
        from .searching import SearchRetriever

        _refuse(name or name_of(model), options)
        return SearchRetriever(model, name=name)
    if scores_pairs(model):
        raise UsageError(f"{name or name_of(model)} scores pairs of texts: it is a reranker, not a retriever")
    return ObjectRetriever(model, name=name, **options)


def _refuse(name: str, options: dict[str, Any]) -> None:
    if extra := sorted(set(options) - set(_GENERIC)):
        raise UsageError(f"{name} has no parameter {extra[0]!r}: it is no encoder")
