"""Encoders: what they all are and share, and the one that a model's card asks for.

Texts go in; float32 vectors come out, one a text or one a token, with an account of what was cut. There is a backend
per file, each importing what it needs when it is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ...core import ModelError, Task, UsageError
from ...core.columns import Int32, Int64
from ...core.options import Options
from ...core.queries import Side
from ...models import Card, Interaction, locate, stated, verified
from ...models.generic import ROBERTA, cut_at, lower_cases, positions, read_config

Float32 = npt.NDArray[np.float32]
UNKNOWN_TOKENS = -1
LEARNED_POSITIONS = ("bert", *ROBERTA)
"""Architectures whose positions end where their table ends."""


class Batch(NamedTuple):
    """Vectors of some of the texts, in whatever order the encoder found fastest."""

    rows: Int64
    """Positions in the sequence of texts."""
    vectors: Float32
    tokens: Int32
    """Length of each text in tokens before it was cut, instruction and special tokens included; -1 if unknown."""


class TermBatch(NamedTuple):
    """Term weights of some of the texts."""

    rows: Int64
    terms: list[Int32]
    weights: list[Float32]
    tokens: Int32
    size: int
    """Number of terms there are."""


class TokenBatch(NamedTuple):
    """A vector for each token of some of the texts."""

    rows: Int64
    states: list[Float32]
    tokens: Int32


class WorkOrder(NamedTuple):
    """How texts are dealt out to workers so that each sees the batches that one process would make."""

    order: Int64
    window: int
    """Neighbours in that order which belong together."""
    free: bool = False
    """Whether any cut will do, because a text's vector does not depend on the texts beside it."""


@runtime_checkable
class Encoder(Protocol):
    """A model of one backend.

    `instruction` is the text put before every text, already rendered (`"query: "`): an
    encoder that leaves it out of pooling needs to know where it ends. An empty text is encoded like any other: what
    the model makes of its special tokens is its vector.
    """

    name: str
    notes: Counter[str]
    """What went wrong and was repaired on the way, counted: batches halved, requests repeated."""

    def describe(self, side: Side) -> dict[str, object]:
        """Everything besides text and instruction that changes a vector, as plain data: the cache key."""
        ...

    def max_length(self, side: Side) -> int | None:
        """Where texts are cut, in tokens; None if the backend cannot say."""
        ...

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        """Encode all texts, a batch at a time, so that finished ones can be kept when a later one fails."""
        ...

    def encode(self, texts: Sequence[str], side: Side = "document", instruction: str = "") -> Float32:
        """Encode all texts: one row each, in order."""
        ...

    def work_order(self, texts: Sequence[str]) -> WorkOrder:
        """How texts are dealt out to workers."""
        ...


