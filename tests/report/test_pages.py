"""Pages say what the results say."""

from __future__ import annotations

import csv
import importlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med.api.publish import facts_of
from r2med.core import UnknownName, UsageError
from r2med.report.collection import side_by_side
from r2med.report.leaderboard import board as report_board
from r2med.report.web.app import find_page
from r2med.report.web.pages.board import table_text
from r2med.report.web.pages.query import ORDERS
from r2med.report.web.render import FileLinks, Links, Page, PageRequest, page_html
from r2med.report.web.site import Site
from r2med.results import ResultIndex
from r2med.scoring import MAIN
from r2med.scoring.compare import compare
from r2med.scoring.intervals import score_intervals
from tests.results.sealing import edit

LINKS = Links()
TASKS = 8


@pytest.fixture(scope="module")
def site(results: Path) -> Site:
    made = Site([results], model_facts=facts_of)
    made.wait = None
    return made


def page(site: Site, url: str) -> Page:
    return find_page(site, PageRequest.from_url(url), LINKS)


def shown(site: Site, url: str) -> str:
    return page_html(page(site, url), LINKS)


def test_addresses_read_back() -> None:
    url = LINKS("query", "own", "a/b c", "q/1#?&", s=["x,y", "z+1"], order="", scope="all")
    asked = PageRequest.from_url(url)
    assert asked.page == "query"
    assert asked.parts == ("own", "a/b c", "q/1#?&")
    assert asked.all("s") == ["x,y", "z+1"]
    assert asked.get("scope") == "all"
    assert asked.get("order", "score") == "score"
    links = FileLinks({url: "here", LINKS("task", "own", "t"): "there"})
    assert links("task", "own", "t") == "#there"
    assert links("task", "own", "t", measure="x") == ""
    assert links.near("task", "own", "t", measure="x") == "#there"


def test_the_leaderboard_has_the_figures_of_the_report(site: Site, results: Path) -> None:
    shown = page(site, "/board/mini@1?show=measured").context
    by_query = {
        r["row"].system: r["cells"] for r in page(site, "/board/mini@1?average=query&show=measured").context["rows"]
    }
    rows = report_board(results, collection="mini@1", measured=True).rows
    assert [r.system for r in rows] == [r["row"].system for r in shown["rows"]]
    for row, on_page in zip(rows, shown["rows"], strict=True):
        scores = [cell[0] for cell in on_page["cells"]]
        tasks = [f"mini@1/{column.name}" for column in shown["columns"][2:]]
        assert scores == [row.macro, row.query_weighted, *(row.tasks[t] for t in tasks)]
        assert by_query[row.system][0][0] == row.query_weighted


def test_intervals_letters_and_ranks_are_those_of_scoring(site: Site, results: Path) -> None:
    """Those of `r2med compare` for the same systems: two pages that part at chance would contradict each other."""
    scores = side_by_side(ResultIndex([results]), [], MAIN).scores
    found = compare(scores)
    rows = {r["row"].system: r["row"] for r in page(site, "/board/mini@1?show=measured").context["rows"]}
    for said in score_intervals(scores):
        row = rows[said.name]
        assert row.intervals["macro"] == (said.macro.low, said.macro.high)
        assert row.intervals["query_weighted"] == (said.query_weighted.low, said.query_weighted.high)
        assert (row.letters, row.tie_group) == (found.letters[said.name], found.tie_groups[said.name])
        assert row.rank == found.ranks[said.name]
        for name, estimate in said.tasks.items():
            assert row.tasks[name] == pytest.approx(estimate.value)
            assert row.intervals[name] == (estimate.low, estimate.high)


def test_published_figures_are_marked_and_kept_apart(site: Site) -> None:
    context = page(site, "/board/r2med").context
    first = context["rows"][0]
    assert first["row"].macro == pytest.approx(0.4165, abs=0.0001)
    assert not first["row"].measured
    assert first["href"] == ""
    assert {r["row"].protocol for r in context["rows"]} == {"r2med-paper"}
    assert len(page(site, "/board/r2med?protocol=all").context["rows"]) > len(context["rows"])
    dense = page(site, "/board/r2med?kind=dense").context["rows"]
    assert dense[0]["row"].macro == pytest.approx(0.3143, abs=0.0001)
    html = shown(site, "/board/r2med")
    assert html.count("<tr data-name") == html.count('class="published"') == len(context["rows"])
    assert all(r["row"].measured for r in page(site, "/board/mini@1?show=measured").context["rows"])


ALL_FIGURES = "/board/r2med?protocol=all"


