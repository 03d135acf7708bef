"""Search over shards and in little memory: the same bits, ties included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.cache import EmbeddingCache, compact
from r2med.core import IdTable, ModelError, UsageError
from r2med.core.sizes import parse_size, show_size
from r2med.retrieve.embed import embed
from r2med.retrieve.memory import Room
from r2med.retrieve.rows import ArrayRows, ChainRows, TakenRows
from r2med.retrieve.sharded import search_shards
from r2med.retrieve.variants import Variant, search_variant
from r2med.retrieve.vectors import search

from .encoders import HashEncoder


@given(st.data())
def test_any_split_gives_the_ranking_of_one_matrix(data: st.DataObject) -> None:
    """Few values and doubled documents: most scores are tied, many exactly."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    count, dimension = data.draw(st.integers(1, 120)), data.draw(st.integers(1, 24))
    values = rng.integers(-2, 3, (count, dimension)).astype(np.float32) / np.float32(data.draw(st.sampled_from([1, 3])))
    documents = values[rng.integers(0, count, count)]
    queries = rng.integers(-2, 3, (data.draw(st.integers(1, 12)), dimension)).astype(np.float32) / np.float32(7)
    ties = IdTable([f"d{i}" for i in rng.permutation(count)]).tie_rank
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=6)))
    shards = np.split(documents, cuts)
    depth = data.draw(st.integers(1, count + 5))
    whole = search(queries, documents, ties, depth)
    parts = search_shards(queries, shards, ties, depth)
    assert np.array_equal(parts.docs, whole.docs)
    assert np.array_equal(parts.scores.view(np.int32), whole.scores.view(np.int32))


@pytest.mark.parametrize("cuts", [[1], [4096], [4095, 4097], [3, 5000, 9000, 12000]])
def test_shards_that_cut_through_blocks(cuts: list[int]) -> None:
    rng = np.random.default_rng(4)
    documents = rng.standard_normal((13000, 40)).astype(np.float32)
    documents[rng.integers(0, 13000, 4000)] = documents[7]  # thousands of exact ties
    queries = np.concatenate((rng.standard_normal((20, 40)).astype(np.float32), documents[7:8]))
    ties = IdTable([f"d{i}" for i in rng.permutation(13000)]).tie_rank
    whole = search(queries, documents, ties, 300)
    parts = search_shards(queries, np.split(documents, cuts), ties, 300)
    assert np.array_equal(parts.docs, whole.docs)
    assert np.array_equal(parts.scores, whole.scores)


@pytest.mark.parametrize("memory", ["6MB", "20MB", "1GB"])
@pytest.mark.parametrize("variant", ["float32", "int8", "binary", "float16@16"])
def test_memory_changes_no_bit(memory: str, variant: str) -> None:
    rng = np.random.default_rng(5)
    documents = rng.standard_normal((20000, 48)).astype(np.float32)
    documents[5000:9000] = documents[3]
    queries, ties = rng.standard_normal((50, 48)).astype(np.float32), np.arange(20000, dtype=np.int32)[::-1].copy()
    chosen = Variant.parse(variant)

    def found(limit: int | None) -> tuple[np.ndarray, ...]:
        if chosen.exact:
            return search(queries, documents, ties, 20, memory=limit)
        return search_variant(queries, ArrayRows(documents), chosen, ties, 5, memory=limit)

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
        Room.within(8 << 20, 1000, 1024, 1032)


def test_rows_in_a_chain_and_in_another_order() -> None:
    matrix = np.arange(60, dtype=np.float32).reshape(20, 3)
    chain = ChainRows([ArrayRows(part) for part in np.split(matrix, [0, 4, 4, 11])])
    assert chain.shape == (20, 3)
    assert np.array_equal(chain.read(2, 17), matrix[2:17])
    assert np.array_equal(chain.take(np.array([19, 0, 4, 3])), matrix[[19, 0, 4, 3]])
    taken = TakenRows(chain, np.array([5, 5, 1]))
    assert np.array_equal(taken.read(0, 3), matrix[[5, 5, 1]])
    assert np.array_equal(taken.take(np.array([2, 0])), matrix[[1, 5]])
    assert ChainRows([]).read(0, 0).shape == (0, 0)
    with pytest.raises(ModelError, match="2 and 3 dimensions"):
        ChainRows([ArrayRows(matrix), ArrayRows(matrix[:, :2])])


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
    small = embed(HashEncoder(dimension=64), texts, "document", memory=64 << 10)
    assert np.array_equal(
        small.rows.read(0, 1000), embed(HashEncoder(dimension=64), texts, "document").rows.read(0, 1000)
    )


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
