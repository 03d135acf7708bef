"""Embedding services, well behaved and not, over real sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med import http
from r2med.cache import EmbeddingCache
from r2med.core import ModelError, R2MedError, Unavailable, UsageError
from r2med.core.budget import Budget, BudgetSpent
from r2med.core.files import home
from r2med.core.options import Options
from r2med.core.spec import Spec
from r2med.models import Card, Price, cards, get_card
from r2med.retrieve import get_retriever
from r2med.retrieve.dense import DenseRetriever
from r2med.retrieve.embed import embed
from r2med.retrieve.encoders.api import ApiEncoder, WireFormat, wire_format
from tests.builders import small_task

from .service import LIMIT, Server, serving, vector

pytest.importorskip("httpx", reason="the api extra is not installed")

KEY = "sk-very-secret"
TEXTS = [f"text number {i}" for i in range(200)]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "VOYAGE_API_KEY", "VOYAGE_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(http, "FIRST_WAIT", 0.01)


def card(**changes: Any) -> Card:
    facts = {"name": "m", "source": "m", "query_length": LIMIT, "document_length": LIMIT, "normalize": False}
    return get_card("openai").replace(**{**facts, "price": None, **changes})


def encoder(server: Server, *, price: float | None = None, **options: Any) -> ApiEncoder:
    given = Price(per_million=price, seen="2026-11", source="a test") if price else None
    return ApiEncoder(card(price=given), Options(base_url=server.url, **options))


def retriever(of: Card, cache: Path | None = None) -> DenseRetriever:
    """A card of ours, served elsewhere."""
    return DenseRetriever(
        ApiEncoder(of, Options()), Spec(of.name), card=of, cache=EmbeddingCache(cache) if cache else None
    )


def expected(texts: list[str]) -> Any:
    return np.array([vector(t) for t in texts], dtype=np.float32)


def test_texts_go_out_as_they_are_and_come_back_in_order(server: Server) -> None:
    odd = ["two\nlines", ' "quoted" \\', "β-blocker 🫀", ""]
    made = encoder(server).encode(odd + TEXTS, "document")
    assert np.array_equal(made, expected(odd + TEXTS))
    assert [t for body in sorted(server.bodies, key=str) for t in body["input"] if t in odd] == odd
    assert server.headers_seen[0]["authorization"] == f"Bearer {KEY}"
    assert server.paths[0] == "/v1/embeddings"


@pytest.mark.parametrize("places", [(0, 0), (1, 2)])
def test_an_answer_whose_places_are_not_those_of_the_texts_is_none(places: tuple[int, int]) -> None:
    """The vectors were taken in any order that the numbers gave."""
    answer = {"data": [{"index": at, "embedding": [1.0]} for at in places]}
    with pytest.raises(KeyError):
        wire_format("openai").vectors(answer)


@pytest.mark.parametrize("trouble", ["429 0.05", "500", "429 Wed, 21 Oct 2015 07:28:00 GMT"])
def test_what_may_pass_is_repeated(server: Server, trouble: str) -> None:
    server.script = [trouble, trouble]
    used = encoder(server)
    assert np.array_equal(used.encode(TEXTS[:3], "query"), expected(TEXTS[:3]))
    assert used.notes["retries"] == 2


def test_retry_after_is_honoured(server: Server) -> None:
    server.script = ["429 0.6"]
    encoder(server).encode(["a"], "query")
    assert server.times[1] - server.times[0] >= 0.6


def test_a_hanging_service_is_asked_again(server: Server) -> None:
    server.script = ["hang"]
    used = encoder(server, timeout=0.3, attempts=20)
    assert np.array_equal(used.encode(["a"], "query"), expected(["a"]))
    assert used.notes["retries"] >= 1


def test_a_dead_service_is_one_line(server: Server) -> None:
    used = ApiEncoder(card(), Options(base_url="http://127.0.0.1:9/v1", attempts=2))
    with pytest.raises(Unavailable, match=r"127.0.0.1 cannot be reached .*2 times"):
        used.encode(["a"], "query")


@pytest.mark.parametrize(
    ("trouble", "kind", "words"),
    [
        ("count", ModelError, "returned 2 embeddings for 3 texts"),
        ("null", ModelError, "not finite|something else"),
        ("401", UsageError, "refused the API key"),
        ("400", ModelError, "refused the request .400.: no such model"),
    ],
)
def test_what_will_not_pass_is_said_once(server: Server, trouble: str, kind: type[R2MedError], words: str) -> None:
    server.script = [trouble]
    with pytest.raises(kind, match=words) as caught:
        encoder(server).encode(TEXTS[:3], "query")
    assert KEY not in str(caught.value)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(("trouble", "kind"), [("html", "text/html"), ("nan", "application/json")])
def test_an_answer_that_is_no_json_is_asked_for_again(server: Server, trouble: str, kind: str) -> None:
    server.script = [trouble]
    assert np.array_equal(encoder(server).encode(TEXTS[:3], "query"), expected(TEXTS[:3]))
    server.script = [trouble] * 2
    with pytest.raises(Unavailable, match=f"answered with {kind} that is not the JSON of an answer, 2 times"):
        encoder(server, attempts=2).encode(TEXTS[:3], "query")


def test_only_the_text_that_is_too_long_is_cut(server: Server) -> None:
    long = "word " * (2 * LIMIT)
    used = encoder(server)
    made = used.encode([*TEXTS[:5], long], "document")
    assert np.array_equal(made[:5], expected(TEXTS[:5]))
    sent = [body["input"][0] for body in server.bodies if len(body["input"]) == 1 and body["input"][0][:5] == "word "]
    assert long.startswith(sent[-1])
    assert 0.85 * LIMIT < len(sent[-1].split()) <= LIMIT
    assert used.notes["shortened_requests"] > 0


def test_requests_run_at_the_same_time_but_not_too_many(server: Server) -> None:
    server.together = 3
    encoder(server, concurrency=3).encode([f"{i} " * 30 for i in range(64 * 8)], "document")
    assert server.most_at_once == 3


def test_a_rate_limit_spreads_requests(server: Server) -> None:
    begun = time.monotonic()
    encoder(server, requests_per_minute=300).encode([str(i) for i in range(64 * 3)], "document")
    assert len(server.bodies) == 3
    assert time.monotonic() - begun >= 0.35


def test_the_budget_stops_before_it_is_exceeded_and_keeps_what_was_paid(server: Server, tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    with pytest.raises(BudgetSpent, match="budget of"):
        embed(encoder(server, price=1e3, budget=Budget(0.6), concurrency=1), TEXTS, "document", cache=cache)
    paid = sum(len(body["input"]) for body in server.bodies)
    assert 0 < paid < len(TEXTS)
    done = embed(encoder(server), TEXTS, "document", cache=cache)
    assert (done.cached, done.encoded) == (paid, len(TEXTS) - paid)
    assert np.array_equal(done.rows.read(0, len(TEXTS)), expected(TEXTS))


def test_a_failure_in_the_middle_is_resumed(server: Server, tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    server.script = ["", "", "400"]
    with pytest.raises(ModelError):
        embed(encoder(server, concurrency=1), TEXTS, "document", cache=cache)
    paid = sum(len(body["input"]) for body in server.bodies[:2])
    assert embed(encoder(server), TEXTS, "document", cache=cache).cached == paid > 0


def test_cards_find_key_and_address(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    keyless = get_retriever("openai", Options(cache=False))
    with pytest.raises(UsageError, match=r"export OPENAI_API_KEY="):
        keyless.check()
    with pytest.raises(UsageError, match=r"export OPENAI_API_KEY="):
        keyless.retrieve(small_task())
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    run = get_retriever("openai", Options(budget=Budget(1.0))).retrieve(small_task())
    assert run.depth == 3
    assert server.bodies[0]["model"] == "text-embedding-3-large"
    assert run.notes["encoder"]["tokens"] > 0  # type: ignore[index]
    assert KEY not in str(run.notes)


def test_voyage_says_which_side_it_is(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOYAGE_BASE_URL", server.url)
    monkeypatch.setenv("VOYAGE_API_KEY", KEY)
    get_retriever("voyage").retrieve(small_task())
    assert [body["input_type"] for body in server.bodies] == ["document", "query"]


def test_a_budget_needs_a_price() -> None:
    with pytest.raises(UsageError, match="price of m is not known"):
        ApiEncoder(card(), Options(budget=Budget(1.0)))


def test_one_budget_for_two_services(server: Server) -> None:
    """What one has spent the other cannot spend again."""
    budget = Budget(0.5)
    first = encoder(server, price=1e3, budget=budget, concurrency=1)
    first.encode(TEXTS[:64], "document")
    assert budget.spent == pytest.approx(first.cost) == pytest.approx(64 * 3 / 1e6 * 1e3)
    second = encoder(server, price=1e3, budget=budget, concurrency=1)
    with pytest.raises(BudgetSpent, match=r"the budget of \$0.5 is spent"):
        second.encode(TEXTS, "document")
    assert budget.spent <= 0.5


@pytest.mark.parametrize("usage", ["null", '{"total_tokens": null}', '{"total_tokens": "12"}', '{"total_tokens": -3}'])
def test_tokens_that_are_not_counted_are_estimated(server: Server, usage: str) -> None:
    server.usage = usage
    used = encoder(server, price=1e3)
    used.encode(["fever and rash"] * 3, "query")
    assert used.notes["tokens"] == 12
    assert used.usage.estimated == 1
    assert used.cost == pytest.approx(12 / 1e3)


def test_another_server_or_path_is_another_model(server: Server) -> None:
    def host(base_url: str) -> object:
        return ApiEncoder(card(), Options(base_url=base_url)).describe("query")["host"]

    azure = "https://x.azure.com/openai/deployments/{}?api-version=1"
    places = [host(url) for url in (server.url, "http://127.0.0.1:1/v1", azure.format("d"), azure.format("e"))]
    assert len(set(places)) == 4
    assert host("") == host("https://api.openai.com:443/v1/embeddings") == "api.openai.com"


def test_every_api_card_has_its_wire_format() -> None:
    for each in cards("dense"):
        if each.is_api:
            assert isinstance(wire_format(each.backend), WireFormat)
            assert each.base_url.startswith("https://")
    with pytest.raises(ModelError, match="no embedding service speaks 'nobody'"):
        wire_format("nobody")


def test_what_it_would_cost(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    for side, texts in (("query", 2), ("document", 3)):
        work = get_retriever("openai").estimate(small_task(), side)  # type: ignore[arg-type]
        assert work is not None
        assert work.texts == work.missing == texts
        assert work.tokens > 0
        assert work.dollars
    assert not server.bodies


def test_a_look_at_the_bill_needs_no_key_and_leaves_no_trace(tmp_path: Path) -> None:
    assert retriever(get_card("openai"), tmp_path).estimate(small_task(), "document").dollars
    assert not list(tmp_path.iterdir())


def test_what_is_in_the_cache_needs_no_key(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    at_home = get_card("openai").replace(base_url=server.url)
    paid = retriever(at_home, tmp_path).retrieve(small_task())
    asked = len(server.bodies)
    monkeypatch.delenv("OPENAI_API_KEY")
    again = retriever(at_home, tmp_path).retrieve(small_task())
    assert np.array_equal(again.docs, paid.docs)
    assert len(server.bodies) == asked


def word_tokenizer(folder: Path) -> None:
    """A tokenizer of words and blanks, where an API's card looks for one."""
    tokenizers = pytest.importorskip("tokenizers", reason="the onnx extra is not installed")
    words = ["<unk>", *(f"w{i}" for i in range(40)), "é"]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder.mkdir(parents=True)
    made.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize(("name", "limit"), [("openai", 6000), ("voyage", 16_000)])
