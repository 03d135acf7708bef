"""The names that the R2MED repository gives to things, and what they are called here."""

from __future__ import annotations

from typing import Final

MODES: Final = ("eval_retrieval", "eval_reranker", "generate_hydoc")
ALL: Final = "All"
RECALL_K: Final = (10, 100)
RETRIEVERS: Final = (
    *("bm25", "contriever", "medcpt", "inst-l", "inst-xl", "bmr-410m", "bmr-2b", "bmr-7b"),
    *("bge", "e5", "grit", "sfr", "nv", "voyage", "openai"),
)
RERANKERS: Final = {
    "bge-reranker": "bge-reranker",
    "monobert": "monobert",
    "rankllama": "rankllama",
    # As the scripts spelled them before May 2025.
    "bge": "bge-reranker",
    "mono": "monobert",
    "llama": "rankllama",
}
METHODS: Final = ("hyde", "query2doc", "lamer", "search-o1", "search-r1")
OPEN_LLMS: Final = (
    *("qwen-7b", "qwen-32b", "qwen-72b", "llama-70b", "r1-qwen-32b", "r1-llama-70b"),
    *("huatuo-o1-70b", "qwq-32b", "qwen3-32b"),
)
LLMS: Final = (*OPEN_LLMS, "gpt4", "o3-mini")


def reranker_name(given: str) -> str:
    """What a reranker of the repository is called here; other names stay what they are."""
    return RERANKERS.get(given, given)
