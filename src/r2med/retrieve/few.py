"""A few queries against many documents, at the speed of memory.

The blocked product of `vectors.py` moves every vector twice before it multiplies, which many queries share and a
single one pays alone. Here the vectors are read once, in the order in which they lie in their files, and choose the
candidates; those few then get their scores from the blocked product. So a score has the same bits however many
queries were asked at once, and whether or not this path was taken.
"""

from __future__ import annotations

import numpy as np

from ..core.columns import Int32
from .memory import DOCUMENT_BLOCK, TILE
from .rows import Float32, InPieces, Piece, Rows
from .sparse import TopK, in_parallel, top_k

try:
    from .. import _dots
except ImportError:  # no compiler at install time: the blocked product does it all
    _dots = None  # type: ignore[assignment]

FEW = TILE
MANY_DOCUMENTS = 16_384
"""Below this a product takes a few milliseconds anyway."""
LARGE_PRODUCT, STEP = 1_500_000, 512


def pays(queries: int, rows: Rows) -> bool:
    """Whether this path is open and the shorter one."""
    return _dots is not None and queries <= FEW and rows.shape[0] >= MANY_DOCUMENTS and isinstance(rows, InPieces)


class FewFirstStage:
    """Candidates by one pass over the vectors."""

    def __call__(self, queries: Float32, rows: Rows, tie_rank: Int32, depth: int) -> TopK:
        """The best `depth` of each query."""
        scores = np.empty((len(queries), rows.shape[0]), dtype=np.float32)
        assert isinstance(rows, InPieces)
        for piece in rows.pieces():
            count = len(piece.matrix) if piece.places is None else len(piece.places)
            if piece.documents is None:
                _products(queries, piece, scores)
            else:
                found = np.empty((len(queries), count), dtype=np.float32)
                _products(queries, piece, found)
                scores[:, piece.documents] = found
        return scored_again(queries, rows, top_k(scores, tie_rank, depth), tie_rank)


def _products(queries: Float32, piece: Piece, out: Float32) -> None:
    width = out.shape[1]

    def work(begin: int, end: int) -> None:
        _dots.dots(queries, piece.matrix, piece.places, out, queries.shape[1], width, begin, end, begin)

    in_parallel(work, width)


def _height(dimension: int) -> int:
    """Rows of a block: few, but enough that BLAS takes it for no small product and adds up as it always does."""
    return -(-LARGE_PRODUCT // (TILE * dimension * STEP)) * STEP


def scored_again(queries: Float32, rows: Rows, found: TopK, tie_rank: Int32) -> TopK:
    """The same candidates with the scores, and in the order, that the blocked product gives them."""
    padded = np.zeros((TILE, queries.shape[1]), dtype=np.float32)
    padded[: len(queries)] = queries
    docs = np.sort(found.docs, axis=None)
    docs = docs[np.append(True, docs[1:] != docs[:-1])]
    height = min(_height(queries.shape[1]), DOCUMENT_BLOCK)
    scores = np.empty((TILE, -(-len(docs) // height) * height), dtype=np.float32)
    block = np.zeros((height, queries.shape[1]), dtype=np.float32)
    for begin in range(0, len(docs), height):
        here = docs[begin : begin + height]
        block[: len(here)] = rows.take(here)
        with np.errstate(all="ignore"):
            np.matmul(padded, block.T, out=scores[:, begin : begin + height])
    own = np.take_along_axis(scores[: len(queries)], np.searchsorted(docs, found.docs), axis=1)
    order = np.lexsort((tie_rank[found.docs], -own), axis=1)
    return TopK(np.take_along_axis(found.docs, order, axis=1), np.take_along_axis(own, order, axis=1))
