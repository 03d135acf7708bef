"""Wire formats of embedding services, named as the `backend` of their cards."""

from __future__ import annotations

import base64
from typing import Any, ClassVar

import numpy as np

from ...core import ModelError
from ...core.queries import Side
from ...http import token_count


class WireFormat:
    """How a service is asked for vectors and how it answers; the answer here is OpenAI's, which most others copied."""

    known: ClassVar[dict[str, type[WireFormat]]] = {}
    """All formats by the `backend` of cards."""
    key_header = ""
    """Header that the key goes in; empty: `Authorization`, as a bearer's."""
    most_texts = 64
    """Texts in one request."""

    def __init_subclass__(cls, backend: str) -> None:
        cls.known[backend] = cls

    def path(self, model: str) -> str:
        """What is asked for, below the base URL."""
        del model
        return "/embeddings"

    def body(self, model: str, texts: list[str], side: Side, dimension: int | None) -> dict[str, object]:
        """The request for some texts of one side; `dimension` is a length of vectors other than the usual one."""
        raise NotImplementedError

    def vectors(self, answer: dict[str, Any]) -> list[list[float]]:
        """The vectors of an answer, in the order of the texts; a KeyError or TypeError says that it is no answer."""
        return [numbers(item["embedding"]) for item in sorted(answer["data"], key=lambda item: item["index"])]

    def tokens(self, answer: dict[str, Any]) -> int | None:
        """How many tokens the service counted; None where it does not say."""
        usage = answer.get("usage")
        return token_count(usage.get("total_tokens")) if isinstance(usage, dict) else None


def numbers(embedding: Any) -> list[float]:
    """A vector: a list of numbers, or the bytes of its float32 in base64, which some gateways always send."""
    if not isinstance(embedding, str):
        made: list[float] = embedding
        return made
    return [float(number) for number in np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")]


def wire_format(backend: str) -> WireFormat:
    """The format that a card names."""
    if backend not in WireFormat.known:
        raise ModelError(f"no embedding service speaks {backend!r}")
    return WireFormat.known[backend]()


class OpenAIFormat(WireFormat, backend="openai"):
    """OpenAI's, and what speaks its protocol (vLLM, TEI, Azure). Both sides are asked for alike."""

    def body(self, model: str, texts: list[str], side: Side, dimension: int | None) -> dict[str, object]:
        asked: dict[str, object] = {"model": model, "input": texts, "encoding_format": "float"}
        return asked if dimension is None else asked | {"dimensions": dimension}


class VoyageFormat(WireFormat, backend="voyage"):
    """Voyage's. The side is part of the request, and the service cuts what is too long."""

    def body(self, model: str, texts: list[str], side: Side, dimension: int | None) -> dict[str, object]:
        asked: dict[str, object] = {"model": model, "input": texts, "input_type": side, "truncation": True}
        return asked if dimension is None else asked | {"output_dimension": dimension}


class CohereFormat(WireFormat, backend="cohere"):
    """Cohere's, version 2 of the protocol. The side is part of the request, and the service cuts what is too long.

    Vectors come by their type of number. A request holds 96 texts at most.
    """

    def path(self, model: str) -> str:
        del model
        return "/embed"

    def body(self, model: str, texts: list[str], side: Side, dimension: int | None) -> dict[str, object]:
        asked: dict[str, object] = {
            "model": model,
            "texts": texts,
            "input_type": f"search_{side}",
            "embedding_types": ["float"],
            "truncate": "END",
        }
        return asked if dimension is None else asked | {"output_dimension": dimension}

    def vectors(self, answer: dict[str, Any]) -> list[list[float]]:
        made: list[list[float]] = answer["embeddings"]["float"]
        return made

    def tokens(self, answer: dict[str, Any]) -> int | None:
        billed = (answer.get("meta") or {}).get("billed_units")
        return token_count(billed.get("input_tokens")) if isinstance(billed, dict) else None


class GeminiFormat(WireFormat, backend="gemini"):
    """That of Google's Gemini API. The model stands in the address, the side in every text's own request.

    A batch holds 100 of them at most.
    """

    key_header = "x-goog-api-key"

    def path(self, model: str) -> str:
        return f"/models/{model}:batchEmbedContents"

    def body(self, model: str, texts: list[str], side: Side, dimension: int | None) -> dict[str, object]:
        how: dict[str, object] = {"model": f"models/{model}", "taskType": f"RETRIEVAL_{side.upper()}"}
        if dimension is not None:
            how["outputDimensionality"] = dimension
        return {"requests": [{**how, "content": {"parts": [{"text": text}]}} for text in texts]}

    def vectors(self, answer: dict[str, Any]) -> list[list[float]]:
        return [item["values"] for item in answer["embeddings"]]

    def tokens(self, answer: dict[str, Any]) -> int | None:
        usage = answer.get("usageMetadata")
        return token_count(usage.get("promptTokenCount")) if isinstance(usage, dict) else None
