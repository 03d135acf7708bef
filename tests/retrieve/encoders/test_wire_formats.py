"""Embedding services by their names, each in its own wire format, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from r2med import http
from r2med.core import ModelError, R2MedError
from r2med.core.options import Options
from r2med.models import cards, get_card
from r2med.retrieve import get_retriever
from r2med.retrieve.dense import DenseRetriever
from r2med.retrieve.encoders.api import numbers
from tests.builders import small_task

from .wire_formats import KEY, Server, serving, vector

pytest.importorskip("httpx", reason="the api extra is not installed")


class Expected(NamedTuple):
    """What a service is told for each side, and the longest vector that it has."""

    service: str
    model: str
    query: str
    document: str
    longest: int


SERVICES = {
    "openai": Expected("openai", "text-embedding-3-large", "", "", 3072),
    "openai-small": Expected("openai", "text-embedding-3-small", "", "", 1536),
    "voyage": Expected("voyage", "voyage-3", "query", "document", 2048),
    "voyage-3.5": Expected("voyage", "voyage-3.5", "query", "document", 2048),
    "voyage-3-large": Expected("voyage", "voyage-3-large", "query", "document", 2048),
    "gemini-embed": Expected("gemini", "gemini-embedding-001", "RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT", 3072),
    "cohere-embed": Expected("cohere", "embed-v4.0", "search_query", "search_document", 1536),
}
TEXTS = [f"a case of fever number {i}" for i in range(130)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(http, "FIRST_WAIT", 0.01)
    with serving() as running:
        for name in ("openai", "voyage", "gemini", "cohere"):
            monkeypatch.setenv(f"{name.upper()}_BASE_URL", running.url(name))
            monkeypatch.setenv(f"{name.upper()}_API_KEY", KEY)
        yield running


def loaded(spec: str) -> DenseRetriever:
    retriever = get_retriever(spec, Options(cache=False))
    assert isinstance(retriever, DenseRetriever)
    return retriever


def test_every_service_with_a_card_is_here() -> None:
    assert {card.name for card in cards("dense") if card.is_api} == set(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_vectors_of_each_side(server: Server, name: str) -> None:
    """Every text once, in requests that the service takes, and its vectors in the order of the texts."""
    expected, card = SERVICES[name], get_card(name)
    for side, told in (("query", expected.query), ("document", expected.document)):
        server.asked.clear()
        made = loaded(name).encoder.encode(TEXTS, side)  # type: ignore[arg-type]
        wanted = np.array([vector(expected.model, told, text, expected.longest)[: card.dimension] for text in TEXTS])
        wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
        assert made.shape == wanted.shape
        assert np.abs(made - wanted).max() < 1e-6
        assert {(asked.service, asked.model, asked.side) for asked in server.asked} == {(*expected[:2], told)}
        assert {asked.dimension for asked in server.asked} == {None}
        assert sorted(text for asked in server.asked for text in asked.texts) == sorted(TEXTS)


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "voyage"])
@pytest.mark.parametrize("length", [256, 512])
def test_a_shorter_vector_is_asked_for(server: Server, name: str, length: int) -> None:
    """Its length is told to the service, and is in the name, the key of the cache and the answer; again of length 1."""
    expected = SERVICES[name]
    retriever = loaded(f"{name}:dim={length}")
    made = retriever.encoder.encode(TEXTS[:3], "document")
    wanted = np.array([vector(expected.model, expected.document, t, expected.longest)[:length] for t in TEXTS[:3]])
    assert np.abs(made - wanted / np.linalg.norm(wanted, axis=1, keepdims=True)).max() < 1e-6
    assert [asked.dimension for asked in server.asked] == [length]
    assert f"dim={length}" in str(retriever.spec)
    assert retriever.encoder.describe("query") == {**loaded(name).encoder.describe("query"), "dimensions": length}


def test_a_vector_longer_than_usual(server: Server) -> None:
    assert loaded("voyage-3.5:dim=2048").encoder.encode(TEXTS[:2], "query").shape == (2, 2048)
    assert server.asked[0].dimension == 2048


@pytest.mark.parametrize("name", SERVICES)
def test_a_task_is_searched(server: Server, name: str) -> None:
    run = loaded(name).retrieve(small_task())
    assert run.depth == 3
    assert KEY not in str(run.notes)
    assert len({asked.side for asked in server.asked}) == (1 if name.startswith("openai") else 2)


@pytest.mark.parametrize(
    ("name", "tokens", "estimated"),
    [("openai-small", 12, 0), ("voyage-3.5", 12, 0), ("cohere-embed", 12, 0), ("gemini-embed", None, 1)],
)
def test_what_was_paid(server: Server, name: str, tokens: int | None, estimated: int) -> None:
    """Tokens as the service counts them; Gemini's does not say."""
    encoder = loaded(name).encoder
    encoder.encode(TEXTS[:2], "query")
    assert encoder.usage.estimated == estimated  # type: ignore[attr-defined]
    assert encoder.notes["tokens"] == (tokens or encoder.notes["tokens"]) > 0
    price = get_card(name).price
    assert price is not None
    assert encoder.cost == pytest.approx(encoder.notes["tokens"] / 1e6 * price.per_million)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("openai-small", r"127\.0\.0\.1 refused the API key \(401\)"),
        ("voyage-3.5", r"127\.0\.0\.1 refused the API key \(401\)"),
        ("gemini-embed", r"refused the request \(400\): API key not valid"),
        ("cohere-embed", r"127\.0\.0\.1 refused the API key \(401\)"),
    ],
)
def test_a_wrong_key(server: Server, monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    monkeypatch.setenv(get_card(name).key, "another-secret")
    with pytest.raises(R2MedError, match=said) as caught:
        loaded(name).encoder.encode(TEXTS[:2], "query")
    assert "another-secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("openai-small", "The model `nothing` does not exist"),
        ("voyage-3.5", "Model nothing is not supported."),
        ("gemini-embed", "nothing:batchEmbedContents is not found for API version v1beta"),
        ("cohere-embed", "model 'nothing' not found"),
    ],
)
def test_the_service_is_quoted(server: Server, name: str, said: str) -> None:
    from r2med.retrieve.encoders.api import ApiEncoder

    unknown = get_card(name).replace(source="nothing")
    with pytest.raises(ModelError, match=said):
        ApiEncoder(unknown, Options()).encode(TEXTS[:2], "query")


def test_a_quota_of_a_minute_is_waited_for(server: Server) -> None:
    """Gemini says the same of a minute's quota as others of an empty account, and adds how long to wait."""
    server.too_fast = 2
    encoder = loaded("gemini-embed").encoder
    assert encoder.encode(TEXTS[:3], "query").shape == (3, 3072)
    assert encoder.notes["retries"] == 2


def test_vectors_in_base64(server: Server) -> None:
    """Some gateways send them so whatever they are asked for."""
    plain = loaded("openai-small").encoder.encode(TEXTS[:5], "query")
    server.in_base64 = True
    assert np.array_equal(loaded("openai-small").encoder.encode(TEXTS[:5], "query"), plain)
    with pytest.raises(ValueError, match=r"base64|multiple|padding|Only"):
        numbers("no base64 at all!")


def test_a_service_that_gives_shorter_vectors_than_asked_for(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.retrieve.encoders.wire_formats.cut", lambda *_, **__: [0.6, 0.8])
    with pytest.raises(ModelError, match="vectors of openai-small have 2 dimensions, not 256"):
        loaded("openai-small:dim=256").encoder.encode(TEXTS[:2], "query")
