from __future__ import annotations

import sys

import pytest

from r2med.core import MissingExtra, UnknownName, UsageError
from r2med.core.budget import Budget
from r2med.core.options import Options
from r2med.llm import MARKINGS, chats, get_llm
from r2med.llm.local import LocalChat
from r2med.models import ChatCard, chat_cards, find_chat_card
from tests.llm.conftest import MakeChat, ask
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
