"""What stands beside answers: retries, rate limits, prices, calls that a kill lost, answers asked for again."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

import pytest

from r2med.cache.records import Call, SentCalls
from r2med.core import Unavailable, UsageError
from r2med.core.budget import Reused
from r2med.core.parallel import STOP
from r2med.llm import (
    Chat,
    Generation,
    GenerationStore,
    Replay,
    Request,
    Retry,
    StoreKey,
    asked_again,
    generate,
    plan_requests,
    unless_read,
    watch_answers,
)
from r2med.llm.store import read_store
from tests.llm.conftest import MakeChat, ask, asks
from tests.llm.server import ChatServer


def store_for(chat: Chat, folder: Path, *retry: str, request: Request | None = None) -> GenerationStore:
    sampling = (request or ask()).sampling
    return GenerationStore(StoreKey.of("hyde", chat, "t", sampling, "task"), folder, retry=retry)


def in_turn(chat: Chat, count: int, store: GenerationStore) -> list[Generation]:
    """Answers to queries asked one after the other: two that wait for the same place may come in either order."""
    return [answer for request in asks(count) for answer in generate(chat, [request], store)]


def test_retries_and_rate_limits_stand_beside_the_answer(
    server: ChatServer, make_chat: MakeChat, tmp_path: Path
) -> None:
    server.plan = ["429-ms", "500", "ok", "no-choice", "429-ms", "ok", "ok"]
    chat = make_chat(concurrency=1, attempts=5)
    with store_for(chat, tmp_path) as store:
        found = {g.query_id: (g.retries, g.rate_limits) for g in in_turn(chat, 3, store)}
    assert found == {"q0": (2, 1), "q1": (1, 1), "q2": (0, 0)}
    usage = chat.usage.snapshot()
    assert (usage["calls"], usage["retries"], usage["rate_limited"]) == (3, 3, 2)
    assert usage["waited"] >= 0.5  # twice a quarter of a second, as the server asked
    with store_for(make_chat(), tmp_path) as store:
        kept = {g.query_id: (g.retries, g.rate_limits) for g in generate(make_chat(), asks(3), store)}
    assert kept == found
    assert len(server.asked) == 7


def test_a_price_that_is_not_known_is_not_nothing(server: ChatServer, make_chat: MakeChat) -> None:
    priced, unpriced = make_chat("gpt4"), make_chat()
    list(generate(priced, asks(2)))
    list(generate(unpriced, asks(2)))
    assert (priced.usage.unpriced, unpriced.usage.unpriced) == (0, 2)
    assert priced.usage.cost > 0
    assert len(server.asked) == 4


def test_answers_without_a_choice_are_on_the_bill(server: ChatServer, make_chat: MakeChat, tmp_path: Path) -> None:
    """Three answers that held nothing were charged for, and counted nowhere."""
    server.plan = ["no-choice"] * 3
    chat = make_chat("gpt4", max_cost=1.0)
    with store_for(chat, tmp_path) as store:
        (answer,) = generate(chat, [ask()], store)
        bill = store.bill()
    assert (answer.status, answer.prompt_tokens, answer.completion_tokens) == ("failed", 21, 33)
    usage = chat.usage.snapshot()
    assert (usage["calls"], usage["failures"], usage["prompt_tokens"]) == (0, 1, 21)
    assert bill["cost"] == pytest.approx(usage["cost"], abs=1e-6)
    assert usage["cost"] > 0


def test_only_unwanted_answers_are_asked_for_again(server: ChatServer, make_chat: MakeChat, tmp_path: Path) -> None:
    server.plan = ["ok", "null", "null", "refusal", "ok"]
    chat = make_chat(concurrency=1)
    with store_for(chat, tmp_path) as store:
        first = {g.query_id: g for g in in_turn(chat, 5, store)}
    assert [first[f"q{i}"].status for i in range(5)] == ["ok", "empty", "empty", "refused", "ok"]
    with store_for(chat, tmp_path) as store:
        assert {g.query_id: g for g in generate(chat, asks(5), store)} == first
    assert len(server.asked) == 5
    assert not asked_again(store.path)
    server.plan = ["ok", "null"]
    with store_for(chat, tmp_path, "empty", "failed") as store:
        again = {g.query_id: g for g in in_turn(chat, 5, store)}
        assert len(list(generate(chat, asks(5), store))) == 5  # once is enough, though one came back empty
    assert [body["messages"][-1]["content"] for body in server.asked[5:]] == ["Case 1", "Case 2"]
    assert [again[f"q{i}"].status for i in range(5)] == ["ok", "ok", "empty", "refused", "ok"]
    assert [again[f"q{i}"].again for i in range(5)] == [0, 1, 1, 0, 0]
    with store_for(chat, tmp_path) as store:
        assert {g.query_id: g for g in generate(chat, asks(5), store)} == again
        assert len(store) == 5
    assert len(read_store(store.path)[1]) == 7  # what was there stays in the file
    assert asked_again(store.path)
    assert Replay.from_file(store.path).complete_one(asks(2)[1]).text == "On Case 1"


def test_an_answer_that_its_method_cannot_read_is_unparsed(
    server: ChatServer, make_chat: MakeChat, tmp_path: Path
) -> None:
    """What it is worth is decided by whoever reads it, not by what was stored."""

    def names_a_case(answer: Generation) -> str:
        return unless_read(answer, "Case" in answer.final)

    server.plan = ["ok", "null"]
    server.text = lambda body: "Nothing." if len(server.asked) == 3 else f"On {body['messages'][-1]['content']}"
    chat = make_chat(concurrency=1)
    with store_for(chat, tmp_path) as store:
        for request in asks(4):
            list(generate(chat, [request], store, status=names_a_case))
        assert store.bill()["generations"] == {"empty": 1, "ok": 2, "unparsed": 1}
        assert store.hits == 0
    with store_for(chat, tmp_path, "unparsed") as store:
        assert plan_requests(chat, asks(4), store).calls == 0
        assert plan_requests(chat, asks(4), store, names_a_case).calls == 1
        found = {g.query_id: g.final for g in generate(chat, asks(4), store, status=names_a_case)}
        assert (store.bill()["generations"], store.hits) == ({"empty": 1, "ok": 3}, 3)
    assert found["q2"] == "On Case 2"
    assert len(server.asked) == 5


def test_what_is_used_is_the_answer_that_was_handed_out(
    server: ChatServer, make_chat: MakeChat, tmp_path: Path
) -> None:
    """The mark of an answer that was asked for again stood beside that of the one in its place."""
    server.default = "null"
    chat, marks = make_chat(), list[set[str]]()
    for number in range(3):
        with watch_answers() as used, store_for(chat, tmp_path, *(["empty"] if number else [])) as store:
            list(generate(chat, [ask()], store))
        (answers,) = used.values()
        marks.append({mark for _, mark in answers})
    assert len(server.asked) == 3
    assert marks[0] == {""}
    assert len(marks[1]) == len(marks[2]) == 1
    assert marks[1] != marks[2]
    assert {mark for _, mark in asked_again(store.path)} == marks[2]


def test_who_shares_a_retry_asks_once(server: ChatServer, make_chat: MakeChat, tmp_path: Path) -> None:
    """A second command, or a second call in one session, asks again."""
    server.default = "null"
    chat, retry = make_chat(), Retry({"empty"})
    key = StoreKey.of("hyde", chat, "t", ask().sampling, "task")
    for given in ((), retry, retry, Retry({"empty"})):
        with GenerationStore(key, tmp_path, retry=given) as store:
            list(generate(chat, [ask()], store))
    assert len(server.asked) == 3


def test_one_of_several_answers_is_asked_for_again_alone(
    server: ChatServer, make_chat: MakeChat, tmp_path: Path
) -> None:
    """A server that keeps to seeds would say the same again: the seed is another."""
    texts = iter(["one", "", "three", "two"])
    server.text = lambda body: next(texts)
    server.default = "one-choice"
    chat = make_chat("o3-mini", concurrency=1)
    request = ask(n=3, seed=7)
    with store_for(chat, tmp_path, request=request) as store:
        assert [g.status for g in generate(chat, [request], store)] == ["ok", "empty", "ok"]
    with store_for(chat, tmp_path, "empty", request=request) as store:
        found = {g.sample: g.final for g in generate(chat, [request], store)}
    assert found == {0: "one", 1: "two", 2: "three"}
    assert [body["seed"] for body in server.asked] == [7, 8, 9, 1008]


def test_an_answer_stays_where_asking_again_fails(server: ChatServer, make_chat: MakeChat, tmp_path: Path) -> None:
    server.plan = ["cut", "400-length"]
    chat = make_chat()
    with store_for(chat, tmp_path) as store:
        (first,) = generate(chat, [ask()], store)
    with store_for(chat, tmp_path, "truncated") as store:
        assert list(generate(chat, [ask()], store)) == [first]
        assert list(store) == [first]
        assert store.bill()["prompt_tokens"] == first.prompt_tokens  # of the answer that is used
        assert store.bill()["generations"] == {"truncated": 1}
    assert len(server.asked) == 2


def test_a_status_that_nobody_has_is_refused(make_chat: MakeChat, tmp_path: Path) -> None:
    for wrong in ("ok", "blank"):
        with pytest.raises(UsageError, match="truncated, empty, refused, unparsed, failed"):
            store_for(make_chat(), tmp_path, wrong)


def test_the_time_of_all_calls_adds_up(make_chat: MakeChat, server: ChatServer, tmp_path: Path) -> None:
    server.seconds = 0.05
    chat = make_chat(concurrency=4)
    with store_for(chat, tmp_path) as store:
        answers = list(generate(chat, asks(8), store))
        (made,) = store.reused.values()
    assert made.saved == 0
    assert made.seconds is not None
    assert sum(g.elapsed or 0.0 for g in answers) == pytest.approx(made.seconds)
    assert made.seconds < sum(g.seconds for g in answers)  # four at a time
    with store_for(make_chat(), tmp_path) as store:
        list(generate(make_chat(), asks(8), store))
        (kept,) = store.reused.values()
    assert kept == pytest.approx((made.seconds, made.seconds))


def test_the_time_of_older_answers_is_unknown(make_chat: MakeChat, server: ChatServer, tmp_path: Path) -> None:
    chat = make_chat()
    with store_for(chat, tmp_path) as store:
        list(generate(chat, asks(2), store))
    lines = [json.loads(line) for line in store.path.read_text().splitlines()]
    older = [{k: v for k, v in line.items() if k not in ("elapsed", "crc32")} for line in lines]
    store.path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in older))
    with store_for(chat, tmp_path) as store:
        assert len(list(generate(chat, asks(3), store))) == 3
        assert list(store.reused.values()) == [Reused(None, None)]
    assert len(server.asked) == 3


def test_calls_that_ended_with_an_error_are_not_lost(server: ChatServer, make_chat: MakeChat, tmp_path: Path) -> None:
    server.plan, server.default = ["ok", "400-length"], "500"
    chat = make_chat(concurrency=1, attempts=2)
    with store_for(chat, tmp_path) as store:
        with pytest.raises(Unavailable):
            list(generate(chat, asks(4), store))
        assert store.lost_calls() == 0
    assert store.path.with_suffix(".sent").read_bytes().count(b">") == 3


def test_calls_that_were_interrupted_are_lost(server: ChatServer, make_chat: MakeChat, tmp_path: Path) -> None:
    server.default = "hang"
    chat = make_chat(concurrency=2)

    def interrupt() -> None:
        with server.lock:
            server.lock.wait_for(lambda: len(server.asked) == 2)
        STOP.set()  # as Ctrl-C does

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with store_for(chat, tmp_path) as store, pytest.raises(Unavailable, match="interrupted"):
            list(generate(chat, asks(2), store))
    finally:
        thread.join()
        STOP.clear()
    server.default = "ok"
    with store_for(chat, tmp_path) as store:
        assert store.lost_calls() == 2
        list(generate(make_chat(), asks(1), store))
        assert store.bill()["lost_calls"] == 1  # the other is not about what was asked for now
        assert store.lost_calls() == 2


def test_counting_lost_calls(tmp_path: Path) -> None:
    """Sent and never back; but not what is stored, what somebody waits for, or what a full disk cut off."""
    path = tmp_path / "x.sent"
    killed = SentCalls(path)
    for place in range(1, 5):
        killed.send(Call(place, 0))
        killed.send(Call(place, 0))  # sent again with another body: the same call
    killed.settle(Call(1, 0))
    killed.settle(Call(9, 0))  # never sent
    killed.close()
    other = SentCalls(path)
    assert other.lost([], lambda place: False) == 3
    assert other.lost([Call(2, 0)], lambda place: place == 3) == 1  # stored, but killed before that was noted
    other.send(Call(2, 0))
    other.settle(Call(2, 0))
    assert other.lost([Call(2, 0)], lambda place: False) == 3  # paid for twice, answered once
    path.write_bytes(path.read_bytes() + b">1f\n>zz:1\n>5")
    assert other.lost([Call(2, 0)], lambda place: False) == 3
    assert SentCalls(tmp_path / "none.sent").lost([], lambda place: False) == 0
    assert Counter(path.read_bytes())[ord(">")] == 8
