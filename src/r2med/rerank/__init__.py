"""Putting candidates in a better order: cross-encoders, late interaction, vectors, language models.

reranker = get_reranker("maxsim")
run = reranker.rerank(task, candidates, depth=100, rest="keep")
"""

from .candidates import load_candidates, on_task
from .protocol import Reranker, Rest
from .safeguard import safeguards, without
from .specs import DEFAULT, Asked, as_reranker, from_card, get_reranker, split_depth

__all__ = [
    "DEFAULT",
    "Asked",
    "Reranker",
    "Rest",
    "as_reranker",
    "from_card",
    "get_reranker",
    "load_candidates",
    "on_task",
    "safeguards",
    "split_depth",
    "without",
]
