"""From texts to vectors, through the cache and without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from r2med.cache import EmbeddingCache, compact
from r2med.core.options import Options
from r2med.retrieve.embed import embed
from r2med.retrieve.rows import ArrayRows, TakenRows
from tests.retrieve.encoders.hashing import HashEncoder


def test_rows_in_another_order() -> None:
    matrix = np.arange(60, dtype=np.float32).reshape(20, 3)
    taken = TakenRows(ArrayRows(matrix), np.array([5, 5, 1]))
    assert np.array_equal(taken.read(0, 3), matrix[[5, 5, 1]])
    assert np.array_equal(taken.take(np.array([2, 0])), matrix[[1, 5]])


def test_large_shards_are_not_copied_again(tmp_path: Path) -> None:
    cache, encoder = EmbeddingCache(tmp_path), HashEncoder()
    for part in range(3):
        embed(encoder, [f"text {part} {i}" for i in range(5 + 20 * (part == 1))], "document", cache=cache)
    folder = next(tmp_path.glob("*/16"))
    before = {p.stat().st_size: p.name for p in folder.glob("*.shard")}
    assert compact(folder, large=25 * 8 * 4) == 3
    left = {p.name for p in folder.glob("*.shard")}
    assert len(left) == 2
    assert before[max(before)] in left
    again = embed(encoder, [f"text {part} {i}" for part in range(3) for i in range(5)], "document", cache=cache)
    assert (again.cached, again.encoded) == (15, 0)


def test_vectors_without_a_cache_go_to_a_file_where_memory_is_short() -> None:
    texts = [f"text {i % 700}" for i in range(1000)]
    small = embed(HashEncoder(dimension=64), texts, "document", options=Options(memory=64 << 10))
    assert np.array_equal(
        small.rows.read(0, 1000), embed(HashEncoder(dimension=64), texts, "document").rows.read(0, 1000)
    )