class TokenEncoder(Protocol):
    """What late interaction needs of a model."""

    name: str
    notes: Counter[str]

    def describe(self, side: Side) -> dict[str, object]:
        """Everything besides text and instruction that changes a vector."""
        ...

    def max_length(self, side: Side) -> int | None:
        """Where texts are cut."""
        ...

    def work_order(self, texts: Sequence[str]) -> WorkOrder:
        """How texts are dealt out to workers."""
        ...

    def stream_states(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[TokenBatch]:
        """Token vectors of all texts, a batch at a time."""
        ...

    def token_names(self, texts: Sequence[str], side: Side, instruction: str = "") -> list[list[str]]:
        """The tokens of each text as the tokenizer writes them, one for each vector."""
        ...


class BaseEncoder(ABC):
    """What all backends share."""

    name: str = "encoder"
    cacheable: bool = True
    """Whether a vector made now can be known to be valid later."""
    runs_here: bool = True
    """False for a model behind an API, which no worker of ours can hold."""

    def __init__(self) -> None:
        self.notes: Counter[str] = Counter()

    @abstractmethod
    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        """Encode all texts, a batch at a time."""

    def work_order(self, texts: Sequence[str]) -> WorkOrder:
        """How texts are dealt out to workers."""
        return WorkOrder(np.arange(len(texts)), len(texts) or 1)

    def encode(self, texts: Sequence[str], side: Side = "document", instruction: str = "") -> Float32:
        """Encode all texts: one row each, in order."""
        vectors: Float32 | None = None
        for batch in self.stream(texts, side, instruction):
            if vectors is None:
                vectors = np.empty((len(texts), batch.vectors.shape[1]), dtype=np.float32)
            vectors[batch.rows] = batch.vectors
        return np.empty((0, 0), dtype=np.float32) if vectors is None else vectors


def load_encoder(card: Card, options: Options | None = None, *, dtype: str | None = None) -> Encoder:
    """The encoder of a card, from the folder its files lie in; nothing is loaded yet."""
    options = options or Options()
    if card.kind != "dense":
        raise UsageError(f"{card.name} is a {card.kind} model, not a dense retriever")
    if card.is_api:
        from .api import ApiEncoder

        return ApiEncoder(card, options)
    folder = model_folder(card)
    card = as_stated(card, folder)
    if card.backend == "onnx":
        from .onnx import OnnxEncoder

        return OnnxEncoder(card, folder, options)
    second = model_folder(card, "document") if card.document_source else None
    if card.pooling == "latent-attention":
        from .nv_embed import NvEmbedEncoder

        return NvEmbedEncoder(card, folder, options, document_folder=second, dtype=dtype)
    from .torch_encoder import TorchEncoder

    return TorchEncoder(card, folder, options, document_folder=second, dtype=dtype)


def token_encoder(card: Card, folder: Path, options: Options, *, dtype: str | None = None) -> TokenEncoder:
    """The token encoder of a card."""
    card = as_stated(card, folder)
    if card.backend == "onnx":
        if card.interaction != Interaction() or card.head or card.projection:
            raise UsageError(f"{card.name}: markers and projections of tokens run in transformers, not in ONNX Runtime")
        from .onnx import OnnxTokenEncoder

        return OnnxTokenEncoder(card, folder, options)
    if card.backend != "transformers":
        raise UsageError(f"{card.name} runs on {card.backend}, which gives no vectors of tokens")
    from .torch_encoder import TorchTokenEncoder

    second = model_folder(card, "document") if card.document_source else None
    return TorchTokenEncoder(card, folder, options, document_folder=second, dtype=dtype)


def as_stated(card: Card, folder: Path) -> Card:
    """The card with what it leaves to the model's own files."""
    return card.replace(**stated(folder, card.kind)) if card.pooling == "stated" else card


def model_folder(card: Card, part: str = "main") -> Path:
    """Where the files of a card, or of one part of it, lie; an error that says how to get them if they do not."""
    found = locate(card, part)
    if found is None or not found.is_dir():
        raise ModelError(f"{card.name} is not on this machine: r2med models fetch {card.name}")
    return verified(card, found)


def check_length(card: Card, folder: Path) -> None:
    """Refuse texts longer than a model has learned positions for; rotary ones are defined beyond, if untrained.

    Where no `config.json` says how many there are, as beside some ONNX files, the model itself refuses them.
    """
    if not (folder / "config.json").is_file():
        return
    places, longest = positions(read_config(folder), card.architecture), max(card.query_length, card.document_length)
    if card.architecture in LEARNED_POSITIONS and places is not None and longest > places:
        raise ModelError(f"{card.name} takes at most {places} tokens, not {longest}")


def check_vectors(vectors: Float32, rows: Int64, texts: Sequence[str], name: str, batch: str = "") -> Float32:
    """Refuse what is not a finite float32 matrix with a row per text, naming the place; `batch` says which texts."""
    if vectors.ndim != 2 or len(vectors) != len(rows) or not vectors.shape[1]:
        given = f"{len(rows)} texts" + (f", {batch}" if batch else "")
        raise ModelError(f"{name} returned an array of shape {vectors.shape} for {given}")
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    bad = ~np.isfinite(vectors).all(axis=1)
    if bad.any():
        row = int(rows[int(np.flatnonzero(bad)[0])])
        start = " ".join(texts[row].split())[:60]
        overflow = " (infinite: numbers beyond what float16 holds?)" if np.isinf(vectors[bad]).any() else ""
        raise ModelError(
            f"{name} returned numbers that are not finite{overflow} for {int(bad.sum())} of "
            f"{batch or f'a batch of {len(rows)} texts'}, the first being text {row} ({start!r})"
        )
    return vectors


def normalized(vectors: Float32) -> Float32:
    """Rows of unit length; a row of zeros stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def shortened(vectors: Float32, card: Card) -> Float32:
    """The first dimensions of vectors (Matryoshka), of length one again where they had it; whole unless asked for."""
    if card.cut_to is None:
        return vectors
    if vectors.shape[1] < card.cut_to:
        raise ModelError(f"vectors of {card.name} have {vectors.shape[1]} dimensions, not {card.cut_to}")
    cut = np.ascontiguousarray(vectors[:, : card.cut_to])
    return normalized(cut) if card.normalize else cut


def length_facts(card: Card) -> dict[str, object]:
    """What a cut of vectors adds to a cache key; nothing where they are whole."""
    return {} if card.cut_to is None else {"dimensions": card.cut_to}


def text_facts(folder: Path) -> dict[str, object]:
    """What a model that writes texts in lower case first, or cuts off their beginnings, adds to a cache key."""
    case: dict[str, object] = {"case": "lower"} if lower_cases(folder) else {}
    return case | ({"cut_at": "left"} if cut_at(folder) == "left" else {})


def lower_first(backend: Any, folder: Path) -> None:
    """Let a tokenizer write texts in lower case first, where the folder's files say so."""
    if not lower_cases(folder):
        return
    if backend is None:
        raise ModelError(f"{folder} asks for texts in lower case, and has a tokenizer that cannot be told so")
    from tokenizers import normalizers

    own = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])


