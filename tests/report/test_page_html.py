"""Pages as HTML: the Markdown they are written in, pictures, links, and texts that want to be more than text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

import r2med
from r2med.core import UsageError
from r2med.report.page_html import draw_first_ranks, draw_profiles, markdown_html, whole_page, written_pictures
from r2med.tasks.load import from_path
from r2med.tasks.nano.figures import Outcome, TaskFigures
from tests.pipeline.test_nano_build import build


class Balanced(HTMLParser):
    """Fails where an element is not closed; keeps the addresses of links."""

    VOID = ("meta", "link", "br", "rect", "line", "circle", "polygon", "polyline")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.links, self.tags = list[str](), list[str](), set[str]()
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_markdown_of_pages() -> None:
    shown = markdown_html(
        "# A / b\\_c\n\nText with `code`, **bold** and\na [page](x.md).\n\n- one\n- two\n\n> said\n>\n> again\n\n"
        "| Name | Value |\n|:---|---:|\n| a \\| b | 1 |\n\nCaption."
    )
    Balanced(shown)
    assert "<h1>A / b_c</h1>" in shown
    assert '<code>code</code>, <strong>bold</strong> and a <a href="x.html">page</a>.' in shown
    assert "<ul><li>one</li><li>two</li></ul>" in shown
    assert "<blockquote><p>said</p><p>again</p></blockquote>" in shown
    assert "<td class=left>a | b</td><td>1</td>" in shown


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "[x](javascript:alert(1))",
        "[x](//evil.example/a.md)",
        "`<img src=x onerror=alert(1)>`",
        '| <b onclick="x"> |\n|:---|\n| </table><script> |',
        "# <svg onload=alert(1)>",
        "**[x](data:text/html,1)**",
        "> </blockquote><script>",
        "\\<script\\>",
    ],
)
def test_nothing_in_a_text_becomes_an_element_or_an_address(text: str) -> None:
    shown = Balanced(whole_page(text, markdown_html(text), [("index.html", text)], "index.html"))
    assert not shown.tags & {"script", "img", "svg", "b"}
    assert set(shown.links) == {"#main", "index.html"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = build(tmp_path_factory.mktemp("site") / "my-nano", "mini@1", docs=60)
    r2med.write_pages(str(folder), html=True)
    return folder


def test_every_link_of_the_site_leads_to_a_file(written: Path) -> None:
    pages = sorted((written / "pages").glob("*.html"))
    assert len(pages) == 9
    for path in pages:
        shown = Balanced(path.read_text("utf-8"))
        for link in shown.links:
            assert link.startswith(("https://", "#")) or (path.parent / link).is_file(), link
        assert "script" not in shown.tags
    text = (written / "pages" / "NanoMini_1MedQADiag.html").read_text("utf-8")
    assert text.count("<svg") == 3
    headings = [re.sub("<[^>]*>", "", h) for h in re.findall(r"<h1>.*?</h1>", text)]
    assert headings == ["Nano mini@1 / NanoMini_1MedQADiag"]


def test_pictures_show_every_profile(written: Path) -> None:
    text = (written / "pages" / "index.html").read_text("utf-8")
    assert all(name in text for name in ("BM25", "Dense", "Reranking hybrid"))
    assert text.count("<svg") == 1


def test_the_app_leads_to_the_written_page(written: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    from r2med.report.web.app import find_page
    from r2med.report.web.render import Links, PageRequest, page_html
    from r2med.report.web.site import Site

    refs = from_path(written)
    r2med.run("bm25", tasks=refs[:1], results=tmp_path / "results")
    site, links = Site([tmp_path / "results"], task_folders=[written]), Links()
    site.wait = None
    slug = next(iter(site.held))
    (name,) = site.held[slug].tasks
    task = page_html(find_page(site, PageRequest.from_url(links("task", slug, name)), links), links)
    address = links("written", slug, name)
    site_page = (written / "pages" / f"{refs[0].split}.html").read_text("utf-8")
    assert f'href="{address}"' in task
    shown = page_html(find_page(site, PageRequest.from_url(address), links), links)
    assert "<h3>Metric interpretation</h3>" in shown
    for drawn in (task, shown):  # by the code that draws the site's pictures
        pictures = re.findall(r"<svg.*?</svg>", drawn, re.DOTALL)
        assert [p for p in pictures if p in site_page] == re.findall(r"<svg.*?</svg>", site_page, re.DOTALL)
    assert ".json" not in "".join(re.findall(r'href="([^"]*)"', shown))
    data = written / "pages" / f"{name}.json"
    data.rename(data.with_suffix(".gone"))
    without = page_html(find_page(site, PageRequest.from_url(links("task", slug, name)), links), links)
    data.with_suffix(".gone").rename(data)
    assert "Candidate lists" in task
    assert "Candidate lists" not in without
    page = written / "pages" / f"{name}.md"
    fingerprint = refs[0].load().fingerprint
    page.write_text(page.read_text().replace(fingerprint, "0" * 32))  # as if the data had been built again since
    with pytest.raises(UsageError, match="has no page here"):
        find_page(site, PageRequest.from_url(address), links)
    bare = Site([tmp_path / "results"])
    assert "written page" not in page_html(
        find_page(bare, PageRequest.from_url(links("task", slug, name)), links), links
    )
    with pytest.raises(UsageError, match="has no page here"):
        find_page(bare, PageRequest.from_url(address), links)


def test_pictures_are_drawn_only_from_what_can_be_drawn(written: Path) -> None:
    """The file beside a page may be of other data, or be anything: anybody can write one."""
    page = next((written / "pages").glob("NanoMini_1Biology.json"))
    right = json.loads(page.read_bytes())
    fingerprint = right["fingerprint"]

    def drawn(**changed: object) -> int:
        return len(written_pictures(json.dumps(right | changed).encode(), fingerprint))

    figures, outcome = right["figures"], right["outcomes"][0]
    bm25 = figures["profiles"]["bm25"]
    assert drawn() == 3
    assert drawn(figures=figures | {"profiles": {"bm25": bm25}}) == 2
    assert drawn(fingerprint="0" * 32) == 0
    assert drawn(figures=figures | {"profiles": {}}) == 0
    assert drawn(figures=figures | {"profiles": {"<b>": bm25}}) == 0
    assert drawn(figures=figures | {"profiles": {"bm25": bm25 | {"ndcg_at_10": 1e300}}}) == 0
    assert drawn(figures=figures | {"profiles": {"bm25": bm25 | {"ndcg_at_10_interval": [-5, 5]}}}) == 0
    assert drawn(outcomes=[]) == 0
    assert drawn(outcomes=[outcome | {"first_rank": {"bm25": 0}}]) == 0
    assert drawn(outcomes=[outcome | {"first_rank": {}}]) == 0
    assert written_pictures(b"[" * 100_000, fingerprint) == {}
    assert written_pictures(b"\xff", fingerprint) == {}


def test_a_bar_ends_at_its_value(written: Path) -> None:
    """Round ends made every bar longer than its value."""
    figures = msgspec.convert(
        json.loads((written / "pages" / "NanoMini_1Biology.json").read_bytes())["figures"], TaskFigures
    )
    drawn = draw_profiles([figures])
    ticks = [float(x) for x in re.findall(r'class="l-grid" x1="([\d.]+)"', drawn)]
    bars = re.findall(
        r'x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)" y2="[\d.]+" stroke-width="([\d.]+)" stroke-linecap', drawn
    )
    for (start, end, width), profile in zip(bars, figures.profiles.values(), strict=True):
        assert float(start) - float(width) / 2 == pytest.approx(ticks[0], abs=0.02)
        value = ticks[0] + profile.ndcg_at_10 * (ticks[-1] - ticks[0])
        assert float(end) + float(width) / 2 == pytest.approx(value, abs=0.02)


@pytest.mark.parametrize("width", [1280, 400])
def test_pages_fit_a_wide_and_a_narrow_window(written: Path, visit: Callable[..., Any], width: int) -> None:
    """On a telephone, pictures were cut; in a wide window, their texts were twice as large as those of the page."""
    page = visit(width=width)
    for name in ("index", "NanoMini_1Biology"):
        page.goto((written / "pages" / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        wide = page.evaluate("[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().right)")
        assert wide
        assert max(wide) <= min(width, 640)


def test_a_picture_of_many_queries_has_as_many_steps_as_ranks() -> None:
    outcomes = [Outcome(str(i), {"bm25": 0.5}, {"bm25": i % 700 + 1}, {"bm25": 1.0}) for i in range(50_000)]
    assert draw_first_ranks({"bm25": 700}, outcomes).count("<line") < 2 * 500 + 50


def test_a_line_of_first_ranks_ends_where_the_lists_end() -> None:
    """The hybrid's hundred candidates were drawn as if the next four hundred held no positive."""
    outcomes = [Outcome("q", {}, {"bm25": 3, "hybrid": 3}, {})]
    short, long = draw_first_ranks({"hybrid": 100}, outcomes), draw_first_ranks({"bm25": 500}, outcomes)

    def ends(picture: str) -> float:
        return max(float(x) for x in re.findall(r'<line[^>]* x2="([\d.]+)"[^>]*stroke-linecap', picture))

    assert ends(short) < ends(long)


def test_a_line_does_not_break_before_the_sign_for_per_cent() -> None:
    assert "95\u00a0% interval" in markdown_html("a 95 % interval")
