"""Ways of sorting, and chat models that order or pick passages."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, Document, Documents, ModelError, Run, Task, UsageError
from r2med.core.files import home
from r2med.core.spec import Content
from r2med.rerank import rerankers
from r2med.rerank.listwise import Sorter, check_sliding, heap_top, sliding
from tests.llm.server import ChatServer
from tests.retrieve.encoders.weights import HOME

from . import tiny
from .conftest import MakeReranker


def drive(sorter: Sorter, worth: list[int], asked: list[list[int]] | None = None) -> list[int]:
    """Answer every question rightly."""
    answer: list[int] | None = None
    try:
        while True:
            places = next(sorter) if answer is None else sorter.send(answer)
            if asked is not None:
                asked.append(places)
            answer = sorted(range(len(places)), key=lambda i: -worth[places[i]])
    except StopIteration as end:
        result: list[int] = end.value
        return result


@given(st.integers(0, 60), st.integers(2, 20), st.integers(1, 20), st.integers(0, 9))
def test_sliding_windows_carry_the_best_up(count: int, window: int, step: int, seed: int) -> None:
    step = min(step, window - 1) or 1
    worth = random.Random(seed).sample(range(1000), count)
    asked: list[list[int]] = []
    order = drive(sliding(count, window, step), worth, asked)
    assert sorted(order) == list(range(count))
    assert all(len(places) <= window for places in asked)
    carried = window - step if count > window else count
    best = sorted(range(count), key=lambda i: -worth[i])[: min(carried, count)]
    assert order[: len(best)] == best


def test_rankgpts_windows() -> None:
    asked: list[list[int]] = []
    drive(sliding(100, 20, 10), list(range(100, 0, -1)), asked)
    assert [(places[0], places[-1] + 1) for places in asked] == [(s, s + 20) for s in range(80, -1, -10)]
    asked.clear()
    drive(sliding(15, 20, 10), list(range(15)), asked)
    assert len(asked) == 1
    asked.clear()
    assert drive(sliding(1, 20, 10), [1], asked) == [0]
    assert asked == []


@given(st.integers(0, 50), st.integers(1, 12), st.integers(1, 5), st.integers(0, 9))
def test_heap_sort_finds_the_top(count: int, top: int, children: int, seed: int) -> None:
    worth = random.Random(seed).sample(range(1000), count)
    asked: list[list[int]] = []
    order = drive(heap_top(count, top, children), worth, asked)
    best = sorted(range(count), key=lambda i: -worth[i])
    assert order[:top] == best[:top]
    assert order[top:] == sorted(best[top:])
    assert all(2 <= len(places) <= children + 1 for places in asked)


@given(st.integers(0, 40), st.integers(1, 5))
def test_a_model_that_says_nothing_leaves_the_head_alone(count: int, children: int) -> None:
    # Worth that falls along the list: the answer is always the list as it is.
    assert drive(heap_top(count, 5, children), list(range(count, 0, -1))) == list(range(count))


def test_refusals() -> None:
    for window, step in ((1, 1), (20, 0), (20, 21)):
        with pytest.raises(UsageError):
            check_sliding(window, step)


def shown(body: dict[str, Any]) -> list[str]:
    """The passages of a prompt, in the order they are numbered."""
    user = body["messages"][-1]["content"]
    return [m[1].strip() for m in re.finditer(r"^\[\d+\] (.*)$", user, re.MULTILINE)]


def worth(body: dict[str, Any]) -> list[int]:
    """Numbers of the passages, the longest first."""
    passages = shown(body)
    return sorted(range(1, len(passages) + 1), key=lambda i: -len(passages[i - 1]))


def well(body: dict[str, Any]) -> str:
    return " > ".join(f"[{i}]" for i in worth(body))


def by_worth(task: Task, docs: list[int]) -> list[int]:
    return sorted(docs, key=lambda d: (-len(" ".join(task.documents.contents[d].split())), docs.index(d)))


def notes(run: Run) -> dict[str, Any]:
    found = run.notes["rerank"]
    assert isinstance(found, dict)
    assert msgspec.json.decode(msgspec.json.encode(found)) == found  # goes into a result file as it is
    return found


def test_listwise(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    server.text = well
    reranker = make_reranker("rankgpt:any-model")
    run = reranker.rerank(task, first, 20)
    for row in range(3):
        top = first.docs[row, :20].tolist()
        assert run.docs[row].tolist() == [*by_worth(task, top), *first.docs[row, 20:].tolist()]
    assert {k: notes(run)[k] for k in ("asked", "ok", "mended", "unparsed", "failed", "cache_hits")} == {
        "asked": 3, "ok": 3, "mended": 0, "unparsed": 0, "failed": 0, "cache_hits": 0,
    }  # fmt: skip
    assert notes(run)["usage"]["calls"] == 3
    again = make_reranker("rankgpt:any-model").rerank(task, first, 20)
    assert notes(again)["cache_hits"] == 3
    assert len(server.asked) == 3  # nothing is paid for twice
    assert (again.docs == run.docs).all()


def test_windows_slide(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    server.text = well
    run = make_reranker("rankgpt:any-model,window=10,step=5").rerank(task, first, 30, rest="drop")
    assert notes(run)["asked"] == 3 * 5
    for row in range(3):
        best = by_worth(task, first.docs[row].tolist())[:5]
        lengths = [len(task.documents.contents[d]) for d in run.docs[row, :5].tolist()]
        assert lengths == [len(task.documents.contents[d]) for d in best]


ANSWERS: dict[str, tuple[str | Callable[[dict[str, Any]], str], str]] = {
    "prose": ("I would start with the longest one, but all of them have merit.", "unparsed"),
    "repeats": (lambda body: " > ".join(f"[{i}]" for i in [*worth(body)[:3], *worth(body)]), "mended"),
    "leaves some out": (lambda body: " > ".join(f"[{i}]" for i in worth(body)[:4]), "mended"),
    "invents some": (lambda body: f"[99] > {well(body)} > [0]", "mended"),
    "nothing": ("", "unparsed"),
    "thinks": (lambda body: f"<think>[1] > [2] perhaps? No.</think>{well(body)}", "ok"),
    "never stops thinking": ("<think>[5] > [4] > [3]", "unparsed"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_listwise_with_bad_answers(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run, answer: str
) -> None:
    said, outcome = ANSWERS[answer]
    server.text = said if callable(said) else lambda body: str(said)
    run = make_reranker("rankgpt:any-model").rerank(task, first, 12)
    assert notes(run)[outcome] == 3
    assert notes(run)["asked"] == 3
    for row in range(3):
        top = first.docs[row, :12].tolist()
        assert sorted(run.docs[row, :12].tolist()) == sorted(top)
        if outcome == "unparsed":
            assert run.docs[row].tolist() == first.docs[row].tolist()
        elif answer == "leaves some out":
            assert run.docs[row, :4].tolist() == by_worth(task, top)[:4]
            rest = [d for d in top if d not in by_worth(task, top)[:4]]
            assert run.docs[row, 4:12].tolist() == rest
        else:
            assert run.docs[row, :12].tolist() == by_worth(task, top)


def test_requests_that_fail_keep_their_order(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run
) -> None:  # fmt: skip
    server.text, server.plan = well, ["400-length"]
    run = make_reranker("rankgpt:any-model", concurrency=1).rerank(task, first, 12)
    assert notes(run)["failed"] == 1
    assert notes(run)["ok"] == 2
    assert run.docs[0].tolist() == first.docs[0].tolist()
    again = make_reranker("rankgpt:any-model", concurrency=1).rerank(task, first, 12)
    assert (notes(again)["cache_hits"], notes(again)["ok"]) == (2, 3)  # what failed is asked again


def test_a_server_that_only_fails_stops_everything(server: ChatServer, make_reranker: MakeReranker) -> None:
    many = tiny.a_task(queries=15, documents=40)
    server.default = "400"
    with pytest.raises(ModelError, match="refused the request"):
        make_reranker("rankgpt:any-model").rerank(many, tiny.first_stage(many), 10)


def test_reasoning(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    server.text = lambda body: f"The case is about the liver. [1] > [2]?\n<answer>{well(body)}</answer>"
    reranker = make_reranker("reasoning:any-model")
    run = reranker.rerank(task, first, 10)
    assert notes(run)["ok"] == 3
    assert run.docs[1, :10].tolist() == by_worth(task, first.docs[1, :10].tolist())
    assert server.asked[0]["max_tokens"] == 8192


def test_hints(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    server.text = lambda body: "[1]"
    plain = make_reranker("rankgpt:any-model")
    hinted = make_reranker("rankgpt:any-model,hints=yes")
    assert plain.describe() != hinted.describe()
    hinted.rerank(task, first, 5)
    user = server.asked[0]["messages"][-1]["content"]
    assert [int(m) for m in re.findall(r"keyword match (\d+) of 100", user)] == [100, 75, 50, 25, 0]


def test_reasonrank(server: ChatServer, make_reranker: MakeReranker, first: Run) -> None:
    """Thinking first, longer passages, and no citation that could be taken for a passage's number."""
    cited = tiny.a_task(queries=3, documents=40, longest=60)
    texts = [Document(d.id, f"{d.text} as shown [3, 4] in [12] and [ 2 ]") for d in cited.documents]
    cited = replace(cited, documents=Documents.of(texts))
    server.text = lambda body: f"<think>[1] > [2]? No.</think>\n<answer>{well(body)}</answer>"
    run = make_reranker("reasonrank:any-model").rerank(cited, first, 30)
    assert notes(run)["asked"] == notes(run)["ok"] == 3 * 2
    assert "as shown [3, 4] in (12) and ( 2 )" in server.asked[0]["messages"][-1]["content"]
    assert run.docs[1, :10].tolist() == by_worth(cited, first.docs[1, :30].tolist())[:10]
    plain = make_reranker("reasoning:any-model,passage_words=512")
    assert plain.describe() != make_reranker("reasonrank:any-model").describe()
    server.text = lambda body: "<think>[5] > [4] > [3] and so on"
    endless = make_reranker("reasonrank:other-model").rerank(cited, first, 10)
    assert notes(endless)["unparsed"] == notes(endless)["unfinished"] == 3
    assert endless.docs.tolist() == first.docs.tolist()


