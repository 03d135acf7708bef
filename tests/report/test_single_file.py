"""One file with everything in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.browse import report as command
from r2med.report.web.pages.query import query
from r2med.report.web.public import SiteLinks
from r2med.report.web.render import FileLinks, PageRequest, cut, marked, page_html, visible
from r2med.report.web.single_file import write_report
from r2med.report.web.site import Site
from tests.report.unpack import parts, unpack, whole

Visit = Callable[..., Any]


@pytest.fixture(scope="module")
def made(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("report") / "out.html"
    write_report(Site([results]), target, most=24_000_000)
    return target


def test_it_refers_to_nothing_outside_itself(made: Path) -> None:
    bare = re.sub(r'xmlns="http://www\.w3\.org/2000/svg"', "", unpack(made).html)
    tags = re.findall(r"<[a-zA-Z][^>]*>", bare)
    addresses = [a for tag in tags for a in re.findall(r'\s(?:src|href|action|data-live|data-poll)="([^"]*)"', tag)]
    assert addresses
    assert {a[:1] for a in addresses} == {"#"}
    assert "http://" not in "".join(tags)
    assert "https://" not in "".join(tags)
    assert "<link" not in bare
    assert "@import" not in bare
    assert "url(" not in bare


def test_every_anchor_is_there(made: Path) -> None:
    found = unpack(made)
    assert sum(anchor.startswith("query/") for anchor in found.pages) == 102
    assert set(re.findall(r'href="#([^"]*)"', found.html)) <= {*found.pages, "main"}
    for html in found.pages.values():
        ids = re.findall(r'\sid="([^"]*)"', html)
        assert len(ids) == len(set(ids))
    first = next(iter(found.pages))
    assert f'id="{first}"' in found.bare
    assert found.pages[first] in found.bare  # it stands there as it is, for those without a script


def test_its_policy_allows_only_its_own_script_and_style(made: Path) -> None:
    html = made.read_text()
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)[0].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    bodies = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", html, re.DOTALL)
    assert len(bodies) == 4
    for body in bodies:
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert " style=" not in re.sub(r"<script>.*?</script>", "", unpack(made).html, flags=re.DOTALL)


def test_pages_are_compressed(made: Path) -> None:
    assert made.stat().st_size < len(unpack(made).html) / 3


@pytest.mark.slow
def test_the_report_of_mini_is_small(tmp_path: Path) -> None:
    """All of Mini's queries with four systems; those that `r2med run` takes by default need a model."""
    r2med.run("bm25", "bm25-lucene", fuse="rrf", tasks="mini", results=tmp_path / "results")
    r2med.run("bm25:b=0.9,k1=1.2", tasks="mini", results=tmp_path / "results")
    said = write_report(Site([tmp_path / "results"]), tmp_path / "out.html", most=24_000_000)
    assert said.queries == said.of_queries == sum(len(task.queries) for task in r2med.load_all("mini"))
    assert said.bytes == (tmp_path / "out.html").stat().st_size < 6_000 * said.queries


def test_a_passage_stands_in_it_once_and_pages_are_those_of_the_app(made: Path, results: Path) -> None:
    task = r2med.load("mini@1/MedQA-Diag")
    pages = {anchor: html for anchor, html in unpack(made).pages.items() if anchor.startswith("query/mini_401/MedQA")}
    shown = Counter(re.findall(r"<summary><bdi>(.*?)</bdi> <span", "".join(pages.values())))
    often = [doc for doc in task.documents if sum(plain(text).startswith(doc.text[:150]) for text in shown) > 2]
    assert often
    stored = [
        html for block in re.findall(r'<template class="texts">([^<]*)<', made.read_text()) for html in parts(block)
    ]
    for doc in often:
        assert sum(plain(text).startswith(doc.text[:150]) for text in stored) == 1
    site = Site([results])
    site.wait = None
    for anchor, html in list(pages.items())[:5]:
        url = f"/query/mini@1/MedQA-Diag/{anchor.rsplit('/', 1)[1]}"
        links = SiteLinks({}, "")  # as short as in the file, with the texts in place
        asked = page_html(query(site, PageRequest.from_url(url), links), links, layout="bare.html", live=False)
        assert re.sub(r"</?a\b[^>]*>", "", html).count("<mark>") == asked.count("<mark>") > 0
        assert re.findall(r"<bdi>[^<]*<mark>.*?</bdi>", html) == re.findall(r"<bdi>[^<]*<mark>.*?</bdi>", asked)


