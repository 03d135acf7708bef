"""A real browser clicks through every page, light and dark, wide and narrow."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med.pipeline import SystemSpec
from r2med.results.schema import ProgressFile
from r2med.tasks import resolve
from tests.report.conftest import Server

Visit = Callable[..., Any]
PAGES = {
    "leaderboard": "/board/mini@1",
    "published": "/board/r2med",
    "intervals": "/board/mini@1?intervals=all&measure=recall_at_100",
    "trade-offs": "/tradeoffs/mini@1",
    "parameters": "/tradeoffs/r2med?against=parameters",
    "task": "/task/mini@1/MedQA-Diag",
    "query": "/query/mini@1/MedQA-Diag/MedQA-Diag-q01",
    "failures": "/query/mini@1/MedQA-Diag/MedQA-Diag-q01?order=trap&scope=all",
    "compare": "/compare/mini@1",
    "system": "/system/mini@1/bm25",
    "document": "/document/mini@1/MedQA-Diag/MedQA-Diag-d003?query=MedQA-Diag-q01",
    "progress": "/progress",
    "try it": "/try?task=mini@1/MedQA-Diag&query=MedQA-Diag-q01",
}
# What every run of the tests looks at; `make test-all` looks at every page in all four ways.
USUAL = {
    ("leaderboard", 1280, "light"),
    ("leaderboard", 400, "dark"),
    ("task", 1280, "dark"),
    ("query", 1280, "light"),
    ("query", 400, "dark"),
    ("compare", 400, "light"),
    ("trade-offs", 1280, "light"),
    ("try it", 400, "light"),
}
OVERFLOW = """() => {
    const width = document.documentElement.clientWidth;
    return [...document.querySelectorAll('main *, header *, footer *')].filter(e => {
        if (e.closest('.scroll, .sr, pre, .skip, svg') && !e.matches('.scroll, pre')) return false;
        const box = e.getBoundingClientRect();
        return box.width > 0 && box.right > width + 1 && !e.closest('.sr, .skip');
    }).map(e => e.outerHTML.slice(0, 120));
}"""
FOCUSED = "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
SHIFT = """() => new Promise(done => {
    let sum = 0;
    new PerformanceObserver(list => list.getEntries().forEach(e => { sum += e.hadRecentInput ? 0 : e.value; }))
        .observe({type: 'layout-shift', buffered: true});
    setTimeout(() => done(sum), 400);
})"""


@pytest.fixture
def in_pieces(server: Server) -> Iterator[str]:
    """The address of the same pages, whose second half comes late."""

    class Pieces(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = server.get(self.path)
            body = answer.text.encode()
            half = len(body) // 2
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["content-type"])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:half])
            time.sleep(0.4 if self.path in PAGES.values() else 0)
            self.wfile.write(body[half:])

        def log_message(self, *args: object) -> None:
            """Nothing on the screen."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Pieces) as late:
        threading.Thread(target=late.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{late.server_port}"
        late.shutdown()


def follow(page: Any, target: str | Any, *, exact: bool = True) -> None:
    """Click a link, by its name or itself, and wait for the page behind it."""
    link = page.get_by_role("link", name=target, exact=exact).first if isinstance(target, str) else target
    with page.expect_navigation():
        link.click()


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        pytest.param(name, width, scheme, marks=[] if (name, width, scheme) in USUAL else [pytest.mark.slow])
        for name in PAGES
        for width in (1280, 400)
        for scheme in ("light", "dark")
    ],
)
def test_every_page_is_accessible_and_fits(
    server: Server, visit: Visit, axe: str, name: str, width: int, scheme: str
) -> None:
    page = visit(width=width, scheme=scheme)
    page.goto(server.base + PAGES[name])
    assert page.locator("html").get_attribute("data-theme") == scheme
    assert page.locator("h1").count() == 1
    assert page.evaluate(OVERFLOW) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    said = [(v["id"], v["help"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found["violations"]]
    assert said == []


@pytest.mark.parametrize("name", ["leaderboard", "query"])
def test_nothing_jumps_while_a_page_loads(server: Server, visit: Visit, in_pieces: str, name: str) -> None:
    page = visit()
    for base in (server.base, in_pieces):
        page.goto(base + PAGES[name])
        assert page.evaluate(SHIFT) < 0.02


def test_the_theme_is_chosen_and_kept(server: Server, visit: Visit) -> None:
    page = visit()
    page.goto(server.base + "/")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Switch to the dark theme").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    follow(page, "Compare")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.get_by_role("button", name="Switch to the light theme").click()
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "light"


def first_row(page: Any) -> str:
    return str(page.locator("table.board tbody th").first.inner_text())


def test_choosing_on_the_leaderboard(server: Server, visit: Visit) -> None:
    page = visit()
    page.goto(server.base + "/")
    follow(page, "Measured here")
    follow(page, "Biology")
    assert "sort=Biology" in page.url
    assert page.locator("th[aria-sort=descending]").inner_text() == "Biology"
    falling = page.locator("table.board tbody tr").count(), first_row(page)
    follow(page, page.locator("thead").get_by_role("link", name="Biology"))
    assert page.locator("th[aria-sort=ascending]").inner_text() == "Biology"
    assert (page.locator("table.board tbody tr").count(), first_row(page)) != falling
    follow(page, "R@100")
    assert "R@100 × 100" in page.locator("caption").inner_text()
    follow(page, "Fused")
    assert page.locator("table.board tbody tr").count() == 1
    follow(page, "Mean of queries")
    titles = page.locator("thead th").all_inner_texts()
    assert titles[[title in ("By query", "Macro") for title in titles].index(True)] == "By query"
    page.go_back()
    assert "average" not in page.url


@pytest.mark.parametrize(("title", "begins"), [("Markdown", "| System"), ("CSV", "System,Kind"), ("LaTeX", "% Needs")])
def test_copying_the_table(server: Server, visit: Visit, title: str, begins: str) -> None:
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.goto(server.base + "/board/mini@1")
    page.get_by_role("link", name=title, exact=True).click()
    page.get_by_text("Copied", exact=True).wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(begins)
    assert "bm25+bm25-lucene.rrf" in copied.replace("\\", "")
    assert "Copied as" in page.locator("#status").inner_text()


def test_from_the_leaderboard_to_a_query_and_on(server: Server, visit: Visit) -> None:
    page = visit()
    page.goto(server.base + "/")
    follow(page, page.get_by_role("link", name="MedQA-Diag", exact=True).last)
    follow(page, page.locator("table.queries tbody a").first)
    title = page.locator("h1").inner_text()
    assert title.startswith("Query MedQA-Diag-q")
    assert page.locator(".list").count() == 3
    assert page.locator(".hit").count() == 30
    follow(page, "Next →")
    assert page.locator("h1").inner_text() != title
    second = page.locator("h1").inner_text()
    page.keyboard.press("j")
    page.wait_for_function("t => document.querySelector('h1')?.innerText !== t", arg=second)
    page.keyboard.press("k")
    page.wait_for_function("t => document.querySelector('h1')?.innerText === t", arg=second)
    follow(page, "Largest difference first")
    assert "order=diff" in page.url
    follow(page, "All tasks")
    follow(page, "Next →")
    assert "scope=all" in page.url
    follow(page, "Lexical trap")
    assert "shares more of the query" in page.locator(".hint").first.inner_text()
    more = page.locator(".hit details.inline summary").first
    more.click()
    assert page.locator(".hit details.inline[open] .text").first.is_visible()
    follow(page, page.locator(".hit .head a").first)
    assert page.locator("h1").inner_text().startswith("Document")


def verdict(page: Any) -> str:
    """What a comparison says, once its statistics are there."""
    page.locator("#statistics:not([aria-busy])").wait_for()
    return str(page.locator(".verdict").inner_text())


def test_choosing_systems_in_the_inspector(server: Server, visit: Visit) -> None:
    page = visit()
    page.goto(server.base + PAGES["query"])
    page.get_by_text("Systems shown").click()
    page.get_by_label("System 2").fill("")
    page.get_by_label("System 3").fill("")
    page.get_by_label("System 1").fill("bm25-lucene")
    follow(page, page.get_by_role("button", name="Show"))
    assert page.locator(".list h3").all_inner_texts() == ["bm25-lucene"]
    page.goto(server.base + "/compare/mini@1")
    page.get_by_label("First").fill("bm25-lucene")
    page.get_by_label("Second").fill("bm25")
    follow(page, page.get_by_role("button", name="Compare"))
    assert verdict(page).startswith("bm25 ")
    follow(page, "Swap")
    assert verdict(page).startswith("bm25-lucene ")


def test_the_scatter_leads_to_queries(server: Server, visit: Visit) -> None:
    page = visit()
    page.goto(server.base + "/compare/mini@1")
    mark = page.locator("figure svg a:visible").nth(7)
    name = mark.get_attribute("aria-label")
    mark.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/query/"))
    assert page.locator("h1 bdi").inner_text() in (name or "")


def test_the_keyboard_reaches_everything_that_matters(server: Server, visit: Visit) -> None:
    page = visit()
    page.goto(server.base + "/board/mini@1")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.innerText")
        )
        assert page.evaluate("""() => {
            const e = document.activeElement;
            return e === document.body || getComputedStyle(e).outlineStyle !== 'none';
        }""")
    assert {"Compare", "Switch to the dark theme", "R@100", "Table of scores", "System", "bm25", "Markdown"} <= reached


def test_pages_work_without_script(server: Server, visit: Visit) -> None:
    page = visit(java_script_enabled=False)
    page.goto(server.base + "/")
    follow(page, "hit@10")
    follow(page, page.get_by_role("link", name="Biology", exact=True).last)
    follow(page, page.locator("table.queries a").first)
    follow(page, "Next →")
    assert page.locator(".hit").count() == 30


def test_the_page_follows_a_run(results: Path, tmp_path: Path, serve: Callable[..., Any], visit: Visit) -> None:
    folder = tmp_path / "results"
    shutil.copytree(results / "bm25", folder / "bm25")
    file = ProgressFile(folder)
    with serve(folder) as server:
        page = visit()
        page.goto(server.base + "/progress")
        file.begin(4)
        file.step("bm25-lucene", "mini@1/Biology")
        page.get_by_text("Now: bm25-lucene on mini@1/Biology").wait_for(timeout=15_000)
        assert page.locator(".running").is_visible()
        board = visit()
        board.goto(server.base + "/board/mini@1?show=measured")
        assert board.locator("tbody tr").count() == 1
        shutil.copytree(results / "bm25-lucene", folder / "bm25-lucene")
        file.step("bm25-lucene", "mini@1/Biology", finished=True)
        page.get_by_text("1 of 4").wait_for(timeout=15_000)
        board.locator("tbody tr").nth(1).wait_for(timeout=15_000)
        file.end()
        page.get_by_text("The last run is over").wait_for(timeout=15_000)
        assert not page.locator(".running").is_visible()
        page.close()
        board.close()


def test_on_paper_it_is_dark_on_white(server: Server, visit: Visit) -> None:
    page = visit(scheme="dark")
    page.goto(server.base + "/board/mini@1")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('td')).color") == "rgb(0, 0, 0)"
    assert not page.locator(".masthead nav").is_visible()


