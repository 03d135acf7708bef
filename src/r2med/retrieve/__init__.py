"""First-stage retrieval."""

from .bm25 import BM25, BM25Index, BM25Parameters
from .index_files import load_index, save_index
from .protocol import Retriever
from .specs import get_retriever

__all__ = ["BM25", "BM25Index", "BM25Parameters", "Retriever", "get_retriever", "load_index", "save_index"]
