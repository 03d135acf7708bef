from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, IdTable, Run, UsageError
from r2med.fuse import reciprocal_rank

IDS = IdTable(f"d{i}" for i in range(15))
ranking = st.lists(st.sampled_from(list(IDS)), unique=True, max_size=12)


def as_run(lists: list[list[str]]) -> Run:
    return Run.from_rankings(
        {f"q{i}": [(d, -float(r)) for r, d in enumerate(ids)] for i, ids in enumerate(lists)}, doc_ids=IDS
    )


@given(st.lists(st.tuples(ranking, ranking, ranking), min_size=1, max_size=4), st.integers(0, 100), st.integers(1, 20))
def test_equals_the_definition(cases: list[tuple[list[str], list[str], list[str]]], k: int, depth: int) -> None:
    runs = [as_run([case[i] for case in cases]) for i in range(3)]
    fused = reciprocal_rank(runs, k=k, depth=depth)
    for row, lists in enumerate(cases):
        scores: dict[str, float] = {}
        for ids in lists:
            for rank, doc in enumerate(ids, start=1):
                scores[doc] = scores.get(doc, 0.0) + 1 / (k + rank)
        expected = Run.from_rankings({"q": list(scores.items())}, doc_ids=IDS).of("q")[:depth]
        got = fused.of(f"q{row}")
        assert [h.doc_id for h in got] == [h.doc_id for h in expected]
        assert [h.score for h in got] == pytest.approx([h.score for h in expected], rel=1e-6)


def test_name_and_refusals() -> None:
    one, two = as_run([["d1"]]).renamed("bm25"), as_run([["d2"]]).renamed("dense")
    assert reciprocal_rank([one, two]).name == "bm25+dense.rrf"
    other = Run.from_rankings({"q0": [("z", 1.0)]})
    with pytest.raises(DataError, match="same queries and documents"):
        reciprocal_rank([one, other])
    with pytest.raises(UsageError):
        reciprocal_rank([])
    with pytest.raises(UsageError):
        reciprocal_rank([one], k=-1)
