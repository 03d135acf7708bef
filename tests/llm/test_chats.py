"""Chat models by name, and what comes of a server that answers well, badly, late or not at all."""

from __future__ import annotations

import sys
import time
from itertools import islice

import pytest

from r2med.core import MissingExtra, ModelError, R2MedError, Unavailable, UnknownName, UsageError
from r2med.core.budget import Budget
from r2med.core.options import Options
from r2med.llm import MARKINGS, BudgetSpent, Reply, Request, chats, generate, get_llm
from r2med.llm.local import LocalChat
from r2med.models import ChatCard, chat_cards, find_chat_card
from tests.llm.conftest import KEY, MakeChat, ask, asks
from tests.llm.server import ChatServer

PAPER = {
    "qwen-7b", "qwen-32b", "qwen-72b", "llama-70b", "r1-qwen-32b", "r1-llama-70b", "huatuo-o1-70b", "qwq-32b",
    "qwen3-32b", "gpt4", "o3-mini",
}  # fmt: skip
SEARCH_R1 = {"qwen-3b-ins", "qwen-7b-ins"}
RERANKERS = {
    "reasonrank-7b", "reasonrank-32b", "grouprank-7b", "grouprank-32b", "rank1-7b", "rank1-32b", "rank-r1-3b",
    "rank-r1-7b", "rank-r1-14b", "erank-4b", "erank-14b", "erank-32b", "retro-qwen2.5-7b", "retro-qwen2.5-32b",
    "retro-qwen3-8b", "retro-qwen3-14b", "retro-qwen3-32b",
}  # fmt: skip


def card_of(name: str) -> ChatCard:
    card = find_chat_card(name)
    assert card is not None
    return card


def test_the_cards_are_those_of_the_models_of_the_paper() -> None:
    assert {c.name for c in chat_cards()} == PAPER | SEARCH_R1 | RERANKERS | {"smollm2"}
    assert {c.name for c in chat_cards() if not c.served} == {"gpt4", "o3-mini", "smollm2"}
    assert {c.name for c in chat_cards() if c.fixed_sampling} == {"o3-mini"}
    assert {c.name for c in chat_cards() if c.price} == {"gpt4", "o3-mini"}
    assert {c.name for c in chat_cards() if c.key} == {"gpt4", "o3-mini"}


@pytest.mark.parametrize("name", sorted(PAPER | SEARCH_R1))
def test_a_card_is_whole(name: str) -> None:
    card = card_of(name)
    assert card.name == name
    assert card.summary
    assert card.licence
    assert card.served == (card.source.count("/") == 1)
    assert card.context in (32_768, 40_960, 128_000, 131_072, 200_000)
    assert card.marking in MARKINGS
    assert card.temperature is None or 0 < card.temperature <= 1
    if card.price:
        assert card.base_url.startswith("https://")
        assert 0 < card.price.per_million < card.price.completion
        assert card.price.source
        assert len(card.price.seen) == 7


@pytest.mark.parametrize("name", sorted(RERANKERS))
def test_a_reranker_says_what_serving_takes(name: str) -> None:
    """What nobody published stays unset."""
    card = card_of(name)
    assert card.name == name
    assert card.served
    assert card.source.count("/") == 1
    assert card.reranker in {"reasonrank", "grouprank", "rank1", "rank-r1", "erank", "retro"}
    assert card.marking in MARKINGS
    assert card.parameters
    assert card.cache_bytes
    assert card.revision == "main"
    assert (card.context is None) == name.startswith("retro-")
    assert (card.temperature is None) == name.startswith(("rank1-", "rank-r1-", "erank-"))
    assert bool(card.base_source) == name.startswith("rank-r1-")


def test_prices() -> None:
    assert card_of("gpt4").cost(1_000_000, 100_000) == pytest.approx(2.5 + 1.0)
    assert card_of("qwen-7b").cost(1, 1) is None


