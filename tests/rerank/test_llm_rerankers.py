"""LLM rerankers against a real chat server that answers well, badly, or not at all."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from r2med.core import ModelError, Run, Task
from r2med.llm import Chat
from r2med.rerank import get_reranker
from tests.llm.server import BEHAVIOURS, ChatServer, Handler, completion
from tests.retrieve.encoders.weights import HOME

from . import tiny

MakeChat = Callable[..., Chat]


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


@pytest.fixture
def task() -> Task:
    return tiny.a_task(queries=3, documents=40, longest=60)


@pytest.fixture
def first(task: Task) -> Run:
    return tiny.first_stage(task, 30)


def notes(run: Run) -> dict[str, Any]:
    found = run.notes["rerank"]
    assert isinstance(found, dict)
    assert msgspec.json.decode(msgspec.json.encode(found)) == found  # goes into a result file as it is
    return found


def test_listwise(server: ChatServer, make_chat: MakeChat, task: Task, first: Run) -> None:
    server.text = well
    reranker = get_reranker("rankgpt", llm=make_chat())
    run = reranker.rerank(task, first, 20)
    for row in range(3):
        top = first.docs[row, :20].tolist()
        assert run.docs[row].tolist() == [*by_worth(task, top), *first.docs[row, 20:].tolist()]
    assert {k: notes(run)[k] for k in ("asked", "ok", "mended", "unparsed", "failed", "cache_hits")} == {
        "asked": 3, "ok": 3, "mended": 0, "unparsed": 0, "failed": 0, "cache_hits": 0,
    }  # fmt: skip
    assert notes(run)["usage"]["calls"] == 3
    again = get_reranker("rankgpt", llm=make_chat()).rerank(task, first, 20)
    assert notes(again)["cache_hits"] == 3
    assert len(server.asked) == 3  # nothing is paid for twice
    assert (again.docs == run.docs).all()


def test_windows_slide(server: ChatServer, make_chat: MakeChat, task: Task, first: Run) -> None:
    server.text = well
    run = get_reranker("rankgpt:,window=10,step=5", llm=make_chat()).rerank(task, first, 30, rest="drop")
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
    server: ChatServer, make_chat: MakeChat, task: Task, first: Run, answer: str
) -> None:
    said, outcome = ANSWERS[answer]
    server.text = said if callable(said) else lambda body: str(said)
    run = get_reranker("rankgpt", llm=make_chat()).rerank(task, first, 12)
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
    server: ChatServer, make_chat: MakeChat, task: Task, first: Run
) -> None:  # fmt: skip
    server.text, server.plan = well, ["400-length"]
    run = get_reranker("rankgpt", llm=make_chat(concurrency=1)).rerank(task, first, 12)
    assert notes(run)["failed"] == 1
    assert notes(run)["ok"] == 2
    assert run.docs[0].tolist() == first.docs[0].tolist()
    again = get_reranker("rankgpt", llm=make_chat(concurrency=1)).rerank(task, first, 12)
    assert (notes(again)["cache_hits"], notes(again)["ok"]) == (2, 3)  # what failed is asked again


def test_a_server_that_only_fails_stops_everything(server: ChatServer, make_chat: MakeChat) -> None:
    many = tiny.a_task(queries=15, documents=40)
    server.default = "400"
    with pytest.raises(ModelError, match="refused the request"):
        get_reranker("rankgpt", llm=make_chat()).rerank(many, tiny.first_stage(many), 10)


def test_reasoning(server: ChatServer, make_chat: MakeChat, task: Task, first: Run) -> None:
    server.text = lambda body: f"The case is about the liver. [1] > [2]?\n<answer>{well(body)}</answer>"
    reranker = get_reranker("reasoning", llm=make_chat())
    run = reranker.rerank(task, first, 10)
    assert notes(run)["ok"] == 3
    assert run.docs[1, :10].tolist() == by_worth(task, first.docs[1, :10].tolist())
    assert server.asked[0]["max_tokens"] == 8192


def test_hints(server: ChatServer, make_chat: MakeChat, task: Task, first: Run) -> None:
    server.text = lambda body: "[1]"
    plain = get_reranker("rankgpt", llm=make_chat())
    hinted = get_reranker("rankgpt:,hints=yes", llm=make_chat())
    assert plain.describe() != hinted.describe()
    hinted.rerank(task, first, 5)
    user = server.asked[0]["messages"][-1]["content"]
    assert [int(m) for m in re.findall(r"keyword match (\d+) of 100", user)] == [100, 75, 50, 25, 0]


def test_setwise(server: ChatServer, make_chat: MakeChat, task: Task, first: Run) -> None:
    server.text = lambda body: f"The most helpful passage is [{worth(body)[0]}]."
    run = get_reranker("setwise:,top=4,children=3", llm=make_chat()).rerank(task, first, 20)
    for row in range(3):
        top = first.docs[row, :20].tolist()
        best = by_worth(task, top)[:4]
        assert [len(task.documents.contents[d]) for d in run.docs[row, :4].tolist()] == [
            len(task.documents.contents[d]) for d in best
        ]
        assert run.docs[row, 4:20].tolist() == [d for d in top if d not in run.docs[row, :4]]
    assert notes(run)["unparsed"] == 0
    server.text = lambda body: "hard to say"
    other = get_reranker("setwise:,top=5,children=3", llm=make_chat("other-model")).rerank(task, first, 20)
    assert other.docs.tolist() == first.docs.tolist()
    assert notes(other)["unparsed"] == notes(other)["asked"] > 0


def with_logits(handler: Handler, body: dict[str, Any]) -> None:
    """Yes, the likelier the longer the passage is."""
    passage = re.search(r"^Passage: (.*)$", body["messages"][-1]["content"], re.MULTILINE)
    assert passage
    yes = 1 - 1 / (2 + len(passage[1]))
    tops = [{"token": "Yes", "logprob": math.log(yes)}, {"token": " no", "logprob": math.log(1 - yes)}]
    whole = json.loads(completion(handler, body))
    whole["choices"][0] |= {
        "message": {"role": "assistant", "content": "Yes"},
        "logprobs": {"content": [{**tops[0], "top_logprobs": tops}]},
    }
    handler.send(200, json.dumps(whole).encode())


def test_yes_no_with_logits(
    server: ChatServer, make_chat: MakeChat, task: Task, first: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BEHAVIOURS, "logits", with_logits)
    server.default = "logits"
    run = get_reranker("yesno", llm=make_chat()).rerank(task, first, 10)
    for row in range(3):
        assert run.docs[row, :10].tolist() == by_worth(task, first.docs[row, :10].tolist())
    assert notes(run)["scorer"]["with_logits"] == 30
    assert server.asked[0]["top_logprobs"] == 20
    again = get_reranker("yesno", llm=make_chat()).rerank(task, first, 10)
    assert len(server.asked) == 30
    assert notes(again)["scorer"]["cache_hits"] == 30
    assert (again.scores == run.scores).all()


def test_yes_no_in_words(server: ChatServer, make_chat: MakeChat, task: Task, first: Run) -> None:
    """Ties keep the first stage's order, and an answer that is neither keeps its place."""

    def answer(body: dict[str, Any]) -> str:
        user = body["messages"][-1]["content"]
        return "Yes." if "fever" in user else "no" if "cough" in user else "Hard to tell"

    server.text = answer
    run = get_reranker("yesno:,logits=no", llm=make_chat()).rerank(task, first, 12)
    assert "logprobs" not in server.asked[0]
    said = {"Yes.": 1, "no": 0}
    for row, query in enumerate(task.queries):
        top = first.docs[row, :12].tolist()
        verdicts = [
            said.get(answer({"messages": [{"content": f"{query.text} {task.documents.contents[d]}"}]})) for d in top
        ]
        heard = [d for d, v in zip(top, verdicts, strict=True) if v is not None]
        ranked = iter(sorted(heard, key=lambda d: -(verdicts[top.index(d)] or 0)))
        expected = [d if v is None else next(ranked) for d, v in zip(top, verdicts, strict=True)]
        assert run.docs[row, :12].tolist() == expected
    assert notes(run)["no_opinion"] == notes(run)["scorer"].get("unparsed", 0)


def test_passages_are_cut_and_counted(server: ChatServer, make_chat: MakeChat, task: Task, first: Run) -> None:
    server.text = well
    run = get_reranker("rankgpt:,passage_words=10", llm=make_chat()).rerank(task, first, 10)
    longer = {
        d for row in range(3) for d in first.docs[row, :10].tolist() if len(task.documents.contents[d].split()) > 10
    }
    assert notes(run)["passages_cut"] == len(longer)
    assert max(len(p.split()) for p in shown(server.asked[0])) == 10


@pytest.mark.slow
def test_the_embedded_model_carries_its_warning(
    task: Task, first: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("xllamacpp", reason="the extra `local-llm` is not installed")
    if not any((HOME / "models").glob("smollm2*/*.gguf")):
        pytest.skip("smollm2 is not here: r2med models fetch smollm2")
    monkeypatch.setenv("R2MED_HOME", str(HOME))
    run = get_reranker("rankgpt:local,window=4,step=2", store=tmp_path).rerank(task, first, 4)
    assert notes(run)["asked"] == 3
    assert notes(run)["warning"]
    assert np.isfinite(run.scores).all()
