"""Exact search against brute force, ties included."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import IdTable, ModelError, UsageError
from r2med.retrieve.rows import ArrayRows
from r2med.retrieve.vectors import (
    MemoryPlan,
    ProductFirstStage,
    TorchFirstStage,
    best_first,
    exact_products,
    search,
    unit,
)

Float32 = npt.NDArray[np.float32]


def brute_force(
    queries: Float32, documents: Float32, tie_rank: npt.NDArray[np.int32], depth: int
) -> npt.NDArray[np.int64]:
    """Exact products, rounded to float32 once, ordered by score and then by tie rank."""
    scores = (queries.astype(np.float64) @ documents.astype(np.float64).T).astype(np.float32) + np.float32(0)
    ranks = np.broadcast_to(tie_rank, scores.shape)
    return np.lexsort((ranks, -scores), axis=1)[:, :depth]


def made(queries: int, documents: int, dimension: int, seed: int = 0) -> tuple[Float32, Float32, npt.NDArray[np.int32]]:
    rng = np.random.default_rng(seed)
    return (
        unit(rng.standard_normal((queries, dimension)).astype(np.float32)),
        unit(rng.standard_normal((documents, dimension)).astype(np.float32)),
        rng.permutation(documents).astype(np.int32),
    )


@given(data=st.data())
def test_equals_brute_force_with_many_ties(data: st.DataObject) -> None:
    queries, documents = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 40))
    dimension, depth = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 50))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    left = rng.integers(-2, 3, (queries, dimension)).astype(np.float32) / np.float32(3)
    right = rng.integers(-2, 3, (documents, dimension)).astype(np.float32) / np.float32(7)
    ties = IdTable([f"d{i}" for i in rng.permutation(documents)]).tie_rank
    top = search(left, ArrayRows(right), ties, depth)
    assert np.array_equal(top.docs, brute_force(left, right, ties, depth))
    assert (np.diff(top.scores, axis=1) <= 0).all()


def test_equals_brute_force_over_several_blocks() -> None:
    queries, documents, ties = made(37, 9000, 48)
    expected = brute_force(queries, documents, ties, 200)
    assert np.array_equal(search(queries, ArrayRows(documents), ties, 200).docs, expected)
    small = ProductFirstStage(MemoryPlan(queries=10, cells=1, piece=100))  # a panel of one block
    assert np.array_equal(search(queries, ArrayRows(documents), ties, 200, first_stage=small).docs, expected)


def test_all_documents_equal_is_the_order_of_ids() -> None:
    documents = np.full((5000, 16), 1 / 3, dtype=np.float32)
    ids = IdTable([f"d{i}" for i in range(5000)])
    top = search(documents[:2], ArrayRows(documents), ids.tie_rank, 10)
    assert [ids[i] for i in top.docs[0]] == sorted(ids, reverse=True)[:10]
    assert len(set(top.scores.ravel().tolist())) == 1


def test_near_ties_that_float32_cannot_tell_are_told_apart() -> None:
    """Documents whose scores differ by less than a float32 product's error, though their vectors do not."""
    rng = np.random.default_rng(3)
    base = unit(rng.standard_normal((1, 512)).astype(np.float32))
    documents = np.repeat(base, 3000, axis=0)
    documents[np.arange(3000), rng.integers(0, 512, 3000)] *= np.float32(1 + 2**-18)
    ties = np.arange(3000, dtype=np.int32)[::-1].copy()
    assert np.array_equal(search(base, ArrayRows(documents), ties, 100).docs, brute_force(base, documents, ties, 100))


@pytest.mark.parametrize("dimension", [16, 384, 1024])
@pytest.mark.parametrize("kind", ["random", "one way", "outlier", "half zero"])
def test_the_order_is_that_of_exact_products(kind: str, dimension: int) -> None:
    """Data on which float32 errs little and much."""
    rng = np.random.default_rng(dimension)
    queries, documents = (rng.standard_normal((n, dimension)).astype(np.float32) for n in (20, 6000))
    if kind == "one way":
        way = 2 * rng.standard_normal(dimension).astype(np.float32)
        queries, documents = unit(queries + way), unit(documents + way)
    elif kind == "outlier":
        queries[:, 3] *= 50
        documents[:, 3] *= 50
    elif kind == "half zero":
        documents[::2] = 0
    ties = rng.permutation(6000).astype(np.int32)
    assert np.array_equal(
        search(queries, ArrayRows(documents), ties, 1000).docs, brute_force(queries, documents, ties, 1000)
    )