def test_names_become_models(server: ChatServer, make_chat: MakeChat) -> None:
    """Each with the server it is asked at in its name, which reads back."""
    host = server.url.split("/")[2]
    expected = {
        "qwen-7b": ("Qwen/Qwen2.5-7B-Instruct", f"qwen-7b:host={host}"),
        "QWEN_7B": ("Qwen/Qwen2.5-7B-Instruct", f"qwen-7b:host={host}"),
        "qwen-7b:served=qwen2.5:7b": ("qwen2.5:7b", f"qwen-7b:host={host},served=qwen2.5:7b"),
        "gpt4": ("gpt-4o-2024-11-20", f"gpt4:host={host}"),
        "openai:gpt-4o-2024-11-20": ("gpt-4o-2024-11-20", f"openai:gpt-4o-2024-11-20,host={host}"),
        "Qwen/QwQ-32B": ("Qwen/QwQ-32B", f"qwq-32b:host={host}"),
    }
    for spec, (model, name) in expected.items():
        chat = make_chat(spec)
        chat.complete_one(ask())
        assert chat.name == str(chat.spec) == name
        assert chat.describe()["model"] == model
        assert chats.parse(name) == chat.spec
        assert make_chat(name).describe() == chat.describe()
    assert [body["model"] for body in server.asked] == [model for model, _ in expected.values()]
    assert make_chat("llama3.2:latest").describe()["model"] == "llama3.2:latest"
    assert make_chat("Qwen/QwQ-32B").marking == "think"
    assert make_chat("openai:gpt-4o-2024-11-20", max_cost=1.0).usage.cost == 0


def test_names_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="did you mean qwen-7b"):
        get_llm("qwen-7")
    with pytest.raises(UnknownName, match="OPENAI_BASE_URL"):
        get_llm("nobodys-model")
    with pytest.raises(UsageError, match="an empty text names no LLM"):
        get_llm("")
    with pytest.raises(UsageError, match="is a parameter now: qwen-7b:served=NAME"):
        get_llm("qwen-7b@qwen2.5:7b")
    for call in (get_llm("qwen-7b").check, lambda: get_llm("qwen-7b").complete_one(ask())):
        with pytest.raises(UsageError, match=r"qwen-7b is an open model: serve it .r2med models serve qwen-7b says"):
            call()
    with pytest.raises(UsageError, match="it looks like replay:FILE"):
        get_llm("replay:")
    with pytest.raises(UsageError, match="it looks like openai:NAME"):
        get_llm("openai:")
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000")
    with pytest.raises(UsageError, match="is not the URL of a service"):
        get_llm("qwen-7b")


def test_a_plan_needs_no_key_no_server_and_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    for name in ("gpt4", "o3-mini", "qwen-7b"):
        estimate = get_llm(name).estimate(ask())
        assert (estimate.calls, estimate.cost is None) == (1, name == "qwen-7b")


def test_key_and_extra_are_asked_for_when_something_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = get_llm("gpt4")
    for call in (chat.check, lambda: chat.complete_one(ask()), lambda: list(chat.complete([ask()]))):
        with pytest.raises(UsageError, match="gpt4 needs a key: export OPENAI_API_KEY=… or OPENAI_API_KEY_FILE=FILE"):
            call()
    assert list(chat.complete([])) == []
    monkeypatch.setitem(sys.modules, "httpx", None)
    for call in (chat.check, lambda: chat.complete_one(ask())):
        with pytest.raises(MissingExtra, match=r"calling gpt4 needs .*r2med\[api\]"):
            call()


