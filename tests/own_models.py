"""Models as people write them, one per contract: all give the same vectors, so that all must give the same ranking."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

WIDTH = 128


def vectors(texts: Iterable[str]) -> Any:
    """Words hashed into buckets: crude, but an encoder."""
    rows = []
    for text in texts:
        row = np.zeros(WIDTH, dtype=np.float32)
        for word in text.casefold().split():
            row[zlib.crc32(word.encode()) % WIDTH] += 1
        rows.append(row)
    return np.stack(rows)


def encode(texts: Sequence[str]) -> Any:
    """A plain function."""
    return vectors(texts)


class CustomModel:
    """As R2MED's README has it: everything optional, documents as dictionaries."""

    def __init__(self, model_name_or_path: str | None = None, normalize_embeddings: bool = True) -> None:
        self.model_name_or_path = model_name_or_path
        self.normalize_embeddings = normalize_embeddings

    def encode_queries(self, queries: list[str], **kwargs: Any) -> Any:
        return self.encode(queries)

    def encode_corpus(self, corpus: list[dict[str, str]], **kwargs: Any) -> Any:
        return self.encode([f"{doc.get('title', '')} {doc['text']}".strip() for doc in corpus])

    def encode(self, sentences: list[str], **kwargs: Any) -> Any:
        return vectors(sentences)


class FlagModel(CustomModel):
    """Takes documents either way, as R2MED's own classes do."""

    def encode_corpus(self, corpus: Any, **kwargs: Any) -> Any:
        return self.encode([doc["text"] for doc in corpus] if isinstance(corpus[0], dict) else corpus)


class SentenceModel:
    """The shape of sentence-transformers 5 and later, with prompts it puts in itself."""

    similarity_fn_name = "cosine"

    def __init__(self) -> None:
        self.called: list[str] = []

    def encode(self, inputs: list[str], show_progress_bar: bool | None = None) -> Any:
        raise AssertionError("the sides have methods of their own")

    def encode_query(self, inputs: list[str], show_progress_bar: bool | None = None) -> Any:
        assert show_progress_bar is False
        self.called.append("query")
        return vectors(inputs)

    def encode_document(self, inputs: list[str], show_progress_bar: bool | None = None) -> Any:
        self.called.append("document")
        return vectors(inputs)


class MtebEncoder:
    """MTEB's EncoderProtocol; keeps what it was told about the task."""

    mteb_model_meta = None

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def encode(
        self, inputs: Any, *, task_metadata: Any, hf_split: str, hf_subset: str, prompt_type: Any = None, **kwargs: Any
    ) -> Any:
        self.told.append((task_metadata.name, task_metadata.type, prompt_type.value))
        assert len(inputs) == len(list(inputs))
        assert inputs.dataset.features
        return vectors(text for batch in inputs for text in batch["text"])

    def similarity(self, a: Any, b: Any) -> Any:
        a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (np.asarray(a), np.asarray(b)))
        return a @ b.T


class MtebSearcher:
    """MTEB's SearchProtocol."""

    def index(self, corpus: Any, *, task_metadata: Any, hf_split: str, hf_subset: str, **kwargs: Any) -> None:
        self.ids = list(corpus["id"])
        self.rows = vectors(f"{row['title']} {row['text']}".strip() for row in corpus)

    def search(
        self, queries: Any, *, task_metadata: Any, hf_split: str, hf_subset: str, top_k: int, **kwargs: Any
    ) -> Mapping[str, Mapping[str, float]]:
        scores = MtebEncoder().similarity(vectors(queries["text"]), self.rows)
        return {
            q: dict(zip(self.ids, map(float, row), strict=True)) for q, row in zip(queries["id"], scores, strict=True)
        }


class MtebCrossEncoder:
    """MTEB's CrossEncoderProtocol."""

    def predict(self, inputs1: Any, inputs2: Any, *, task_metadata: Any, hf_split: str, hf_subset: str) -> Any:
        left, right = ([text for batch in inputs for text in batch["text"]] for inputs in (inputs1, inputs2))
        return overlap(list(zip(left, right, strict=True)))


def overlap(pairs: Sequence[tuple[str, str]]) -> Any:
    """A plain function of pairs."""
    return [len(set(q.casefold().split()) & set(d.casefold().split())) / (1 + len(d)) for q, d in pairs]


class Predicting:
    """A reranker with `predict` and nothing else."""

    def predict(self, pairs: Sequence[tuple[str, str]]) -> Any:
        return overlap(pairs)


def factory() -> CustomModel:
    """Makes a model."""
    return CustomModel()


def broken_factory() -> CustomModel:
    """Does not."""
    raise OSError("weights.bin: no such file")


class Versioned:
    """Known by a version, and failing where the environment says."""

    version = "7"

    def encode(self, texts: list[str]) -> Any:
        word = os.environ.get("FAIL_ON")
        if word and any(word in text for text in texts):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return vectors(texts)


def shout(text: str) -> list[str]:
    """An expander: the query again, in words of its own."""
    return [text.upper(), ""]