@pytest.mark.parametrize("text", [
    "Fever & <b>rash</b>: fever again, FEVERS' end.", "\U0001f9ec Fever \U0001f9ec\U0001f9ec of \x02 fever", "Nothing.",
    "fever " * 200, "x" * 900,
])  # fmt: skip
def test_a_reference_to_a_text_reads_as_the_text(text: str) -> None:
    links = FileLinks({})
    for most in (40, 450):
        reference = links.beginning(text, frozenset({"fever"}), most, 450)
        assert text[:20] not in reference
        stored = [str(visible(cut(kept, of))) for kept, of in links.texts]
        assert len(stored) == 1
        assert whole(reference, stored) == marked(text, frozenset({"fever"}), most=most)


def plain(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


def test_too_little_room_leaves_out_the_easiest_queries_and_says_so(results: Path, tmp_path: Path) -> None:
    target = tmp_path / "small.html"
    done = CliRunner().invoke(command, [str(results), "--html", str(target), "--max-size", "0.9", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["bytes"] == target.stat().st_size <= 900_000
    assert 0 < said["queries"] < said["of_queries"] == 102
    found = unpack(target)
    assert f"{102 - said['queries']} of 102 queries" in found.bare
    assert sum(anchor.startswith("query/") for anchor in found.pages) == said["queries"]
    assert set(re.findall(r'href="#([^"]*)"', found.html)) <= {*found.pages, "main"}


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), pytest.param(400, "dark", marks=pytest.mark.slow)])
def test_it_opens_from_disk_with_the_network_off(made: Path, visit: Visit, width: int, scheme: str) -> None:
    page = visit(width=width, scheme=scheme, offline=True)
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(made.as_uri())
    assert page.locator("h1:visible").all_inner_texts() == ["Leaderboard Mini, first edition"]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if width < 600:
        page.get_by_label("Choices").check()
    page.get_by_role("link", name="R@100", exact=True).click()
    page.locator("caption", has_text="R@100 × 100").wait_for()
    if width < 600:
        page.get_by_label("Choices").check()
    page.get_by_role("link", name="nDCG@10", exact=True).click()
    page.locator("caption", has_text="nDCG@10 × 100").wait_for()
    page.locator(".card", has_text="MedQA-Diag").click()
    page.locator(".queries tbody a").first.click()
    page.locator("h1", has_text="Query").wait_for()
    assert page.locator(".hit").count() == 30
    title = page.locator("h1").inner_text()
    page.locator("a[rel=next], a[rel=prev]").first.click()
    page.wait_for_function("title => document.querySelector('h1').innerText !== title", arg=title)
    assert page.title().startswith("MedQA-Diag-q")
    page.go_back()
    page.wait_for_function("title => document.querySelector('h1').innerText === title", arg=title)
    page.get_by_role("link", name="Compare", exact=True).click()
    page.locator("figure svg a").last.click()
    page.locator("h1", has_text="Query").wait_for()
    page.get_by_role("link", name="Trade-offs").click()
    page.locator("h1", has_text="Trade-offs").wait_for()
    assert page.locator("figure svg:visible").count() == 1
    assert all(url.startswith(("file:", "data:")) for url in asked)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["board/", "task/", "query/", "compare/"])
def test_it_is_accessible(made: Path, visit: Visit, axe: str, kind: str) -> None:
    page = visit(offline=True)
    page.goto(made.as_uri() + "#" + next(anchor for anchor in unpack(made).pages if anchor.startswith(kind)))
    page.wait_for_function("kind => document.querySelector('section.page').id.startsWith(kind)", arg=kind)
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found["violations"]] == []


