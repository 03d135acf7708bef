from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import IdTable, TextColumn, UsageError
from r2med.core.queries import Queries, QueryText
from tests.builders import TEXTS, small_task

PARTS = st.builds(
    QueryText, TEXTS, st.floats(0, 9, exclude_min=True), st.sampled_from(["query", "document"]), st.booleans()
)


@st.composite
def queries(draw: st.DrawFn) -> Queries:
    originals = draw(st.lists(TEXTS, max_size=5))
    ids = IdTable(f"q{i}" for i in range(len(originals)))
    groups = draw(st.none() | st.tuples(*(st.lists(PARTS, min_size=1, max_size=3).map(tuple) for _ in originals)))
    return Queries(ids, TextColumn.from_texts(originals), groups)


def test_the_queries_of_a_task_are_its_texts() -> None:
    task = small_task()
    made = Queries.of(task)
    assert made.plain
    assert list(made.column) == list(made.single("x")) == list(task.query_texts)
    assert made.texts == [(QueryText(query.text),) for query in task.queries]
    assert Queries.typed(["a", "b"]).ids == IdTable(["typed-0", "typed-1"])


@given(queries())
def test_they_travel_to_workers(made: Queries) -> None:
    again = pickle.loads(pickle.dumps(made))
    assert (again.ids, list(again.originals), list(again.texts)) == (made.ids, list(made.originals), list(made.texts))
    assert (again.fingerprint, again.plain) == (made.fingerprint, made.plain)


@given(queries(), queries())
def test_different_texts_have_different_fingerprints(one: Queries, other: Queries) -> None:
    same = (list(one.ids), list(one.texts)) == (list(other.ids), list(other.texts))
    assert (one.fingerprint == other.fingerprint) == same


def test_plain_is_one_text_encoded_as_any_query_is() -> None:
    ids, column = IdTable(["q"]), TextColumn.from_texts(["x"])
    assert Queries(ids, column, [(QueryText("y"),)]).plain
    for other in (QueryText("y", 2.0), QueryText("y", side="document"), QueryText("y", instruction=False)):
        assert not Queries(ids, column, [(other,)]).plain
    several = Queries(ids, column, [(QueryText("y"), QueryText("z"))])
    with pytest.raises(UsageError, match="somebody takes one text for each query"):
        several.single("somebody")


def test_as_many_texts_as_queries() -> None:
    ids, column = IdTable(["q"]), TextColumn.from_texts(["x"])
    with pytest.raises(UsageError, match="1 queries need as many texts"):
        Queries(ids, column, [])
    with pytest.raises(UsageError, match="1 queries need as many texts"):
        Queries(ids, TextColumn.from_texts([]))
    with pytest.raises(UsageError, match="at least one text"):
        Queries(ids, column, [()])


@pytest.mark.parametrize("weights", [(0, 0), (1, -1), (1, float("nan")), (float("inf"), 1)])
def test_weights_that_have_no_mean(weights: tuple[float, float]) -> None:
    """A dense retriever ranked by vectors of zeros, BM25 divided by zero."""
    texts = tuple(QueryText("x", weight) for weight in weights)
    with pytest.raises(UsageError, match="must add up to more than 0"):
        Queries(IdTable(["q"]), TextColumn.from_texts(["x"]), [texts])