def test_filters_by_size_licence_and_date(site: Site) -> None:
    whole = [r["row"] for r in page(site, ALL_FIGURES).context["rows"]]
    assert len({row.system for row in whole}) > 150
    parts = {c.name: [value for value, _ in c.values if value] for c, _ in page(site, ALL_FIGURES).context["filters"]}
    assert list(parts) == ["kind", "size", "licence", "year"]
    for name, values in parts.items():
        shares = [page(site, f"{ALL_FIGURES}&{name}={value}").context["rows"] for value in values]
        assert sum(map(len, shares)) == len(whole), name  # each row is of exactly one class
        assert all(shares)
    found = [r["row"] for r in page(site, f"{ALL_FIGURES}&size=up-to-10b&licence=open&kind=dense").context["rows"]]
    assert found
    assert all(10**9 < (row.parameters or 0) <= 10**10 and row.terms == "open" for row in found)
    assert {row.date[:4] for row in whole if row.date} >= {"2025", "2026"}
    table = table_text(site, PageRequest.from_url("/table/r2med?protocol=all&size=none&format=csv"))[1]
    assert table.count("\n") == 1 + sum(row.parameters == 0 for row in whole)
    with pytest.raises(UnknownName, match="there are: open, restricted"):
        page(site, f"{ALL_FIGURES}&licence=free")


def test_sizes_that_are_all_the_same_are_not_drawn(site: Site) -> None:
    """Two flavours of BM25 have no parameters: their picture was one upright line."""
    assert page(site, "/board/mini@1?show=measured").context["sizes"] is None


def test_our_own_systems_fit_every_date(site: Site) -> None:
    usual = page(site, "/board/mini@1?show=measured").context["rows"]
    assert page(site, "/board/mini@1?show=measured&year=2025").context["rows"] == usual


def test_conflicts_and_stated_averages_are_marked(site: Site) -> None:
    html = shown(site, ALL_FIGURES)
    rows = [r["row"] for r in page(site, ALL_FIGURES).context["rows"]]
    assert html.count('<span class="signs">≠</span>') == sum(row.marks == "≠" for row in rows) > 20
    assert '<span class="signs">*</span>' in html
    assert '<span class="signs">!</span>' in html
    assert "24 pairs of figures that differ between sources" in html
    assert "run at 512 tokens" in html
    assert ">Not known</a>" in html


def test_scores_are_drawn_against_parameters(site: Site) -> None:
    context = page(site, ALL_FIGURES).context
    rows = [r["row"] for r in context["rows"]]
    known = [row for row in rows if row.parameters is not None and row.macro is not None]
    assert (context["sizes"].drawn, context["sizes"].left_out) == (len(known), len(rows) - len(known))
    name = "diver-4b+grouprank:grouprank-32b@100"
    said = f"<title>{name} (AQ-MedAI/Diver-GroupRank-32B over DIVER-4B, grouprank-article): 52.30 at 36 billion"
    for svg in map(str, context["sizes"].pictures):
        assert "parameters (logarithmic)" in svg
        assert said in svg
        assert svg.count("<title>") == len(known) + 1
    assert page(site, f"{ALL_FIGURES}&size=unknown").context["sizes"] is None
    for asked, mean in (("", "mean of the tasks"), ("&average=query", "mean of all queries")):
        drawn = page(site, f"{ALL_FIGURES}{asked}").context["sizes"].pictures
        assert all(f"nDCG@10 × 100, {mean}" in str(svg) for svg in drawn)  # it was "of the tasks" either way


@pytest.mark.parametrize("column", ["average", "other", "Biology", "IIYi-Clinical"])
def test_sorting_by_any_column(site: Site, column: str) -> None:
    def values(url: str) -> list[float]:
        context = page(site, url).context
        names = ["average", "other", *(c.name for c in context["columns"][2:])]
        at = names.index(column)
        return [round(r["cells"][at][0], 6) for r in context["rows"] if r["cells"][at][0] is not None]

    falling, rising = values(f"/board/mini@1?sort={column}"), values(f"/board/mini@1?sort={column}&order=rising")
    assert falling == sorted(falling, reverse=True)
    assert rising == sorted(rising)


def test_sorting_by_words(site: Site) -> None:
    names = [r["row"].label for r in page(site, "/board/mini@1?sort=system&order=rising").context["rows"]]
    assert names == sorted(names, key=str.casefold)


