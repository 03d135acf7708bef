"""OpenAI's embeddings, and what speaks its protocol: vLLM, TEI, Azure."""

from __future__ import annotations

from ....core.queries import Side
from . import WireFormat


class Format(WireFormat):
    """Both sides are asked for alike."""

    def body(self, model: str, texts: list[str], side: Side, dimension: int | None) -> dict[str, object]:
        asked: dict[str, object] = {"model": model, "input": texts, "encoding_format": "float"}
        return asked if dimension is None else asked | {"dimensions": dimension}
