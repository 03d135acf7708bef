"""Groups of passages that a real chat server grades well, badly, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import r2med
from r2med.core import Run, Task, UsageError
from r2med.core.columns import Int64
from r2med.rerank import rerankers
from r2med.rerank.groupwise import kendall_tau, mean_of_repeats, shuffled
from tests.llm.server import ChatServer

from . import tiny
from .conftest import MakeReranker
from .test_listwise import notes, shown


def grade(passage: str) -> int:
    """What a passage is worth: the longer, the better."""
    return min(len(passage) // 30, 10)


def grades(body: dict[str, Any]) -> dict[str, int]:
    return {f"[{i}]": grade(passage) for i, passage in enumerate(shown(body), start=1)}


def well(body: dict[str, Any]) -> str:
    return f"<reason>[1] is long.</reason><answer>{json.dumps(grades(body))}</answer>"


def by_grade(task: Task, docs: list[int]) -> list[int]:
    """The best first; equal ones as they came."""
    return sorted(docs, key=lambda d: -grade(" ".join(task.documents.contents[d].split())))


def test_groups(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    server.text = well
    run = make_reranker("grouprank:any-model,group=8").rerank(task, first, 20)
    assert len(server.asked) == 3 * 3
    assert sorted(len(shown(body)) for body in server.asked) == [4] * 3 + [8] * 6
    for row in range(3):
        top = first.docs[row, :20].tolist()
        assert run.docs[row].tolist() == [*by_grade(task, top), *first.docs[row, 20:].tolist()]
    said = notes(run)
    assert {k: said[k] for k in ("asked", "ok", "mended", "unparsed", "failed", "cache_hits", "no_grade")} == {
        "asked": 9, "ok": 9, "mended": 0, "unparsed": 0, "failed": 0, "cache_hits": 0, "no_grade": 0,
    }  # fmt: skip
    assert said["tied"] > 0
    assert "order_sensitivity" not in said
    assert "0 to 10" in server.asked[0]["messages"][-1]["content"]
    again = make_reranker("grouprank:any-model,group=8").rerank(task, first, 20)
    assert notes(again)["cache_hits"] == 9
    assert len(server.asked) == 9  # nothing is paid for twice
    assert (again.docs == run.docs).all()
    assert (again.scores == run.scores).all()
    assert run.scores.max() <= 1


def test_repeats_average_over_other_groups(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run
) -> None:
    """A judge that prefers what stands first is averaged out, and the change between shuffles is told."""

    def biased(body: dict[str, Any]) -> str:
        return json.dumps({f"[{i}]": max(10 - i, 0) for i in range(1, len(shown(body)) + 1)})

    server.text = biased
    once = make_reranker("grouprank:any-model,group=10").rerank(task, first, 10)
    asked = len(server.asked)
    twice = make_reranker("grouprank:any-model,group=10,repeats=2").rerank(task, first, 10)
    assert len(server.asked) == 2 * asked  # the first shuffle is the same one, and stored
    assert notes(twice)["cache_hits"] == asked
    told = notes(twice)["order_sensitivity"]
    assert -1 <= told["kendall_tau"] < 0.9
    assert 0 <= told["first_10_shared"] <= 1
    assert (once.docs != twice.docs).any()
    server.text = well
    steady = make_reranker("grouprank:another-model,group=10,repeats=3").rerank(task, first, 10)
    assert notes(steady)["order_sensitivity"] == {"kendall_tau": 1.0, "first_10_shared": 1.0}


ANSWERS: dict[str, tuple[Callable[[dict[str, Any]], str], str, str]] = {
    "prose": (lambda body: "All of them have merit.", "unparsed", ""),
    "an order": (lambda body: "[2] > [1] > [3]", "unparsed", ""),
    "never stops thinking": (lambda body: '<think>{"[1]": 5', "unparsed", "unfinished"),
    "repeats": (lambda body: json.dumps(grades(body))[:-1] + ', "[1]": 0}', "mended", "numbers_repeated"),
    "leaves one out": (lambda body: json.dumps(dict(list(grades(body).items())[:-1])), "mended", "numbers_missing"),
    "invents one": (lambda body: json.dumps(grades(body) | {"[99]": 10}), "mended", "numbers_unknown"),
    "off the scale": (lambda body: json.dumps(grades(body) | {"[1]": 11}), "mended", "numbers_out_of_range"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_bad_answers(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run, answer: str) -> None:
    said, outcome, counted = ANSWERS[answer]
    server.text = said
    run = make_reranker("grouprank:any-model,group=6,shuffle=no").rerank(task, first, 12)
    assert notes(run)["asked"] == notes(run)[outcome] == 6
    if counted:
        assert notes(run)[counted] == 6
    for row in range(3):
        top = first.docs[row, :12].tolist()
        assert sorted(run.docs[row, :12].tolist()) == sorted(top)
        if outcome == "unparsed":
            assert run.docs[row].tolist() == first.docs[row].tolist()
        silent = {"leaves one out": (5, 11), "off the scale": (0, 6)}.get(answer, ())
        for place in silent:  # no grade: it keeps its place
            assert run.docs[row, place] == top[place]
        if outcome == "mended":
            heard = [doc for place, doc in enumerate(top) if place not in silent]
            ranked = [d for place, d in enumerate(run.docs[row, :12].tolist()) if place not in silent]
            assert ranked == by_grade(task, heard)


def test_only_the_group_that_fails_falls_back(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run
) -> None:
    server.text, server.plan = well, ["400-length"]
    run = make_reranker("grouprank:any-model,group=6,shuffle=no", concurrency=1).rerank(task, first, 12)
    assert (notes(run)["failed"], notes(run)["too_long"], notes(run)["ok"], notes(run)["no_grade"]) == (1, 1, 5, 6)
    top = first.docs[0, :12].tolist()
    assert run.docs[0, :6].tolist() == top[:6]
    assert run.docs[0, 6:12].tolist() == by_grade(task, top[6:])
    again = make_reranker("grouprank:any-model,group=6,shuffle=no", concurrency=1).rerank(task, first, 12)
    assert (notes(again)["cache_hits"], notes(again)["ok"], notes(again)["no_grade"]) == (5, 6, 0)


def test_all_groups_are_in_flight_together(server: ChatServer, make_reranker: MakeReranker) -> None:
    """Sixteen calls at once, though there are only three queries."""
    task = tiny.a_task(queries=3, documents=60)
    server.text, server.together = well, 16
    run = make_reranker("grouprank:any-model,group=10").rerank(task, tiny.first_stage(task, 60), 60)
    assert server.most_in_flight == 16
    assert notes(run)["ok"] == 18


def test_windows_of_different_queries_are_in_flight_together(server: ChatServer, make_reranker: MakeReranker) -> None:
    """A query's next window is asked as soon as its last one is answered, whatever other queries wait for."""
    task = tiny.a_task(queries=20, documents=60)
    server.text, server.together = lambda body: "[1]", 16
    run = make_reranker("rankgpt:any-model,window=20,step=10").rerank(task, tiny.first_stage(task, 60), 60)
    assert server.most_in_flight == 16
    assert notes(run)["asked"] == 20 * 5
    # One query's answer is held back; all others are sorted to the end meanwhile.
    held = tiny.a_task(queries=4, documents=60, seed=7)
    text = held.queries[0].text

    def answer(body: dict[str, Any]) -> str:
        if text in body["messages"][-1]["content"]:
            with server.lock:
                server.lock.wait_for(lambda: len(server.asked) >= before + 1 + 3 * 5, timeout=20)
        return "[2] > [1]"

    before, server.text = len(server.asked), answer
    make_reranker("rankgpt:any-model").rerank(held, tiny.first_stage(held, 60), 60)
    others = [text not in body["messages"][-1]["content"] for body in server.asked[before:]]
    assert sum(others[: 1 + 3 * 5]) == 3 * 5


