"""What runs when nobody says what to run."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from ..models import get_card, locate

EMBEDDED = "bge-small"
ENGINES = {"onnx": ("onnx", ("onnxruntime", "tokenizers")), "transformers": ("torch", ("torch", "transformers"))}


class Defaults(NamedTuple):
    """Retrievers, how they are fused, and what is missing for more."""

    retrievers: list[str]
    fusion: str
    missing: str


def default_systems() -> Defaults:
    """BM25, the embedded dense model and their fusion; BM25 alone where that model cannot run."""
    missing = missing_for(EMBEDDED)
    return Defaults(["bm25", "bm25-lucene"], "", missing) if missing else Defaults(["bm25", EMBEDDED], "rrf", "")


def missing_for(name: str) -> str:
    """What a named model lacks to run on this machine: its engine, or its weights; empty where it lacks nothing."""
    card = get_card(name)
    extra, modules = ENGINES[card.backend]
    if any(find_spec(module) is None for module in modules):
        return f"{name} needs an optional dependency: pip install 'r2med[{extra}]'"
    return "" if locate(card) is not None else f"{name} is not on this machine: r2med models fetch {name}"