def test_eight_tasks_fit_and_names_are_whole(
    results: Path, tmp_path: Path, serve: Callable[..., Any], visit: Visit
) -> None:
    """The board was 700 px wider than a page of 1280, and long names ran over their rows."""
    long = "bm25:b=0.9,k1=1.2+bm25-lucene:b=0.9,k1=1.2.weighted:w=0.3/0.7"
    folder = tmp_path / "results"
    shutil.copytree(results, folder)
    r2med.run(SystemSpec.parse(long), tasks=resolve("mini@1"), results=folder)
    with serve(folder) as server:
        page = visit(width=1280)
        for choices in ("", "?intervals=all", "?average=query"):
            page.goto(server.base + "/board/mini@1" + choices)
            page.locator("#scores:not([aria-busy])").wait_for()
            assert page.locator("table.board thead th").all_inner_texts()[-2] == "IIYi"
            assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.getElementById('scores'))"), choices
        assert page.get_by_role("link", name=long).is_visible()
        page.goto(server.base + "/task/mini@1/MedQA-Diag")
        for table in page.locator("div.scroll").all():
            assert table.evaluate("e => e.scrollWidth <= e.clientWidth"), table.get_attribute("aria-label")
        page.close()


def test_positives_stand_below_each_other_on_a_phone(server: Server, visit: Visit) -> None:
    """Their table was wider than the screen, and the column of documents covered half of it."""
    page = visit(width=400)
    page.goto(server.base + PAGES["query"])
    positives = page.get_by_role("region", name="Positives")
    assert positives.evaluate("e => e.scrollWidth <= e.clientWidth")
    titled = "e => getComputedStyle(e, '::before').content"
    assert positives.locator("tbody td").first.evaluate(titled) == '"Grade: "'
    wide = visit(width=1280)
    wide.goto(server.base + PAGES["query"])
    assert wide.get_by_role("region", name="Positives").locator("tbody td").first.evaluate(titled) == "none"


