"""Pages as HTML: the Markdown they are written in, pictures, links, and texts that want to be more than text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import r2med
from r2med.core import UsageError
from r2med.report.page_html import markdown_html, whole_page
from r2med.tasks.load import from_path
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
    folder = build(tmp_path_factory.mktemp("site") / "my-nano", "mini", docs=60)
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
    text = (written / "pages" / "NanoMiniMedQADiag.html").read_text("utf-8")
    assert text.count("<svg") == 3
    assert [re.sub("<[^>]*>", "", h) for h in re.findall(r"<h1>.*?</h1>", text)] == ["NanoMini / NanoMiniMedQADiag"]


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
    assert f'href="{address}"' in task
    shown = page_html(find_page(site, PageRequest.from_url(address), links), links)
    assert "<h3>Metric interpretation</h3>" in shown
    assert ".json" not in "".join(re.findall(r'href="([^"]*)"', shown))
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
