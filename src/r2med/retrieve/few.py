"""A few queries against many documents, at the speed of memory.

The blocked product of `vectors.py` moves every vector twice before it multiplies, which many queries share and a
single one pays alone; and the threads of a BLAS keep the cores busy after a product, when the next query may be
waiting. Here the vectors are read once, in the order in which they lie in their files, and choose the candidates.
Those get their exact inner products, summed in float64 and rounded once: the ranking is that of the blocked product,
and the scores differ from its scores in their last bits at most.
"""

from __future__ import annotations

import numpy as np

from ..cache import Piece
from ..core.columns import Int32
from .near_ties import SAFETY, check_finite, exact_products
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


def search_few(queries: Float32, rows: Rows, tie_rank: Int32, depth: int, wide: int) -> TopK:
    """The best `depth` of each query, looking at `wide` candidates or as many as near ties ask for."""
    scores = _all_products(queries, rows)
    while True:
        top, open_ended = _exactly(queries, rows, top_k(scores, tie_rank, wide), tie_rank, depth)
        if wide == rows.shape[0] or not open_ended:
            return top
        wide = min(4 * wide, rows.shape[0])


def _all_products(queries: Float32, rows: Rows) -> Float32:
    scores = np.empty((len(queries), rows.shape[0]), dtype=np.float32)
    assert isinstance(rows, InPieces)
    for piece in rows.pieces():
        if piece.documents is None:
            _products(queries, piece, scores)
        else:
            found = np.empty((len(queries), len(piece.documents)), dtype=np.float32)
            _products(queries, piece, found)
            scores[:, piece.documents] = found
    return scores


def _products(queries: Float32, piece: Piece, out: Float32) -> None:
    width = out.shape[1]

    def work(begin: int, end: int) -> None:
        _dots.dots(queries, piece.matrix, piece.places, out, queries.shape[1], width, begin, end, begin)

    in_parallel(work, width)


def _exactly(queries: Float32, rows: Rows, found: TopK, tie_rank: Int32, depth: int) -> tuple[TopK, bool]:
    """Candidates by their exact scores; and whether others, left out by a rounding error, may belong among them."""
    check_finite(found.scores)
    row = np.repeat(np.arange(len(queries)), found.docs.shape[1])
    exact = exact_products(queries, rows, row, found.docs.reshape(-1)).reshape(found.docs.shape)
    errors = SAFETY * np.abs(exact - found.scores).max(axis=1)
    scores = exact.astype(np.float32) + np.float32(0)  # -0 becomes 0
    order = np.lexsort((tie_rank[found.docs], -scores), axis=1)[:, :depth]
    top = TopK(np.take_along_axis(found.docs, order, axis=1), np.take_along_axis(scores, order, axis=1))
    return top, bool((top.scores[:, -1] - found.scores[:, -1] <= 2 * errors).any())
