from __future__ import annotations

import struct
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from r2med.core import MissingExtra, ResultError, UsageError
from r2med.report.plots import (
    Cost,
    cut_points,
    draw_pareto,
    draw_scatter,
    draw_scores,
    draw_truncation,
    family_points,
    output,
    system_costs,
    write_picture,
)
from r2med.report.plots.data import CutPoint, FamilyPoint
from r2med.report.plots.pareto import frontier
from r2med.report.plots.svg import SERIES, SHAPES, Canvas
from r2med.report.stored import score_set, select, the_collection
from r2med.results import ResultStore, TaskResult
from r2med.scoring import MAIN
from r2med.scoring.intervals import Settings, score_intervals

from .pictures import NAME, check_legible

QUICK = Settings(resamples=200)
LONG = "bge-small,max_length=128,threads=1,variant=binary,device=cpu,batch_tokens=4096"


@pytest.fixture
def store(mini_results: Path) -> ResultStore:
    return ResultStore(mini_results)


def both(store: ResultStore) -> list[TaskResult]:
    return select(store, collection="mini", systems=["bm25", "bm25-lucene"])


def test_scores_with_intervals(store: ResultStore) -> None:
    canvas = draw_scores(score_intervals(score_set(store, both(store)), QUICK), MAIN, "mini")
    texts = check_legible(canvas)
    assert {"Biology", "IIYi-Clinical", "Mean of 8 tasks", "bm25", "bm25-lucene"} <= set(texts)
    document = ET.fromstring(canvas.render())
    intervals = [e for e in document.iter(f"{NAME}line") if e.get("class", "").startswith("ls")]
    assert len(intervals) == 2 * 9
    assert all(float(e.attrib["x1"]) <= float(e.attrib["x2"]) for e in intervals)


def test_an_incomplete_mean_says_so(store: ResultStore) -> None:
    some = [r for r in both(store) if r.task.name in ("Biology", "MedQA-Diag")]
    texts = check_legible(draw_scores(score_intervals(score_set(store, some), QUICK), MAIN, "mini"))
    assert "Mean of 2 of 8 tasks" in texts
    only = select(store, collection="mini", systems=["bm25,k1=1.2,b=0.75"])
    one = draw_scores(score_intervals(score_set(store, only), QUICK), MAIN, "mini")
    assert not any(text.startswith("Mean") for text in check_legible(one))


def test_a_crowded_picture_stays_legible(store: ResultStore) -> None:
    (first, _) = score_intervals(score_set(store, both(store)), QUICK)
    many = [msgspec.structs.replace(first, name=f"hyde:huatuo-o1-70b+retriever-{i}") for i in range(12)]
    check_legible(draw_scores(many, MAIN, "mini"))
    check_legible(draw_scores([msgspec.structs.replace(first, name=LONG)], MAIN, "mini"))
    with pytest.raises(UsageError, match="too many"):
        draw_scores([*many, first], MAIN, "mini")
    with pytest.raises(UsageError, match="no systems"):
        draw_scores([], MAIN, "mini")


def test_pareto(store: ResultStore) -> None:
    costs, left_out = system_costs(both(store), MAIN, "seconds")
    assert [c.system for c in costs] == ["bm25", "bm25-lucene"]
    assert all(c.per_query > 0 for c in costs)
    assert not left_out
    assert {"bm25", "bm25-lucene"} <= set(check_legible(draw_pareto(costs, MAIN, "mini", "seconds")))
    free, _ = system_costs(both(store), MAIN, "cost")
    assert [c.per_query for c in free] == [0.0, 0.0]
    check_legible(draw_pareto(free, MAIN, "mini", "cost"))


def test_pareto_leaves_out_what_cannot_be_compared(store: ResultStore) -> None:
    everything = select(store, collection="mini")
    _, left_out = system_costs(everything, MAIN, "seconds")
    assert left_out == ["bm25,k1=1.2,b=0.75 is left out: it has 1 of 8 tasks"]
    unknown = [msgspec.structs.replace(r, notes={"expansion": {"cost": None}}) for r in both(store)]
    with pytest.raises(UsageError, match="price is not known"):
        system_costs(unknown, MAIN, "cost")
    paid = [msgspec.structs.replace(r, notes={"expansion": {"cost": 0.5}}) for r in both(store)]
    costs, _ = system_costs(paid, MAIN, "cost")
    assert costs[0].per_query == pytest.approx(8 * 0.5 / 102)