@pytest.mark.parametrize(
    "options", [{"concurrency": 0}, {"attempts": -1}, {"timeout": 0.0}, {"requests_per_minute": 0}, {"threads": 0}]
)
def test_options_that_cannot_be(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        Options(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("dollars", [-1.0, float("nan")])
def test_a_budget_that_cannot_be(dollars: float) -> None:
    with pytest.raises(UsageError, match="must not be negative"):
        Budget(dollars)


def test_the_embedded_model_says_what_it_is() -> None:
    chat = get_llm("smollm2")
    assert isinstance(chat, LocalChat)
    assert get_llm("local").name == chat.name == "smollm2"
    assert get_llm("local").describe() == chat.describe()
    assert "more often wrong than right" in chat.warning
    assert chat.describe()["warning"] == chat.warning
    assert chat.estimate(ask("x" * 400, n=2)).cost == 0.0


RETRIED = [
    "drop", "half", "half-stream", "html", "wrong-json", "not-utf8", "list", "error-200", "error-200-plain",
    "429", "429-ms", "429-nan", "500", "503-html", "brotli",
]  # fmt: skip
# What may pass by itself.


def test_a_plain_answer(server: ChatServer, make_chat: MakeChat) -> None:
    chat = make_chat()
    reply = chat.complete_one(ask(temperature=0.7, top_p=0.8, seed=42, stop=("</search>",)))
    assert (reply.key, reply.text, reply.finish_reason) == ("q1", "On Fever and rash", "stop")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.model) == (7, 11, "any-model-0001")
    assert reply.cost is None  # nobody knows the price of any-model
    assert reply.seconds > 0
    sent = server.asked[0]
    assert sent == {
        "model": "any-model",
        "messages": [{"role": "user", "content": "Fever and rash"}],
        "max_tokens": 64,
        "temperature": 0.7,
        "top_p": 0.8,
        "seed": 42,
        "stop": ["</search>"],
    }
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_reasoning_models_of_openai_take_no_temperature(server: ChatServer, make_chat: MakeChat) -> None:
    for name in ("o3-mini", "openai:o1-2024-12-17", "openai:gpt-5-mini"):
        chat = make_chat(name)
        assert len(list(generate(chat, [ask(temperature=0.7, top_p=0.8, seed=1, n=2)]))) == 2
        assert chat.marking == "hidden"
    assert len(server.asked) == 6  # one answer a call
    for body in server.asked:
        assert not {"temperature", "top_p", "max_tokens", "n"} & set(body)
        assert body["max_completion_tokens"] == 64
    assert [body["seed"] for body in server.asked] == [1, 2] * 3


def test_a_server_that_ignores_n_is_asked_again(server: ChatServer, make_chat: MakeChat) -> None:
    server.default = "one-choice"
    chat = make_chat()
    reply = chat.complete_one(ask(n=3, seed=5))
    assert (len(reply.choices), reply.more) == (1, True)
    found = list(generate(chat, [ask(n=3, seed=5)]))
    assert [g.sample for g in found] == [0, 1, 2]
    assert [body.get("n") for body in server.asked[1:]] == [3, 2, None]
    assert [body["seed"] for body in server.asked[1:]] == [5, 6, 7]
    assert sum(g.completion_tokens for g in found) == 33


@pytest.mark.parametrize("behaviour", RETRIED)
def test_what_may_pass_is_tried_again(server: ChatServer, make_chat: MakeChat, behaviour: str) -> None:
    server.plan = [behaviour, "ok"]
    chat = make_chat()
    assert chat.complete_one(ask()).text == "On Fever and rash"
    assert len(server.asked) == 2
    assert (chat.usage.attempts, chat.usage.retries, chat.usage.calls) == (2, 1, 1)


@pytest.mark.parametrize("behaviour", RETRIED)
def test_what_does_not_pass_is_one_clear_line(server: ChatServer, make_chat: MakeChat, behaviour: str) -> None:
    server.default = behaviour
    with pytest.raises(Unavailable, match=r"127.0.0.1 .*3 times; what was finished is kept") as caught:
        make_chat().complete_one(ask())
    assert len(server.asked) == 3
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("behaviour", ["hang", "drip", "drip-headers"])
def test_a_server_that_hangs(server: ChatServer, make_chat: MakeChat, behaviour: str) -> None:
    server.plan = [behaviour]
    begun = time.monotonic()
    assert make_chat(timeout=0.5, attempts=20).complete_one(ask()).text == "On Fever and rash"
    assert time.monotonic() - begun >= 0.5
    assert len(server.asked) >= 2  # the first was given up
    server.default = behaviour
    with pytest.raises(Unavailable, match="did not answer in time, 2 times"):
        make_chat(timeout=0.2, attempts=2).complete_one(ask())


def test_nobody_listens(make_chat: MakeChat) -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1 cannot be reached"):
        make_chat(base_url="http://127.0.0.1:9/v1").complete_one(ask())


@pytest.mark.parametrize(("behaviour", "least"), [("429", 0.3), ("429-ms", 0.25)])
def test_the_server_says_how_long_to_wait(
    server: ChatServer, make_chat: MakeChat, behaviour: str, least: float
) -> None:
    server.plan = [behaviour]
    begun = time.monotonic()
    make_chat().complete_one(ask())
    assert time.monotonic() - begun >= least


@pytest.mark.parametrize(
    ("behaviour", "kind", "words"),
    [
        ("400", ModelError, r"refused the request \(400\): Unsupported parameter: 'logit_bias'"),
        ("401", UsageError, r"refused the API key \(401\)"),
        ("error-200-key", UsageError, r"refused the API key \(401\)"),
        ("403", UsageError, r"refused the API key \(403\)"),
        ("404", ModelError, "gpt-9"),
        ("429-quota", UsageError, "no credit left"),
        ("redirect", ModelError, "answered 307"),
    ],
)
def test_what_cannot_change_is_asked_once(
    server: ChatServer, make_chat: MakeChat, behaviour: str, kind: type[R2MedError], words: str
) -> None:
    server.default = behaviour
    with pytest.raises(kind, match=words):
        make_chat().complete_one(ask())
    assert len(server.asked) == 1


def test_a_missing_key_is_said_so(server: ChatServer, make_chat: MakeChat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    server.default = "401"
    with pytest.raises(UsageError, match="wants an API key"):
        make_chat().complete_one(ask())
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize(
    ("behaviour", "text", "reason", "reasoning"),
    [
        ("null", "", "stop", ""),
        ("parts", "Measles it is.", "stop", ""),
        ("reasoning", "Measles.", "stop", "Fever, then a rash."),
        ("refusal", "I can't help with that.", "content_filter", ""),
        ("cut", "On Fever and rash", "length", ""),
        ("filtered", "", "content_filter", ""),
        ("400-filter", "", "content_filter", ""),
    ],
)
def test_odd_answers_are_answers(
    server: ChatServer, make_chat: MakeChat, behaviour: str, text: str, reason: str, reasoning: str
) -> None:
    server.default = behaviour
    reply = make_chat().complete_one(ask())
    assert (reply.text, reply.finish_reason, reply.reasoning, reply.error) == (text, reason, reasoning, "")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("behaviour", "words", "calls"),
    [
        ("no-choice", "3 times without a choice", 3),
        ("odd-choice", "3 times without a choice", 3),
        ("choices-text", "3 times without a choice", 3),
        ("huge", "more than 8 MB", 1),
        ("bomb", "more than 8 MB", 1),
        ("400-length", "maximum context length", 1),
    ],
)
def test_one_bad_request_does_not_stop_the_others(
    server: ChatServer, make_chat: MakeChat, behaviour: str, words: str, calls: int
) -> None:
    server.plan = [behaviour] * calls
    chat = make_chat(concurrency=1)
    first, second = chat.complete(asks(2))
    assert words in first.error
    assert (first.text, first.finish_reason) == ("", "error")
    assert (second.text, second.error) == ("On Case 1", "")
    assert (chat.usage.failures, chat.usage.calls) == (1, 1)


def test_a_server_that_can_answer_nothing_is_not_asked_for_ever(server: ChatServer, make_chat: MakeChat) -> None:
    server.default = "400-length"
    with pytest.raises(ModelError, match=r"10 requests in a row failed: .*maximum context length"):
        list(make_chat(concurrency=2).complete(asks(100)))
    assert len(server.asked) < 20


def test_a_packed_answer_is_unpacked(server: ChatServer, make_chat: MakeChat) -> None:
    server.default = "gzip"
    assert make_chat().complete_one(ask()).text == "On Fever and rash"
    assert server.headers[0]["Accept-Encoding"] == "gzip, deflate"


@pytest.mark.parametrize("behaviour", ["no-usage", "usage-null", "usage-odd"])
def test_tokens_nobody_counted_are_estimated(server: ChatServer, make_chat: MakeChat, behaviour: str) -> None:
    server.default = behaviour
    chat = make_chat("gpt4")
    reply = chat.complete_one(ask("x" * 400))
    assert 100 <= reply.prompt_tokens <= 120
    assert 90 <= reply.completion_tokens <= 110
    assert chat.usage.estimated == 1
    assert reply.cost == pytest.approx((reply.prompt_tokens * 2.5 + reply.completion_tokens * 10) / 1e6)


def test_many_at_once_and_no_more_than_allowed(make_chat: MakeChat, server: ChatServer) -> None:
    server.together = 8  # the first answer waits for the eighth request
    replies = list(make_chat(concurrency=8).complete(asks(64)))
    assert server.most_in_flight == 8
    assert {reply.key: reply.text for reply in replies} == {f"q{i}": f"On Case {i}" for i in range(64)}


def test_requests_are_read_as_there_is_room(make_chat: MakeChat, server: ChatServer) -> None:
    read = []

    def requests() -> object:
        for request in asks(1000):
            read.append(request.key)
            yield request

    answers = make_chat(concurrency=2).complete(requests())  # type: ignore[arg-type]
    assert len(list(islice(answers, 5))) == 5
    answers.close()  # type: ignore[attr-defined]
    assert len(read) < 20
    assert len(server.asked) < 20


def test_what_is_under_way_when_the_key_is_refused_still_arrives(server: ChatServer, make_chat: MakeChat) -> None:
    server.seconds = 0.05
    server.plan = ["ok", "ok", "401"]
    arrived: list[str] = []

    def keep(_: Request, reply: Reply) -> None:
        arrived.append(reply.key)

    with pytest.raises(UsageError, match="refused the API key"):
        list(make_chat(concurrency=3).complete(asks(50), keep))
    assert len(arrived) == len(server.asked) - 1 >= 2


def test_an_error_in_the_requests_themselves_comes_through(make_chat: MakeChat) -> None:
    def requests() -> object:
        yield from asks(3)
        raise ModelError("the first stage failed")

    answers = make_chat().complete(requests())  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="the first stage failed"):
        list(answers)


