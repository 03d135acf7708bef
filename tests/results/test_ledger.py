from __future__ import annotations

import csv
import re
from collections import defaultdict
from pathlib import Path

import pytest

import r2med.results.ledger
from r2med.core import DataError, UnknownName, UsageError
from r2med.core.table import points
from r2med.results.ledger import Ledger, ledger, read_ledger
from r2med.results.protocols import get_protocol, protocol_names
from r2med.tasks import collections

PUBLISHED = Path(__file__).parents[3] / "shared" / "published"
NDCG = "ndcg_at_10"
MEASURES = {"nDCG@10": NDCG, "AP@10": "map_at_10", "R@10": "recall_at_10", "R@100": "recall_at_100"}


@pytest.fixture(scope="module")
def published() -> Path:
    if not PUBLISHED.is_dir():
        pytest.skip("no published figures in ../shared/published")
    return PUBLISHED


def test_counts_of_what_was_published() -> None:
    of_source = {s.id: ledger().select(source=s.id) for s in ledger().sources}
    assert len(of_source["r2med-repository"]) == 71
    kinds = [f.kind for f in of_source["r2med-repository"]]
    assert (kinds.count("retriever"), kinds.count("reranker"), kinds.count("expansion")) == (15, 3, 53)
    assert len(of_source["mteb-results"]) == 26
    assert len(of_source["nanor2med-profiles"]) == 3
    assert len(of_source["r2med-board"]) == 68
    assert len(of_source["grouprank-article"]) + len(of_source["grouprank-article-ablation"]) == 18
    assert [len(of_source[f"{name}-article"]) for name in ("reasonembed", "reasonrank")] == [15, 11]
    assert sum(f.average_only for f in ledger()) == 3 + 8 + 1  # the R2MED paper, CuRLRank, InsertRank


def test_every_figure_says_where_it_comes_from() -> None:
    for source in ledger().sources:
        assert source.url.startswith("https://"), source.id
        assert len(source.date) == len("2025-05") or "undated" in source.note, source.id
        assert source.protocol in protocol_names()
        assert source.collection in collections()
        assert source.measured == (source.collection in ("mini", "mini@1"))
        if source.tasks:
            tasks = [t for t in collections()[source.collection].tasks if t.name in source.tasks]
            assert list(source.tasks) == [t.name for t in tasks]
            assert list(source.queries) == [t.queries for t in tasks]
    for figure in ledger():
        assert figure.protocol in protocol_names()
        assert figure.settings or get_protocol(figure.protocol).summary


def test_headlines() -> None:
    book = ledger()
    nv = book.find("nv", "r2med", "r2med-paper")
    assert nv.label == "NV-Embed-v2"
    assert round(100 * (nv.macro(NDCG) or 0), 2) == 31.43
    assert round(100 * (book.find("query2doc:gpt4+nv", "r2med", "r2med-paper").macro(NDCG) or 0), 2) == 41.65
    assert book.find("hyde:o3-mini+nv", "r2med", "r2med-paper").macro(NDCG) == pytest.approx(0.4135, abs=5e-5)
    best = max(book.select(source="r2med-repository"), key=lambda f: f.macro(NDCG) or 0)
    assert best.system == "query2doc:gpt4+nv"


def test_one_model_two_protocols() -> None:
    """The same model, 30.65 in one place and 26.89 in the other; BM25 on Biology 19.2 or 8.0."""
    scores = {p: ledger().find("sfr", "r2med", p).macro(NDCG) or 0 for p in ("r2med-paper", "mteb")}
    assert [round(100 * s, 2) for s in scores.values()] == [30.65, 26.89]
    biology = [ledger().find("bm25", "r2med", p).tasks(NDCG)["Biology"] for p in ("r2med-paper", "mteb")]
    assert [round(100 * s, 1) for s in biology] == [19.2, 8.0]


@pytest.mark.parametrize(("system", "expected"), [("bm25", 0.2110), ("harrier", 0.2980)])
def test_nano_group_figures_follow_from_the_tasks(system: str, expected: float) -> None:
    figure = ledger().find(system, "nano", "nano-profile")
    assert figure.by_query(NDCG) == pytest.approx(expected, abs=5e-5)
    assert figure.by_query("recall_micro_at_100") != figure.by_query(NDCG)


