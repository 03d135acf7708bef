"""Voyage's embeddings."""

from __future__ import annotations

from ....core.queries import Side
from . import WireFormat


class Format(WireFormat):
    """The side is part of the request, and the service cuts what is too long."""

    def body(self, model: str, texts: list[str], side: Side, dimension: int | None) -> dict[str, object]:
        asked: dict[str, object] = {"model": model, "input": texts, "input_type": side, "truncation": True}
        return asked if dimension is None else asked | {"output_dimension": dimension}