def test_under_the_papers_protocol_texts_are_cut_and_quoted(
    server: Server, monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    """As its scripts do it, in what is sent; without the protocol a text goes as it is."""
    monkeypatch.setenv(f"{name.upper()}_BASE_URL", server.url)
    monkeypatch.setenv(f"{name.upper()}_API_KEY", KEY)
    server.limit = limit
    word_tokenizer(home() / "models" / name)
    long, short = " ".join(["w1"] * limit + ["w2", "w3"]), 'w1\n"é"'
    get_retriever(f"{name}:protocol=r2med-paper").embed([long, short], "query", "")  # type: ignore[attr-defined]
    sent = [text for body in server.bodies for text in body["input"]]
    assert sorted(sent) == sorted([f'"{long[:-6]}"', '"w1 \\"\\u00e9\\""'])
    get_retriever(name).embed([short], "query", "")  # type: ignore[attr-defined]
    assert server.bodies[-1]["input"] == [short]


def test_without_the_tokenizer_nothing_is_sent_under_the_protocol(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    paper = get_retriever("openai:protocol=r2med-paper")
    before = paper.describe()["query"]
    with pytest.raises(
        ModelError, match=r"put the tokenizer\.json of Xenova/text-embedding-ada-002 into .*models/openai"
    ):
        paper.embed(["fever"], "query", "")  # type: ignore[attr-defined]
    assert server.bodies == []
    word_tokenizer(home() / "models" / "openai")
    after = get_retriever("openai:protocol=r2med-paper").describe()["query"]
    assert before != after != get_retriever("openai").describe()["query"]
    assert "sent" not in get_retriever("openai").describe()["query"]  # type: ignore[operator]
