"""Many small shards into one: an hour of encoding leaves hundreds."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

from .cache import ShardSet
from .shards import SUFFIX, write_shard


def compact(folder: Path) -> int:
    """Merge the shards of one set and length; says how many there were.

    The new shard is whole before an old one goes. A process that reads meanwhile has the old ones mapped, or finds
    them gone and looks again. Damaged shards are left for `prune`.
    """
    shards = ShardSet(folder)
    if len(shards.shards) < 2:
        return len(shards.shards)
    keys = np.concatenate([s.keys for s in shards.shards])
    _, first = np.unique(keys, axis=0, return_index=True)
    keep = np.sort(first)
    write_shard(
        folder,
        keys[keep],
        np.concatenate([s.tokens for s in shards.shards])[keep],
        np.concatenate([s.vectors for s in shards.shards])[keep],
    )
    for name in shards.names:
        with suppress(OSError):  # another process was faster, or Windows, where a mapped file stays
            (folder / f"{name}{SUFFIX}").unlink()
    return len(shards.shards)
