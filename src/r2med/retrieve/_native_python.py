"""The native functions in numpy: same arguments, same bits, for machines where the extension could not be built."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..core.columns import Int32, Int64

Int16 = npt.NDArray[np.int16]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
ROWS_AT_ONCE = 2048


def postings(
    indptr: Int64, terms: Int32, counts: Int32, norms: Float64, idf: Float64,
    term_ptr: Int64, docs: Int32, impacts: Float32,
) -> None:  # fmt: skip
    """Term-major postings with impacts from document-major counts."""
    order = np.argsort(terms, kind="stable")
    rows = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    term_ptr[:] = np.concatenate(([0], np.cumsum(np.bincount(terms, minlength=len(idf)))))
    docs[:] = rows[order]
    frequency = counts[order].astype(np.float64)
    impacts[:] = idf[terms[order]] * (frequency / (frequency + norms[docs]))


def search(
    term_ptr: Int64, docs: Int32, impacts: Float32, query_ptr: Int64, query_terms: Int32, weights: Float64,
    tie_rank: Int32, out_docs: Int32, out_scores: Float32, single: bool = False,
) -> None:  # fmt: skip
    """Score queries against postings and keep the best documents of each."""
    sums: npt.NDArray[np.floating] = np.zeros(len(tie_rank), dtype=np.float32 if single else np.float64)
    for query in range(len(query_ptr) - 1):
        sums[:] = 0.0
        for i in range(query_ptr[query], query_ptr[query + 1]):
            span = slice(term_ptr[query_terms[i]], term_ptr[query_terms[i] + 1])
            sums[docs[span]] += weights[i] * impacts[span].astype(np.float64)
        found = np.flatnonzero(sums)
        _keep(found.astype(np.int32), sums[found].astype(np.float32), tie_rank, out_docs[query], out_scores[query])


def topk(scores: Float32, tie_rank: Int32, out_docs: Int32, out_scores: Float32) -> None:
    """The best documents of each row of a score matrix."""
    everything = np.arange(len(tie_rank), dtype=np.int32)
    for row, values in enumerate(scores):
        _keep(everything, values, tie_rank, out_docs[row], out_scores[row])


def _keep(docs: Int32, scores: Float32, tie_rank: Int32, out_docs: Int32, out_scores: Float32) -> None:
    """Order by score descending, then tie rank, through one 64-bit key per document."""
    bits = scores.view(np.uint32)
    image = np.where(bits & 0x80000000, ~bits, bits | 0x80000000).astype(np.uint64)
    keys = (image << np.uint64(32)) | (np.uint64(0xFFFFFFFF) - tie_rank[docs].astype(np.uint64))
    depth = len(out_docs)
    if len(keys) > depth:
        best = np.argpartition(keys, len(keys) - depth)[len(keys) - depth :] if depth else np.empty(0, dtype=np.intp)
    else:
        best = np.arange(len(keys))
    best = best[np.argsort(keys[best])[::-1]]
    out_docs[: len(best)], out_scores[: len(best)] = docs[best], scores[best]
    out_docs[len(best) :], out_scores[len(best) :] = -1, -np.inf


def ways() -> list[str]:
    """The one way there is."""
    return ["numpy"]


def scores(
    queries: Int16, ends: Int64, rows: Int16, starts: Int64, sizes: Int64, out: Float32,
    dimension: int, width: int, begin: int, end: int, offset: int, way: int,
) -> None:  # fmt: skip
    """MaxSim of queries with the documents from `begin` to `end`; float64 holds all of these whole numbers exactly."""
    del dimension, width, way
    tokens = queries.astype(np.float64)
    first = np.concatenate(([0], ends[:-1]))
    while begin < end:
        most = int(np.searchsorted(np.cumsum(sizes[begin:end]), ROWS_AT_ONCE, side="right"))
        stop = begin + max(most, 1)
        some = [rows[a : a + n] for a, n in zip(starts[begin:stop].tolist(), sizes[begin:stop].tolist(), strict=True)]
        with np.errstate(all="ignore"):  # BLAS may raise flags over finite numbers
            products = np.concatenate(some).astype(np.float64) @ tokens.T
        bounds = np.cumsum(sizes[begin:stop]) - sizes[begin:stop]
        best = np.maximum.reduceat(products, bounds, axis=0)
        column = slice(offset, offset + stop - begin)
        out[:, column] = (np.add.reduceat(best, first, axis=1) * 2.0**-30).T
        offset, begin = offset + stop - begin, stop
