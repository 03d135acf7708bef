"""Search in little memory: the same bits, ties included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import UsageError
from r2med.core.options import parse_size, show_size
from r2med.retrieve.dense import Variant, search_variant
from r2med.retrieve.rows import ArrayRows
from r2med.retrieve.vectors import MemoryPlan, search


@pytest.mark.parametrize("memory", ["6MB", "20MB", "1GB"])
@pytest.mark.parametrize("variant", [Variant(), Variant("int8"), Variant("binary"), Variant("float16", 16)], ids=str)
def test_memory_changes_no_bit(memory: str, variant: Variant) -> None:
    rng = np.random.default_rng(5)
    documents = rng.standard_normal((20000, 48)).astype(np.float32)
    documents[5000:9000] = documents[3]
    queries, ties = rng.standard_normal((50, 48)).astype(np.float32), np.arange(20000, dtype=np.int32)[::-1].copy()

    def found(limit: int | None) -> tuple[np.ndarray, ...]:
        if variant.exact:
            return search(queries, ArrayRows(documents), ties, 20, memory=limit)
        return search_variant(queries, ArrayRows(documents), variant, ties, 5, scaled=False, memory=limit)

    for one, other in zip(found(None), found(parse_size(memory)), strict=True):
        assert np.array_equal(one, other)


def test_sizes_as_people_write_them() -> None:
    assert [parse_size(t) for t in ("2GB", "1.5 GiB", "500mb", "64k", "7")] == [
        2 << 30, 3 << 29, 500 << 20, 64 << 10, 7,
    ]  # fmt: skip
    for text in ("", "much", "-1GB", "0MB", "2PB", "1e3"):
        with pytest.raises(UsageError, match="write 500MB or 2GB"):
            parse_size(text)


def test_too_little_memory_says_how_much_it_takes() -> None:
    with pytest.raises(
        UsageError, match=r"1000 queries to depth 1032 .* takes \d+MB of memory at least; 8,388,608 bytes"
    ):
        MemoryPlan.within(8 << 20, 1000, 1024, 1032)


LARGER_THAN_MEMORY = """
import resource, sys
from pathlib import Path
import numpy as np
from r2med.cache import CachedRows, Found, ShardSet
from r2med.retrieve.rows import UnitRows
from r2med.retrieve.vectors import search

folder, limit = Path(sys.argv[1]), int(sys.argv[2])
shards = ShardSet(folder)
sizes = [len(s.keys) for s in shards.shards]
found = Found(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes), np.concatenate([np.arange(n) for n in sizes]))
rows, ties = UnitRows(CachedRows(shards, found)), np.arange(sum(sizes), dtype=np.int32)
queries = np.random.default_rng(1).standard_normal((40, rows.shape[1])).astype(np.float32)
search(queries[:8], rows, ties, 10)  # BLAS takes its buffers once


def data() -> int:
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmData")).split()[1]) << 10


stack = 64 << 20  # threads reserve stacks, which count though nobody touches them
if limit:
    resource.setrlimit(resource.RLIMIT_DATA, (data() + limit + stack, resource.RLIM_INFINITY))
top = search(queries, rows, ties, 100, memory=limit or None)
print(top.docs.tobytes().hex()[:64], np.frombuffer(top.scores.tobytes(), np.uint32).sum())
if limit:
    try:
        np.ones((sum(sizes), rows.shape[1]), np.float32)
        print("the limit is no limit")
    except MemoryError:
        print("the matrix itself does not fit")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of data memory are Linux's")
def test_a_corpus_larger_than_memory(tmp_path: Path) -> None:
    """400 MB of vectors in eight shards, searched by a process that may not allocate more than 150 MB."""
    from r2med.cache import write_shard

    rng = np.random.default_rng(0)
    for number in range(8):
        keys = np.column_stack((np.arange(12800, dtype=np.uint64), np.full(12800, number, np.uint64)))
        vectors = rng.standard_normal((12800, 1024), dtype=np.float32)
        write_shard(tmp_path, keys, np.full(12800, -1, np.int32), vectors)
    said = []
    for limit in (0, 150 << 20):
        done = subprocess.run(
            [sys.executable, "-c", LARGER_THAN_MEMORY, str(tmp_path), str(limit)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        said.append(done.stdout.splitlines())
    assert said[1] == [said[0][0], "the matrix itself does not fit"]


@given(st.integers(1, 1 << 45))
def test_a_size_that_is_shown_is_enough(count: int) -> None:
    assert count <= parse_size(show_size(count)) <= max(1.1 * count, count + (1 << 20))
