"""What a cache saves: counted once, and unknown where nobody measured it."""

from __future__ import annotations

from r2med.core.budget import Reused, in_turn, known_sum, saved_seconds, together


def test_a_first_run_has_nothing_saved() -> None:
    assert saved_seconds({"retrieve": {"vectors": Reused(100.0, 0.0)}}) == {"retrieve": 0.0}
    assert saved_seconds({"retrieve": {}}) == {"retrieve": 0.0}


def test_vectors_that_an_earlier_stage_made_or_found_are_counted_once() -> None:
    """`bge-small+neighbours`: the reranker finds what the first stage encoded, also in a first run."""
    candidates = {"vectors": Reused(30.0, 30.0)}
    first_run = {"retrieve": {"vectors": Reused(100.0, 0.0)}, "rerank": candidates}
    assert saved_seconds(first_run) == {"retrieve": 0.0, "rerank": 0.0}
    second_run = {"retrieve": {"vectors": Reused(100.0, 100.0)}, "rerank": candidates}
    assert saved_seconds(second_run) == {"retrieve": 100.0, "rerank": 0.0}
    behind_another = {"retrieve": {"terms": Reused(1.0, 0.0)}, "rerank": candidates}
    assert saved_seconds(behind_another) == {"retrieve": 0.0, "rerank": 30.0}


def test_a_part_that_was_there() -> None:
    assert saved_seconds({"retrieve": {"vectors": Reused(100.0, 60.0)}}) == {"retrieve": 60.0}
    account = together(
        [{"documents": Reused(9.0, 9.0)}, {"queries": Reused(1.0, 0.0)}, {"documents": Reused(2.0, 1.0)}]
    )
    assert account == {"documents": Reused(11.0, 10.0), "queries": Reused(1.0, 0.0)}
    assert saved_seconds({"retrieve": account}) == {"retrieve": 10.0}


def test_unknown_is_not_nothing() -> None:
    unknown = Reused(None, None)
    assert saved_seconds({"retrieve": {"a": unknown, "b": Reused(2.0, 2.0)}}) == {"retrieve": None}
    assert saved_seconds({"retrieve": {"a": unknown}, "rerank": {"a": unknown}}) == {"retrieve": None, "rerank": 0.0}
    assert together([{"a": Reused(1.0, 1.0)}, {"a": unknown}]) == {"a": unknown}
    assert known_sum([1.0, None]) is None
    assert known_sum([]) == 0.0


def test_two_rerankers_on_the_same_vectors() -> None:
    assert in_turn({"a": Reused(5.0, 5.0)}, {"a": Reused(3.0, 3.0), "b": Reused(1.0, 0.0)}) == {
        "a": Reused(5.0, 5.0),
        "b": Reused(1.0, 0.0),
    }
    assert in_turn({"a": Reused(5.0, 5.0)}, {"a": Reused(None, None)})["a"] == Reused(None, None)
