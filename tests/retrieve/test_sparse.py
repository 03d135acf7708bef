"""The native kernels: equal to brute force, and safe against anything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.core import IdTable
from r2med.retrieve import _native_python
from r2med.retrieve.sparse import Postings, SparseQueries, search, top_k

native = pytest.importorskip("r2med._sparse", reason="the C extension was not built on this machine")


def brute_force(scores: np.ndarray, ids: IdTable, depth: int) -> list[list[int]]:
    """Sorting everything by the rule as it is written."""
    return [sorted(range(len(ids)), key=lambda d: (row[d], ids[d]), reverse=True)[:depth] for row in scores.tolist()]


@settings(deadline=None)
@given(
    st.integers(1, 400).flatmap(
        lambda n: st.tuples(
            st.lists(st.sampled_from([-1.5, -0.0, 0.5, 1.0, 2.25]), min_size=n, max_size=n),
            st.integers(1, n + 5),
            st.randoms(use_true_random=False),
        )
    )
)
def test_top_k_equals_sorting(case: tuple[list[float], int, object]) -> None:
    values, depth, rng = case
    names = [f"d{i}" for i in range(len(values))]
    rng.shuffle(names)  # type: ignore[attr-defined]
    ids, scores = IdTable(names), np.array([values], dtype=np.float32)
    top = top_k(scores, ids.tie_rank, depth)
    expected = brute_force(scores + 0.0, ids, depth)  # -0.0 + 0.0 = 0.0, the only value where bits and order differ
    if not np.signbit(scores[scores == 0]).any():
        assert top.docs.tolist() == expected
    assert np.array_equal(np.sort(top.scores[0])[::-1], top.scores[0])


@pytest.mark.parametrize("n", [1, 17, 4095, 4096, 50_000])
def test_top_k_on_many_documents(n: int) -> None:
    rng = np.random.default_rng(n)
    scores = rng.integers(0, 50, size=(3, n)).astype(np.float32)
    ids = IdTable(f"{i:x}" for i in rng.permutation(n))
    top = top_k(scores, ids.tie_rank, 100)
    assert top.docs.tolist() == brute_force(scores, ids, 100)


@pytest.mark.parametrize("depth", [1, 300, 5000])
@pytest.mark.parametrize(
    "shape", ["random", "rising", "falling", "sampled best", "sampled worst", "equal", "filled up"]
)
def test_top_k_does_not_depend_on_its_guess(shape: str, depth: int) -> None:
    """A first threshold is guessed from every 16th score: the rest may be anything."""
    rng, n = np.random.default_rng(0), 20_000
    scores = rng.random((2, n), dtype=np.float32)
    if shape in ("rising", "falling"):
        scores.sort(axis=1)
    if shape == "falling":
        scores = np.ascontiguousarray(scores[:, ::-1])
    if shape.startswith("sampled"):
        scores[:, ::16] += np.float32(1 if shape == "sampled best" else -1)
    if shape == "equal":
        scores[:] = 0.5
    if shape == "filled up":
        scores[:, 200:] = -np.inf
    ids = IdTable(f"{i:x}" for i in rng.permutation(n))
    assert top_k(scores, ids.tie_rank, depth).docs.tolist() == brute_force(scores, ids, depth)


def random_index(rng: np.random.Generator, terms: int, documents: int) -> Postings:
    dense = np.where(rng.random((terms, documents)) < 0.2, rng.integers(1, 4, (terms, documents)), 0)
    term, docs = dense.nonzero()
    pointers = np.concatenate(([0], np.cumsum(np.bincount(term, minlength=terms))))
    return Postings(pointers, docs.astype(np.int32), dense[term, docs].astype(np.float32))


@pytest.mark.parametrize("seed", range(10))
def test_search_equals_a_dense_product(seed: int) -> None:
    rng = np.random.default_rng(seed)
    postings = random_index(rng, 30, 200)
    matrix = np.zeros((30, 200))
    for term in range(30):
        span = slice(postings.term_ptr[term], postings.term_ptr[term + 1])
        matrix[term, postings.docs[span]] = postings.impacts[span]
    sizes = rng.integers(0, 6, size=20)
    terms = np.concatenate([rng.choice(30, size=s, replace=False) for s in sizes]).astype(np.int32)
    weights = rng.integers(1, 5, size=len(terms)).astype(np.float64)
    queries = SparseQueries(np.concatenate(([0], np.cumsum(sizes))), terms, weights)
    ids = IdTable(f"d{i:03d}" for i in rng.permutation(200))
    top = search(postings, queries, ids.tie_rank, 50)
    for q in range(20):
        span = slice(queries.indptr[q], queries.indptr[q + 1])
        scores = (weights[span, None] * matrix[terms[span]]).sum(axis=0)
        expected = [d for d in sorted(range(200), key=lambda d: (scores[d], ids[d]), reverse=True) if scores[d] > 0][
            :50
        ]
        assert [d for d in top.docs[q].tolist() if d >= 0] == expected
        assert (top.docs[q] < 0).sum() == 50 - len(expected)


def test_python_twin_gives_the_same_bits() -> None:
    rng = np.random.default_rng(3)
    scores = rng.standard_normal((5, 3000)).astype(np.float32).round(1)
    ids = IdTable(map(str, rng.permutation(3000)))
    ours, twin = top_k(scores, ids.tie_rank, 70), (np.empty((5, 70), np.int32), np.empty((5, 70), np.float32))
    _native_python.topk(scores, ids.tie_rank, *twin)
    assert np.array_equal(ours.docs, twin[0])
    assert np.array_equal(ours.scores, twin[1])


def arrays(**changes: np.ndarray) -> list[np.ndarray]:
    good = {
        "term_ptr": np.array([0, 1, 2]),
        "docs": np.array([0, 1], dtype=np.int32),
        "impacts": np.ones(2, dtype=np.float32),
        "query_ptr": np.array([0, 1]),
        "query_terms": np.array([1], dtype=np.int32),
        "weights": np.ones(1),
        "tie_rank": np.array([1, 0], dtype=np.int32),
        "out_docs": np.empty((1, 2), dtype=np.int32),
        "out_scores": np.empty((1, 2), dtype=np.float32),
    }
    return list((good | changes).values())


@pytest.mark.parametrize(
    "changes",
    [
        {"term_ptr": np.array([0, 9, 2])},
        {"term_ptr": np.array([0, 1, 9])},
        {"docs": np.array([0, 7], dtype=np.int32)},
        {"docs": np.array([0, -7], dtype=np.int32)},
        {"query_terms": np.array([5], dtype=np.int32)},
        {"query_terms": np.array([-1], dtype=np.int32)},
        {"query_ptr": np.array([0, 4])},
        {"tie_rank": np.array([1, 5], dtype=np.int32)},
        {"weights": np.ones(3)},
        {"out_scores": np.empty((1, 9), dtype=np.float32)},
        {"impacts": np.ones(1, dtype=np.float32)},
        {"query_ptr": np.empty(0, dtype=np.int64)},
    ],
)
def test_search_refuses_what_does_not_fit(changes: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match=r"fit|buffer|document"):
        native.search(*arrays(**changes))


def test_search_accepts_what_fits() -> None:
    given_arrays = arrays()
    native.search(*given_arrays)
    assert given_arrays[-2].tolist() == [[1, -1]]