class Limited(Protocol):
    """What cuts texts."""

    def max_length(self, side: Side) -> int | None:
        """Where texts are cut, in tokens."""
        ...


def truncation(encoder: Limited, task: Task, queries: Int32, documents: Int32) -> dict[str, object]:
    """What a model never saw of queries and of a task's documents, by their lengths in tokens."""
    limit = encoder.max_length("document")
    return {
        "query": _cut(queries, encoder.max_length("query")),
        "document": {**_cut(documents, limit), **_positives_cut(task, documents, limit)},
    }


def _cut(tokens: Int32, limit: int | None) -> dict[str, object]:
    """Counts for one side of a task; `unknown` texts are those whose backend does not tell their length."""
    known = tokens >= 0
    over = np.maximum(tokens.astype(np.int64) - limit, 0) if limit is not None else np.zeros(len(tokens), np.int64)
    return {
        "limit": limit,
        "texts": len(tokens),
        "tokens": int(tokens[known].sum(dtype=np.int64)),
        "texts_cut": int((over > 0).sum()),
        "tokens_cut": int(over.sum()),
        "longest": int(tokens.max(initial=0)),
        **({"unknown": int((~known).sum())} if not known.all() else {}),
    }


def _positives_cut(task: Task, tokens: Int32, limit: int | None) -> dict[str, int]:
    """How many relevant documents, and how many judgments that name one, lost their end."""
    if limit is None:
        return {"positives_cut": 0, "positive_judgments_cut": 0}
    positive = task.qrels.docs[task.qrels.grades > 0]
    place: Sequence[int] = task.documents.ids.positions(task.qrels.doc_ids).tolist()
    cut = np.array([p >= 0 and tokens[p] > limit for p in place], dtype=bool)
    return {
        "positives_cut": int(cut[np.unique(positive)].sum()) if len(cut) else 0,
        "positive_judgments_cut": int(cut[positive].sum()) if len(cut) else 0,
    }
