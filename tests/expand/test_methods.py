"""HyDE, query2doc and LameR against a real server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from r2med.core import Task, UsageError
from r2med.expand import Settings, get_expander, with_chat
from r2med.expand.passages import cut_to_tokens
from r2med.expand.searching import SearchO1
from r2med.llm import BudgetSpent, estimate_tokens
from r2med.retrieve import BM25
from tests.llm.conftest import MakeChat
from tests.llm.server import ChatServer


def prompts_of(server: ChatServer) -> list[str]:
    return [body["messages"][-1]["content"] for body in server.asked]


def test_hyde_asks_once_for_n_passages_and_never_twice(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    seen: list[tuple[int, int]] = []
    expander = with_chat("hyde", make_chat(), Settings(passages=2))
    made = expander.expand(task, limit=2, on_progress=lambda done, total: seen.append((done, total)))
    assert len(server.asked) == 2
    assert [len(e.texts) for e in made] == [2, 2]
    assert seen[-1] == (4, 4)
    assert task.queries[1].text in prompts_of(server)[1] + prompts_of(server)[0]  # braces and tags untouched
    again = with_chat("hyde", make_chat(), Settings(passages=2)).expand(task)
    assert len(server.asked) == 3  # only the third query was new
    assert again.items["q1"] == made.items["q1"]
    assert again.summary()["status"] == {"ok": 3}
    assert Path(str(again.notes["store"])).is_file()
    assert expander.describe()["method"] == "hyde"


def test_an_unfinished_thought_is_never_a_text(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    server.text = lambda body: "<think>Could it be croup, or"
    server.default = "cut"
    made = with_chat("hyde", make_chat("qwq-32b")).expand(task)
    assert [(e.status, e.texts) for e in made] == [("truncated", ())] * 3
    assert made.summary()["raw_query_used"] == 3
    assert "croup" in made.items["q1"].reasoning[0]


def test_preambles_are_stripped_unless_asked_not_to(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    server.text = lambda body: "Certainly! Here is a passage:\n\nCroup is viral."
    clean = with_chat("hyde", make_chat()).expand(task, limit=1)
    raw = with_chat("hyde", make_chat(), Settings(clean=False)).expand(task, limit=1)
    assert clean.items["q1"].texts == ("Croup is viral.",)
    assert clean.items["q1"].notes["removed"] == ["preamble"]
    assert raw.items["q1"].texts[0].startswith("Certainly!")
    assert len(server.asked) == 1  # how an answer is read is no reason to pay for it again


def test_models_that_reason_get_room_to_finish(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    for llm in ("gpt4", "o3-mini", "qwq-32b"):
        with_chat("hyde", make_chat(llm)).expand(task, limit=1)
    allowed = [body.get("max_tokens", body.get("max_completion_tokens")) for body in server.asked]
    assert allowed == [512, 10_240, 10_240]
    with_chat("hyde", make_chat("o3-mini"), Settings(max_tokens=99)).expand(task, limit=1)
    assert server.asked[-1]["max_completion_tokens"] == 99
    assert SearchO1(make_chat("qwq-32b")).limits.turn_tokens > SearchO1(make_chat("gpt4")).limits.turn_tokens


def test_query2doc_shows_examples_that_do_not_leak(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    made = with_chat("query2doc", make_chat()).expand(task, limit=1)
    assert made.notes["examples"] == 3
    assert "metanephrines" in prompts_of(server)[0]
    leaking = replace(task, queries=(task.queries[0]._replace(answer="phaeochromocytoma"), *task.queries[1:]))
    made = with_chat("query2doc", make_chat()).expand(leaking, limit=1)
    assert made.notes["examples"] == 2
    assert "metanephrines" not in prompts_of(server)[1]


def test_lamer_shows_the_first_stage_cut_to_its_budget(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    from r2med.expand.lamer import LameR

    expander = LameR(make_chat(), retriever=BM25(), top=2, passage_tokens=5)
    expander.expand(task, limit=1)
    prompt = prompts_of(server)[0]
    assert "[1] Croup is a viral\n" in prompt
    assert "[2]" in prompt
    assert "[3]" not in prompt
    assert expander.describe()["first_stage"] == BM25().describe()
    other = LameR(make_chat(), retriever=BM25(), top=1, passage_tokens=5)
    other.expand(task, limit=1)
    assert len(server.asked) == 2  # another first stage is another call


def test_passages_are_cut_at_words() -> None:
    text = "one two three four five"
    for budget in range(1, 10):
        cut = cut_to_tokens(text, budget)
        assert text.startswith(cut)
        assert estimate_tokens(cut) <= budget
        assert cut.split() == text.split()[: len(cut.split())]
    assert cut_to_tokens(text, 10) == text


def test_a_plan_spends_nothing_and_knows_what_is_stored(
    server: ChatServer, make_chat: MakeChat, task: Task, tmp_path: Path
) -> None:
    settings = Settings(max_tokens=100, passages=2, store=tmp_path)
    expander = with_chat("hyde", make_chat("gpt4"), settings)
    plan = expander.plan(task)
    assert not server.asked
    assert (plan.stored, plan.completion_tokens) == (0, 600)
    assert plan.cost
    assert task.queries[0].text in plan.first_prompt
    expander.expand(task, limit=2)
    after = expander.plan(task)
    assert (after.stored, after.completion_tokens) == (2, 200)
    assert str(tmp_path) in after.store


def test_a_budget_stops_cleanly_and_what_was_paid_is_kept(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    settings = Settings(max_tokens=100)
    price = with_chat("hyde", make_chat("gpt4"), settings).plan(task, limit=1).cost
    assert price
    poor = with_chat("hyde", make_chat("gpt4", max_cost=price * 1.05, concurrency=1), settings)
    with pytest.raises(BudgetSpent):
        poor.expand(task)
    paid = len(server.asked)
    assert 1 <= paid < 3
    rich = with_chat("hyde", make_chat("gpt4"), settings).expand(task)
    assert len(server.asked) == 3
    assert rich.summary()["status"] == {"ok": 3}


def test_names(server: ChatServer) -> None:
    assert get_expander("hyde:gpt4").name == "hyde:gpt4"
    assert get_expander("search_r1:qwen-3b-ins").method == "search-r1"
    assert get_expander("concepts:diseases=0").name == "concepts:synonyms=2,diseases=0"
    for spec, complaint in {
        "hyde": "hyde needs an LLM",
        "hide:gpt4": "did you mean hyde",
        "oracle:gpt4": "uses the true answer",
        "hyde:replay:": "names no file",
        "hyde:replay:/no/file": "no such file",
        "hyde:published:gpt4": "published expansions are named",
        "concepts:words=2": "cannot read 'words=2'",
    }.items():
        with pytest.raises(UsageError, match=complaint):
            get_expander(spec)
    with pytest.raises(UsageError, match="1 or more"):
        get_expander("hyde:gpt4", settings=Settings(max_tokens=-1))
