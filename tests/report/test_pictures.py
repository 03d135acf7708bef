from __future__ import annotations

import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import numpy as np
import pytest

import r2med
from r2med.core import MissingExtra, ResultError, UsageError
from r2med.report import svg
from r2med.report.chart import fit
from r2med.report.collection import SideBySide, collection_results, side_by_side
from r2med.report.costs import (
    AXES,
    UNMEASURED,
    CostPoint,
    CutPoint,
    cost_of,
    cost_points,
    cut_points,
    unknown_facts,
)
from r2med.report.pictures import (
    MOST_MARKS,
    PHONE,
    PHONE_SIDE,
    WIDTH,
    draw_field,
    draw_ranks,
    draw_scatter,
    draw_scores,
    draw_tradeoff,
    draw_truncation,
    frontier,
)
from r2med.report.svg import SERIES, SHAPES, Canvas, check_output, text_width, write_picture
from r2med.results import ResultIndex, ResultStore, TaskResult
from r2med.results.published_models import SystemFacts
from r2med.scoring import MAIN
from r2med.scoring.compare import standings
from r2med.scoring.evaluation import ScoreSet, TaskScores
from r2med.scoring.intervals import Settings, score_intervals
from tests.builders import small_task
from tests.llm.server import serving
from tests.retrieve.encoders import service

from .pictures import NAME, check_legible

QUICK = Settings(resamples=200)
LONG = "bge-small,max_length=128,threads=1,variant=binary,device=cpu,batch_tokens=4096"
SECONDS, DOLLARS = AXES["seconds"], AXES["dollars"]


@pytest.fixture
def index(mini_results: Path) -> ResultIndex:
    return ResultIndex([mini_results])


@pytest.fixture
def found(index: ResultIndex) -> SideBySide:
    return side_by_side(index, ["bm25", "bm25-lucene"], MAIN)


def both(found: SideBySide) -> list[TaskResult]:
    return [result for system in found.scores.systems for result in found.results.results(system)]


def test_scores_with_intervals(found: SideBySide) -> None:
    canvas = draw_scores(score_intervals(found.scores, QUICK), MAIN, "mini@1")
    texts = check_legible(canvas)
    assert {"Biology", "IIYi-Clinical", "Mean of 8 tasks", "bm25", "bm25-lucene"} <= set(texts)
    document = ET.fromstring(canvas.render())
    intervals = [e for e in document.iter(f"{NAME}line") if e.get("class", "").startswith("ls")]
    assert len(intervals) == 2 * 9
    assert all(float(e.attrib["x1"]) <= float(e.attrib["x2"]) for e in intervals)


def test_ranks_with_intervals(found: SideBySide) -> None:
    texts = check_legible(draw_ranks(found.scores.systems, standings(found.scores.matrices, QUICK), MAIN, "mini@1"))
    assert any(text.startswith("bm25 ") for text in texts)
    assert any(text.endswith(" %") for text in texts)
    easy = np.random.default_rng(0).random(60)
    many = np.stack([easy + 0.01 * i for i in range(40)])
    names = [f"hyde:huatuo-o1-70b+retriever-{i}" for i in range(40)]
    check_legible(draw_ranks(names, standings([many], Settings(resamples=100)), MAIN, "mini@1"))
    with pytest.raises(UsageError, match="too many"):
        draw_ranks(names * 2, standings([many], Settings(resamples=100)), MAIN, "mini@1")


def test_an_incomplete_mean_says_so(index: ResultIndex) -> None:
    tasks = ["mini@1/Biology", "mini@1/MedQA-Diag"]
    some = side_by_side(index, ["bm25", "bm25-lucene"], MAIN, tasks=tasks).scores
    texts = check_legible(draw_scores(score_intervals(some, QUICK), MAIN, "mini@1"))
    assert "Mean of 2 of 8 tasks" in texts
    only = side_by_side(index, ["bm25:b=0.75,k1=1.2"], MAIN).scores
    one = draw_scores(score_intervals(only, QUICK), MAIN, "mini@1")
    assert not any(text.startswith("Mean") for text in check_legible(one))


def test_a_crowded_picture_stays_legible(found: SideBySide) -> None:
    (first, _) = score_intervals(found.scores, QUICK)
    many = [msgspec.structs.replace(first, name=f"hyde:huatuo-o1-70b+retriever-{i}") for i in range(12)]
    check_legible(draw_scores(many, MAIN, "mini@1"))
    check_legible(draw_scores([msgspec.structs.replace(first, name=LONG)], MAIN, "mini@1"))
    with pytest.raises(UsageError, match="too many"):
        draw_scores([*many, first], MAIN, "mini@1")
    with pytest.raises(UsageError, match="no systems"):
        draw_scores([], MAIN, "mini@1")


