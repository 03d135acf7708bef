"""Wire formats of embedding services, one file each, named as the `backend` of their cards."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from ....core import ModelError
from ....core.queries import Side
from ....http import token_count


class WireFormat:
    """How a service is asked for vectors and how it answers; the answer here is OpenAI's, which most others copied."""

    path = "/embeddings"

    def body(self, model: str, texts: list[str], side: Side) -> dict[str, object]:
        """The request for some texts of one side."""
        raise NotImplementedError

    def vectors(self, answer: dict[str, Any]) -> list[list[float]]:
        """The vectors of an answer, in the order of the texts; a KeyError or TypeError says that it is no answer."""
        return [item["embedding"] for item in sorted(answer["data"], key=lambda item: item["index"])]

    def tokens(self, answer: dict[str, Any]) -> int | None:
        """How many tokens the service counted; None where it does not say."""
        usage = answer.get("usage")
        return token_count(usage.get("total_tokens")) if isinstance(usage, dict) else None


def wire_format(backend: str) -> WireFormat:
    """The format that a card names."""
    if not backend.isidentifier() or find_spec(f"{__name__}.{backend}") is None:
        raise ModelError(f"no embedding service speaks {backend!r}")
    made: WireFormat = importlib.import_module(f"{__name__}.{backend}").Format()
    return made
