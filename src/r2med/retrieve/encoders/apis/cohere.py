"""Cohere's embeddings, version 2 of the protocol."""

from __future__ import annotations

from typing import Any

from ....core.queries import Side
from ....http import token_count
from . import WireFormat


class Format(WireFormat):
    """The side is part of the request, the service cuts what is too long, and vectors come by their type of number.

    A request holds 96 texts at most.
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