def test_costs_and_the_front_they_make(found: SideBySide) -> None:
    costs, left_out = cost_points(found.results, found.results.tasks, MAIN, "seconds")
    assert [c.system for c in costs] == ["bm25", "bm25-lucene"]
    assert all(c.cost > 0 for c in costs)
    assert not left_out
    for headed, width in ((True, WIDTH), (False, WIDTH), (False, PHONE)):
        picture = draw_tradeoff(costs, SECONDS, MAIN, "mini@1", headed=headed, width=width)
        assert {"bm25", "bm25-lucene"} <= set(check_legible(picture))
    sizes = [CostPoint(f"{LONG}{i}", 10.0 ** (i % 13), 0.01 * i, measured=False) for i in range(40)]
    check_legible(
        draw_tradeoff([*sizes, CostPoint("bm25", 0, 0.3)], AXES["parameters"], MAIN, "x", headed=False, width=PHONE)
    )
    free, _ = cost_points(found.results, found.results.tasks, MAIN, "dollars")
    assert [c.cost for c in free] == [0.0, 0.0]
    check_legible(draw_tradeoff(free, DOLLARS, MAIN, "mini@1", headed=True))
    mixed = [*costs, CostPoint("free", 0.0, 0.2), CostPoint("theirs (published)", 3e9, 0.3, measured=False)]
    assert {"free", "0", "theirs (published)"} <= set(
        check_legible(draw_tradeoff(mixed, SECONDS, MAIN, "x", headed=True))
    )


def test_seconds_are_those_of_a_first_run_unless_asked_otherwise(found: SideBySide) -> None:
    """The same model stood twice on the front: encoded, and out of the cache."""
    results = found.results.results("bm25")
    cached = [msgspec.structs.replace(r, saved_seconds={"retrieve": 5.0}) for r in results]
    warm, cold = (cost_of(cached, axis, unknown_facts) for axis in ("warm", "seconds"))
    assert warm == cost_of(results, "warm", unknown_facts)
    assert warm is not None
    assert cold == pytest.approx(warm + 8 * 5.0 / 102)
    unknown = [*cached[:-1], msgspec.structs.replace(cached[-1], saved_seconds={"retrieve": None})]
    assert cost_of(unknown, "seconds", unknown_facts) is None
    assert cost_of(unknown, "warm", unknown_facts) == warm
    for stored in found.results.systems["bm25"].values():
        stored.result.saved_seconds = None  # as in a file of before it was measured
    points, left_out = cost_points(found.results, found.results.tasks, MAIN, "seconds")
    assert [p.system for p in points] == ["bm25-lucene"]
    assert left_out == [f"bm25 is left out: {UNMEASURED}"]
    assert len(cost_points(found.results, found.results.tasks, MAIN, "warm")[0]) == 2


def test_what_cannot_be_compared_is_left_out_with_the_reason(index: ResultIndex, found: SideBySide) -> None:
    stored = index.select(collection="mini@1")
    everything = collection_results("mini@1", stored)
    _, left_out = cost_points(everything, everything.tasks, MAIN, "seconds")
    assert left_out == ["bm25:b=0.75,k1=1.2 is left out: it has 1 of 8 tasks"]
    points, left_out = cost_points(found.results, found.results.tasks, MAIN, "parameters")
    assert not points
    assert left_out[0] == "bm25 is left out: its cost is not known"

    def seven(names: Sequence[str]) -> SystemFacts:
        return unknown_facts(names)._replace(parameters=7)

    points, _ = cost_points(found.results, found.results.tasks, MAIN, "parameters", seven)
    assert [p.cost for p in points] == [7.0, 7.0]


def test_prices_come_from_notes_however_deep(found: SideBySide) -> None:
    def cost(notes: dict[str, object], axis: str) -> float | None:
        results = [msgspec.structs.replace(r, notes=notes) for r in found.results.results("bm25")]
        return cost_of(results, axis, unknown_facts)

    assert cost({"expansion": {"cost": None}}, "dollars") is None
    assert cost({"a": {"expansion": {"cost": 0.5}}}, "dollars") == pytest.approx(1000 * 8 * 0.5 / 102)
    tokens: dict[str, object] = {"truncation": {"document": {"tokens": 10}}, "usage": {"prompt_tokens": 2, "ok": True}}
    assert cost(tokens, "tokens") == pytest.approx(8 * 12 / 102)
    # What a reranker's answers cost, whenever they were paid for; what of that was paid this time is part of it.
    asked: dict[str, object] = {"rerank": {"answers": {"cost": 0.5}, "usage": {"cost": 0.2}}}
    assert cost(asked, "dollars") == pytest.approx(1000 * 8 * 0.5 / 102)
    earlier: list[object] = [{"answers": {"cost": 2.0, "prompt_tokens": 7}}, None]  # only the last reranker was counted
    assert cost(asked | {"reranked_before": earlier}, "dollars") == pytest.approx(1000 * 8 * 2.5 / 102)
    assert cost(asked | {"reranked_before": earlier}, "tokens") == pytest.approx(8 * 7 / 102)
    assert cost(asked | {"reranked_before": [{"answers": {"cost": None}}]}, "dollars") is None