@pytest.mark.parametrize("dimension", [3, 64, 384])
def test_a_score_depends_on_its_two_vectors_only(dimension: int) -> None:
    queries, documents, ties = made(21, 5000, dimension)
    exact = (queries.astype(np.float64) @ documents.T.astype(np.float64)).astype(np.float32)
    order = np.random.default_rng(1).permutation(5000)[:4321]
    for asked in (slice(0, 21), slice(0, 1), slice(3, 12)):
        for chosen, ranks in ((np.arange(5000), ties), (order, np.arange(4321, dtype=np.int32))):
            top = search(queries[asked], ArrayRows(documents[chosen]), ranks, len(chosen))
            assert np.array_equal(top.scores, np.take_along_axis(exact[asked][:, chosen], top.docs.astype(np.int64), 1))


def test_exact_products_are_the_same_without_the_c_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, documents, _ = made(9, 3000, 100)
    docs = np.random.default_rng(2).integers(0, 3000, (9, 500)).astype(np.int32)
    with_it = exact_products(queries, ArrayRows(documents), docs).astype(np.float32)
    monkeypatch.setattr("r2med.retrieve.vectors._dots", None)
    for gather in (None, 7):
        assert np.array_equal(exact_products(queries, ArrayRows(documents), docs, gather).astype(np.float32), with_it)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0])))
def test_the_best_score_comes_first_and_equal_ones_by_rank(values: list[float]) -> None:
    scores = np.array([values], dtype=np.float32)
    ranks = np.random.default_rng(len(values)).permutation(len(values)).astype(np.int32)[None]
    assert best_first(scores, ranks).tolist() == np.lexsort((ranks, -scores), axis=1).tolist()


def test_torch_gives_the_same_ranking() -> None:
    pytest.importorskip("torch", reason="the torch extra is not installed")
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    queries, documents, ties = made(20, 7000, 128)
    documents[100:200] = documents[:100]
    here = search(queries, ArrayRows(documents), ties, 300)
    there = search(queries, ArrayRows(documents), ties, 300, first_stage=TorchFirstStage(device))
    assert np.array_equal(here.docs, there.docs)
    assert np.allclose(here.scores, there.scores, atol=1e-6)


def test_depth_beyond_the_documents_and_nothing_at_all() -> None:
    queries, documents, ties = made(2, 3, 4)
    assert search(queries, ArrayRows(documents), ties, 1000).docs.shape == (2, 3)
    assert search(queries[:0], ArrayRows(documents), ties, 10).docs.shape == (0, 3)
    assert search(queries, ArrayRows(documents[:0]), ties[:0], 10).docs.shape == (2, 0)


def test_bad_input_is_refused() -> None:
    queries, documents, ties = made(2, 3, 4)
    with pytest.raises(UsageError, match="depth must be 1 or more"):
        search(queries, ArrayRows(documents), ties, 0)
    with pytest.raises(ModelError, match="queries have 3 dimensions, documents 4"):
        search(queries[:, :3], ArrayRows(documents), ties, 1)
    with pytest.raises(UsageError, match="3 vectors for 2 documents"):
        search(queries, ArrayRows(documents), ties[:2], 1)
    documents[1, 1] = np.nan
    with pytest.raises(ModelError, match="not finite"):
        search(queries, ArrayRows(documents), ties, 1)


def test_memory_stays_small() -> None:
    """120 queries × 61,379 documents × 1,024: under 200 MB beyond the vectors themselves."""
    if sys.platform != "linux":
        pytest.skip("reads the peak from /proc")
    code = """
import numpy as np
from r2med.retrieve.rows import ArrayRows
from r2med.retrieve.vectors import search
def kilobytes(name): return int(next(l for l in open('/proc/self/status') if l.startswith(name)).split()[1])
rng = np.random.default_rng(0)
documents = np.empty((61379, 1024), dtype=np.float32)
for row in range(0, 61379, 1000):
    documents[row:row + 1000] = rng.standard_normal(documents[row:row + 1000].shape, dtype=np.float32)
queries = rng.standard_normal((120, 1024), dtype=np.float32)
ties = rng.permutation(61379).astype(np.int32)
before = kilobytes('VmRSS')
search(queries, ArrayRows(documents), ties, 1000)
print((kilobytes('VmHWM') - before) / 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 200
