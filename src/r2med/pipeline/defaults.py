"""What runs when nobody says what to run."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from ..models import get_card, locate

EMBEDDED = "bge-small"


class Defaults(NamedTuple):
    """Retrievers, how they are fused, and what is missing for more."""

    retrievers: list[str]
    fusion: str
    missing: str


def default_systems() -> Defaults:
    """BM25, the embedded dense model and their fusion; BM25 alone where that model cannot run."""
    if find_spec("onnxruntime") is None or find_spec("tokenizers") is None:
        missing = f"{EMBEDDED} needs an optional dependency: pip install 'r2med[onnx]'"
    elif locate(get_card(EMBEDDED)) is None:
        missing = f"{EMBEDDED} is not on this machine: r2med models fetch {EMBEDDED}"
    else:
        return Defaults(["bm25", EMBEDDED], "rrf", "")
    return Defaults(["bm25", "bm25-lucene"], "", missing)