def test_texts_that_several_retrievers_search_with_are_paid_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every retriever of a fusion notes them: their dollars, tokens and seconds were counted for each."""
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    with serving() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        systems = ["hyde:gpt4+bm25", "hyde:gpt4+bm25+bm25-lucene.rrf"]
        one, fused = r2med.run(*systems, tasks="mini@1/Biology", results=tmp_path / "results").results
    for axis in ("dollars", "tokens"):
        paid = cost_of([one], axis, unknown_facts)
        assert paid
        assert cost_of([fused], axis, unknown_facts) == pytest.approx(paid)
    stages = {"load": 50.0, "bm25.expand": 8.0, "bm25.retrieve": 1.0, "v1.5.expand": 8.0, "v1.5.retrieve": 2.0}
    assert fused.seconds.keys() >= {"bm25.expand", "bm25-lucene.expand"}
    timed = msgspec.structs.replace(fused, seconds=stages | {"fuse": 1.0, "score": 50.0}, saved_seconds={})
    for axis in ("seconds", "warm"):
        assert cost_of([timed], axis, unknown_facts) == pytest.approx(12.0 / fused.task.queries)


def test_what_bought_vectors_cost_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No result says it, and a system over an embedding service stood at 0 dollars."""
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    with service.serving() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        systems = ["bm25", "openai", "bm25+openai.rrf"]
        r2med.run(*systems, tasks=small_task(), results=tmp_path / "results")
    bought = [r.system.name for r in ResultStore(tmp_path / "results") if "openai" in r.system.name]
    notes = r2med.plot_pareto(tmp_path / "a.svg", results=tmp_path / "results", axis="cost").notes
    assert notes == [f"{name} is left out: its cost is not known" for name in bought]
    assert len(bought) == 2


def test_the_frontier() -> None:
    costs = [CostPoint("a", 1, 0.3), CostPoint("b", 2, 0.2), CostPoint("c", 3, 0.4), CostPoint("d", 0.5, 0.1)]
    assert [c.system for c in frontier(costs)] == ["d", "a", "c"]
    close = [CostPoint(f"hyde:qwen-7b+retriever-{i}", 1 + 0.01 * i, 0.3 + 0.003 * i) for i in range(6)]
    texts = check_legible(draw_tradeoff(close, SECONDS, MAIN, "mini@1", headed=True))
    assert {c.system for c in close} <= set(texts)


def test_a_name_of_twenty_thousand_characters_costs_nothing() -> None:
    """It took fourteen seconds: every cut measured the whole name again."""
    name = "x" * 20_000 + "-end"
    begun = time.process_time()
    points = [CostPoint(f"{name}{i}", 1 + i, 0.3) for i in range(10)]
    texts = check_legible(draw_tradeoff(points, SECONDS, MAIN, "mini@1", headed=True))
    assert any(text.startswith("xxx") and "…" in text for text in texts)
    assert time.process_time() - begun < 5
    for width in (40.0, 100.0, 300.0):
        assert text_width(fit(name, width, 12), 12) <= width
    assert fit("short", 300, 12) == "short"


def test_scatter(found: SideBySide) -> None:
    families = {info.full_name: info.family for info in found.results.infos.values()}
    canvas = draw_scatter(found.scores, "mini@1", headed=True, group=lambda task: families[task])
    texts = check_legible(canvas)
    assert {"Q&A reference", "Clinical evidence", "Clinical case"} <= set(texts)
    above = sum(int((t.scores[1] > t.scores[0] + 1e-9).sum()) for t in found.scores.tasks)
    assert any(f"bm25-lucene is better on {above}" in text for text in texts)
    check_legible(draw_scatter(found.scores, "mini@1", headed=False, group=lambda task: task, side=PHONE_SIDE))
    linked = draw_scatter(found.scores, "mini@1", headed=False, link=lambda task, query: f"/query/{task}/{query}")
    assert linked.render().count("<a href=") == 102
    assert 'role="group"' in linked.render()
    assert "<a href=" not in canvas.render()


