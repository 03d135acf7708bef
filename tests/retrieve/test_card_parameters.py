"""What may be set on a model with a card, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.core import UsageError
from r2med.core.options import Options
from r2med.models import cards, get_card
from r2med.rerank import rerankers
from r2med.retrieve import get_retriever, retrievers
from r2med.retrieve.cards import CardParameters

from .encoders import tiny


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("e5:max_length=4096", "e5"),
        ("e5:protocol=r2med-paper", "e5:protocol=r2med-paper"),
        ("e5:max_length=4096,protocol=r2med-paper", "e5:max_length=4096,protocol=r2med-paper"),
        ("medcpt:protocol=r2med-paper,similarity=dot", "medcpt:protocol=r2med-paper,similarity=dot"),
        ("bge:protocol=r2med-paper", "bge:protocol=r2med-paper"),
        ("bge-small:max_length=512,protocol=r2med-paper", "bge-small"),
    ],
)
def test_a_value_beside_the_protocol_is_kept(text: str, printed: str) -> None:
    """What the card says is no default under the paper's protocol, which may say otherwise."""
    assert str(retrievers.parse(text)) == printed
    assert retrievers.parse(printed) == retrievers.parse(text)


def test_truncation_beside_the_protocol() -> None:
    spec = rerankers.parse("monobert:protocol=r2med-paper,truncation=document-first")
    assert dict(spec.parameters) == {"protocol": "r2med-paper", "truncation": "document-first"}
    assert str(rerankers.parse("monobert:truncation=document-first").at(None)) == "monobert"


def test_precision_under_the_papers_protocol() -> None:
    """As its scripts loaded the weights; without the protocol what suits the device."""
    paper = CardParameters(protocol="r2med-paper")
    found = {card.name: paper.precision(paper.changed(card)) for card in cards()}
    whole = {"contriever", "medcpt", "inst-l", "inst-xl", "bge", "e5", "sfr", "bge-reranker", "monobert"}
    assert {name for name in whole if found[name] != "float32"} == set()
    assert {found[name] for name in ("bmr-410m", "bmr-2b", "bmr-7b")} == {"float16-autocast"}
    assert (found["grit"], found["nv"], found["rankllama"]) == ("bfloat16", "float16", "float16")
    assert found["bge-small"] is found["openai"] is None
    assert {CardParameters().precision(card) for card in cards()} == {None}
    assert CardParameters(protocol="r2med-paper", dtype="bfloat16").precision(get_card("grit")) == "bfloat16"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bge-small:dtype=float16", "bge-small runs in ONNX Runtime, where its precision is fixed"),
        ("openai:dtype=float16", "openai runs behind an API, where its precision is fixed"),
        ("bge-small:host=localhost", "bge-small runs on this machine: leave out host=localhost"),
        ("openai:max_length=100", "openai is cut by its service, where max_length is not looked at"),
        ("bge-small:dim=128,dimension=200", "dimension=200 cuts nothing off vectors of dim=128"),
        ("openai:host=localhost", "names a server that would not be asked: set OPENAI_BASE_URL"),
    ],
)
def test_what_would_be_ignored_is_refused(text: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result under such a name would say what was not done."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match=said):
        get_retriever(text)


def test_a_server_is_named_as_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:9/v1")
    name = get_retriever("openai").name
    assert name != "openai"
    assert get_retriever(name).name == name
    with pytest.raises(UsageError, match="set OPENAI_BASE_URL"):
        get_retriever("openai:host=elsewhere")


def test_the_precision_used_is_among_the_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the torch extra is not installed")
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    size = tiny.save_llama_tokenizer(tmp_path / "models" / "grit").get_vocab_size()
    tiny.save_model(tmp_path / "models" / "grit", "mistral", vocabulary=size)
    options = Options(device="cpu")
    for spec, dtype in (
        ("grit", "float32"),
        ("grit:protocol=r2med-paper", "bfloat16"),
        ("grit:dtype=float16", "float16"),
    ):
        query = get_retriever(spec, options).describe()["query"]
        assert isinstance(query, dict)
        assert query["dtype"] == dtype
