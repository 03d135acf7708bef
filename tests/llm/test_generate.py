from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from r2med.core import UsageError
from r2med.llm import BudgetSpent, Chat, Generation, GenerationStore, StoreKey, generate, with_defaults
from tests.llm.conftest import KEY, MakeChat, ask, asks
from tests.llm.server import ChatServer


def store_for(chat: Chat, folder: Path) -> GenerationStore:
    return GenerationStore(StoreKey.of("hyde", chat, "t", asks(1)[0].sampling, "task"), folder)


def test_nothing_is_asked_twice(server: ChatServer, make_chat: MakeChat, tmp_path: Path) -> None:
    chat = make_chat()
    with store_for(chat, tmp_path) as store:
        first = list(generate(chat, asks(10), store))
        assert len(first) == len(server.asked) == 10
        again = list(generate(chat, asks(12), store))
    assert len(server.asked) == 12
    assert {g.query_id: g for g in again} == {g.query_id: g for g in again} | {g.query_id: g for g in first}
    with store_for(make_chat(), tmp_path) as store:
        assert len(list(generate(make_chat(), asks(12), store))) == 12
    assert len(server.asked) == 12


def test_the_same_request_twice_is_one_call(server: ChatServer, make_chat: MakeChat, tmp_path: Path) -> None:
    chat = make_chat()
    with store_for(chat, tmp_path) as store:
        assert len(list(generate(chat, [*asks(3), *asks(3)], store))) == 6
    assert len(server.asked) == 3


def test_without_a_store(server: ChatServer, make_chat: MakeChat) -> None:
    assert len(list(generate(make_chat(), asks(3)))) == 3
    assert len(server.asked) == 3


def test_a_failed_request_is_tried_again_next_time(server: ChatServer, make_chat: MakeChat, tmp_path: Path) -> None:
    server.plan = ["400-length"]
    chat = make_chat(concurrency=1)
    with store_for(chat, tmp_path) as store:
        statuses = [g.status for g in generate(chat, asks(3), store)]
        assert Counter(statuses) == {"ok": 2, "failed": 1}
        assert Counter(g.status for g in generate(chat, asks(3), store)) == {"ok": 3}
    assert len(server.asked) == 4


def test_what_arrived_before_the_end_is_kept(server: ChatServer, make_chat: MakeChat, tmp_path: Path) -> None:
    server.plan = ["ok"] * 5
    server.default = "401"
    chat = make_chat(concurrency=2)
    with store_for(chat, tmp_path) as store:
        seen: list[Generation] = []
        with pytest.raises(UsageError, match="refused the API key"):
            seen.extend(generate(chat, asks(50), store))
        assert len(seen) == len(store) == 5
        server.default = "ok"
        before = len(server.asked)
        assert len(list(generate(chat, asks(50), store))) == 50  # claims of failed requests have ended
        assert len(server.asked) - before == 45


def test_a_spent_budget_goes_on_where_it_stopped(server: ChatServer, make_chat: MakeChat, tmp_path: Path) -> None:
    chat = make_chat("gpt4", max_cost=0.002)
    with store_for(chat, tmp_path) as store, pytest.raises(BudgetSpent):
        list(generate(chat, asks(30), store))
    paid = len(server.asked)
    assert 0 < paid < 30
    chat = make_chat("gpt4", max_cost=1.0)
    with store_for(chat, tmp_path) as store:
        assert len(list(generate(chat, asks(30), store))) == 30
    assert len(server.asked) == 30


def test_reading_otherwise_costs_nothing(server: ChatServer, make_chat: MakeChat, tmp_path: Path) -> None:
    server.text = lambda _: "Certainly! Here is a passage:\n\nMeasles is contagious."
    chat = make_chat()
    with store_for(chat, tmp_path) as store:
        (cleaned,) = generate(chat, [ask()], store)
        (kept,) = generate(chat, [ask()], store, clean=False)
    assert (cleaned.final, cleaned.removed, cleaned.clean) == ("Measles is contagious.", ("preamble",), True)
    assert (kept.final, kept.removed, kept.clean) == (kept.raw, (), False)
    assert len(server.asked) == 1


def test_answers_that_take_a_call_each_are_kept_one_by_one(
    server: ChatServer, make_chat: MakeChat, tmp_path: Path
) -> None:
    server.plan = ["ok", "ok", "401"]
    chat = make_chat("o3-mini", concurrency=1)
    with store_for(chat, tmp_path) as store:
        with pytest.raises(UsageError, match="refused the API key"):
            list(generate(chat, [ask(n=3, seed=5)], store))
        assert [g.sample for g in store] == [0, 1]
        assert chat.usage.calls == 2
        found = list(generate(chat, [ask(n=3, seed=5)], store))
    assert [g.sample for g in found] == [0, 1, 2]
    assert [body["seed"] for body in server.asked] == [5, 6, 7, 7]  # only the refused one is sent again
    assert all((g.cost or 0) > 0 for g in found)  # a bill each


def test_the_models_way_of_marking_is_used(server: ChatServer, make_chat: MakeChat) -> None:
    server.text = lambda _: "So, fever and a rash.\n</think>\n\nMeasles."
    (g,) = generate(make_chat("r1-qwen-32b"), [ask()])
    assert (g.status, g.final, g.reasoning, g.usable) == ("ok", "Measles.", "So, fever and a rash.", True)
    server.text = lambda _: "So, fever and a rash. Is it"
    (g,) = generate(make_chat("r1-qwen-32b"), [ask()])
    assert (g.status, g.final, g.usable) == ("unparsed", "", False)
    assert server.asked[0]["model"] == "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"


def test_sampling_defaults(make_chat: MakeChat) -> None:
    chat = make_chat("qwq-32b")
    sampling = with_defaults(ask(top_p=0.5).sampling, chat.defaults)
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.6, 0.5, 64)


WORKER = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from r2med.core.options import Options
from r2med.llm import GenerationStore, StoreKey, generate, get_llm
from tests.llm.conftest import asks
chat = get_llm("any-model", Options(concurrency=4))
requests = asks(60)
with GenerationStore(StoreKey.of("hyde", chat, "t", requests[0].sampling, "task"), Path(sys.argv[1])) as store:
    print(len({g.query_id for g in generate(chat, requests, store)}), chat.usage.calls)
"""


def test_processes_share_the_work(server: ChatServer, tmp_path: Path) -> None:
    """Three at once, each wanting all 60: every call is made once, and each sees all answers."""
    server.seconds = 0.03
    command = [sys.executable, "-c", WORKER, str(tmp_path), str(Path(__file__).parents[2])]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = [worker.communicate()[0].split() for worker in workers]
    assert [int(seen) for seen, _ in printed] == [60, 60, 60]
    assert sum(int(calls) for _, calls in printed) == len(server.asked) == 60
    assert all(KEY not in " ".join(command) for _ in workers)
