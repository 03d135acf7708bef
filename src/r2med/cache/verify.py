"""Comparing a sample of cached vectors with what the model returns now."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..core import ModelError
from .shards import Float32
from .vectors import CachedRows, Found, ShardSet, text_keys

TOLERANCE = {"float32": 1e-3, "model": 1e-3}
LOOSE = 5e-2
"""Half precision: vectors of one text move by a percent with the texts it shares a batch with."""


def verify_sample(
    shards: ShardSet, texts: Sequence[str], encode: Callable[[list[str]], Float32], count: int, *, name: str, dtype: str
) -> dict[str, object]:
    """Encode `count` cached texts again and compare; raises ModelError when the cache holds something else."""
    found = shards.find(text_keys(texts))
    known = np.flatnonzero(found.row >= 0)
    sample = np.sort(np.random.default_rng(len(known)).choice(known, min(count, len(known)), replace=False))
    if not len(sample):
        return {"checked": 0, "largest_difference": 0.0}
    stored = CachedRows(shards, Found(found.shard[sample], found.row[sample])).read(0, len(sample))
    fresh = encode([texts[int(i)] for i in sample])
    if fresh.shape != stored.shape:
        raise ModelError(f"the cache holds vectors of {stored.shape[1]} dimensions, {name} {fresh.shape[1]}")
    scale = np.maximum(np.linalg.norm(stored, axis=1), np.finfo(np.float32).tiny)
    difference = np.linalg.norm(fresh - stored, axis=1) / scale
    allowed = TOLERANCE.get(dtype, LOOSE)
    wrong = int((difference > allowed).sum())
    if wrong:
        raise ModelError(
            f"{wrong} of {len(sample)} cached vectors of {name} are not what it returns now (up to "
            f"{difference.max():.2g} away, {allowed:g} allowed); remove {shards.folder} and encode again"
        )
    return {"checked": len(sample), "largest_difference": float(difference.max())}