def test_nano_micro_recall_counts_positives() -> None:
    figure = ledger().find("bm25", "nano", "nano-profile")
    hits = [v * n for v, n in zip(figure.tasks("recall_micro_at_100").values(), figure.source.positives, strict=True)]
    assert all(h == pytest.approx(round(h), abs=1e-3) for h in hits)
    total = sum(map(round, hits)) / sum(figure.source.positives)
    assert figure.by_query("recall_micro_at_100") == pytest.approx(total, abs=1e-5)


def test_repository_figures_equal_the_published_table(published: Path) -> None:
    seen: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    with (published / "r2med_results.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            name = row["retriever"]
            if row["expander"]:
                name = f"{row['expander']}:{row['llm']}+{name}"
            if row["reranker"]:
                name = f"{name}+{row['reranker']}@{row['top_k']}"
            seen[name][MEASURES[row["metric"]]][row["task"]] = float(row["value_x100"]) / 100
    figures = {f.system: f for f in ledger().select(source="r2med-repository")}
    assert figures.keys() == seen.keys()
    for name, measures in seen.items():
        for measure, tasks in measures.items():
            assert figures[name].tasks(measure) == pytest.approx(tasks, abs=1e-9), (name, measure)


def test_mteb_figures_equal_the_published_table(published: Path) -> None:
    figures = {f.label: f for f in ledger().select(source="mteb-results")}
    with (published / "mteb_r2med_ndcg10.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == len(figures)
    for row in rows:
        figure = figures[row["model"].replace("__", "/")]
        for task, value in figure.tasks(NDCG).items():
            assert value == pytest.approx(float(row[task.replace("-", "")]) / 100, abs=1e-9)
        assert 100 * (figure.macro(NDCG) or 0) == pytest.approx(float(row["avg"]), abs=0.006)


def test_what_nobody_published_is_named() -> None:
    with pytest.raises(UnknownName, match="did you mean bm25"):
        ledger().find("bm26", "mini@1", "default")
    with pytest.raises(UsageError, match="ledger has it on mini under default, mini@1 under default, nano"):
        ledger().find("bm25", "mini@1", "mteb")


SOURCE = """
[[source]]
id = "mine"
title = "mine"
url = "https://example.org"
date = "2026-11"
protocol = "default"
collection = "mini@1"
measured = false
scale = 100
tasks = ["Biology", "MedQA-Diag"]
queries = [13, 13]
"""


def test_a_ledger_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SOURCE + '[source.systems."a"]\nkind = "retriever"\nndcg_at_10 = [10.0, 30.0]\n')
    (figure,) = read_ledger(path)
    assert figure.macro(NDCG) == pytest.approx(0.2)
    assert figure.by_query(NDCG) == pytest.approx(0.2)
    assert figure.macro("recall_at_10") is None
    assert figure.by_query("recall_at_10") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("source = 1", "has no"),
        ("a = ", "not TOML"),
        ('[[source]]\nid = "x"', "missing required field"),
        (SOURCE + '[source.systems.a]\nkind = "retriever"\nndcg_at_10 = [10.0]', "1 values of ndcg_at_10 for 2 tasks"),
        (SOURCE + '[source.systems.a]\nkind = "retriever"\nndcg_at_10 = [10.0, 101.0]', "not between 0 and 100"),
        (SOURCE + '[source.systems.a]\nkind = "retriever"', "no figures"),
        (SOURCE + '[source.systems.a]\nkind = "magic"\nndcg_at_10 = [1.0, 2.0]', "Invalid enum value"),
        (SOURCE.replace("[13, 13]", "[13]"), "queries: 1 values for 2 tasks"),
    ],
)
def test_bad_ledgers_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(DataError, match=words) as caught:
        read_ledger(path)
    assert "bad.toml" in str(caught.value)
    with pytest.raises(DataError, match="cannot be read"):
        read_ledger(tmp_path / "none.toml")


def test_no_system_twice() -> None:
    figures = ledger().select(source="nanor2med-profiles")
    with pytest.raises(DataError, match="two systems called"):
        Ledger([*figures, figures[0]])


def test_our_own_figures_are_rounded_once() -> None:
    """A table rounds them to two decimals of points: of 0.32535004, six kept ones would be rounded down."""
    assert (points(0.3253500400), points(0.325350)) == ("32.54", "32.53")
    kept = (Path(r2med.results.ledger.__file__).parent / "mini.toml").read_text("utf-8")
    values = re.findall(r"(?<=[\[ ])[01]\.(\d+)(?=[,\]])", kept)
    assert len(values) == 2 * 4 * 8
    assert {len(decimals) for decimals in values} == {10}
