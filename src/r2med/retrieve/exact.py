"""Exact scores of candidates: inner products summed in float64 and rounded to float32 once.

A product of two float32 numbers has no rounding error in float64, and the sums differ between machines far below the
last bit of a float32. So scores and rankings do not depend on the machine, on how many queries are searched at once or
on the order of the documents, whichever way the candidates were found.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..core import ModelError
from ..core.columns import Int32, Int64
from .memory import MemoryPlan
from .rows import Float32, InPieces, Rows
from .sparse import TopK, in_parallel

try:
    from .. import _dots
except ImportError:  # no compiler at install time
    _dots = None  # type: ignore[assignment]

Float64 = npt.NDArray[np.float64]
COPIED = 128
"""Rows copied at once: few enough for the nearest caches."""
SAFETY = 4.0
"""Scores of documents that are no candidates err at most this many times as much as those of the candidates."""


def order_exactly(
    queries: Float32, rows: Rows, found: TopK, tie_rank: Int32, depth: int, plan: MemoryPlan
) -> tuple[TopK, npt.NDArray[np.bool_]]:
    """The best `depth` candidates by exact score, and for which queries a document left out may belong among them."""
    if not np.isfinite(found.scores).all():
        raise ModelError("scores that are not finite: a vector holds NaN or infinity, or products overflow float32")
    count = len(queries)
    top = TopK(np.empty((count, depth), np.int32), np.empty((count, depth), np.float32))
    open_ended = np.empty(count, dtype=np.bool_)
    for begin in range(0, count, plan.queries):
        part = slice(begin, begin + plan.queries)
        docs, rough = found.docs[part], found.scores[part]
        exact = exact_products(queries[part], rows, docs, plan.gather)
        errors = SAFETY * np.abs(exact - rough).max(axis=1)
        scores = exact.astype(np.float32) + np.float32(0)  # -0 becomes 0
        order = np.lexsort((tie_rank[docs], -scores), axis=1)[:, :depth]
        top.docs[part] = np.take_along_axis(docs, order, axis=1)
        top.scores[part] = np.take_along_axis(scores, order, axis=1)
        open_ended[part] = top.scores[part, -1] - rough[:, -1] <= 2 * errors
    return top, open_ended


def exact_products(queries: Float32, rows: Rows, docs: Int32, gather: int | None = None) -> Float64:
    """Inner products of each query with its documents (queries × documents).

    `gather` bounds the rows that each thread copies at once.
    """
    products = np.empty(docs.shape, dtype=np.float64)
    if _dots is not None and isinstance(rows, InPieces):
        _read_in_place(queries.astype(np.float64), rows, docs, products.reshape(-1))
        return products

    def work(first: int, last: int) -> None:
        for query in range(first, last):
            wide = queries[query].astype(np.float64)
            for begin in range(0, docs.shape[1], gather or COPIED):
                span = slice(begin, begin + (gather or COPIED))
                products[query, span] = np.einsum("ij,j->i", rows.take(docs[query, span]).astype(np.float64), wide)

    in_parallel(work, len(queries))
    return products


def _read_in_place(queries: Float64, rows: InPieces, docs: Int32, products: Float64) -> None:
    """Every vector is read where it lies, in the order of its file, for all queries that want it."""
    flat = docs.reshape(-1)
    wanted_by = np.repeat(np.arange(len(queries)), docs.shape[1])
    for piece in rows.pieces():
        place = np.full(flat.max(initial=-1) + 1, -1, dtype=np.int64)  # of each document in this piece
        documents = np.arange(len(place)) if piece.documents is None else piece.documents
        within = documents < len(place)
        places = np.arange(len(documents)) if piece.places is None else piece.places
        place[documents[within]] = places[within]
        here = np.flatnonzero(place[flat] >= 0)
        here = here[np.argsort(place[flat[here]], kind="stable")]
        sums = np.empty(len(here), dtype=np.float64)
        _sum_pairs(queries, piece.matrix, wanted_by[here], place[flat[here]], sums)
        products[here] = sums


def _sum_pairs(queries: Float64, matrix: Float32, query: Int64, place: Int64, sums: Float64) -> None:
    def work(begin: int, end: int) -> None:
        _dots.pairs(queries, matrix, query, place, sums, queries.shape[1], begin, end)

    in_parallel(work, len(sums), small=1024)
