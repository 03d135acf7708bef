"""Exact search over dense vectors: float32 products find candidates, exact scores order them (`exact`).

Candidates come with a margin. Where a document that is no candidate may still belong among the best, because float32
sums err, the search looks at four times as many. Scores, and ties as trec_eval breaks them, are the same on every
machine.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..core import ModelError, UsageError
from ..core.columns import Int32
from .exact import order_exactly
from .few import few_queries, small_batch_faster
from .memory import DOCUMENT_BLOCK, MemoryPlan
from .rows import Float32, Rows, as_rows
from .sparse import TopK, top_k

MARGIN = 32
"""Documents looked at beyond the depth, so that near ties at its edge are seen."""


class FirstStage(Protocol):
    """Finds candidates with float32 scores: on the CPU here, on a GPU in `gpu.py`."""

    def __call__(self, queries: Float32, rows: Rows, tie_rank: Int32, depth: int) -> TopK:
        """The best `depth` of each query."""
        ...


def search(
    queries: Float32,
    documents: Rows | npt.NDArray[np.floating],
    tie_rank: Int32,
    depth: int,
    *,
    first_stage: FirstStage | None = None,
    memory: int | None = None,
) -> TopK:
    """The best `depth` documents of each query by inner product.

    `memory` bounds what is held beside documents that are read from mapped files; it changes no bit of the result.
    """
    rows = as_rows(documents)
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    _check(queries, rows, tie_rank, depth)
    depth = min(depth, rows.shape[0])
    if not len(queries) or not depth:
        return TopK(np.empty((len(queries), depth), np.int32), np.empty((len(queries), depth), np.float32))
    wide = min(depth + MARGIN, rows.shape[0])
    plan = MemoryPlan.within(memory, len(queries), rows.shape[1], wide)
    if first_stage is None:
        few = memory is None and small_batch_faster(len(queries), rows)
        first_stage = few_queries if few else ProductFirstStage(plan)
    return _search(queries, rows, tie_rank, depth, first_stage, wide, plan)


def _search(
    queries: Float32, rows: Rows, tie_rank: Int32, depth: int, first_stage: FirstStage, wide: int, plan: MemoryPlan
) -> TopK:
    top, open_ended = order_exactly(queries, rows, first_stage(queries, rows, tie_rank, wide), tie_rank, depth, plan)
    if open_ended.any() and wide < rows.shape[0]:
        wider = min(4 * wide, rows.shape[0])
        again = _search(queries[open_ended], rows, tie_rank, depth, first_stage, wider, plan)
        top.docs[open_ended], top.scores[open_ended] = again
    return top


def _check(queries: Float32, rows: Rows, tie_rank: Int32, depth: int) -> None:
    if depth < 1:
        raise UsageError(f"depth must be 1 or more, not {depth}")
    if len(tie_rank) != rows.shape[0]:
        raise UsageError(f"{rows.shape[0]} vectors for {len(tie_rank)} documents")
    if queries.ndim != 2 or (rows.shape[0] and queries.shape[1] != rows.shape[1] and len(queries)):
        raise ModelError(f"queries have {queries.shape[-1]} dimensions, documents {rows.shape[1]}")


class ProductFirstStage:
    """Candidates by a blocked BLAS product on the CPU."""

    def __init__(self, plan: MemoryPlan | None = None) -> None:
        self.plan = plan or MemoryPlan()

    def __call__(self, queries: Float32, rows: Rows, tie_rank: Int32, depth: int) -> TopK:
        """The best `depth` of each query, a batch of queries after the other."""
        width = min(depth, rows.shape[0])
        tops = TopK(np.empty((len(queries), width), np.int32), np.empty((len(queries), width), np.float32))
        for begin in range(0, len(queries), self.plan.queries):
            part = slice(begin, begin + self.plan.queries)
            tops.docs[part], tops.scores[part] = self._one_pass(queries[part], rows, tie_rank, width)
        return tops

    def _one_pass(self, queries: Float32, rows: Rows, tie_rank: Int32, depth: int) -> TopK:
        documents, count = rows.shape[0], len(queries)
        blocks = min(max(self.plan.cells // count // DOCUMENT_BLOCK, 1), -(-documents // DOCUMENT_BLOCK))
        width = min(blocks * DOCUMENT_BLOCK, documents)
        scores = np.empty((count, width), dtype=np.float32)
        top = TopK(np.empty((count, 0), np.int32), np.empty((count, 0), np.float32))
        for begin in range(0, documents, width):
            end = min(begin + width, documents)
            for start in range(begin, end, DOCUMENT_BLOCK):
                stop = min(start + DOCUMENT_BLOCK, end)
                # BLAS may raise flags over finite numbers; a real overflow is seen in the scores.
                with np.errstate(all="ignore"):
                    np.matmul(queries, self._block(rows, start, stop).T, out=scores[:, start - begin : stop - begin])
            scores[:, end - begin :] = -np.inf
            ranks = dense_ranks(tie_rank[begin:end], width, whole=end - begin == documents)
            best = top_k(scores, ranks, min(depth, end - begin))
            found = TopK(best.docs + np.int32(begin), best.scores)
            top = found if not top.docs.shape[1] else merge(top, found, tie_rank, depth)
        return top

    def _block(self, rows: Rows, begin: int, end: int) -> Float32:
        """A block; where memory is short, copies are made a piece at a time."""
        if self.plan.piece >= DOCUMENT_BLOCK:
            return rows.read(begin, end)
        whole = np.empty((end - begin, rows.shape[1]), dtype=np.float32)
        for start in range(begin, end, self.plan.piece):
            stop = min(start + self.plan.piece, end)
            whole[start - begin : stop - begin] = rows.read(start, stop)
        return whole


def dense_ranks(ranks: Int32, width: int, *, whole: bool = False) -> Int32:
    """The same order as numbers from 0 without gaps (a `whole` table has none), then columns that come last."""
    dense = np.arange(width, dtype=np.int32)
    if whole:
        dense[: len(ranks)] = ranks
    else:
        dense[np.argsort(ranks)] = np.arange(len(ranks), dtype=np.int32)
    return dense


def merge(first: TopK, second: TopK, tie_rank: Int32, depth: int) -> TopK:
    """The best of two disjoint rankings."""
    docs = np.concatenate((first.docs, second.docs), axis=1)
    scores = np.concatenate((first.scores, second.scores), axis=1)
    order = np.lexsort((tie_rank[docs], -scores), axis=1)[:, :depth]
    return TopK(np.take_along_axis(docs, order, axis=1), np.take_along_axis(scores, order, axis=1))
