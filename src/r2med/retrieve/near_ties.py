"""Near ties decided in float64, so that a ranking does not depend on the machine that made it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..core import ModelError
from ..core.columns import Int32, Int64
from .memory import MemoryPlan
from .rows import Float32, Rows
from .sparse import TopK, in_parallel

UNIT = 2.0**-24
"""Rounding error of one float32 operation."""
SAMPLE = 1024
SAFETY = 4.0


def error_bound(queries: Float32, rows: Rows, found: TopK, plan: MemoryPlan | None = None) -> npt.NDArray[np.float64]:
    """How far the float32 scores of each query may be from the exact ones: four times the most seen in a sample.

    The error depends on the data (many times larger where all vectors point one way), on the dimension and on the
    order in which a BLAS or a GPU adds up. The proven bound, d roundings, would call half of all documents tied. So a
    thousand pairs are computed exactly: their largest error is some 3 standard deviations, that of a whole
    ranking 5.
    """
    count, width = found.docs.shape
    columns = np.linspace(0, width - 1, min(-(-SAMPLE // count), width)).astype(np.int64)
    row = np.repeat(np.arange(count), len(columns))
    plan = plan or MemoryPlan()
    exact = exact_products(queries, rows, row, found.docs[:, columns].reshape(-1), plan.gather).reshape(count, -1)
    error = np.abs(found.scores[:, columns] - exact).max(axis=1)
    step = plan.gather or count
    best = [np.linalg.norm(rows.take(found.docs[i : i + step, 0]), axis=1) for i in range(0, count, step)]
    norms = np.linalg.norm(queries, axis=1) * np.concatenate(best)
    scale = np.maximum(np.abs(found.scores).max(axis=1), norms / 8).astype(np.float64)
    relative = (error[scale > 0] / scale[scale > 0]).max(initial=UNIT)
    return np.asarray(SAFETY * relative * scale)


def rescore_near_ties(
    queries: Float32, rows: Rows, found: TopK, tie_rank: Int32, depth: int, plan: MemoryPlan | None = None
) -> tuple[TopK, npt.NDArray[np.bool_]]:
    """Order candidates by exact scores where float32 cannot tell, and cut at `depth`.

    Also says for which queries the cut runs through a row of near ties that reaches the last candidate, so that
    documents beyond it may belong above the cut.
    """
    plan = plan or MemoryPlan()
    errors = error_bound(queries, rows, found, plan)  # over all queries: their number at once must not matter
    count = len(queries)
    top = TopK(np.empty((count, depth), np.int32), np.empty((count, depth), np.float32))
    open_ended = np.zeros(count, dtype=np.bool_)
    for begin in range(0, count, plan.queries):
        part = slice(begin, begin + plan.queries)
        some = TopK(found.docs[part], found.scores[part])
        ordered, open_ended[part] = _rescored(queries[part], rows, some, tie_rank, depth, errors[part], plan.gather)
        top.docs[part], top.scores[part] = ordered
    return top, open_ended


def _rescored(
    queries: Float32,
    rows: Rows,
    found: TopK,
    tie_rank: Int32,
    depth: int,
    errors: npt.NDArray[np.float64],
    gather: int | None,
) -> tuple[TopK, npt.NDArray[np.bool_]]:
    docs, scores = found.docs.copy(), found.scores + np.float32(0)  # -0 becomes 0
    close = scores[:, :-1] - scores[:, 1:] <= 2 * errors[:, None]
    tied = np.zeros(scores.shape, dtype=bool)
    tied[:, :-1] |= close
    tied[:, 1:] |= close
    row, column = (np.asarray(i, dtype=np.int64) for i in np.nonzero(tied))
    candidates = docs[row, column]
    exact = exact_scores(queries, rows, row, candidates, gather)
    # Near ties stand side by side: each group is put in order within the places it has.
    begins = np.ones(scores.shape, dtype=bool)
    begins[:, 1:] = ~close
    order = np.lexsort((tie_rank[candidates], -exact, np.cumsum(begins[row, column])))
    docs[row, column], scores[row, column] = candidates[order], exact[order]
    open_ended = np.asarray(close[:, depth - 1 :].all(axis=1), dtype=np.bool_)
    return TopK(docs[:, :depth], scores[:, :depth]), open_ended


def check_finite(scores: Float32) -> None:
    """Refuse what no order can be made of."""
    if not np.isfinite(scores).all():
        raise ModelError("scores that are not finite: a vector holds NaN or infinity, or products overflow float32")


def exact_scores(queries: Float32, rows: Rows, row: Int64, docs: Int32, gather: int | None = None) -> Float32:
    """Inner products of pairs (grouped by query), rounded to float32 once."""
    return exact_products(queries, rows, row, docs, gather).astype(np.float32)


def exact_products(
    queries: Float32, rows: Rows, row: Int64, docs: Int32, gather: int | None = None
) -> npt.NDArray[np.float64]:
    """Inner products of pairs (grouped by query), summed in float64; a pair's neighbours have no say in it."""
    products = np.empty(len(docs), dtype=np.float64)
    bounds = np.searchsorted(row, np.arange(len(queries) + 1))

    def work(first: int, last: int) -> None:
        for query in range(first, last):
            start, stop = int(bounds[query]), int(bounds[query + 1])
            step = gather or max(stop - start, 1)
            for begin in range(start, stop, step):
                span = slice(begin, min(begin + step, stop))
                exact = rows.take(docs[span]).astype(np.float64)
                products[span] = np.einsum("ij,j->i", exact, queries[query].astype(np.float64))

    in_parallel(work, len(queries))
    return products
