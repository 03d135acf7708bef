"""Embeddings of Google's Gemini API."""

from __future__ import annotations

from typing import Any

from ....core.queries import Side
from ....http import token_count
from . import WireFormat


class Format(WireFormat):
    """The model stands in the address, the side in every text's own request; a batch holds 100 of them at most."""

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
