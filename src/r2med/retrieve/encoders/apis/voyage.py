"""Voyage's embeddings."""

from __future__ import annotations

from ....core.queries import Side
from . import WireFormat


class Format(WireFormat):
    """The side is part of the request, and the service cuts what is too long."""

    def body(self, model: str, texts: list[str], side: Side) -> dict[str, object]:
        return {"model": model, "input": texts, "input_type": side, "truncation": True}