def test_the_head_of_the_positives_does_not_grow_with_the_names_of_systems(server: Server, visit: Visit) -> None:
    """Each system had a column of its own, and a long name stood on six lines above its ranks."""
    page = visit(width=1280)
    page.goto(server.base + PAGES["query"])
    positives = page.get_by_role("region", name="Positives")
    titles = positives.locator("thead th").all_inner_texts()
    assert titles == ["Document", "Grade", "Rank by system", "Words shared", "Text"]
    systems = page.locator("section.list h3").all_inner_texts()
    first = positives.locator("tbody tr").first.locator("ul.placed li").all_inner_texts()
    assert len(systems) > 1
    assert [line.split()[-1] for line in first] == systems


@pytest.mark.parametrize(
    "path", ["/board/mini@1", "/tradeoffs/mini@1", "/compare/mini@1", PAGES["task"], PAGES["query"]]
)
def test_choices_fold_on_a_phone(server: Server, visit: Visit, path: str) -> None:
    page = visit(width=400, java_script_enabled=False)
    page.goto(server.base + path)
    chips, fold = page.locator(".choices .chip").first, page.get_by_label("Choices")
    assert not chips.is_visible()
    fold.focus()
    page.keyboard.press("Space")
    assert chips.is_visible()
    wide = visit(width=1280)
    wide.goto(server.base + path)
    assert wide.locator(".choices .chip").first.is_visible()
    assert not wide.get_by_label("Choices").is_visible()


