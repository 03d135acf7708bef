"""A server for every test that wants one, and no waiting between retries."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from r2med import http
from r2med.core.budget import Budget
from r2med.core.options import Options
from r2med.llm import Chat, Message, Request, Sampling, get_llm
from tests.llm.server import ChatServer, serving

KEY = "sk-test-0123456789abcdefXYZ"
MakeChat = Callable[..., Chat]


@pytest.fixture(autouse=True)
def _own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_API_KEY_FILE", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """A chat server; the environment points to it."""
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    monkeypatch.setattr(http, "FIRST_WAIT", 0.01)
    with serving() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield running


@pytest.fixture
def make_chat(server: ChatServer) -> Iterator[MakeChat]:
    """Chats that are closed when the test ends."""
    made: list[Chat] = []

    def make(name: str = "any-model", *, max_cost: float | None = None, **options: object) -> Chat:
        budget = None if max_cost is None else Budget(max_cost)
        settings = {"timeout": 5.0, "attempts": 3, "budget": budget} | options
        made.append(get_llm(name, Options(**settings)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for chat in made:
        chat.close()


def ask(text: str = "Fever and rash", key: str = "q1", **sampling: object) -> Request:
    settings = {"max_tokens": 64} | sampling
    return Request((Message("user", text),), Sampling(**settings), key)  # type: ignore[arg-type]


def asks(count: int, **sampling: object) -> list[Request]:
    return [ask(f"Case {i}", f"q{i}", **sampling) for i in range(count)]
