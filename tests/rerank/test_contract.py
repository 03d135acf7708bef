"""From a reranker's scores to a run, and the safeguard of Nano candidates."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from r2med.core import IdTable, ModelError, Run, UsageError
from r2med.core.run import read_run, write_run
from r2med.rerank import safeguards, without
from r2med.rerank.contract import check_depth, order_row, ranks_as_scores, reordered

IDS = IdTable(f"d{i:02d}" for i in range(40))
finite = st.floats(-(2.0**127), 2.0**127, width=32)
opinions = st.one_of(st.sampled_from([0.0, 1.0, -1.0, float("nan")]), finite)


def candidates(lengths: list[int]) -> Run:
    rng = np.random.default_rng(sum(lengths))
    return Run.from_rankings(
        {
            f"q{i}": [(IDS[d], float(-r)) for r, d in enumerate(rng.permutation(40)[:n].tolist())]
            for i, n in enumerate(lengths)
        },
        doc_ids=IDS,
        name="first",
    )


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=4),
    st.integers(1, 35),
    st.sampled_from(["keep", "drop"]),
    st.data(),
)
def test_the_order_survives_every_reader_of_runs(
    lengths: list[int], depth: int, rest: Literal["keep", "drop"], data: st.DataObject
) -> None:
    first = candidates(lengths)
    width = min(depth, first.depth)
    scores = data.draw(arrays(np.float32, (len(lengths), width), elements=opinions))
    run = reordered(first, scores, rest, "new")
    again = Run(run.query_ids, IDS, run.docs[:, ::-1], run.scores[:, ::-1])
    assert (again.docs == run.docs).all()  # by score alone: no tie is left for ids to break
    for row, length in enumerate(lengths):
        top = min(length, width)
        held = run.docs[row][run.docs[row] >= 0]
        assert len(held) == (length if rest == "keep" else top)
        assert set(held[:top]) == set(first.docs[row, :top])  # the depth is never crossed
        assert (held[top:] == first.docs[row, top : len(held)]).all()
        assert (np.diff(run.scores[row, : len(held)]) < 0).all()
        assert np.isfinite(run.scores[row, : len(held)]).all()


@given(st.lists(opinions, max_size=20))
def test_a_row_is_sorted_stably_around_those_without_opinion(values: list[float]) -> None:
    scores = np.array(values, dtype=np.float32)
    order, _ = order_row(scores)
    assert sorted(order.tolist()) == list(range(len(values)))
    heard = [i for i in order.tolist() if not np.isnan(scores[i])]
    assert heard == sorted(heard, key=lambda i: (-scores[i], i))
    for place in np.flatnonzero(np.isnan(scores)).tolist():
        assert order[place] == place


def test_model_scores_are_stored_as_they_are() -> None:
    first = candidates([4])
    run = reordered(first, np.array([[0.25, 3.5, -2.0]], dtype=np.float32), "keep", "new")
    assert run.scores[0].tolist() == [3.5, 0.25, -2.0, -3.0]


def test_round_trip_through_trec(tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    first = candidates([30])
    run = reordered(first, np.ones((1, 10), dtype=np.float32), "keep", "new")
    write_run(run, tmp_path / "new.run")
    back = read_run(tmp_path / "new.run", doc_ids=IDS)
    assert [h.doc_id for h in back.of("q0")] == [h.doc_id for h in first.of("q0")]


def test_refusals() -> None:
    with pytest.raises(UsageError, match="1 or more"):
        check_depth(0, "keep")
    with pytest.raises(UsageError, match="keep or drop"):
        check_depth(1, "forget")
    with pytest.raises(ModelError, match="infinite"):
        order_row(np.array([np.inf, 0], dtype=np.float32))


def test_ranks_as_scores() -> None:
    assert ranks_as_scores([[2, 0, 1], []], 3)[0].tolist() == [2, 1, 3]


def test_the_safeguard_is_found_and_taken_out() -> None:
    long = {f"d{i:03d}": float(200 - i) for i in range(101)}
    run = Run.from_rankings({"a": list(long.items()), "b": list(long.items())[:50]})
    found = safeguards(run)
    assert run.doc_ids[int(found[0])] == "d100"
    assert found[1] == -1
    reranked = Run.from_rankings({"a": [("d100", 3.0), ("d001", 2.0)], "b": [("d002", 1.0)]}, doc_ids=run.doc_ids)
    cleared = without(reranked, found)
    assert [h.doc_id for h in cleared.of("a")] == ["d001"]
    assert cleared.of("b") == reranked.of("b")
    assert (safeguards(run, {"b"}) == [-1, run.doc_ids.position("d049")]).all()
    assert (without(run, found).docs[1] == run.docs[1]).all()