def test_all_pages_are_searched(made: Path, visit: Visit) -> None:
    found = unpack(made)
    page = visit(offline=True)
    page.goto(made.as_uri())
    box = page.get_by_role("searchbox", name="Search all pages")
    box.fill("MedQA-Diag-q07")
    box.press("Enter")
    page.locator(".notice").wait_for()
    texts = {anchor: re.sub(r"<[^>]*>", " ", html) for anchor, html in found.pages.items()}
    expected = [anchor for anchor, text in texts.items() if "MedQA-Diag-q07" in text]
    assert f"{len(expected)} pages have all of these words" in page.locator(".notice").inner_text()
    listed = page.locator("ol.moved a").all()
    assert {link.get_attribute("href") for link in listed} == {f"#{anchor}" for anchor in expected}
    page.locator('ol.moved a[href^="#query/"]').first.click()
    page.locator("h1", has_text="Query").wait_for()
    page.go_back()
    page.locator("ol.moved").wait_for()
    box.fill("bm25+bm25-lucene.rrf")  # names have places in them where a line may break
    box.press("Enter")
    page.locator('ol.moved a[href^="#board/"]').first.wait_for()
    box.fill("no page holds <these> words")
    box.press("Enter")
    page.get_by_text("0 pages have all of these words").wait_for()


def test_a_browser_that_cannot_unpack_says_so(made: Path, visit: Visit) -> None:
    page = visit(offline=True)
    page.add_init_script("delete window.DecompressionStream")
    page.goto(made.as_uri())
    assert "cannot unpack the other pages" in page.locator(".notice").inner_text()
    assert page.locator("table.board").is_visible()
    assert not page.locator("form.find").is_visible()


def test_sorting_filtering_and_copying_need_no_server(made: Path, visit: Visit) -> None:
    page = visit(offline=True)
    page.goto(made.as_uri())
    names = page.locator("table.board:visible tbody th")
    page.get_by_role("button", name="Biology", exact=True).click()
    falling = names.all_inner_texts()
    page.get_by_role("button", name="Biology", exact=True).click()
    assert page.locator("th[aria-sort=ascending]:visible").inner_text() == "Biology"
    assert names.all_inner_texts() != falling
    page.get_by_role("button", name="System", exact=True).click()
    assert names.all_inner_texts() == sorted(names.all_inner_texts(), key=str.lower)
    page.get_by_role("button", name="Fused", exact=True).click()
    assert page.locator("table.board:visible tbody tr:visible").count() == 1
    page.get_by_role("button", name="All kinds", exact=True).click()
    page.get_by_role("button", name="CSV", exact=True).click()
    page.locator("#status", has_text="Copied as CSV").or_(page.locator("dialog textarea")).first.wait_for(
        state="attached"
    )


def test_filters_work_together(made: Path, visit: Visit) -> None:
    page = visit(offline=True)
    page.goto(made.as_uri() + "#board/r2med~protocol=all")
    section = page.locator('section[id="board/r2med~protocol=all"]')
    section.wait_for()

    def shown() -> int:
        return int(section.locator("table.board tbody tr:not([hidden])").count())

    whole = shown()
    assert whole > 150
    section.get_by_role("group", name="Licence").get_by_role("button", name="Open").click()
    licensed = shown()
    section.get_by_role("group", name="Parameters").get_by_role("button", name="1 to 10", exact=True).click()
    assert 0 < shown() < licensed < whole
    for name in ("Licence", "Parameters"):
        section.get_by_role("group", name=name).get_by_role("button", name="All", exact=True).click()
    assert shown() == whole


def test_without_script_the_first_page_can_be_read(made: Path, visit: Visit) -> None:
    page = visit(java_script_enabled=False, offline=True)
    page.goto(made.as_uri())
    assert page.locator("h1").all_inner_texts() == ["Leaderboard Mini, first edition"]
    assert page.locator("table.board tbody tr").count() >= 3
    assert "JavaScript unpacks them" in page.content()