def test_every_link_of_every_page_leads_somewhere(site: Site) -> None:
    """From the leaderboard on, every kind of page, two links of each kind."""
    seen, todo = set[str](), ["/", "/board/mini@1"]
    kinds: dict[str, int] = {}
    while todo:
        url = todo.pop()
        if url in seen:
            continue
        seen.add(url)
        html = shown(site, url)
        for found in re.findall(r'href="(/[^"]*)"', html):
            link = found.replace("&amp;", "&")
            kind = link.split("/")[1].partition("?")[0] + str(sorted(k for k, _ in PageRequest.from_url(link).params))
            if link.startswith(("/static", "/api")) or kinds.get(kind, 0) >= 2 or link in seen:
                continue
            kinds[kind] = kinds.get(kind, 0) + 1
            if link.startswith("/table"):
                table_text(site, PageRequest.from_url(link))
            else:
                todo.append(link)
    assert {url.split("/")[1] for url in seen} >= {
        "", "board", "tradeoffs", "compare", "progress", "task", "query", "system", "document",
    }  # fmt: skip


@pytest.mark.parametrize("against", ["seconds", "warm", "tokens", "dollars", "parameters"])
def test_trade_offs_have_a_front_that_nothing_beats(site: Site, against: str) -> None:
    context = page(site, f"/tradeoffs/mini@1?against={against}").context
    front, points = context["front"], context["points"]
    assert {p.system for p in points} >= {"bm25", "bm25-lucene"}
    for point in points:
        better = [p for p in points if p.score > point.score and p.cost <= point.cost]
        cheaper = [p for p in points if p.score >= point.score and p.cost < point.cost]
        if point in front:
            assert not better
            assert not cheaper
        else:
            assert any(p.score >= point.score and p.cost <= point.cost for p in front)
    assert [str(picture).count("<svg") for picture in context["pictures"]] == [1, 1]  # wide and narrow
    assert "<style" not in str(context["pictures"])


def test_the_system_page_tells_cold_from_warm(site: Site) -> None:
    context = page(site, "/system/mini@1/bm25-lucene").context
    cold, warm = context["times"].values()
    result = context["results"]["Biology"]
    assert warm["Biology"] == result.seconds
    assert cold["Biology"] == result.cold_seconds
    # Both flavours of BM25 search the same terms, which the first of them counted.
    assert cold["Biology"]["retrieve"] > warm["Biology"]["retrieve"]


def test_the_task_page_counts_what_there_is(site: Site) -> None:
    context = page(site, "/task/mini@1/MedQA-Diag").context
    facts = {fact.name: fact.value for fact in context["facts"]}
    assert facts["Queries"] == str(context["info"].queries) == str(len(context["queries"])) == "13"
    means = [q["mean"] for q in context["queries"]]
    assert means == sorted(means)
    for said in context["failures"]:
        assert {k.name for k, _, _ in said["kinds"]} == {"missed", "below", "trap", "copies", "cut"}
        assert 0 <= said["fine"] <= 13
    assert context["examples"]
    html = shown(site, "/task/mini@1/MedQA-Diag")
    assert context["info"].fingerprint in html


@pytest.mark.parametrize("place", ["²", "-5", "x", "9" * 5_000])
def test_a_place_that_is_none_is_an_error_of_whoever_asks(site: Site, place: str) -> None:
    with pytest.raises(UsageError, match="queries are listed from a place"):
        page(site, f"/task/mini@1/MedQA-Diag?from={place}")
    assert page(site, "/task/mini@1/MedQA-Diag?from=5").context["begin"] == 5


def test_the_inspector_shows_ranks_judgments_and_words(site: Site) -> None:
    context = page(site, "/query/mini@1/MedQA-Diag/MedQA-Diag-q01").context
    explained = context["explained"]
    assert context["query"].answer == "Transthyretin (ATTR) cardiac amyloidosis"
    assert len(explained["positives"]) == 3
    assert len(explained["places"]) == 3
    for system, places in explained["places"].items():
        assert [p.rank for p in places] == list(range(1, 11))
        for doc_id, rank in zip(explained["positives"], explained["ranks"][system], strict=True):
            in_list = [p.rank for p in places if p.doc_id == doc_id]
            assert in_list == ([rank] if rank and rank <= 10 else [])
        for place in places:
            assert ((place.grade or 0) > 0) == (place.doc_id in explained["positives"])
            luring = {term for term, word in place.seen.words.items() if word in place.luring}
            assert not luring & {term for p in explained["positives"] for term in explained["seen"][p].words}
    html = shown(site, "/query/mini@1/MedQA-Diag/MedQA-Diag-q01")
    assert "<mark>" in html
    assert "✓ relevant" in html