def test_the_frontier() -> None:
    costs = [Cost("a", 0.3, 1, False), Cost("b", 0.2, 2, False), Cost("c", 0.4, 3, False), Cost("d", 0.1, 0.5, False)]
    assert [c.system for c in frontier(costs)] == ["d", "a", "c"]
    close = [Cost(f"hyde:qwen-7b+retriever-{i}", 0.3 + 0.003 * i, 1 + 0.01 * i, False) for i in range(6)]
    texts = check_legible(draw_pareto(close, MAIN, "mini", "seconds"))
    assert {c.system for c in close} <= set(texts)


def test_scatter(store: ResultStore) -> None:
    chosen = both(store)
    points = family_points(score_set(store, chosen), {r.task.full_name: r.task.family for r in chosen})
    assert sum(p.queries for p in points) == 102
    canvas = draw_scatter(points, "bm25", "bm25-lucene", MAIN, "mini")
    texts = check_legible(canvas)
    assert {"Q&A reference", "Clinical evidence", "Clinical case"} <= set(texts)
    above = sum(p.queries for p in points if p.second > p.first)
    assert any(f"bm25-lucene is better on {above}" in text for text in texts)
    crowd = [FamilyPoint("Clinical case", 0.1 * i, 0.05 * i, 30) for i in range(10)]
    assert any("…" in text for text in check_legible(draw_scatter(crowd, LONG, LONG, MAIN, "mini")))


def test_truncation(store: ResultStore) -> None:
    with pytest.raises(ResultError, match="says what was truncated"):
        cut_points(both(store), MAIN, "document")
    notes = {"truncation": {"document": {"tokens": 200, "tokens_cut": 50}, "query": {"tokens": 0, "tokens_cut": 0}}}
    noted = [msgspec.structs.replace(r, notes=dict(notes)) for r in both(store)]
    points = cut_points(noted, MAIN, "document")
    assert len(points) == 16
    assert {p.share for p in points} == {0.25}
    with pytest.raises(ResultError):
        cut_points(noted, MAIN, "query")
    spread = [CutPoint(p.system, p.task, 0.02 * i, p.score) for i, p in enumerate(points)]
    assert {"PMC-T", "MedQA"} <= set(check_legible(draw_truncation(spread, MAIN, "mini", "document")))


def test_light_dark_and_grey() -> None:
    canvas = Canvas(100, 50, title="a < b & c", description="d")
    for series in range(42):
        canvas.marker(10, 10, series)
    svg = canvas.render()
    assert "prefers-color-scheme: dark" in svg
    assert "prefers-color-scheme" not in canvas.render(dark=False)
    assert ET.fromstring(svg).findtext(f"{NAME}title") == "a < b & c"
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


def test_files(store: ResultStore, tmp_path: Path) -> None:
    canvas = draw_scores(score_intervals(score_set(store, both(store)), QUICK), MAIN, "mini")
    write_picture(canvas, tmp_path / "new" / "a.svg")
    assert ET.parse(tmp_path / "new" / "a.svg").getroot().get("width") == str(canvas.width)
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["a.svg"]
    with pytest.raises(UsageError, match=r"ends in \.svg or \.png"):
        write_picture(canvas, tmp_path / "a.gif")


def test_png(store: ResultStore, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason="the extra plots is not installed")
    canvas = draw_scores(score_intervals(score_set(store, both(store)), QUICK), MAIN, "mini")
    path = tmp_path / "a.png"
    write_picture(canvas, path)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (2 * canvas.width, 2 * canvas.height)


def test_png_without_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    output._check_fonts.cache_clear()
    with pytest.raises(MissingExtra, match=r"r2med\[plots\]"):
        output.check_output(tmp_path / "a.png")


def test_stored_results_that_do_not_fit(store: ResultStore, tmp_path: Path) -> None:
    assert the_collection(store) == "mini"
    assert the_collection(store, "nano") == "nano"
    with pytest.raises(UsageError, match="did you mean bm25"):
        select(store, systems=["bm26"])
    with pytest.raises(ResultError, match="no such folder"):
        select(ResultStore(tmp_path / "none"))
    with pytest.raises(ResultError, match="holds no results on nano"):
        select(store, collection="nano")
    first, *rest = both(store)
    changed = msgspec.structs.replace(first, task=msgspec.structs.replace(first.task, fingerprint="0"))
    with pytest.raises(ResultError, match="scored on different data"):
        score_set(store, [changed, *rest])