def test_a_scatter_of_many_queries_stays_small_and_long_names_fit() -> None:
    rng = np.random.default_rng(0)
    count = 20 * MOST_MARKS
    task = TaskScores("t", tuple(f"q{i}" for i in range(count)), rng.random((2, count)))
    canvas = draw_scatter(ScoreSet((LONG, f"{LONG}2"), (task,), 1), "mini@1", headed=True, link=lambda t, q: "/never")
    assert any("…" in text for text in check_legible(canvas))
    drawn = canvas.render()
    assert len(drawn) < 400_000
    assert "/never" not in drawn
    assert "whose area is their number" in drawn


def test_one_query_under_many_systems() -> None:
    drawn = check_legible(draw_field({"a": 0.5, LONG: 0.25}, [0.1] * 300, MAIN))
    assert {"a", "300 others"} <= set(drawn)
    assert "1 other system" in check_legible(draw_field({"a": 0.5}, [0.1], MAIN))


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\n", "\ud800", "\ufffe", "\uffff", "\u202e", "\x85"])
def test_any_character_of_a_name_gives_valid_xml(found: SideBySide, character: str) -> None:
    name = f"a{character}[31mb<&>"
    (first, _) = score_intervals(found.scores, QUICK)
    canvas = draw_scores([msgspec.structs.replace(first, name=name)], MAIN, name)
    drawn = [canvas, draw_tradeoff([CostPoint(name, 1, 0.3, href=name)], SECONDS, MAIN, name, headed=True)]
    for picture in drawn:
        text = picture.render()
        ET.fromstring(text.encode())
        assert character == "\n" or character not in text


def test_truncation(found: SideBySide) -> None:
    with pytest.raises(ResultError, match="says what was truncated"):
        cut_points(both(found), MAIN, "document")
    notes = {"truncation": {"document": {"tokens": 200, "tokens_cut": 50}, "query": {"tokens": 0, "tokens_cut": 0}}}
    noted = [msgspec.structs.replace(r, notes=dict(notes)) for r in both(found)]
    points = cut_points(noted, MAIN, "document")
    assert len(points) == 16
    assert {p.share for p in points} == {0.25}
    with pytest.raises(ResultError):
        cut_points(noted, MAIN, "query")
    spread = [CutPoint(p.system, p.task, 0.02 * i, p.score) for i, p in enumerate(points)]
    assert {"PMC-T", "MedQA"} <= set(check_legible(draw_truncation(spread, MAIN, "mini@1", "document")))


def test_light_dark_and_grey() -> None:
    canvas = Canvas(100, 50, title="a < b & c", description="d")
    for series in range(42):
        canvas.marker(10, 10, series)
    drawn = canvas.render()
    assert "prefers-color-scheme: dark" in drawn
    assert "prefers-color-scheme" not in canvas.render(dark=False)
    assert ET.fromstring(drawn).findtext(f"{NAME}title") == "a < b & c"
    marks = {(s % len(SERIES), s % len(SHAPES)) for s in range(42)}
    assert len(marks) == 42
    for colour in SERIES:
        assert contrast(colour.light, "#ffffff") >= 3
        assert contrast(colour.dark, "#16181c") >= 3


def contrast(first: str, second: str) -> float:
    """Of two colours, as the web's accessibility guidelines define it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    a, b = sorted((luminance(first), luminance(second)), reverse=True)
    return (a + 0.05) / (b + 0.05)


def test_files(found: SideBySide, tmp_path: Path) -> None:
    canvas = draw_scores(score_intervals(found.scores, QUICK), MAIN, "mini@1")
    write_picture(canvas, tmp_path / "new" / "a.svg")
    assert ET.parse(tmp_path / "new" / "a.svg").getroot().get("width") == str(canvas.width)
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["a.svg"]
    with pytest.raises(UsageError, match=r"ends in \.svg or \.png"):
        write_picture(canvas, tmp_path / "a.gif")


def test_png(found: SideBySide, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason="the extra plots is not installed")
    canvas = draw_scores(score_intervals(found.scores, QUICK), MAIN, "mini@1")
    path = tmp_path / "a.png"
    write_picture(canvas, path)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (2 * canvas.width, 2 * canvas.height)


def test_png_without_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    svg._check_fonts.cache_clear()
    with pytest.raises(MissingExtra, match=r"r2med\[plots\]"):
        check_output(tmp_path / "a.png")
