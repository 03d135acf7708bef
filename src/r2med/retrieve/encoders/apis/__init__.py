"""Wire formats of embedding services, one file each, named as the `backend` of their cards."""

from __future__ import annotations

import base64
import importlib
from importlib.util import find_spec
from typing import Any

import numpy as np

from ....core import ModelError
from ....core.queries import Side
from ....http import token_count


class WireFormat:
    """How a service is asked for vectors and how it answers; the answer here is OpenAI's, which most others copied."""

    key_header = ""
    """Header that the key goes in; empty: `Authorization`, as a bearer's."""
    most_texts = 64
    """Texts in one request."""

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
    if not backend.isidentifier() or find_spec(f"{__name__}.{backend}") is None:
        raise ModelError(f"no embedding service speaks {backend!r}")
    made: WireFormat = importlib.import_module(f"{__name__}.{backend}").Format()
    return made
