from __future__ import annotations

import json
import re

import msgspec
import pytest

from r2med.core import UnknownName, UsageError, fingerprint
from r2med.models import Card, card_names, cards, find_card, get_card, locate
from r2med.models.locate import own_folder
from r2med.tasks import collections

NAMED = {
    "contriever", "medcpt", "inst-l", "inst-xl", "bmr-410m", "bmr-2b", "bmr-7b", "bge", "e5", "sfr", "grit", "nv",
    "openai", "voyage", "harrier", "bge-small", "minilm", "colbert-small-backbone", "bge-reranker", "monobert",
    "rankllama", "msmarco-minilm",
    "reason-embed-8b", "reason-embed-4b", "reason-embed-llama-8b", "diver-4b", "diver-4b-1020", "diver-1.7b",
    "diver-0.6b", "qwen3-embed-0.6b", "qwen3-embed-4b", "qwen3-embed-8b", "reasonir", "rader", "gte-qwen2",
    "embeddinggemma", "gte-modernbert", "bge-m3", "medembed", "medembed-large", "openai-small", "voyage-3.5",
    "voyage-3-large", "gemini-embed", "cohere-embed",
    "qwen3-reranker-0.6b", "qwen3-reranker-4b", "qwen3-reranker-8b", "bge-reranker-v2-gemma", "mxbai-rerank-base-v2",
    "mxbai-rerank-large-v2",
    "splade-v3", "reason-moderncolbert", "gte-moderncolbert", "bge-m3-sparse", "bge-m3-multi",
    "jina-reranker-v3",
}  # fmt: skip
UNPINNED = {"rankllama", "reason-embed-4b", "reason-embed-llama-8b", "rader", "bge-reranker-v2-gemma"}
# No public record of a commit was found; a pin that is added should leave this list.
UNSIZED = {"rader", "medembed-large", "bge-m3-sparse", "jina-reranker-v3"}
# No public record of the length of a vector was found; nor, for MedEmbed, of the number of weights.
FAMILIES = sorted({task.family for collection in collections().values() for task in collection.tasks})
SHA = re.compile(r"[0-9a-f]{40}")
SHA256 = re.compile(r"[0-9a-f]{64}")


def test_every_promised_name_has_a_card() -> None:
    assert set(card_names()) == NAMED
    assert [card.name for card in cards()] == sorted(NAMED)
    late = {"colbert-small-backbone", "reason-moderncolbert", "gte-moderncolbert", "bge-m3-multi"}
    assert {card.name for card in cards("late-interaction")} == late
    assert {card.name for card in cards("sparse")} == {"splade-v3", "bge-m3-sparse"}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_card_is_whole(name: str) -> None:
    card = get_card(name)
    assert card.name == name
    assert all((card.summary, card.licence, card.source))
    assert 0 < card.query_length <= 131_072
    assert 0 < card.document_length <= 131_072
    assert card.dtype in {"float32", "float16", "bfloat16", "int8", "q4_1", ""}
    if card.kind != "cross-encoder":
        assert bool(card.dimension) == (name not in UNSIZED)
    if not card.dtype or name in UNSIZED:
        assert card.note, "what is not known is said"
    assert re.fullmatch(r"(20\d\d(-\d\d(-\d\d)?)?)?", card.released)
    if card.is_api:
        assert card.key.endswith("_API_KEY")
        assert card.price
        assert card.price.per_million > 0
    else:
        assert card.source.count("/") == 1
        assert card.parameters or name in UNSIZED
        assert bool(SHA.fullmatch(card.revision)) == (name not in UNPINNED)
    if card.backend == "onnx":
        assert card.carrier
        assert "model.onnx" in {file.name for file in card.carrier.files}
    if card.carrier:
        assert all(SHA256.fullmatch(f.sha256) for f in card.carrier.files)
        assert SHA256.fullmatch(card.carrier.sha256)
        assert card.carrier.only == bool(card.variant)


@pytest.mark.parametrize("name", sorted(NAMED))
@pytest.mark.parametrize("family", [*FAMILIES, "Unheard of", None])
def test_templates_render(name: str, family: str | None) -> None:
    card = get_card(name)
    text = "Fever {of} unknown {instruction} origin"
    for rendered in (card.query_text(text, family), card.document_text(text, family)):
        assert rendered.endswith(text)
        assert "{" not in rendered.removesuffix(text)
    if card.prompts:
        assert card.instruction("query", family)


