"""Exact search over sparse impacts: BM25 now, learned sparse models by the same code."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from threading import Thread
from types import ModuleType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core import DataError
from ..core.columns import Int32, Int64
from ..core.queries import QueryText
from . import _native_python

native: ModuleType = _native_python
try:
    from .. import _sparse

    native = _sparse
except ImportError:  # no compiler at install time: the numpy twin gives the same bits
    pass

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


class Postings(NamedTuple):
    """For each term the documents that hold it, with their impacts."""

    term_ptr: Int64
    docs: Int32
    impacts: Float32

    def of(self, term: int, documents: Int32) -> Float64:
        """The impacts of a term in some documents; 0 where a document does not hold it."""
        begin, end = self.term_ptr[term], self.term_ptr[term + 1]
        held = self.docs[begin:end]
        if not len(held):
            return np.zeros(len(documents))
        places = np.minimum(np.searchsorted(held, documents), len(held) - 1)
        impacts: Float64 = self.impacts[begin:end][places].astype(np.float64) * (held[places] == documents)
        return impacts


class SparseQueries(NamedTuple):
    """Weighted terms of each query (CSR)."""

    indptr: Int64
    terms: Int32
    weights: Float64

    def first(self) -> dict[int, float]:
        """The terms of the first query with their weights; those of a term that stands there twice are added."""
        found: dict[int, float] = {}
        for term, weight in zip(self.terms.tolist(), self.weights.tolist(), strict=True):
            found[term] = found.get(term, 0.0) + weight
        return found


def shares(groups: Sequence[tuple[QueryText, ...]]) -> Float64:
    """The weight of each text of each query among those of its query."""
    return np.array([part.weight / sum(p.weight for p in group) for group in groups for part in group])


def mean_terms(single: SparseQueries, groups: Sequence[tuple[QueryText, ...]]) -> SparseQueries:
    """Queries that stand for several texts each: the weighted mean of the terms of these texts."""
    ends = np.concatenate(([0], np.cumsum([len(group) for group in groups])))
    weights = single.weights * np.repeat(shares(groups), np.diff(single.indptr))
    return SparseQueries(single.indptr[ends], single.terms, weights)


class TopK(NamedTuple):
    """Best documents of each query, filled up with -1 and minus infinity."""

    docs: Int32
    scores: Float32


def build_postings(indptr: Int64, terms: Int32, counts: Int32, norms: Float64, idf: Float64) -> Postings:
    """Postings with impact `idf · count / (count + norm)`."""
    made = Postings(
        np.empty(len(idf) + 1, dtype=np.int64),
        np.empty(len(terms), dtype=np.int32),
        np.empty(len(terms), dtype=np.float32),
    )
    native.postings(indptr, terms, counts, norms, idf, *made)
    return made


def search(postings: Postings, queries: SparseQueries, tie_rank: Int32, depth: int, *, single: bool = False) -> TopK:
    """The best `depth` documents of each query among those that share a term with it.

    The queries of a task are spread over the cores; a query's sum never depends on how. Sums run in double precision,
    or are rounded to single precision at every step.
    """
    count = len(queries.indptr) - 1
    top = TopK(np.empty((count, depth), dtype=np.int32), np.empty((count, depth), dtype=np.float32))

    def work(begin: int, end: int) -> None:
        span = slice(queries.indptr[begin], queries.indptr[end])
        try:
            native.search(
                *postings,
                queries.indptr[begin : end + 1] - queries.indptr[begin],
                np.ascontiguousarray(queries.terms[span]),
                np.ascontiguousarray(queries.weights[span]),
                tie_rank,
                top.docs[begin:end],
                top.scores[begin:end],
                single,
            )
        except ValueError as error:  # a mapped index that was damaged on disk
            raise DataError(f"the index is damaged ({error}): build it again") from None

    in_parallel(work, count)
    return top


def top_k(scores: Float32, tie_rank: Int32, depth: int) -> TopK:
    """The best `depth` columns of each row."""
    depth = min(depth, scores.shape[1])
    top = TopK(np.empty((len(scores), depth), dtype=np.int32), np.empty((len(scores), depth), dtype=np.float32))

    def work(begin: int, end: int) -> None:
        native.topk(scores[begin:end], tie_rank, top.docs[begin:end], top.scores[begin:end])

    in_parallel(work, len(scores))
    return top


def available_cores() -> int:
    """Cores of the affinity mask, not of the machine: a container or `taskset` may have left us fewer."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parallel(work: Callable[[int, int], None], count: int, *, small: int = 8) -> None:
    """Run `work(begin, end)` over `count` items on all cores; few items are not worth a thread.

    The caller is one of the workers, and a thread lives for this call only: that is 0.3 ms less than a pool.
    """
    cores = available_cores()
    if cores == 1 or count < small:
        if count:
            work(0, count)
        return
    bounds = np.linspace(0, count, min(4 * cores, count) + 1).astype(int).tolist()
    coming, failed = iter(list(pairwise(bounds))), list[BaseException]()

    def take() -> None:
        try:
            while not failed and (span := next(coming, None)) is not None:
                work(*span)
        except BaseException as error:  # an interrupt too: it reaches the caller's thread and must stop the others
            failed.append(error)

    helpers = [Thread(target=take, daemon=True) for _ in range(min(cores, len(bounds) - 1) - 1)]
    for helper in helpers:
        helper.start()
    take()
    for helper in helpers:
        helper.join()
    if failed:
        raise failed[0]
