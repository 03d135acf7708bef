"""Exact search over shards: the best of each, merged, are the best of all, ties included.

A score depends on its two vectors only (`vectors`), and ties go by the rank of the whole table of ids. So the best
`n` of every shard hold the best `n` of the matrix, and merging them by score and rank gives the very ranking that one
pass over one matrix gives; near ties are then settled over the merged candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..core.columns import Int32
from .memory import Room
from .rows import ChainRows, Float32, Rows, as_rows
from .sparse import TopK
from .vectors import ProductFirstStage, merge, search


class ShardedFirstStage:
    """Candidates of each shard, merged."""

    def __init__(self, shards: Sequence[Rows], room: Room | None = None) -> None:
        self.shards = shards
        self.search = ProductFirstStage(room)

    def __call__(self, queries: Float32, rows: Rows, tie_rank: Int32, depth: int) -> TopK:
        """The best `depth` of each query."""
        del rows
        top = TopK(np.empty((len(queries), 0), np.int32), np.empty((len(queries), 0), np.float32))
        begin = 0
        for shard in self.shards:
            end = begin + shard.shape[0]
            found = self.search(queries, shard, dense(tie_rank[begin:end]), min(depth, shard.shape[0]))
            top = merge(top, TopK(found.docs + np.int32(begin), found.scores), tie_rank, depth)
            begin = end
        return top


def dense(ranks: Int32) -> Int32:
    """The same order as numbers from 0 without gaps."""
    packed = np.empty(len(ranks), dtype=np.int32)
    packed[np.argsort(ranks)] = np.arange(len(ranks), dtype=np.int32)
    return packed


def search_shards(
    queries: Float32,
    shards: Sequence[Rows | npt.NDArray[np.floating]],
    tie_rank: Int32,
    depth: int,
    *,
    memory: int | None = None,
) -> TopK:
    """The best `depth` documents of each query over all shards, bit for bit as if they were one matrix.

    `tie_rank` is that of all documents, shard after shard.
    """
    rows = [as_rows(shard) for shard in shards]
    whole = ChainRows(rows)
    room = Room.within(memory, len(queries), whole.shape[1], min(depth, whole.shape[0]))
    stage = ShardedFirstStage([r for r in rows if r.shape[0]], room)
    return search(queries, whole, tie_rank, depth, first_stage=stage, memory=memory)
