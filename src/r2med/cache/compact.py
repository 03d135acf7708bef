"""Many small shards into one: an hour of encoding leaves hundreds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from .shards import SUFFIX, Float32, write_blocks
from .vectors import CachedRows, Found, ShardSet

LARGE = 1 << 30
"""A shard of this many bytes is left as it is: copying it again and again would cost more than opening it."""
BLOCK = 4096


def compact(folder: Path, *, large: int = LARGE) -> int:
    """Merge the shards of one set and length; says how many there were.

    The new shard is whole before an old one goes, and is written a block at a time, whatever its size. A process that
    reads meanwhile has the old ones mapped, or finds them gone and looks again. Damaged shards are left for `prune`.
    """
    shards = ShardSet(folder)
    small = [i for i, shard in enumerate(shards.shards) if shard.vectors.nbytes < large]
    if len(small) < 2:
        return len(shards.shards)
    keys = np.concatenate([shards.shards[i].keys for i in small])
    _, first = np.unique(keys, axis=0, return_index=True)
    keep = np.sort(first)
    sizes = [len(shards.shards[i].keys) for i in small]
    owner = np.repeat(np.array(small, dtype=np.int32), sizes)[keep]
    row = np.concatenate([np.arange(size, dtype=np.int64) for size in sizes])[keep]
    tokens = np.concatenate([shards.shards[i].tokens for i in small])[keep]
    rows = CachedRows(shards, Found(owner, row))

    def blocks() -> Iterator[Float32]:
        return (rows.read(begin, min(begin + BLOCK, len(keep))) for begin in range(0, len(keep), BLOCK))

    write_blocks(folder, keys[keep], tokens, shards.dimension, blocks)
    for i in small:
        with suppress(OSError):  # another process was faster, or Windows, where a mapped file stays
            (folder / f"{shards.names[i]}{SUFFIX}").unlink()
    return len(shards.shards)
