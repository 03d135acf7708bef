"""MaxSim in whole numbers: a query's score is the sum, over its tokens, of the best match among a document's tokens.

Vectors of length one become 16-bit fixed-point numbers (steps of 2^-15), and products and sums of those are exact:
the score of a pair is the same bits whatever queries and documents are compared with it, on however many threads, on
any machine. A product of two vectors is off by some 0.00001 from that of the model's own numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType

import numpy as np

from ..cache import Int16, TokenPiece
from ..core import ModelError
from ..core.queries import Share
from . import _native_python
from .sparse import in_parallel
from .vectors import Float32

native: ModuleType = _native_python
try:
    from .. import _maxsim

    native = _maxsim
except ImportError:  # no compiler at install time: the numpy twin gives the same bits
    pass

STEPS = 1 << 15
LARGEST = STEPS - 1
STORED = "int16"
"""What results and cache keys call this arithmetic."""
EXPLAINED = "A sum over the query's tokens: the cosine of each with the token of the document that is most like it."


def fixed_point(vectors: Float32) -> Int16:
    """Vectors scaled to length one, in steps of 2^-15; an odd dimension gets a zero beside it.

    Lengths are taken in float64: those of float32 differ between processors, and some numbers would round otherwise.
    """
    wide = vectors.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    wide *= (STEPS / np.where(lengths > 0, lengths, 1.0))[:, None]
    scaled = np.clip(np.rint(wide), -LARGEST, LARGEST).astype(np.int16)
    return np.pad(scaled, ((0, 0), (0, 1))) if scaled.shape[1] % 2 else scaled


def maxsim(queries: Sequence[Int16], pieces: Iterable[TokenPiece], documents: int) -> Float32:
    """Scores of every query with every document; each query has at least one token, each document one vector."""
    scores = np.empty((len(queries), documents), dtype=np.float32)
    if not queries:
        return scores
    tokens = np.ascontiguousarray(np.concatenate(queries))
    ends = np.cumsum([len(query) for query in queries], dtype=np.int64)
    for piece in pieces:
        if tokens.shape[1] != piece.matrix.shape[1]:
            raise ModelError(f"queries have {tokens.shape[1]} dimensions, documents {piece.matrix.shape[1]}")
        found = scores if piece.documents is None else np.empty((len(queries), len(piece.starts)), dtype=np.float32)
        _piece(tokens, ends, piece, found)
        if piece.documents is not None:
            scores[:, piece.documents] = found
    return scores


def _piece(tokens: Int16, ends: np.ndarray[tuple[int], np.dtype[np.int64]], piece: TokenPiece, out: Float32) -> None:
    dimension, width = tokens.shape[1], out.shape[1]

    def work(begin: int, end: int) -> None:
        native.scores(
            tokens, ends, piece.matrix, piece.starts, piece.sizes, out, dimension, width, begin, end, begin, 0
        )

    in_parallel(work, width)


def token_shares(query: Int16, names: list[str], document: Int16, tokens: list[str], weight: float) -> list[Share]:
    """What each token of a query adds to its MaxSim with a document, and the token of the document that it met."""
    products = query.astype(np.int64) @ document.astype(np.int64).T
    best = products.argmax(axis=1).tolist()
    return [
        Share(name, weight * int(products[row, place]) / STEPS**2, match=tokens[place])
        for row, (name, place) in enumerate(zip(names, best, strict=True))
    ]
