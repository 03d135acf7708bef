"""First-stage retrieval.

index = get_retriever("bm25").prepare(task)
run = index.search(Queries.of(task), depth=1000)
"""

from .bm25 import BM25, BM25Index, BM25Parameters
from .contract import DEPTH, Build, Explains, Index, Remote, Retriever, Work, kind_of, retrievers
from .custom import as_retriever, get_retriever

__all__ = [
    "BM25",
    "DEPTH",
    "BM25Index",
    "BM25Parameters",
    "Build",
    "Explains",
    "Index",
    "Remote",
    "Retriever",
    "Work",
    "as_retriever",
    "get_retriever",
    "kind_of",
    "retrievers",
]
