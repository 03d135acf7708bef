from __future__ import annotations

from pathlib import Path

import pytest

from r2med.core.options import Options
from r2med.models import cards
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
    assert CardParameters(protocol="r2med-paper", dtype="bfloat16").precision(next(iter(cards()))) == "bfloat16"


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
