"""Adding up what each ranking gives a document, and putting the sums in trec_eval's order.

A document's sum and its place among ties make one 64-bit number: the sum's bits, turned so that a larger sum is a
smaller number, above the tie rank. Sorting those numbers orders by score and tie at once, several times faster than
sorting positions by two keys, and the documents are read back out of the sorted numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..core import NO_DOCUMENT, DataError, Run, UsageError
from ..core.columns import Int32

Float64 = npt.NDArray[np.float64]
UInt64 = npt.NDArray[np.uint64]
_LOW, _SIGN, _ALL = np.uint64(0xFFFFFFFF), np.uint32(1 << 31), np.uint32(0xFFFFFFFF)
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Sorts behind every document."""


def same_ground(runs: Sequence[Run]) -> None:
    """Refuse runs that cannot be put together."""
    if not runs:
        raise UsageError("nothing to fuse")
    first = runs[0]
    for run in runs[1:]:
        if run.doc_ids != first.doc_ids or run.query_ids != first.query_ids:
            raise DataError(f"runs {first.name!r} and {run.name!r} are not over the same queries and documents")


def merge(
    runs: Sequence[Run], gains: Sequence[Float64], *, depth: int, name: str, times_lists: bool = False
) -> Run:  # fmt: skip
    """One run: each document scores the sum of its gains, times the number of lists that hold it if asked.

    `gains` has a number for every place of every run; sums are made in float64 and rounded once to float32.
    """
    if depth < 1:
        raise UsageError(f"depth must be 1 or more, not {depth}")
    first = runs[0]
    tie_rank = first.doc_ids.tie_rank
    documents = len(first.doc_ids)
    depth = min(depth, documents)
    width = min(sum(run.depth for run in runs), documents)
    keys = np.full((len(first), width), _EMPTY, dtype=np.uint64)
    sums, lists = np.zeros(documents), np.zeros(documents, dtype=np.int32)
    for row in range(len(first)):
        found = _accumulate(sums, lists, [run.docs[row] for run in runs], [gain[row] for gain in gains])
        total = sums[found] * lists[found] if times_lists else sums[found]
        keys[row, : len(found)] = _keys(total.astype(np.float32), tie_rank[found])
        sums[found], lists[found] = 0.0, 0
    keys.sort(axis=1)
    docs, scores = _read(keys[:, :depth], tie_rank)
    return Run(first.query_ids, first.doc_ids, docs, scores, name=name)


def _accumulate(
    sums: Float64, lists: Int32, rankings: list[Int32], gains: list[Float64]
) -> Int32:  # fmt: skip
    """Add the gains of one query; returns the documents touched, each once."""
    touched: list[Int32] = []
    for docs, gain in zip(rankings, gains, strict=True):
        if len(docs) and docs.min() < 0:
            held = docs >= 0
            docs, gain = docs[held], gain[held]  # noqa: PLW2901 - what is left of the row
        if touched:
            held_by = lists[docs]
            touched.append(docs[held_by == 0])
            sums[docs] += gain
            lists[docs] = held_by + 1
        else:
            touched.append(docs)
            sums[docs], lists[docs] = gain, 1
    return np.concatenate(touched)


def _keys(scores: npt.NDArray[np.float32], ties: Int32) -> UInt64:
    """Numbers that sort ascending as (score descending, tie rank ascending)."""
    bits = (scores + np.float32(0)).view(np.uint32)  # -0 becomes 0
    # As IEEE orders them: positive numbers by their bits, negative ones against them. Turned round: descending.
    ascending = np.where(bits & _SIGN, bits ^ _ALL, bits | _SIGN)
    return (ascending ^ _ALL).astype(np.uint64) << np.uint64(32) | ties.astype(np.uint64)


def _read(keys: UInt64, tie_rank: Int32) -> tuple[Int32, npt.NDArray[np.float32]]:
    """Documents and scores back out of sorted numbers."""
    depth_docs = np.full(keys.shape, NO_DOCUMENT, dtype=np.int32)
    scores = np.full(keys.shape, -np.inf, dtype=np.float32)
    held = keys != _EMPTY
    by_tie = np.empty(len(tie_rank), dtype=np.int32)
    by_tie[tie_rank] = np.arange(len(tie_rank), dtype=np.int32)
    kept = keys[held]
    ascending = (kept >> np.uint64(32)).astype(np.uint32) ^ _ALL
    bits = np.where(ascending & _SIGN, ascending ^ _SIGN, ascending ^ _ALL)
    depth_docs[held] = by_tie[(kept & _LOW).astype(np.int64)]
    scores[held] = bits.view(np.float32)
    return depth_docs, scores