def test_what_ranks_differently_has_a_name_of_its_own(make_reranker: MakeReranker) -> None:
    specs = [
        "grouprank:any-model",
        *(f"grouprank:any-model,{p}" for p in ("group=10", "repeats=2", "seed=1", "shuffle=no", "hints=yes")),
        *(f"grouprank:any-model,{p}" for p in ("blend=0.6", "blend=0.5", "blend=0.6,blend_by=raw", "passage_words=9")),
    ]
    made = [make_reranker(spec) for spec in specs]
    assert len({reranker.name for reranker in made}) == len(specs)
    assert len({json.dumps(reranker.describe(), sort_keys=True) for reranker in made}) == len(specs)
    assert make_reranker("grouprank:any-model,group=20,repeats=1,blend=1").name == made[0].name
    with pytest.raises(UsageError, match="shuffle=no asks the same"):
        make_reranker("grouprank:any-model,shuffle=no,repeats=2")
    with pytest.raises(UsageError, match="group of grouprank must be a number of at least 1"):
        rerankers.parse("grouprank:any-model,group=0")


@pytest.mark.parametrize("change", ["seed=1", "group=3", "repeats=2", "blend=0.5"])
def test_two_settings_never_share_a_result(server: ChatServer, change: str, tmp_path: Any) -> None:
    def by_place(body: dict[str, Any]) -> str:
        return json.dumps({f"[{i}]": (7 * i) % 11 for i in range(1, len(shown(body)) + 1)})

    server.text = by_place
    found: dict[str, float] = {}
    for spec in ("grouprank:any-model,group=5", f"grouprank:any-model,{change}"):
        made = r2med.run("bm25", tasks="mini@1/Biology", rerank=f"{spec}@10", results=tmp_path).results
        found |= {r.system.name: r.measures["ndcg_at_10"] for r in made if r.system.name != "bm25"}
    assert len(found) == 2
    assert len(set(found.values())) == 2


@given(st.text(max_size=8), st.integers(0, 60), st.integers(0, 5), st.integers(0, 5))
def test_shuffles(query_id: str, count: int, seed: int, repeat: int) -> None:
    order = shuffled(query_id, count, seed, repeat)
    assert sorted(order) == list(range(count))
    assert order == shuffled(query_id, count, seed, repeat)
    if count > 20:
        assert len({tuple(shuffled(query_id, count, seed, r)) for r in range(3)}) == 3


@given(st.integers(2, 30), st.integers(0, 99))
def test_kendall_tau(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one: Int64 = rng.permutation(count)
    assert kendall_tau(one, one) == 1
    assert kendall_tau(one, one[::-1]) == -1
    other: Int64 = rng.permutation(count)
    places = {int(p): i for i, p in enumerate(other)}
    pairs = [(a, b) for i, a in enumerate(one.tolist()) for b in one.tolist()[i + 1 :]]
    agree = sum(1 if places[a] < places[b] else -1 for a, b in pairs)
    assert kendall_tau(one, other) == pytest.approx(agree / len(pairs))


def test_means_are_over_the_grades_there_are() -> None:
    nan = np.nan
    table = np.array([[[0.5, nan, nan, 1.0]], [[0.7, 0.2, nan, 1.0]]], dtype=np.float32)
    ranked = mean_of_repeats(table, [3])
    assert ranked.scores[0, :2].tolist() == pytest.approx([0.6, 0.2])
    assert np.isnan(ranked.scores[0, 2])
    assert ranked.notes["no_grade"] == 1
    assert ranked.notes["tied"] == 0
