"""Vectors in other forms: what is read from them, what smaller ones find, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from r2med.core import ModelError, UsageError
from r2med.retrieve import retrievers
from r2med.retrieve.dense import DenseParameters, Variant, search_variant
from r2med.retrieve.rows import ArrayRows, SmallRows, TakenRows, to_bfloat16
from r2med.retrieve.vectors import search, unit
from tests.retrieve.test_vectors import brute_force, made


@pytest.mark.parametrize(
    "variant",
    [
        Variant("float16"),
        Variant("bfloat16"),
        Variant("int8"),
        Variant("binary"),
        Variant("float32", 32),
        Variant("int8", 32),
        Variant("binary", oversample=10),
    ],
    ids=str,
)
def test_variants_with_rescoring_find_what_is_there(variant: Variant) -> None:
    rng = np.random.default_rng(0)
    # Energy in the first dimensions, as Matryoshka training puts it there.
    spread = np.linspace(2, 0.2, 64, dtype=np.float32)
    documents = unit((rng.standard_normal((3000, 64)) * spread).astype(np.float32))
    queries = unit(documents[:20] + (0.3 * rng.standard_normal((20, 64)) * spread / 8).astype(np.float32))
    ties = np.arange(3000, dtype=np.int32)
    exact = search(queries, ArrayRows(documents), ties, 20)
    top = search_variant(queries, ArrayRows(documents), variant, ties, 20, scaled=True)
    shared = np.mean([len(set(a) & set(b)) / 20 for a, b in zip(exact.docs.tolist(), top.docs.tolist(), strict=True)])
    assert shared > {"binary": 0.55, "binary:x10": 0.8}.get(str(variant), 0.9)  # 64 bits are few
    assert np.array_equal(top.docs[:, 0], exact.docs[:, 0])
    assert np.allclose(top.scores[:, 0], exact.scores[:, 0], atol=1e-6)


def test_int8_without_rescoring_is_exact_on_its_own_codes() -> None:
    queries, documents, ties = made(5, 500, 32)
    small = SmallRows(ArrayRows(documents), "int8")
    top = search_variant(queries, ArrayRows(documents), Variant("int8", oversample=0), ties, 50, scaled=False)
    assert np.array_equal(top.docs, brute_force(queries, small.read(0, 500), ties, 50))
    assert small.nbytes == 500 * 32 + 4 * 500


def test_bfloat16_rounds_as_torch_does() -> None:
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    expected = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(to_bfloat16(values), expected)


@pytest.mark.parametrize(
    ("text", "variant"),
    [
        ("bge-small", Variant()),
        ("bge-small:variant=int8", Variant("int8")),
        ("bge-small:dimension=256,variant=int8", Variant("int8", 256)),
        ("bge-small:oversample=10,variant=binary", Variant("binary", oversample=10)),
        ("bge-small:oversample=0,variant=float16", Variant("float16", oversample=0)),
        ("bge-small:dimension=64,oversample=0", Variant("float32", 64, 0)),
    ],
)
def test_a_variant_reads_what_it_writes(text: str, variant: Variant) -> None:
    spec = retrievers.parse(text)
    assert str(spec) == text
    assert spec.values(DenseParameters).held == variant


def test_what_changes_nothing_is_no_variant() -> None:
    """A name of its own would say that something was done."""
    assert str(retrievers.parse("bge-small:dimension=384,variant=int8")) == "bge-small:variant=int8"
    assert str(retrievers.parse("bge-small:dim=128,dimension=384")) == "bge-small:dim=128,dimension=384"
    assert str(retrievers.parse("bge-small:dimension=128,dim=128")) == "bge-small:dim=128"
    assert str(retrievers.parse("org/model:dimension=128,dim=128")) == "org/model:dim=128"
    longer = retrievers.parse("gte-moderncolbert:max_length=64,query_length=64")
    assert str(longer) == "gte-moderncolbert:max_length=64"
    with pytest.raises(UsageError, match="oversample=10 changes nothing"):
        retrievers.parse("bge-small:oversample=10").values(DenseParameters).held  # noqa: B018


def test_no_two_variants_are_described_alike() -> None:
    variants = {
        Variant(precision, dimension, oversample)
        for precision in ("float32", "int8", "binary")
        for dimension in (None, 1, 4, 10)
        for oversample in (0, 1, 4, 10)
    }
    described = {str(variant) for variant in variants}
    exact = sum(variant.exact for variant in variants)
    assert len(described) == len(variants) - exact + 1  # plain float32 has nothing to rescore


@pytest.mark.parametrize(
    "text", ["variant=int4", "dimension=0", "dimension=-1", "oversample=-1", "oversample=x", "variant=", "dimension="]
)
def test_a_wrong_variant_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=text.partition("=")[0]):
        retrievers.parse(f"bge-small:{text}")


def test_more_dimensions_than_there_are() -> None:
    queries, documents, ties = made(2, 30, 8)
    with pytest.raises((ModelError, UsageError), match="vectors of 8 dimensions cannot be cut to 9"):
        search_variant(queries, ArrayRows(documents), Variant("float32", 9), ties, 3, scaled=True)


def test_rows_in_another_order() -> None:
    matrix = np.arange(60, dtype=np.float32).reshape(20, 3)
    taken = TakenRows(ArrayRows(matrix), np.array([5, 5, 1]))
    assert np.array_equal(taken.read(0, 3), matrix[[5, 5, 1]])
    assert np.array_equal(taken.take(np.array([2, 0])), matrix[[1, 5]])
