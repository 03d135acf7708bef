from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import NO_DOCUMENT, DataError, Hit, IdTable, Run, UsageError

SCORES = st.floats(width=32, allow_nan=False)
IDS = st.text("abcß1🧬", min_size=1, max_size=3)
RANKINGS = st.dictionaries(IDS, st.dictionaries(IDS, SCORES, max_size=6), max_size=5)


def make(rankings: dict[str, dict[str, float]]) -> Run:
    return Run.from_rankings({q: list(hits.items()) for q, hits in rankings.items()})


@given(RANKINGS)
def test_rows_are_in_the_order_of_trec_eval(rankings: dict[str, dict[str, float]]) -> None:
    run = make(rankings)
    assert list(run.query_ids) == list(rankings)
    assert run.lengths().tolist() == [len(hits) for hits in rankings.values()]
    for query_id, hits in run:
        # score descending, id descending by bytes
        by_id = sorted(rankings[query_id].items(), key=lambda hit: hit[0].encode(), reverse=True)
        assert hits == sorted(by_id, key=lambda hit: -hit[1])
        assert run.of(query_id) == hits


def test_ties_are_broken_as_trec_eval_breaks_them() -> None:
    hits = {f"d{i}": 1.0 for i in range(20)} | {"z": 0.5}
    run = make({"q": hits})
    for relevant in ("d9", "d0", "z"):
        evaluator = pytrec_eval.RelevanceEvaluator({"q": {relevant: 1}}, {"recip_rank"})
        reciprocal = evaluator.evaluate({"q": hits})["q"]["recip_rank"]
        rank = [hit.doc_id for hit in run.of("q")].index(relevant) + 1
        assert reciprocal == pytest.approx(1 / rank)


def test_short_rows_are_filled_up() -> None:
    run = make({"q1": {"a": 1.0}, "q2": {}, "q3": {"a": -np.inf, "b": 2.0}})
    assert run.docs.tolist() == [[0, NO_DOCUMENT], [NO_DOCUMENT, NO_DOCUMENT], [1, 0]]
    assert run.scores[1].tolist() == [-np.inf, -np.inf]
    assert run.of("q2") == []
    assert run.of("unknown") == []
    assert (run.docs.dtype.name, run.scores.dtype.name) == ("int32", "float32")


def test_a_run_without_queries() -> None:
    run = make({})
    assert (len(run), run.depth, list(run)) == (0, 0, [])
    assert run.for_queries(IdTable(["q"])).of("q") == []
    assert run.top(5).depth == 0


def test_a_document_may_come_once() -> None:
    with pytest.raises(DataError, match="query 'q' retrieves document 'a' twice"):
        Run.from_rankings({"p": [Hit("a", 1)], "q": [Hit("a", 1), Hit("b", 3), Hit("a", 2)]})


def test_a_score_must_be_a_number() -> None:
    with pytest.raises(DataError, match="query 'q' has a score that is not a number"):
        make({"p": {"a": 1.0}, "q": {"a": float("nan")}})
    docs = np.array([[0, NO_DOCUMENT]], dtype=np.int32)
    for width in (1, 2):  # rows with nothing to be put in order
        with pytest.raises(DataError, match="a score that is not a number"):
            Run(IdTable(["q"]), IdTable(["a"]), docs[:, :width], np.array([[np.nan, -np.inf]], np.float32)[:, :width])


def test_a_score_beyond_float32_is_infinite() -> None:
    assert make({"q": {"a": 1e300, "b": 1.0}}).of("q") == [("a", float("inf")), ("b", 1.0)]


@pytest.mark.parametrize("table", [IdTable(["a"]), IdTable([])])
def test_documents_must_be_known(table: IdTable) -> None:
    with pytest.raises(DataError, match="query 'q' retrieves unknown document 'b'"):
        Run.from_rankings({"q": [Hit("b", 1.0)]}, doc_ids=table)


def test_top_cuts_and_names_stay() -> None:
    run = make({"q1": {"a": 3.0, "b": 2.0, "c": 1.0}, "q2": {"c": 9.0}}).renamed("mine")
    cut = run.top(2)
    assert cut.name == "mine"
    assert dict(cut) == {"q1": [("a", 3.0), ("b", 2.0)], "q2": [("c", 9.0)]}
    assert dict(run.top(10)) == dict(run)


def test_for_queries_reorders_and_fills() -> None:
    run = make({"q1": {"a": 1.0}, "q2": {"b": 2.0}}).for_queries(IdTable(["q2", "new", "q1"]))
    assert list(run) == [("q2", [("b", 2.0)]), ("new", []), ("q1", [("a", 1.0)])]


@given(RANKINGS)
def test_on_another_table_the_rankings_stay(rankings: dict[str, dict[str, float]]) -> None:
    run = make(rankings)
    moved = run.on(IdTable(["unrelated", *reversed(run.doc_ids)]))
    assert list(moved) == list(run)
    assert moved.doc_ids[0] == "unrelated"


def test_on_a_table_that_lacks_a_document() -> None:
    run = make({"q": {"a": 1.0, "b": 2.0}})
    with pytest.raises(DataError, match="query 'q' retrieves unknown document 'a'"):
        run.on(IdTable(["b"]))
    assert dict(run.on(IdTable(["b", "a"]), query_ids=["x"])) == {"x": []}


def test_matrices_must_fit_the_queries() -> None:
    with pytest.raises(UsageError, match="a run of 1 queries cannot hold"):
        Run(IdTable(["q"]), IdTable([]), np.zeros((2, 1), np.int32), np.zeros((2, 1), np.float32))