@pytest.mark.parametrize("path", ["/tradeoffs/mini@1", "/compare/mini@1", "/board/r2med", PAGES["query"]])
@pytest.mark.parametrize("width", [1280, 400])
def test_pictures_fit_and_can_be_read(server: Server, visit: Visit, path: str, width: int) -> None:
    page = visit(width=width)
    page.goto(server.base + path)
    drawn = page.locator("main svg:visible:not(.mark)")
    assert drawn.count() == 1
    box = drawn.bounding_box()
    assert box["x"] + box["width"] <= width
    size = drawn.locator("text").first.evaluate("e => e.getBoundingClientRect().height")
    assert size > 9  # pixels of a line of text on the screen


def search(page: Any, text: str, expansion: str = "") -> None:
    page.get_by_label("Query", exact=True).fill(text)
    page.locator("textarea[name=expansion]").fill(expansion)
    page.get_by_role("button", name="Search").click()
    page.locator("#status", has_text="Answered").wait_for(state="attached")


@pytest.mark.parametrize("width", [1280, 400])
def test_trying_a_query(server: Server, visit: Visit, axe: str, width: int) -> None:
    page = visit(width=width)
    page.goto(server.base + PAGES["query"])
    follow(page, "Try it with other words")
    address = page.url
    assert (
        page.get_by_label("Query", exact=True).input_value().startswith(r2med.load("mini@1/MedQA-Diag").queries[0].text)
    )
    page.get_by_role("button", name="Search").click()
    page.locator(".lists").wait_for()
    assert page.locator(".list").count() == 3
    assert page.locator(".hit").count() == 30
    assert page.locator(".tag.yes:visible").count() > 0
    shares = page.locator(".shares").first
    shares.locator("summary").click()
    assert "idf" in shares.inner_text()
    search(
        page, "a patient with fever and a rash after a walk in the woods", "Lyme disease is an infection with Borrelia"
    )
    assert page.locator("h2", has_text="What the expansion changes").is_visible()
    assert page.locator("mark.added").count() > 0
    assert page.evaluate(OVERFLOW) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.url == address  # nothing typed is in the history
    assert "woods" not in page.url
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert [(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found["violations"]] == []


def test_trying_with_the_keyboard_alone(server: Server, visit: Visit) -> None:
    page = visit()
    page.goto(server.base + "/try?task=mini@1/Biology")
    page.get_by_label("Query", exact=True).focus()
    page.keyboard.type("why do cells die")
    page.keyboard.press("Control+Enter")
    page.locator(".hit").first.wait_for()
    for wanted in ("Expansion", "behind the query", "Task", "System 1", "System 2", "System 3", "Search"):
        page.keyboard.press("Tab")
        label = page.evaluate(
            "(e => (e.labels && e.labels.length ? e.labels[0] : e).innerText)(document.activeElement)"
        )
        assert wanted in label
    summary = page.locator(".shares summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator(".shares[open] table").first.is_visible()


def test_trying_without_script(server: Server, visit: Visit) -> None:
    page = visit(java_script_enabled=False, expected="status of 400")
    page.goto(server.base + "/try?task=mini@1/Biology")
    page.get_by_label("Query", exact=True).fill("why do cells die")
    with page.expect_navigation():
        page.get_by_role("button", name="Search").click()
    assert page.locator(".hit").count() == 30
    assert page.url == server.base + "/try"
    assert page.get_by_label("Query", exact=True).input_value() == "why do cells die"
    page.get_by_label("System 1").fill("openai")
    with page.expect_navigation():
        page.get_by_role("button", name="Search").click()
    assert "cannot be tried here" in page.get_by_role("alert").inner_text()


def test_a_server_that_is_gone_is_told(results: Path, serve: Callable[..., Any], visit: Visit) -> None:
    page = visit(expected="ERR_CONNECTION_REFUSED")
    with serve(results) as server:
        page.goto(server.base + "/try?task=mini@1/Biology")
    page.get_by_label("Query", exact=True).fill("why do cells die")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("The app does not answer").wait_for()
