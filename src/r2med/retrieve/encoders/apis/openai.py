"""OpenAI's embeddings, and what speaks its protocol: vLLM, TEI, Azure."""

from __future__ import annotations

from ....core.queries import Side
from . import WireFormat


class Format(WireFormat):
    """Both sides are asked for alike."""

    def body(self, model: str, texts: list[str], side: Side) -> dict[str, object]:
        return {"model": model, "input": texts, "encoding_format": "float"}
