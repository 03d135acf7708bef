"""LameR, ThinkQE and DIVER-QExpand against a real server: rounds, passages, stores, bills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import r2med
from r2med.api.experiments import LoadedTask
from r2med.core import Document, Documents, Run, Task, UsageError
from r2med.core.errors import Unavailable
from r2med.core.options import Options
from r2med.core.spec import Spec
from r2med.expand import Chain, expanders, policy_for, queries_for
from r2med.expand.generated import GenerationParameters, HyDE
from r2med.expand.replay import read_recorded
from r2med.expand.rounds import (
    DiverParameters,
    DiverQExpand,
    LameR,
    LamerParameters,
    RoundParameters,
    Rounds,
    ThinkQE,
)
from r2med.llm import BudgetSpent, Message, Request
from r2med.llm.store import read_store
from r2med.pipeline import Builder, System, run_experiment
from r2med.results import ResultStore
from r2med.retrieve import BM25, get_retriever
from tests.llm.conftest import MakeChat
from tests.llm.server import ChatServer


def prompts_of(server: ChatServer) -> list[str]:
    return [body["messages"][-1]["content"] for body in server.asked]


def passages_in(prompt: str) -> set[str]:
    return {word for word in ("viral", "lactase", "hypothalamus", "airways") if word in prompt}


def test_lamer_shows_the_first_stage_cut_to_its_budget(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    expander = LameR(make_chat(), LamerParameters(top=2, passage_tokens=5))
    expander.expand(task, limit=1)
    prompt = prompts_of(server)[0]
    assert "[1] Croup is a viral\n" in prompt
    assert "[2]" in prompt
    assert "[3]" not in prompt
    assert expander.describe()["first_stage"] == BM25().describe()
    for other in (LamerParameters(top=1, passage_tokens=5), LamerParameters(retriever=Spec("bm25-lucene"))):
        LameR(make_chat(), other).expand(task, limit=1)
    assert len(server.asked) == 3  # another first stage is another call


def test_a_result_belongs_to_the_candidates_that_its_prompts_showed(
    server: ChatServer, make_chat: MakeChat, task: Task, tmp_path: Path
) -> None:
    """The candidates of a Nano task are no part of its fingerprint: a result of others was kept."""
    system = System((BM25(),), expander=LameR(make_chat(), LamerParameters(retriever=Spec("nano", "own"), top=1)))
    ids, store = list(task.documents.ids), ResultStore(tmp_path / "results")
    kept = []
    for found in (ids[0], ids[1], ids[1]):
        run = Run.from_rankings({query.id: [(found, 1.0)] for query in task.queries}, doc_ids=task.documents.ids)
        shown = replace(task, candidates={"own": run}.__getitem__)
        kept.append(run_experiment([LoadedTask(shown)], [system], store).kept)
    assert kept == [0, 0, 1]
    assert len(server.asked) == 2 * len(task.queries)


def test_published_settings() -> None:
    think, diver = RoundParameters(), DiverParameters()
    assert (think.rounds, think.top, think.passages, think.temperature, think.passage_tokens) == (3, 5, 2, 0.7, 512)
    assert (diver.rounds, diver.top, diver.passages, diver.temperature, diver.passage_tokens) == (2, 5, 1, 0.7, 512)
    assert str(expanders.parse("thinkqe:gpt4,rounds=3,top=5,passages=2")) == "thinkqe:gpt4"
    assert str(expanders.parse("diver-qexpand:gpt4,rounds=3,retriever=bm25-lucene")) == (
        "diver-qexpand:gpt4,retriever=bm25-lucene,rounds=3"
    )


def test_thinkqe_collects_texts_and_shows_no_passage_twice(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    server.text = lambda body: "The hypothalamus raises the set point."
    made = ThinkQE(make_chat(), RoundParameters(top=1)).expand(task, limit=1)
    item = made.items["q1"]
    assert (len(item.texts), item.statuses) == (6, ("ok",) * 6)
    assert len(server.asked) == 3
    seen = [passages_in(prompt) for prompt in prompts_of(server)]
    assert seen[:2] == [{"viral"}, {"hypothalamus"}]  # the second search is with what the first round wrote
    assert not seen[2] & (seen[0] | seen[1])
    assert (item.prompt_tokens, item.completion_tokens) == (3 * 7, 3 * 11)


def test_when_all_was_shown_the_prompt_says_so(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    small = replace(task, documents=Documents.of([Document("d1", "stridor")]))
    ThinkQE(make_chat(), RoundParameters(rounds=2)).expand(small, limit=1)
    assert "1. stridor" in prompts_of(server)[0]
    assert "(nothing was found)" in prompts_of(server)[1]


def test_diver_refines_and_uses_the_last_answer(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    server.text = lambda body: f"Answer {len(server.asked)} about milk and the gut"
    made = DiverQExpand(make_chat(), DiverParameters(top=1)).expand(task, limit=1)
    first, second = prompts_of(server)
    assert "Answer so far" not in first
    assert "Answer so far" in second
    assert "about milk and the gut" in second
    item = made.items["q1"]
    assert item.texts == (item.raw[0],) == ("Answer 2 about milk and the gut",)
    assert len(item.statuses) == 2
    queries, policy = queries_for(get_retriever("bm25"), task, made)
    assert policy.name == "query+passages.apart"
    assert queries.column[0] == f"{task.queries[0].text}\n\n{item.texts[0]}"


def test_an_answer_without_text_leaves_what_there_was(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    server.text = lambda body: "<think>So.</think>first answer" if len(server.asked) == 1 else "<think>never ends"
    item = DiverQExpand(make_chat("qwq-32b")).expand(task, limit=1).items["q1"]
    assert (item.texts, item.statuses) == (("first answer",), ("ok", "unparsed"))


def test_the_query_is_repeated_by_length(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    server.text = lambda body: "word " * 50
    made = ThinkQE(make_chat()).expand(task, limit=1)
    queries, policy = queries_for(get_retriever("bm25"), replace(task, queries=task.queries[:1]), made)
    query = task.queries[0].text
    assert policy.name == "query*n+passages"
    assert queries.column[0].count(query) == 6 * 50 // (3 * len(query.split())) == 10
    assert policy.repeats("a long query of seven words here", "short") == 1
    assert policy_for(made, "dense").name == "query+passages"


@pytest.mark.parametrize("method", [ThinkQE, DiverQExpand])
def test_nothing_is_paid_twice(server: ChatServer, make_chat: MakeChat, task: Task, method: type[Rounds]) -> None:
    expander = method(make_chat("gpt4"))
    rounds, queries = expander.given.rounds, len(task.queries)
    plan = expander.plan(task)
    assert (plan.calls, plan.stored, len(server.asked)) == (rounds * queries, 0, 0)
    assert plan.cost
    made = expander.expand(task)
    assert len(server.asked) == rounds * queries
    again = method(make_chat("gpt4"))
    assert again.plan(task).calls == 0
    assert again.plan(task).stored == rounds * queries
    assert again.expand(task).items == made.items
    assert len(server.asked) == rounds * queries
    key, generations, bad = read_store(Path(str(made.notes["store"])))
    assert (key.method, bad) == (expander.method, 0)
    assert {g.query_id for g in generations} >= {"q1", "q1#1", f"q1#{rounds}"}
    with Builder() as build:
        replayed = build.expander(f"{expander.method}:replay:{made.notes['store']}").expand(task)
    assert [item.texts for item in replayed] == [item.texts for item in made]


def test_a_plan_is_never_too_small(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    server.text = lambda body: "a long answer " * 30
    expander = DiverQExpand(make_chat("gpt4"))
    planned = expander.plan(task).prompt_tokens
    expander.expand(task)
    sent = sum(len(str(message["content"])) // 4 for body in server.asked for message in body["messages"])
    assert planned >= sent


def test_other_settings_are_other_calls(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    described = [
        ThinkQE(make_chat(), given).describe()
        for given in (RoundParameters(), RoundParameters(rounds=2), RoundParameters(retriever=Spec("bm25-lucene")))
    ]
    assert len({str(each) for each in described}) == 3
    with pytest.raises(UsageError, match="protocol r2med-paper knows no thinkqe"):
        ThinkQE(make_chat(), RoundParameters(protocol="r2med-paper"))
    assert isinstance(RoundParameters(), GenerationParameters)


def test_a_prompt_that_is_too_long_ends_its_loop_only(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    server.plan = ["ok", "400-length"]
    made = DiverQExpand(make_chat()).expand(task, limit=1)
    item = made.items["q1"]
    assert (item.statuses, len(item.texts)) == (("ok", "failed"), 1)
    assert "context length" in str(item.notes["error"])
    again = DiverQExpand(make_chat()).expand(task, limit=1)
    assert again.items["q1"].statuses == ("ok", "ok")
    assert len(server.asked) == 3  # the first round came from the store


def test_a_server_that_is_down_costs_no_answer(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    server.plan = ["ok", "500", "500", "500"]
    with pytest.raises(Unavailable, match="what was finished is kept"):
        DiverQExpand(make_chat()).expand(task, limit=1)
    assert DiverQExpand(make_chat()).expand(task, limit=1).items["q1"].statuses == ("ok", "ok")
    assert len(server.asked) == 5


def test_a_budget_stops_a_loop_between_calls(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    with pytest.raises(BudgetSpent):
        ThinkQE(make_chat("gpt4", max_cost=0.000001)).expand(task)


def test_behind_another_method_the_first_search_is_with_its_texts(
    server: ChatServer, make_chat: MakeChat, task: Task
) -> None:
    server.text = lambda body: "hypothalamus set point"
    Chain([HyDE(make_chat()), DiverQExpand(make_chat(), DiverParameters(top=1, rounds=1))]).expand(task, limit=1)
    assert passages_in(prompts_of(server)[-1]) == {"hypothalamus"}


CODE = """
import r2med
from r2med.core.options import Options
r2med.expand("diver-qexpand:any-model", "mini@1/Biology", options=Options(concurrency=3))
"""


def test_killed_and_resumed(server: ChatServer, make_chat: MakeChat) -> None:
    """A loop that is killed in the middle of a round goes on from the store: what was stored is not asked again."""
    server.text, server.seconds = lambda body: f"cell membrane {len(body['messages'][-1]['content'])}", 0.03
    task = r2med.load("mini@1/Biology")
    whole = 2 * len(task.queries)
    aim = len(task.queries) + 3
    server.most = aim + 3
    process = subprocess.Popen([sys.executable, "-c", CODE], env=dict(os.environ))
    while len(server.asked) < aim and process.poll() is None:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    server.most = None
    expander = DiverQExpand(make_chat())
    before, stored = len(server.asked), calls_in(Path(expander.plan(task).store))
    assert 0 < len(stored) < whole
    made = expander.expand(task)
    assert made.summary()["status"] == {"ok": len(task.queries)}
    asked = {Request(tuple(Message(**m) for m in body["messages"])).prompt_hash for body in server.asked[before:]}
    assert not asked & stored
    assert len(stored | asked) == whole


def calls_in(store: Path) -> set[str]:
    return {g.prompt_hash for g in read_store(store)[1] if "#" in g.query_id}


def test_an_empty_answer_is_asked_for_again_and_the_loop_goes_on_from_there(
    server: ChatServer, make_chat: MakeChat, task: Task
) -> None:
    given = DiverParameters(top=1)
    server.text = lambda body: "" if len(server.asked) == 1 else f"Answer {len(server.asked)}"
    first = DiverQExpand(make_chat(), given).expand(task, limit=1)
    assert (first.items["q1"].statuses, first.items["q1"].texts) == (("empty", "ok"), ("Answer 2",))
    again = DiverQExpand(make_chat(), given, options=Options(retry=frozenset({"empty"})))
    assert again.plan(task, limit=1).calls == 2  # the second prompt depends on the first answer
    made = again.expand(task, limit=1)
    assert (made.items["q1"].statuses, made.items["q1"].texts) == (("ok", "ok"), ("Answer 4",))
    assert len(server.asked) == 4
    kept = DiverQExpand(make_chat(), given).expand(task, limit=1)
    assert kept.items["q1"].texts == ("Answer 4",)
    assert len(server.asked) == 4
    outcomes = read_recorded(Path(str(made.notes["store"])), "diver-qexpand")
    assert outcomes["q1"].texts == ("Answer 4",)
