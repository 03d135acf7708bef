"""First-stage retrieval."""

from .bm25 import BM25, BM25Index, BM25Parameters
from .protocol import Retriever
from .specs import get_retriever

__all__ = ["BM25", "BM25Index", "BM25Parameters", "Retriever", "get_retriever"]