@pytest.mark.parametrize("order", list(ORDERS))
@pytest.mark.parametrize("scope", ["", "&scope=all"])
def test_going_through_the_queries_reaches_each_once(site: Site, order: str, scope: str) -> None:
    suffix = f"?order={order}{scope}&s=bm25&s=bm25-lucene"
    context = page(site, f"/query/mini@1/MedQA-Diag/MedQA-Diag-q01{suffix}").context
    whole = [(s.task, s.query_id) for s, _ in context["nearby"]]
    assert len(set(whole)) == len(whole) == context["stops"]
    if not whole:
        return
    url: str = context["nearby"][0][1]
    walked = []
    while url:
        here = page(site, url).context
        walked.append((here["view"].task, here["view"].query_id))
        assert here["position"] == len(walked)
        if len(walked) > 15:
            break
        url = here["after"]
    assert walked == whole[: len(walked)]
    values = [s.value for s, _ in context["nearby"]]
    keys = [-abs(v) for v in values] if order == "diff" else values
    assert keys == sorted(keys)


def test_comparing_gives_the_statistics_of_scoring(site: Site, results: Path) -> None:
    expected = compare(side_by_side(ResultIndex([results]), ["bm25", "bm25-lucene"], MAIN).scores).pairs[0]
    context = page(site, "/compare/mini@1?s=bm25&s=bm25-lucene").context
    pair = context["pair"]
    assert (pair.tasks, pair.macro, pair.query_weighted) == (expected.tasks, expected.macro, expected.query_weighted)
    gains = [g["second"] - g["first"] for g in context["gains"]]
    assert gains == sorted(gains, reverse=True)
    assert min(gains) > 0
    losses = [m["second"] - m["first"] for m in context["losses"]]
    assert losses == sorted(losses)
    assert context["gains_all"] + context["losses_all"] == pair.macro.wins + pair.macro.losses
    assert [str(picture).count("<a href") for picture in context["scatter"]] == [102, 102]
    largest = expected.moved[0]
    assert (largest.query_id, largest.difference) in [
        (m["query_id"], m["second"] - m["first"]) for m in (context["gains"][0], context["losses"][0])
    ]


def test_pages_name_rankings_that_end_before_the_cut_off(tmp_path: Path) -> None:
    """Only the page that compares two systems did; the others starred and ranked R@100 of five documents."""
    for system, depth in (("bm25", 5), ("bm25-lucene", 1000)):
        r2med.run(system, tasks="mini@1", depth=depth, results=tmp_path)
    site = Site([tmp_path])
    for address in ("board/mini@1", "task/mini@1/Biology", "tradeoffs/mini@1", "compare/mini@1", "table/mini@1"):
        for cutoff in (5, 10):
            url = f"/{address}?measure=ndcg_at_{cutoff}&format=md"
            text = table_text(site, PageRequest.from_url(url))[1] if "table" in url else shown(site, url)
            assert text.count(f"Rankings were cut at rank 5, so that nDCG@{cutoff} counts less") == (cutoff > 5), url


def test_two_sites_do_not_share_comparisons(results: Path, own_results: Path) -> None:
    """They were kept in one list for all sites, by an address in memory that Python uses again."""
    for path in own_results.glob("bm25-lucene/mini@1/*"):
        path.write_bytes((own_results / "bm25" / "mini@1" / path.name).read_bytes())
    for path in own_results.glob("bm25-lucene/mini@1/*.json"):
        edit(path, lambda document: document["system"].update(name="bm25-lucene"))
    first, second = Site([results]), Site([own_results])
    address = "/compare/mini@1?s=bm25&s=bm25-lucene"
    first.wait = second.wait = None
    pairs = [page(site, address).context["pair"] for site in (first, second)]
    assert pairs[0].macro.difference < 0
    assert pairs[1].macro.difference == 0
    module = importlib.import_module("r2med.report.web.pages.compare")
    assert not [name for name, value in vars(module).items() if isinstance(value, dict) and not name.startswith("__")]