def test_families_get_their_own_words() -> None:
    e5 = get_card("e5")
    asked = {e5.query_text("x", family) for family in FAMILIES}
    assert len(asked) == len(FAMILIES) == 3
    assert all(text.startswith("Instruct: Given ") and text.endswith("\nQuery: x") for text in asked)
    assert e5.document_text("x") == "x"
    assert e5.prefix("query", "") == ""


def test_facts_of_the_models() -> None:
    assert get_card("bge").query_text("x") == "Represent this sentence for searching relevant passages: x"
    assert get_card("bge-small").query_text("x") == get_card("bge").query_text("x")
    assert get_card("grit").prefix("query", "Find it") == "<|user|>\nFind it\n<|embed|>\n"
    assert get_card("grit").prefix("query", "") == get_card("grit").prefix("document", "") == "<|embed|>\n"
    assert get_card("bmr-2b").document_text("x") == "Represent this passage\npassage: x"
    assert get_card("rankllama").query_text("x") == "query: x"
    assert get_card("monobert").logit == 1
    assert get_card("reason-embed-8b").query_text("x").endswith(".\nQuery: x")
    assert get_card("qwen3-embed-8b").query_text("x").endswith("\nQuery:x")
    assert get_card("gte-qwen2").query_text("x").endswith("\nQuery: x")
    assert not any(c.remote_code for c in cards())
    proven = {
        "contriever",
        "medcpt",
        "inst-l",
        "inst-xl",
        "bmr-410m",
        "bmr-2b",
        "bmr-7b",
        "bge",
        "e5",
        "grit",
        "sfr",
        "nv",
    }
    assert proven | {"bge-reranker", "monobert", "rankllama"} <= {c.name for c in cards() if c.proven}
    assert {c.name for c in cards() if c.pickled} == {
        "contriever",
        "monobert",
        "bge-m3",
        "bge-m3-sparse",
        "bge-m3-multi",
    }
    dot = {"contriever", "medcpt", "bmr-410m", "bmr-2b", "bmr-7b"}
    assert {c.name for c in cards("dense") if c.similarity == "dot"} == dot


def test_the_published_protocol_is_a_card_too() -> None:
    medcpt = get_card("medcpt").published()
    assert medcpt.source == medcpt.document_source
    assert medcpt.query_length == 512
    assert all(card.published().similarity == "cosine" for card in cards("dense"))
    assert get_card("bge").published() == get_card("bge")


@pytest.mark.parametrize("name", sorted(NAMED))
def test_describe_is_plain_and_tells_cards_apart(name: str) -> None:
    card = get_card(name)
    assert json.loads(json.dumps(card.describe())) == card.describe()
    mine = fingerprint("card", card.describe())
    assert mine == fingerprint("card", get_card(name).replace(summary="other words").describe())
    changes = {
        "pooling": "mean" if card.pooling != "mean" else "cls",
        "query_length": 3,
        "normalize": not card.normalize,
        "revision": "x",
        "dtype": "q",
    }
    for key, value in changes.items():
        assert mine != fingerprint("card", card.replace(**{key: value}).describe())


def test_no_two_cards_are_the_same_model() -> None:
    prints = [fingerprint("card", card.describe()) for card in cards()]
    assert len(set(prints)) == len(prints)


def test_the_papers_medcpt_reads_queries_with_the_article_encoder() -> None:
    card = get_card("medcpt")
    for part in ("main", "document"):
        folder = own_folder(card, part)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"")
    assert locate(card) == own_folder(card) != locate(card, "document")
    assert locate(card.published()) == locate(card.published(), "document") == own_folder(card, "document")


def test_a_chat_model_is_no_retriever() -> None:
    with pytest.raises(UsageError, match="gpt4 is a chat model"):
        find_card("gpt4")


def test_unknown_names_suggest() -> None:
    with pytest.raises(UnknownName, match="did you mean bge-small"):
        get_card("bge-smal")
    with pytest.raises(UnknownName, match="unknown model 'nothing like it'"):
        find_card("nothing like it")


def test_names_are_forgiving() -> None:
    assert get_card("BGE_small") is get_card("bge-small")


def test_a_card_with_a_mistake_is_refused() -> None:
    data = msgspec.to_builtins(get_card("bge"))
    for change in ({"polling": "cls"}, {"pooling": "max"}, {"query_template": "{text} please"}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(data | change, Card)
