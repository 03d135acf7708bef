"""Candidates of a few queries among many documents, at the speed of memory.

The blocked product of `vectors.py` moves every vector twice before it multiplies, which many queries share and a
single one pays alone; and the threads of a BLAS keep the cores busy after a product, when the next query may be
waiting. Here the vectors are read once, in the order in which they lie in their files.
"""

from __future__ import annotations

import numpy as np

from ..cache import Piece
from ..core.columns import Int32
from .rows import Float32, InPieces, Rows
from .sparse import TopK, in_parallel, top_k

try:
    from .. import _dots
except ImportError:  # no compiler at install time: the blocked product does it all
    _dots = None  # type: ignore[assignment]

FEW = 8
MANY_DOCUMENTS = 16_384
"""Below this a product takes a few milliseconds anyway."""


def small_batch_faster(queries: int, rows: Rows) -> bool:
    """Whether this path is open and the shorter one."""
    return _dots is not None and queries <= FEW and rows.shape[0] >= MANY_DOCUMENTS and isinstance(rows, InPieces)


def few_queries(queries: Float32, rows: Rows, tie_rank: Int32, depth: int) -> TopK:
    """The best `depth` of each query by float32 products: a `FirstStage`."""
    scores = np.empty((len(queries), rows.shape[0]), dtype=np.float32)
    assert isinstance(rows, InPieces)
    for piece in rows.pieces():
        if piece.documents is None:
            _products(queries, piece, scores)
        else:
            found = np.empty((len(queries), len(piece.documents)), dtype=np.float32)
            _products(queries, piece, found)
            scores[:, piece.documents] = found
    return top_k(scores, tie_rank, depth)


def _products(queries: Float32, piece: Piece, out: Float32) -> None:
    width = out.shape[1]

    def work(begin: int, end: int) -> None:
        _dots.dots(queries, piece.matrix, piece.places, out, queries.shape[1], width, begin, end, begin)

    in_parallel(work, width)
