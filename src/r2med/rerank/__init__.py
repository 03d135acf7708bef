"""Putting candidates in a better order: cross-encoders, similarity of vectors, chat models.

run = r2med.rerank("maxsim", task, candidates, depth=100)
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
