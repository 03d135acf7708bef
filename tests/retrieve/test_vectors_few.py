"""Few queries among many documents: the ranking of the blocked product, and what the C function refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from r2med.cache import CachedRows, EmbeddingCache, text_keys
from r2med.core import ModelError
from r2med.retrieve import vectors
from r2med.retrieve.rows import ArrayRows
from r2med.retrieve.vectors import Float32, Rows, search

_dots = pytest.importorskip("r2med._dots", reason="the C extension is not built")

DOCUMENTS, DIMENSION = vectors.MANY_DOCUMENTS + 777, 40


def some(count: int, seed: int = 0, *, steps: int | None = None) -> Float32:
    """Vectors; with `steps` of few different values, so that scores tie."""
    rng = np.random.default_rng(seed)
    made = rng.standard_normal((count, DIMENSION)) if steps is None else rng.integers(0, steps, (count, DIMENSION))
    return made.astype(np.float32)


def cached(matrix: Float32, folder: Path) -> tuple[Rows, list[str]]:
    """The same rows out of two shards that hold them in another order, with rows of others between."""
    texts = [f"text {i}" for i in range(len(matrix))]
    keys, tokens = text_keys(texts), np.full(len(texts), -1, dtype=np.int32)
    shards = EmbeddingCache(folder).open({"model": "m"}, 512)
    order = np.random.default_rng(1).permutation(len(texts))
    for part in (order[: len(order) // 3], order[len(order) // 3 :]):
        shards.append(keys[part], tokens[part], matrix[part])
    foreign = text_keys(["another corpus"])
    shards.append(foreign, tokens[:1], matrix[:1])
    return CachedRows(shards, shards.find(keys)), texts


def product_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "small_batch_faster", lambda queries, rows: False)


@pytest.mark.parametrize("queries", [1, 3, 8])
@pytest.mark.parametrize("steps", [None, 3], ids=["apart", "tied"])
def test_few_queries_get_the_ranking_of_the_blocked_product(
    queries: int, steps: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, asked = some(DOCUMENTS, 1, steps=steps), some(queries, 2, steps=steps)
    ties = np.random.default_rng(3).permutation(DOCUMENTS).astype(np.int32)
    assert vectors.small_batch_faster(queries, ArrayRows(documents))
    found = search(asked, ArrayRows(documents), ties, 50)
    product_only(monkeypatch)
    expected = search(asked, ArrayRows(documents), ties, 50)
    np.testing.assert_array_equal(found.docs, expected.docs)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)
    exact = np.einsum("qd,qkd->qk", asked.astype(np.float64), documents[found.docs].astype(np.float64))
    np.testing.assert_array_equal(found.scores, exact.astype(np.float32))


def test_a_ranking_does_not_depend_on_how_many_queries_are_asked() -> None:
    documents, asked = some(DOCUMENTS, 1), some(vectors.FEW_QUERIES + 5, 2)
    ties = np.arange(DOCUMENTS, dtype=np.int32)
    together = search(asked, ArrayRows(documents), ties, 20)
    alone = search(asked[4:5], ArrayRows(documents), ties, 20)
    np.testing.assert_array_equal(together.docs[4:5], alone.docs)
    np.testing.assert_allclose(together.scores[4:5], alone.scores, rtol=1e-6)


def test_copies_beyond_the_candidates_are_looked_at_too() -> None:
    """More equal documents than candidates: the order among them is that of their ids, all of them."""
    documents = some(DOCUMENTS, 1)
    documents[100:2100] = documents[100]
    ties = np.random.default_rng(3).permutation(DOCUMENTS).astype(np.int32)
    found = search(documents[100:101], ArrayRows(documents), ties, 10)
    assert found.docs[0].tolist() == sorted(range(100, 2100), key=lambda d: ties[d])[:10]


def test_numbers_that_are_none_are_refused() -> None:
    documents = some(DOCUMENTS, 1)
    documents[5, 3] = np.nan
    with pytest.raises(ModelError, match="not finite"):
        search(some(1, 2), ArrayRows(documents), np.arange(DOCUMENTS, dtype=np.int32), 10)


def test_vectors_of_a_cache_are_read_where_they_lie(tmp_path: Path) -> None:
    documents, asked = some(DOCUMENTS, 1), some(2, 2)
    rows, _ = cached(documents, tmp_path)
    assert vectors.small_batch_faster(2, rows)
    ties = np.arange(DOCUMENTS, dtype=np.int32)
    for found, expected in zip(
        search(asked, rows, ties, 30), search(asked, ArrayRows(documents), ties, 30), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_half_precision_takes_the_same_path() -> None:
    documents, asked = some(DOCUMENTS, 1).astype(np.float16), some(2, 2)
    ties = np.arange(DOCUMENTS, dtype=np.int32)
    for found, expected in zip(
        search(asked, ArrayRows(documents), ties, 30),
        search(asked, ArrayRows(documents.astype(np.float32)), ties, 30),
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "change",
    [
        {"begin": -1}, {"end": 11}, {"offset": 1}, {"dimension": 0}, {"dimension": 7}, {"width": 9},
        {"places": [0, 10]}, {"dimension": 1 << 62}, {"width": 10 + (1 << 62)},  # whose sizes in bytes overflow
    ],
    ids=str,
)  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(change: dict[str, object]) -> None:
    rows = np.ones((10, 8), dtype=np.float32)
    given: dict[str, object] = {
        "dimension": 8,
        "width": 10,
        "begin": 0,
        "end": 10,
        "offset": 0,
        "places": None,
    } | change
    places = None if given["places"] is None else np.array(given["places"], dtype=np.int64)
    end = len(places) if places is not None else given["end"]
    with pytest.raises(ValueError, match="do not fit"):
        _dots.dots(
            rows[:1], rows, places, np.empty((1, 10), np.float32), given["dimension"], given["width"], given["begin"],
            end, given["offset"],
        )  # fmt: skip
