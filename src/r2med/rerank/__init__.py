"""Putting candidates in a better order: cross-encoders, similarity of vectors, chat models.

reranker = get_reranker("maxsim")
run = reranker.rerank(task, candidates, depth=100, rest="keep")
"""

from .contract import DEFAULT, DEPTH, Reranker, Rest, rerankers, safeguards, without
from .custom import as_reranker

__all__ = [
    "DEFAULT",
    "DEPTH",
    "Reranker",
    "Rest",
    "as_reranker",
    "rerankers",
    "safeguards",
    "without",
]
