"""The ledger's published figures against the table they were written from, and facts on their models."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from r2med.models import cards, chat_cards
from r2med.results.ledger import ledger
from r2med.results.published_models import find_facts, model_facts, model_names, system_facts, terms_of

ROOT = Path(__file__).parents[2]
FIGURES = ROOT.parent / "shared" / "field" / "figures.csv"


@pytest.fixture(scope="module")
def figures() -> list[dict[str, str]]:
    if not FIGURES.is_file():
        pytest.skip("no table of published figures in ../shared/field")
    with FIGURES.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_every_figure_of_the_table_is_in_the_ledger_once(figures: list[dict[str, str]]) -> None:
    """By label, date and way of making, whatever the systems are called here."""
    known: dict[tuple[str, ...], list[float]] = {}
    for figure in ledger():
        values = dict(figure.tasks("ndcg_at_10")) | {"Average": figure.average.get("ndcg_at_10", -1.0)}
        for task, value in values.items():
            known.setdefault((figure.label, figure.source.date, figure.settings, task), []).append(100 * value)
    for row in figures:
        found = known[row["system"], row["date"], row["protocol"], row["task"]]
        assert found == [pytest.approx(float(row["ndcg10"]), abs=1e-9)], row
    assert len(figures) == 1038


def test_the_ledger_is_what_the_tool_writes(figures: list[dict[str, str]]) -> None:
    assert figures
    command = [sys.executable, str(ROOT / "tools" / "published_figures.py"), str(FIGURES), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("system", "models"),
    [
        ("nv", ["nv"]),
        ("hyde:gpt4+nv", ["gpt4", "nv"]),
        ("nv+rankllama@10", ["nv", "rankllama"]),
        ("diver-4b+grouprank:grouprank-32b,shuffle=no@100", ["diver-4b", "grouprank-32b"]),
        ("bm25:k1=1.2,b=0.75", ["bm25"]),
        ("diver-4b+grouprank:openai:deepseek-ai/DeepSeek-V3.1@100", ["diver-4b", "deepseek-ai/DeepSeek-V3.1"]),
        ("bm25+bge.rrf", ["bm25", "bge"]),
        ("bm25+bge.weighted:w=0.3/0.7", ["bm25", "bge"]),
        ("NovaSearch/stella_en_1.5B_v5", ["NovaSearch/stella_en_1.5B_v5"]),
    ],
)
def test_models_of_a_system(system: str, models: list[str]) -> None:
    assert model_names(system) == models


def test_facts_of_all_models_that_have_figures() -> None:
    named = {name for f in ledger().select(collection="r2med") for name in model_names(f.system)}
    assert {name for name in named if find_facts(name) is None} == {"bm25", "unnamed-top-of-board"}
    assert {facts.hub for facts in model_facts().values() if facts.hub} >= {n for n in named if "/" in n}
    unused = [name for name, facts in model_facts().items() if name not in named and facts.hub not in named]
    assert not unused
    assert all(facts.source for facts in model_facts().values())


def test_facts_agree_with_the_cards() -> None:
    for card in (*cards(), *chat_cards()):
        facts = model_facts().get(card.name)
        if facts is None:
            continue
        if facts.parameters and card.parameters:
            assert facts.parameters == pytest.approx(card.parameters, rel=0.1), card.name
        if facts.licence:
            assert facts.licence.casefold() == card.licence.casefold(), card.name


def test_what_one_model_lacks_the_system_lacks() -> None:
    known = system_facts("diver-4b+reasonrank:reasonrank-32b@100")
    assert (known.parameters, known.licence, known.terms) == (36_021_774_336, "apache-2.0, mit", "open")
    assert system_facts("reason-embed-8b").terms == "unknown"
    assert system_facts("hyde:gpt4+nv").parameters is None
    assert system_facts("nobody/knows").terms == "unknown"
    assert [terms_of(x) for x in ("MIT", "", "cc-by-nc-4.0", "proprietary", "unstated (code: MIT)")] == [
        "open", "unknown", "restricted", "proprietary", "unknown",
    ]  # fmt: skip