def test_the_table_to_take_along(site: Site) -> None:
    rows = page(site, "/board/mini@1").context["rows"]
    media, text = table_text(site, PageRequest.from_url("/table/mini@1?format=csv"))
    assert media == "text/csv"
    table = list(csv.DictReader(io.StringIO(text)))
    assert [row["System"] for row in table] == [r["row"].label for r in rows]
    assert float(table[0]["Macro"]) == pytest.approx(100 * rows[0]["row"].macro, abs=0.005)
    assert len(table[0]) == 5 + TASKS
    _, text = table_text(site, PageRequest.from_url("/table/mini@1?format=md&sort=Biology"))
    assert text.count("\n|") == len(rows) + 1
    _, text = table_text(site, PageRequest.from_url("/table/mini@1?format=tex"))
    assert text.count(r"\\") == len(rows) + 1
    assert r"\toprule" in text


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("/board/nowhere", UnknownName),
        ("/board/mini@1?measure=nDCQ@10", UnknownName),
        ("/board/mini@1?measure=nDCG@7", UnknownName),
        ("/board/mini@1?sort=x", UnknownName),
        ("/board/mini@1?average=median", UnknownName),
        ("/task/mini@1", UsageError),
        ("/task/mini@1/Nothing", UnknownName),
        ("/query/mini@1/Biology", UsageError),
        ("/query/mini@1/Biology/none", UnknownName),
        ("/query/mini@1/Biology/Biology-q01?s=bm26", UnknownName),
        ("/query/mini@1/Biology/Biology-q01?order=luck", UnknownName),
        ("/compare/mini@1?s=bm26", UnknownName),
        ("/system/mini@1/none", UnknownName),
        ("/document/mini@1/Biology/none", UnknownName),
        ("/tradeoffs/mini@1?against=tears", UnknownName),
        ("/nothing", UsageError),
    ],
)
def test_a_wrong_address_is_one_line(site: Site, url: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        page(site, url)
    assert "\n" not in str(caught.value)


def test_without_results_there_is_a_way_on(tmp_path: Path) -> None:
    site = Site([tmp_path / "results"])
    html = shown(site, "/")
    assert "r2med run" in html
    assert shown(site, "/board/r2med").count("<tr") > 50
    assert "r2med run" in shown(site, "/progress")


def test_without_texts_scores_and_ids_remain(own_results: Path) -> None:
    for path in own_results.glob("*/mini@1/Biology.json"):
        edit(path, lambda document: document["task"].update(fingerprint="0" * 32))
    site = Site([own_results])
    html = shown(site, "/query/mini@1/Biology/Biology-q01")
    assert "is not what these results were made on" in html
    assert "Biology-d0" in html
    assert "<mark>" not in html
    assert "judgments not loaded" in html
    assert "? not judged" not in html
    assert "not what these results" in shown(site, "/task/mini@1/Biology")


def test_an_expansion_is_shown_with_its_reasoning_folded(own_results: Path) -> None:
    (own_results / "bm25" / "mini@1" / "Biology.expansions.jsonl").write_text(
        '{"query_id": "other", "texts": ["no"]}\n'
        '{"query_id": "Biology-q01", "original": "x", "texts": ["A <b>passage</b>."], "statuses": ["ok"],'
        ' "reasoning": ["Let me think"], "searches": ["frozen ponds"], "cost": null}\n'
    )
    site = Site([own_results])
    html = shown(site, "/query/mini@1/Biology/Biology-q01")
    assert "A &lt;b&gt;passage&lt;/b&gt;." in html
    assert "frozen ponds" in html
    assert re.search(r"<details><summary>Reasoning</summary>[^§]*Let me think", html)
    assert "Let me think" not in shown(site, "/query/mini@1/Biology/Biology-q02")


def numbers(context: Any) -> list[float]:
    return [r["row"].macro for r in context["rows"]]


def test_a_system_without_every_task_has_no_average(own_results: Path) -> None:
    (own_results / "bm25" / "mini@1" / "Biology.json").unlink()
    context = page(Site([own_results]), "/board/mini@1?show=measured").context
    last = context["rows"][-1]
    assert last["row"].system == "bm25"
    assert last["row"].macro is None
    assert last["row"].scope == "7 of 8"
    assert None not in numbers(context)[:-1]


def test_many_letters_are_shortened_so_that_scores_stay_in_sight(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems that hardly differ share dozens of letters; the whole list is said to who points at it."""
    many = "abcdefghijklmnopqrstuvwxyzAB(53)(66)"
    results = site.held["mini@1"]
    said = site.standing(results, MAIN)
    assert said is not None
    places = {name: place._replace(letters=many) for name, place in said.places.items()}
    monkeypatch.setattr(site, "standing", lambda *_, **__: said._replace(places=places))
    html = page_html(page(site, "/board/mini@1"), LINKS)
    assert html.count(f'<abbr title="{many}">abcdef…</abbr>') == len(places) > 1
    assert many not in re.sub(r"<[^>]*>", "", html)
