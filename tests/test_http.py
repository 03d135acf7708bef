"""The HTTP client against servers that misbehave, and what it costs them to try."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from r2med import http
from r2med.core import ModelError, Unavailable, UsageError, parallel
from r2med.core.budget import Budget, Usage
from r2med.core.options import Options
from r2med.http import Client, RateLimit, Service, retry_after, stated_delay, token_count
from r2med.llm import BudgetSpent, get_llm
from r2med.models import get_card
from r2med.retrieve.encoders.api import ApiEncoder
from tests.llm.conftest import ask, asks
from tests.llm.server import ChatServer, serving

pytest.importorskip("httpx", reason="the extra `api` is not installed")

KEY = "sk-test-0123456789abcdefXYZ"
MODEL = "gpt4"
BODY: dict[str, object] = {"model": "m", "messages": [{"role": "user", "content": "what?"}]}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setattr(http, "FIRST_WAIT", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


def client(base_url: str) -> Client:
    limit = RateLimit(None, None)
    return Client(service(base_url), Usage(), timeout=5, attempts=1, limit=limit, most_bytes=1 << 20)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "9999"}, 120.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "²"}, None),
        ({"retry-after": "1.2.3"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.01),
        ({"retry-after": "Wed, 21 Oct 99999 07:28:00 GMT"}, None),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "nan"}, None),
        ({"retry-after-ms": "inf"}, 120.0),
    ],
)
def test_how_long_a_server_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (b'{"details": [{"retryDelay": "26s"}]}', 26),
        (b'{"retryDelay":"0.25s"}', 0.25),
        (b'{"retryDelay": "0s"}', 0.01),
        (b'{"retryDelay": "999999s"}', 120),
        (b'{"retryDelay": "soon"}', None),
        (b"", None),
    ],
)
def test_a_wait_in_the_body_of_a_refusal(body: bytes, seconds: float | None) -> None:
    assert stated_delay(body) == seconds


@pytest.mark.parametrize("value", [None, True, -1, 1.5, "3", [], 10**30])
def test_what_is_no_count_of_tokens(value: object) -> None:
    assert token_count(value) is None
    assert token_count(17) == 17


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com:443/v1/", True),
        ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions", True),
        ("http://me:secret@h:8000/v1", "http://h:8000/v1", True),
        ("http://h:8000/v1", "http://h:8001/v1", False),
        ("http://h/v1", "http://h:8000/v1", False),
        ("http://h/a/v1", "http://h/b/v1", False),
        ("http://h/v1", "http://h", False),
        ("http://[::1]:8000/v1", "http://[::1:8000]/v1", False),
        ("http://h/v1?model=a&key=secret", "http://h/v1?model=b&key=secret", False),
        ("http://h/v1?key=secret", "http://h/v1", False),
        ("http://h/v1?key=secret", "http://h/v1/chat/completions?key=secret", True),
        ("http://h/v1?", "http://h/v1", True),
        ("https://x.azure.com/openai/deployments/a?api-version=1", "https://x.azure.com/openai/deployments/b", False),
    ],
)
def test_what_tells_servers_apart(first: str, second: str, same: bool) -> None:
    places = [Service(name="m", base_url=url, path="/chat/completions").place for url in (first, second)]
    assert (places[0] == places[1]) == same
    assert "secret" not in places[0]


def test_a_model_has_one_name_however_its_own_server_is_spelled(monkeypatch: pytest.MonkeyPatch) -> None:
    for spelled in ("https://api.openai.com/v1/", "https://API.openai.com:443/v1"):
        monkeypatch.setenv("OPENAI_BASE_URL", spelled)
        assert get_llm(MODEL).name == MODEL
        assert ApiEncoder(get_card("openai"), Options()).other_host == ""
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.openai.com:8443/v1")
    assert get_llm(MODEL).name == f"{MODEL}:host=api.openai.com:8443"
    assert ApiEncoder(get_card("openai"), Options()).other_host == "api.openai.com:8443"


@pytest.mark.parametrize(("url", "warned"), [("http://192.0.2.1/v1", True), ("http://example.invalid/v1", True),
                                             ("https://example.invalid/v1", False), ("http://127.0.0.1:9/v1", False),
                                             ("http://[::1]:9/v1", False), ("http://localhost/v1", False)])  # fmt: skip
def test_a_key_over_plain_http_is_said_once(url: str, warned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("r2med.core.keys._warned", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            asked = client(url)
            asked._open()
            asked.close()
    assert [KEY in str(w.message) for w in caught] == [False] * int(warned)
    monkeypatch.delenv("OPENAI_API_KEY")
    with warnings.catch_warnings(record=True) as silent:
        client(url)._open()
    assert not silent


def test_a_redirect_is_not_followed(server: ChatServer) -> None:
    with serving() as other:
        server.default = "redirect"
        chat = get_llm(MODEL)
        with pytest.raises(ModelError, match="answered 307"):
            chat.complete_one(ask())
        chat.close()
        assert not other.asked


def test_one_budget_for_all_chat_models(server: ChatServer) -> None:
    """A call costs $0.0001275 and may cost $0.000675."""
    budget = Budget(0.002)
    spent = 0.0
    chats = [get_llm(name, Options(budget=budget, concurrency=4)) for name in ("gpt4", "openai:gpt-4o-2024-11-20")]
    for chat in chats:
        with pytest.raises(BudgetSpent):
            list(chat.complete(asks(100)))
        spent += chat.usage.cost
        chat.close()
    assert budget.spent == pytest.approx(spent)
    assert spent <= 0.002
    assert chats[1].usage.cost < chats[0].usage.cost


def test_requests_under_way_end_when_the_program_ends(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "STOP", threading.Event())
    server.default = "hang"
    chat = get_llm(MODEL)
    threading.Timer(0.2, parallel.STOP.set).start()
    with pytest.raises(Unavailable, match="interrupted"):
        chat.complete_one(ask())
    chat.close()


def test_nothing_is_sent_once_the_program_ends(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits for its turn under a rate limit would cost money that nobody sees the answer of."""
    monkeypatch.setattr(parallel, "STOP", threading.Event())
    limit, sent = RateLimit(1, None), list[bool]()
    asked = Client(service(server.url), Usage(), timeout=5, attempts=1, limit=limit, most_bytes=1 << 20)
    asked.post(BODY, 1)
    threading.Timer(0.2, parallel.STOP.set).start()
    with pytest.raises(Unavailable, match="interrupted"):
        asked.post(BODY, 1, on_send=lambda: sent.append(True))
    time.sleep(0.3)
    asked.close()
    assert (len(server.asked), sent) == (1, [])


