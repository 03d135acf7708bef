"""MaxSim in whole numbers: every way of this processor and the numpy twin against plain code, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.cache import Int16, TokenPiece
from r2med.core import ModelError
from r2med.retrieve import _native_python, maxsim, sparse
from r2med.retrieve.maxsim import LARGEST, STEPS, fixed_point

WAYS = [(maxsim.native, way) for way in range(len(maxsim.native.ways()))]
ALL = [*WAYS, (_native_python, 0)] if maxsim.native is not _native_python else WAYS
Lengths = st.lists(st.integers(1, 37), min_size=1, max_size=5)


def states(lengths: list[int], dimension: int, seed: int) -> list[Int16]:
    rng = np.random.default_rng(seed)
    return [fixed_point(rng.standard_normal((n, dimension)).astype(np.float32)) for n in lengths]


def plain(query: Int16, document: Int16) -> np.float32:
    """With numbers of any size."""
    best = [max(sum(int(a) * int(b) for a, b in zip(q, d, strict=True)) for d in document) for q in query]
    return np.float32(sum(best) / 2**30)


@given(Lengths, Lengths, st.integers(1, 18), st.integers(0, 9))
def test_every_way_gives_the_exact_score(queries: list[int], documents: list[int], dimension: int, seed: int) -> None:
    left, right = states(queries, dimension, seed), states(documents, dimension, seed + 1)
    wanted = [[plain(q, d) for d in right] for q in left]
    piece = TokenPiece.of(right)
    ends = np.cumsum(queries)
    for module, way in ALL:
        out = np.full((len(left), len(right) + 2), np.nan, dtype=np.float32)
        sizes = (left[0].shape[1], out.shape[1], 0, len(right), 1, way)
        module.scores(np.concatenate(left), ends, piece.matrix, piece.starts, piece.sizes, out, *sizes)
        assert out[:, 1:-1].tolist() == wanted
        assert np.isnan(out[:, [0, -1]]).all()
    assert maxsim.maxsim(left, [piece], len(right)).tolist() == wanted


@pytest.mark.parametrize(("module", "way"), ALL, ids=lambda value: str(getattr(value, "__name__", value)))
def test_the_longest_vectors_there_can_be(module: Any, way: int) -> None:
    one = np.zeros((1, 1024), dtype=np.float32)
    one[0, 3] = -1
    flat = np.full((1, 1024), -1 / 32, dtype=np.float32)
    for vector in (fixed_point(one), fixed_point(flat)):
        out = np.empty((1, 1), dtype=np.float32)
        piece = TokenPiece.of([vector])
        module.scores(vector, np.array([1]), vector, piece.starts, piece.sizes, out, 1024, 1, 0, 1, 0, way)
        assert out[0, 0] == plain(vector, vector)
        assert out[0, 0] == pytest.approx(1, abs=1e-4)


def test_fixed_point_is_near_and_never_too_large() -> None:
    vectors = np.random.default_rng(0).standard_normal((300, 127)).astype(np.float32)
    vectors[0] = 0
    vectors[1] = 0
    vectors[1, 5] = 7
    made = fixed_point(vectors)
    assert made.shape == (300, 128)
    assert (made[:, 127] == 0).all()
    assert (made[0] == 0).all()
    assert made[1, 5] == LARGEST
    unit = vectors[2:] / np.linalg.norm(vectors[2:], axis=1, keepdims=True)
    assert np.abs(made[2:, :127] / STEPS - unit).max() <= 0.5 / STEPS + 1e-7
    exact, kept = unit @ unit.T, (made[2:].astype(np.float64) / STEPS) @ (made[2:].T.astype(np.float64) / STEPS)
    assert np.abs(exact - kept).max() < 1e-4


def test_a_score_depends_on_its_pair_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on the queries and documents beside it, nor on threads."""
    left, right = states([5, 33, 8, 1], 96, 1), states([20, 1, 7, 64, 3] * 8, 96, 2)
    whole = maxsim.maxsim(left, [TokenPiece.of(right)], len(right))
    monkeypatch.setattr(sparse, "available_cores", lambda: 7)
    assert np.array_equal(maxsim.maxsim(left, [TokenPiece.of(right)], len(right)), whole)
    for q, query in enumerate(left):
        for d in range(0, len(right), 7):
            assert maxsim.maxsim([query], [TokenPiece.of([right[d]])], 1)[0, 0] == whole[q, d]


def test_pieces_hold_documents_in_any_order() -> None:
    left, right = states([5, 3], 8, 1), states([2, 9, 4, 6], 8, 2)
    whole = maxsim.maxsim(left, [TokenPiece.of(right)], 4)
    pieces = [TokenPiece.of([right[i] for i in some])._replace(documents=np.array(some)) for some in ([3, 0], [1, 2])]
    assert np.array_equal(maxsim.maxsim(left, pieces, 4), whole)
    assert maxsim.maxsim([], pieces, 4).shape == (0, 4)
    with pytest.raises(ModelError, match="queries have 6 dimensions, documents 8"):
        maxsim.maxsim(states([2], 6, 0), pieces, 4)


@pytest.mark.skipif(maxsim.native is _native_python, reason="the extension is not built")
@pytest.mark.parametrize(
    "change",
    [
        {"starts": [0, -1]}, {"starts": [0, 8]}, {"sizes": [4, 5]}, {"sizes": [4, 0]}, {"sizes": [4]},
        {"starts": [0, 2**62]}, {"sizes": [4, 2**62]}, {"ends": [2, 1]}, {"ends": [3, 4]}, {"ends": [3, 6]},
        {"ends": []}, {"dimension": 3}, {"dimension": 0}, {"dimension": -2}, {"dimension": 5}, {"dimension": 2**61},
        {"width": 3}, {"width": -1}, {"begin": -1}, {"begin": 3}, {"end": 3}, {"offset": 1}, {"offset": -1},
        {"way": -1}, {"way": 9},
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    fitting: dict[str, Any] = {
        "queries": np.zeros((5, 6), np.int16), "ends": [3, 5], "rows": np.zeros((8, 6), np.int16), "starts": [0, 4],
        "sizes": [4, 4], "out": np.zeros((2, 2), np.float32), "dimension": 6, "width": 2, "begin": 0, "end": 2,
        "offset": 0, "way": 0,
    }  # fmt: skip

    def call(given: dict[str, Any]) -> None:
        lists = {key: np.array(given[key], np.int64) for key in ("ends", "starts", "sizes")}
        maxsim.native.scores(*({**given, **lists}).values())

    call(fitting)
    with pytest.raises(ValueError, match="do not fit"):
        call({**fitting, **change})
