"""Exact search over dense vectors: float32 products find candidates, exact scores order them.

Candidates come with a margin. Where a document that is no candidate may still belong among the best, because float32
sums err, the search looks at four times as many. Exact scores are inner products summed in float64 and rounded to
float32 once: a product of two float32 numbers has no rounding error in float64, and the sums differ between machines
far below the last bit of a float32. So scores and rankings, with ties as trec_eval breaks them, do not depend on the
machine, on how many queries are searched at once or on the order of the documents, whichever way the candidates were
found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..cache import Piece
from ..core import MissingExtra, ModelError, UsageError
from ..core.columns import Int32, Int64
from ..core.options import show_size
from .sparse import TopK, available_cores, in_parallel, top_k

try:
    from .. import _dots
except ImportError:  # no compiler at install time: products and sums in numpy
    _dots = None  # type: ignore[assignment]

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Indices = npt.NDArray[np.integer]
MARGIN = 32
"""Documents looked at beyond the depth, so that near ties at its edge are seen."""
SAFETY = 4.0
"""Scores of documents that are no candidates err at most this many times as much as those of the candidates."""
COPIED = 128
"""Rows copied at once: few enough for the nearest caches."""
DOCUMENT_BLOCK = 4096
CELLS = 8 << 20
"""Scores held at once: 32 MB."""
QUERIES_AT_ONCE = 2048
FEWEST_QUERIES = 8
PER_CANDIDATE = 80
"""Bytes that merging and exact scores take for each candidate of each query under way."""
FEW_QUERIES = 8
MANY_DOCUMENTS = 16_384
"""Below this a product takes a few milliseconds anyway."""
GPU_BLOCK_BYTES = 1 << 30


@runtime_checkable
class Rows(Protocol):
    """A matrix of float32 that need not exist as a whole."""

    @property
    def shape(self) -> tuple[int, int]:
        """Documents and dimensions."""
        ...

    def read(self, begin: int, end: int) -> Float32:
        """The rows from `begin` to `end`, contiguous."""
        ...

    def take(self, indices: Indices) -> Float32:
        """The rows at `indices`."""
        ...


@runtime_checkable
class InPieces(Protocol):
    """Rows that can also be read where they lie."""

    def pieces(self) -> Iterator[Piece]:
        """All rows, each once, in any order."""
        ...


class MemoryPlan(NamedTuple):
    """What a search holds at once; its sizes change no bit of a result.

    Document vectors are read from mapped shards, block by block: those pages are the system's to drop and count for
    nothing here. What a search needs of its own are scores, running rankings and the rows it looks at twice.
    """

    queries: int = QUERIES_AT_ONCE
    cells: int = CELLS
    """Scores."""
    piece: int = DOCUMENT_BLOCK
    """Rows that are made ready (gathered, scaled) in one go."""
    gather: int | None = None
    """Rows that each thread looks at twice in one go; None: all of a query's."""

    @classmethod
    def within(cls, memory: int | None, queries: int, dimension: int, depth: int) -> MemoryPlan:
        """The plan in `memory` bytes for a search of so many queries to a depth; None: what is fastest."""
        if memory is None:
            return cls()
        fixed = queries * (16 * depth + 4 * dimension) + 4 * dimension * DOCUMENT_BLOCK
        per_query = 8 * DOCUMENT_BLOCK + PER_CANDIDATE * depth + 8 * dimension
        least = fixed + 4 * FEWEST_QUERIES * per_query
        if memory < least:
            raise UsageError(
                f"searching {queries} queries to depth {depth} in vectors of {dimension} dimensions takes "
                f"{show_size(least)} of memory at least; {memory:,} bytes are too few"
            )
        free = memory - fixed
        at_once = min(max(free // 2 // per_query, FEWEST_QUERIES), QUERIES_AT_ONCE)
        row = 12 * max(dimension, 1)
        return cls(
            queries=at_once,
            cells=max(min(free // 8 // 4, CELLS), at_once * DOCUMENT_BLOCK),
            piece=min(max(free // 8 // row, 16), DOCUMENT_BLOCK),
            gather=max(free // 8 // row // available_cores(), 8),
        )


class FirstStage(Protocol):
    """Finds candidates with float32 scores: on the CPU or on a GPU."""

    def __call__(self, queries: Float32, rows: Rows, tie_rank: Int32, depth: int) -> TopK:
        """The best `depth` of each query."""
        ...


def search(
    queries: Float32,
    rows: Rows,
    tie_rank: Int32,
    depth: int,
    *,
    first_stage: FirstStage | None = None,
    memory: int | None = None,
) -> TopK:
    """The best `depth` documents of each query by inner product.

    `memory` bounds what is held beside documents that are read from mapped files; it changes no bit of the result.
    """
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
    order = best_first(scores, tie_rank[docs])[:, :depth]
    return TopK(np.take_along_axis(docs, order, axis=1), np.take_along_axis(scores, order, axis=1))


def best_first(scores: Float32, ranks: Int32) -> Int64:
    """The columns of each row, the best score first and equal scores by rank; scores are finite, ranks not negative."""
    bits = (np.float32(0) - scores).view(np.int32)  # 0 and -0 both become 0
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # whole numbers in the order of the floats that they are the bits of
    return np.argsort((ascending.astype(np.int64) << 32) | ranks, axis=1)


def small_batch_faster(queries: int, rows: Rows) -> bool:
    """Whether `few_queries` can be used and is faster than a blocked product."""
    return (
        _dots is not None and queries <= FEW_QUERIES and rows.shape[0] >= MANY_DOCUMENTS and isinstance(rows, InPieces)
    )


def few_queries(queries: Float32, rows: Rows, tie_rank: Int32, depth: int) -> TopK:
    """A first stage for a few queries among many documents: vectors are read once, in the order of their files.

    The blocked product moves every vector twice before it multiplies, which many queries share and a single one pays
    alone; and the threads of a BLAS keep the cores busy after a product, when the next query may be waiting.
    """
    scores = np.empty((len(queries), rows.shape[0]), dtype=np.float32)
    assert isinstance(rows, InPieces)
    for piece in rows.pieces():
        if piece.documents is None:
            _few_products(queries, piece, scores)
        else:
            found = np.empty((len(queries), len(piece.documents)), dtype=np.float32)
            _few_products(queries, piece, found)
            scores[:, piece.documents] = found
    return top_k(scores, tie_rank, depth)


def _few_products(queries: Float32, piece: Piece, out: Float32) -> None:
    width = out.shape[1]

    def work(begin: int, end: int) -> None:
        _dots.dots(queries, piece.matrix, piece.places, out, queries.shape[1], width, begin, end, begin)

    in_parallel(work, width)


def gpu_first_stage(device: str | None, memory: int | None = None) -> FirstStage | None:
    """The GPU's first stage where the user names a CUDA device; None: the CPU's."""
    if device is None or not device.startswith("cuda"):
        return None
    return TorchFirstStage(
        device.split(",")[0], GPU_BLOCK_BYTES if memory is None else min(memory // 4, GPU_BLOCK_BYTES)
    )


class TorchFirstStage:
    """Candidates by a product on a torch device, in float32 throughout (no TF32)."""

    def __init__(self, device: str, block_bytes: int = GPU_BLOCK_BYTES) -> None:
        try:
            import torch
        except ImportError:
            raise MissingExtra("searching on a GPU", "torch") from None
        self._torch: Any = torch
        self.device = device
        self.block_bytes = block_bytes

    def __call__(self, queries: Float32, rows: Rows, tie_rank: Int32, depth: int) -> TopK:
        """The best `depth` of each query; which of equal scores come first is left to the exact scores."""
        del tie_rank
        torch = self._torch
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.inference_mode():
                return self._product(queries, rows, depth)
        finally:
            torch.set_float32_matmul_precision(before)

    def _product(self, queries: Float32, rows: Rows, depth: int) -> TopK:
        torch = self._torch
        left = torch.from_numpy(queries).to(self.device)
        step = max(self.block_bytes // max(4 * (rows.shape[1] + len(queries)), 1), depth, 1024)
        scores = torch.empty((len(queries), 0), device=self.device)
        docs = torch.empty((len(queries), 0), dtype=torch.int64, device=self.device)
        for begin in range(0, rows.shape[0], step):
            # A copy: torch does not take the read-only memory of a mapped shard.
            block = torch.from_numpy(np.array(rows.read(begin, min(begin + step, rows.shape[0])))).to(self.device)
            best = torch.topk(left @ block.T, min(depth, len(block)), dim=1)
            scores = torch.cat((scores, best.values), dim=1)
            docs = torch.cat((docs, best.indices + begin), dim=1)
            keep = torch.topk(scores, min(depth, scores.shape[1]), dim=1)
            scores, docs = keep.values, torch.gather(docs, 1, keep.indices)
        return TopK(docs.to(torch.int32).cpu().numpy(), scores.cpu().numpy())


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
        order = best_first(scores, tie_rank[docs])[:, :depth]
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
        _read_in_place(queries.astype(np.float64), rows.pieces(), rows.shape[0], docs, products.reshape(-1))
        return products

    def work(first: int, last: int) -> None:
        for query in range(first, last):
            wide = queries[query].astype(np.float64)
            for begin in range(0, docs.shape[1], gather or COPIED):
                span = slice(begin, begin + (gather or COPIED))
                products[query, span] = np.einsum("ij,j->i", rows.take(docs[query, span]).astype(np.float64), wide)

    in_parallel(work, len(queries))
    return products


def _read_in_place(queries: Float64, pieces: Iterator[Piece], documents: int, docs: Int32, products: Float64) -> None:
    """Every vector is read where it lies, in the order of its file, for all queries that want it."""
    flat = docs.reshape(-1)
    wanted_by = np.repeat(np.arange(len(queries)), docs.shape[1])
    for piece in pieces:
        at = _places(piece, documents)[flat]
        here = np.flatnonzero(at >= 0)
        both = np.sort((at[here] << 32) | here)  # numbers are sorted several times as fast as argsort sorts them
        here, at = both & 0xFFFFFFFF, both >> 32
        sums = np.empty(len(here), dtype=np.float64)
        _sum_pairs(queries, piece.matrix, wanted_by[here], at, sums)
        products[here] = sums


def _places(piece: Piece, documents: int) -> Int64:
    """Where each document lies in a piece; -1 for those that lie in others."""
    if piece.documents is None:
        return np.arange(documents) if piece.places is None else piece.places
    places = np.full(documents, -1, dtype=np.int64)
    places[piece.documents] = np.arange(len(piece.documents)) if piece.places is None else piece.places
    return places


def _sum_pairs(queries: Float64, matrix: Float32, query: Int64, place: Int64, sums: Float64) -> None:
    def work(begin: int, end: int) -> None:
        _dots.pairs(queries, matrix, query, place, sums, queries.shape[1], begin, end)

    in_parallel(work, len(sums), small=1024)


def unit(vectors: Float32) -> Float32:
    """Rows of length one; zeros stay zeros. A row's result does not depend on its neighbours."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return np.divide(vectors, np.where(lengths > 0, lengths, np.float32(1))[:, None], dtype=np.float32)