def test_a_call_that_was_not_sent_is_not_said_to_have_been_tried(server: ChatServer) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Unavailable) as caught:
        client(server.url).post(BODY, 1, stop)
    assert str(caught.value) == "127.0.0.1 was not asked: the work was stopped"


def test_the_password_of_a_url_is_hidden_as_it_is_sent(server: ChatServer) -> None:
    """The URL has it escaped; a server that quotes it does not."""
    asked = client(server.url.replace("//", "//me:pass%40word-1@"))
    asked.post(BODY, 1)
    assert asked._clean("pass@word-1 and pass%40word-1") == "[key] and [key]"
    asked.close()


def test_a_key_in_the_query_of_a_url_is_hidden(server: ChatServer) -> None:
    """Some gateways take it there; a server that quotes the address must not bring it into a message or a text."""
    asked = client(f"{server.url}?api-version=2024-10-21&api_key=abc%2Fdefgh")
    asked.post(BODY, 1)
    assert asked._clean("?api-version=2024-10-21&api_key=abc%2Fdefgh: abc/defgh") == (
        "?api-version=2024-10-21&api_key=[key]: [key]"
    )
    asked.close()


def test_a_plus_in_such_a_key_is_no_blank(server: ChatServer) -> None:
    asked = client(f"{server.url}?api-key=ab+cd/ef==")
    asked.post(BODY, 1)
    assert asked._clean("?api-key=ab+cd/ef==, ab%2Bcd%2Fef%3D%3D, 'ab cd/ef=='") == "?api-key=[key], [key], '[key]'"
    asked.close()


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory as Linux counts it")
@pytest.mark.parametrize("kind", ["chat", "embeddings"])
def test_a_gigabyte_of_spaces_costs_little(server: ChatServer, kind: str) -> None:
    server.default = "bomb"
    code = f"""
import resource
from r2med.core import R2MedError
from r2med.core.options import Options
from r2med.llm import Message, Request, get_llm
from r2med.models import get_card
from r2med.retrieve.encoders.api import ApiEncoder
from r2med.retrieve import dense
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    if {kind!r} == "chat":
        reply = get_llm("gpt4", Options(attempts=1)).complete_one(Request((Message("user", "x"),)))
        assert "more than" in reply.error, reply
    else:
        ApiEncoder(get_card("openai"), Options(attempts=1)).encode(["a"], "query")
        raise SystemExit("believed")
except R2MedError as error:
    assert "more than 64 MB" in str(error), error
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 250  # MB


@pytest.mark.parametrize("behaviour", ["hang", "drip", "drip-headers"])
@pytest.mark.parametrize("kind", ["chat", "embeddings"])
def test_an_interrupt_ends_within_two_seconds(server: ChatServer, tmp_path: Path, kind: str, behaviour: str) -> None:
    server.default = behaviour
    chat = ["expand", "--method", "hyde", "--llm", "gpt4", "--tasks", "mini@1/Biology"]
    command = chat if kind == "chat" else ["run", "-r", "openai", "-t", "mini@1/Biology"]
    for _ in range(4):  # the machine may have other work
        server.asked.clear()
        with subprocess.Popen(
            [sys.executable, "-m", "r2med", *command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            until = time.monotonic() + 60
            while not server.asked and time.monotonic() < until and process.poll() is None:
                time.sleep(0.01)
            time.sleep(0.3)
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=300)
        assert process.returncode == 130, said
        assert b"interrupted; what was finished is kept" in said
        assert b"Traceback" not in said
        if time.monotonic() - begun < 2:
            return
    pytest.fail("it took two seconds or more four times")


def test_a_base_url_that_is_none() -> None:
    with pytest.raises(UsageError, match="is not the URL of a service"):
        client("localhost:8000")


def service(base_url: str) -> Service:
    return Service(name=MODEL, base_url=base_url, path="/chat/completions", key="OPENAI_API_KEY")


def test_azure_wants_another_header_and_keeps_its_version() -> None:
    base = "https://mine.openai.azure.com/openai/deployments/gpt4o?api-version=2024-10-21"
    azure = service(base)
    assert azure.url == base.replace("gpt4o?", "gpt4o/chat/completions?")
    headers = client(base)._headers(KEY)
    assert headers["api-key"] == KEY
    assert "Authorization" not in headers


def test_urls() -> None:
    assert service("http://h:1/v1/").url == "http://h:1/v1/chat/completions"
    assert service("http://h/v1/chat/completions").url == "http://h/v1/chat/completions"
    for bad in ("", "localhost:8000", "ftp://h/v1", "http://", "http://h:x/v1", "http://h:99999/v1", "http://[::1/v1"):
        with pytest.raises(UsageError, match="is not the URL of a service"):
            assert service(bad).url
    for bad in ("htp://me:secret@h/v1", "htp://h/v1?key=secret"):
        with pytest.raises(UsageError) as caught:
            assert service(bad).url
        assert "secret" not in str(caught.value)