def test_insertrank(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    server.text = well
    run = make_reranker("insertrank:any-model").rerank(task, first, 5)
    user = server.asked[0]["messages"][-1]["content"]
    assert [int(m) for m in re.findall(r"first search: (\d+) of 100", user)] == [100, 75, 50, 25, 0]
    assert "the score of the first search" in user
    assert notes(run)["ok"] == 3
    names = {make_reranker(s).name for s in ("insertrank:any-model", "rankgpt:any-model,hints=yes")}
    assert len(names) == 2
    with pytest.raises(UsageError, match="has no parameter 'hints'"):
        rerankers.parse("insertrank:any-model,hints=no")


def test_a_window_beyond_the_context(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run
) -> None:  # fmt: skip
    """Only that window keeps its order, and why is told."""
    server.text, server.plan = well, ["400-length"]
    run = make_reranker("rankgpt:any-model,window=10,step=10", concurrency=1).rerank(task, first, 20)
    assert (notes(run)["failed"], notes(run)["too_long"], notes(run)["ok"]) == (1, 1, 5)
    assert run.docs[0, 10:20].tolist() == first.docs[0, 10:20].tolist()
    assert run.docs[0, :10].tolist() == by_worth(task, first.docs[0, :10].tolist())


def test_passages_are_cut_and_counted(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    server.text = well
    run = make_reranker("rankgpt:any-model,passage_words=10").rerank(task, first, 10)
    longer = {
        d for row in range(3) for d in first.docs[row, :10].tolist() if len(task.documents.contents[d].split()) > 10
    }
    assert notes(run)["passages_cut"] == len(longer)
    assert max(len(p.split()) for p in shown(server.asked[0])) == 10


@pytest.mark.slow
def test_the_embedded_model_carries_its_warning(make_reranker: MakeReranker, task: Task, first: Run) -> None:
    pytest.importorskip("xllamacpp", reason="the extra `local-llm` is not installed")
    if not any((HOME / "models").glob("smollm2*/*.gguf")):
        pytest.skip("smollm2 is not here: r2med models fetch smollm2")
    (home() / "models").mkdir(parents=True)
    (home() / "models" / "smollm2").symlink_to(HOME / "models" / "smollm2")
    run = make_reranker("rankgpt:local,window=4,step=2").rerank(task, first, 4)
    assert notes(run)["asked"] == 3
    assert notes(run)["warning"]
    assert np.isfinite(run.scores).all()


MINE = """
system = "You are brief."
user = "Sort {{count}} texts for {{query}}:\\n{{passages}}"
"""


@pytest.mark.parametrize(
    "method", ["rankgpt", "reasoning", "reasonrank", "insertrank", "setwise", "rank-r1", "grouprank"]
)
def test_a_prompt_of_ones_own(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run, tmp_path: Path, method: str
) -> None:
    """Its content is part of the reranker's name and of what answers are kept under."""
    server.text = well
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    own = make_reranker(f"{method}:any-model,prompt={path}")
    assert f"prompt=mine~{Content.of(path).digest}" in own.name
    assert own.describe()["prompt"] != make_reranker(f"{method}:any-model").describe()["prompt"]
    run = own.rerank(task, first, 4)
    asked = len(server.asked)
    system, user = (message["content"] for message in server.asked[0]["messages"])
    assert system == "You are brief."
    assert any(user.startswith(f"Sort 4 texts for {query.text}:\n[1] ") for query in task.queries)
    assert server.asked[0]["max_tokens"] == 512
    path.write_text(MINE.replace("Sort", "Order"))
    changed = make_reranker(f"{method}:any-model,prompt={path}")
    assert changed.spec != own.spec
    assert changed.describe() != own.describe()
    changed.rerank(task, first, 4)
    assert len(server.asked) == 2 * asked  # no answer to the old prompt was taken for one to the new
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine.toml").write_text(MINE)
    again = make_reranker(f"{method}:any-model,prompt={tmp_path}/copy/mine.toml")
    assert again.spec == own.spec  # wherever it lies
    assert (again.rerank(task, first, 4).docs == run.docs).all()
    assert len(server.asked) == 2 * asked


def test_prompts_that_cannot_be(make_reranker: MakeReranker, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"prompt: there is no .*absent\.toml"):
        rerankers.parse(f"rankgpt:any-model,prompt={tmp_path}/absent.toml")
    for content in ("user = 3", 'user = "{{query}}"', "not toml", 'user = "{{query}} {{passages}}"\nspeed = 3'):
        (tmp_path / "mine.toml").write_text(content)
        with pytest.raises(DataError, match="is no prompt"):
            make_reranker(f"rankgpt:any-model,prompt={tmp_path}/mine.toml")
    printed = rerankers.parse("rankgpt:gpt4,prompt=mine~0a1b2c3d")
    with pytest.raises(DataError, match="mine~0a1b2c3d names content that is not at hand"):
        make_reranker(str(printed))


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("rankgpt", "it looks like rankgpt:LLM"),
        ("rankgpt:any-model,window=1", "window of rankgpt must be a number of at least 2, not '1'"),
        ("rankgpt:any-model,window=4,step=9", "a window of 4 cannot move by 9"),
        ("setwise:any-model,top=0", "top of setwise must be a number of at least 1"),
        ("rankgpt:any-model,passage_words=0", "passage_words of rankgpt must be"),
        ("rankgpt:any-model,hints=perhaps", "hints of rankgpt must be yes or no, not 'perhaps'"),
        ("rankgpt:any-model,windw=4", "has no parameter 'windw'; did you mean window"),
    ],
)
def test_parameters_that_cannot_be(make_reranker: MakeReranker, spec: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        make_reranker(spec)


def test_setwise(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    server.text = lambda body: f"The most helpful passage is [{worth(body)[0]}]."
    run = make_reranker("setwise:any-model,top=4,children=3").rerank(task, first, 20)
    for row in range(3):
        top = first.docs[row, :20].tolist()
        best = by_worth(task, top)[:4]
        assert [len(task.documents.contents[d]) for d in run.docs[row, :4].tolist()] == [
            len(task.documents.contents[d]) for d in best
        ]
        assert run.docs[row, 4:20].tolist() == [d for d in top if d not in run.docs[row, :4]]
    assert notes(run)["unparsed"] == 0
    server.text = lambda body: "hard to say"
    other = make_reranker("setwise:other-model,top=5,children=3").rerank(task, first, 20)
    assert other.docs.tolist() == first.docs.tolist()
    assert notes(other)["unparsed"] == notes(other)["asked"] > 0


def test_rank_r1(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    """Thinks about twenty at a time, then picks one."""
    server.text = lambda body: f"<think>[1] or [2]?</think>\n<answer>[{worth(body)[0]}]</answer>"
    run = make_reranker("rank-r1:any-model,top=3").rerank(task, first, 30)
    assert max(len(shown(body)) for body in server.asked) == 20
    for row in range(3):
        top = first.docs[row, :30].tolist()
        assert [len(task.documents.contents[d]) for d in run.docs[row, :3].tolist()] == [
            len(task.documents.contents[d]) for d in by_worth(task, top)[:3]
        ]
    assert notes(run)["ok"] == notes(run)["asked"]
    server.text = lambda body: "<think>[2], no, [3], no"
    endless = make_reranker("rank-r1:other-model").rerank(task, first, 30)
    assert notes(endless)["unparsed"] == notes(endless)["unfinished"] == notes(endless)["asked"]
    assert endless.docs.tolist() == first.docs.tolist()


@pytest.mark.parametrize("spec", ["rankgpt:{},window=4,step=2", "setwise:{},top=4"])
def test_a_recording_gives_the_same_order(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run, spec: str
) -> None:
    """Each window has an answer of its own; the first one of a query was given to all of them."""
    server.text = lambda body: ranking(len(server.asked))
    recorded = make_reranker(spec.format("any-model"), concurrency=1).rerank(task, first, 10)
    (kept,) = (home() / "generations").rglob("*.jsonl")
    asked = len(server.asked)
    replayed = make_reranker(spec.format(f"replay:{kept}")).rerank(task, first, 10)
    assert (replayed.docs == recorded.docs).all()
    assert (notes(replayed)["failed"], len(server.asked)) == (0, asked)


def ranking(turn: int) -> str:
    """Another order each time."""
    return " > ".join(f"[{1 + (turn * 7 + place * 3) % 4}]" for place in range(4))