def test_rate_limits_are_kept(server: ChatServer, make_chat: MakeChat) -> None:
    begun = time.monotonic()
    list(make_chat(requests_per_minute=600).complete(asks(6)))
    assert time.monotonic() - begun >= 0.5
    begun = time.monotonic()
    list(make_chat(tokens_per_minute=60_000).complete(asks(4, max_tokens=290)))
    assert time.monotonic() - begun >= 0.8


def test_the_budget_is_never_passed(server: ChatServer, make_chat: MakeChat) -> None:
    """A call costs $0.0001275 and may cost $0.000675."""
    chat = make_chat("gpt4", max_cost=0.002, concurrency=8)
    replies: list[Reply] = []
    with pytest.raises(BudgetSpent, match=r"the budget of \$0.002 is spent: .*allow more to go on"):
        replies.extend(chat.complete(asks(100)))
    assert len(replies) == len(server.asked)
    spent = sum(reply.cost or 0 for reply in replies)
    assert spent == pytest.approx(chat.usage.cost)
    assert 0.002 - 0.000675 - 1e-4 < spent <= 0.002


def test_a_budget_needs_a_price(make_chat: MakeChat) -> None:
    with pytest.raises(UsageError, match="price of any-model is not known"):
        make_chat(max_cost=1)


def test_estimates_before_anything_is_spent(server: ChatServer, make_chat: MakeChat) -> None:
    chat = make_chat("o3-mini")
    estimate = chat.estimate(ask("x" * 4000, n=2, max_tokens=1000))
    assert estimate.calls == 2
    assert 2000 <= estimate.prompt_tokens <= 2100
    assert estimate.completion_tokens == 2000
    assert estimate.cost == pytest.approx((estimate.prompt_tokens * 1.1 + 2000 * 4.4) / 1e6)
    assert make_chat().estimate(ask()).cost is None
    assert not server.asked
