"""One file with everything in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from r2med.cli.browse import report as command
from r2med.report.web.single_file import write_report
from r2med.report.web.site import Site

Visit = Callable[..., Any]


@pytest.fixture(scope="module")
def made(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("report") / "out.html"
    write_report(Site([results]), target, most=24_000_000)
    return target


@pytest.fixture(scope="module")
def smaller(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With some queries of each task: what browsers open quickly."""
    target = tmp_path_factory.mktemp("report") / "smaller.html"
    write_report(Site([results]), target, most=2_600_000)
    return target


def test_it_refers_to_nothing_outside_itself(made: Path) -> None:
    html = made.read_text()
    bare = re.sub(r'xmlns="http://www\.w3\.org/2000/svg"', "", html)
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
    html = made.read_text()
    ids = re.findall(r'\sid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', html)) <= set(ids)
    assert sum(i.startswith("query/") for i in ids) == 102


def test_its_policy_allows_only_its_own_script_and_style(made: Path) -> None:
    html = made.read_text()
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)[0].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for body in re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", html, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert " style=" not in re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)


def test_too_little_room_leaves_out_the_easiest_queries_and_says_so(results: Path, tmp_path: Path) -> None:
    target = tmp_path / "small.html"
    done = CliRunner().invoke(command, [str(results), "--html", str(target), "--max-size", "3", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["bytes"] == target.stat().st_size <= 3_000_000
    assert 0 < said["queries"] < said["of_queries"] == 102
    html = target.read_text()
    assert f"{102 - said['queries']} of 102 queries" in html
    ids = set(re.findall(r'\sid="([^"]*)"', html))
    assert sum(i.startswith("query/") for i in ids) == said["queries"]
    assert set(re.findall(r'href="#([^"]*)"', html)) <= ids


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), pytest.param(400, "dark", marks=pytest.mark.slow)])
def test_it_opens_from_disk_with_the_network_off(smaller: Path, visit: Visit, width: int, scheme: str) -> None:
    page = visit(width=width, scheme=scheme, offline=True)
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(smaller.as_uri())
    assert page.locator("h1:visible").all_inner_texts() == ["Leaderboard Mini, first edition"]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_role("link", name="R@100", exact=True).click()
    assert "R@100 × 100" in page.locator("caption:visible").inner_text()
    page.get_by_role("link", name="nDCG@10", exact=True).click()
    page.locator(".card:visible", has_text="MedQA-Diag").click()
    page.locator(".queries:visible tbody a").first.click()
    assert page.locator(".hit:visible").count() == 30
    title = page.locator("h1:visible").inner_text()
    page.locator("a[rel=next]:visible, a[rel=prev]:visible").first.click()
    assert page.locator("h1:visible").inner_text() != title
    assert page.title().startswith("MedQA-Diag-q")
    page.go_back()
    assert page.locator("h1:visible").inner_text() == title
    page.get_by_role("link", name="Compare", exact=True).click()
    page.locator("figure:visible svg a").last.click()
    assert page.locator("h1:visible").inner_text().startswith("Query")
    page.get_by_role("link", name="Trade-offs").click()
    assert page.locator("figure:visible svg").count() == 1
    assert all(url.startswith(("file:", "data:")) for url in asked)


@pytest.mark.slow
def test_it_is_accessible(results: Path, tmp_path: Path, visit: Visit, axe: str) -> None:
    """On a small one: axe-core looks at every hidden page too, and takes minutes on a large file."""
    target = tmp_path / "small.html"
    write_report(Site([results]), target, most=1_900_000)
    page = visit(offline=True)
    page.goto(target.as_uri())
    page.evaluate(axe)
    anchors = page.evaluate("[...document.querySelectorAll('section.page')].map(s => s.id)")
    for kind in ("board/", "task/", "query/", "compare/"):
        anchor = next(a for a in anchors if a.startswith(kind))
        page.evaluate("id => { location.hash = id; }", anchor)
        page.wait_for_function("id => document.getElementById(id).classList.contains('current')", arg=anchor)
        found = page.evaluate("axe.run({include: [['.masthead'], ['.page.current']]}, {resultTypes: ['violations']})")
        assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found["violations"]] == []


def test_sorting_filtering_and_copying_need_no_server(smaller: Path, visit: Visit) -> None:
    page = visit(offline=True)
    page.goto(smaller.as_uri())
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


def test_filters_work_together(smaller: Path, visit: Visit) -> None:
    page = visit(offline=True)
    page.goto(smaller.as_uri() + "#board/r2med~protocol=all")
    section = page.locator("section.page.current")

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


def test_it_can_be_read_without_script(smaller: Path, visit: Visit) -> None:
    page = visit(java_script_enabled=False, offline=True)
    page.goto(smaller.as_uri())
    assert page.locator("h1:visible").all_inner_texts() == ["Leaderboard Mini, first edition"]
    page.locator(".card:visible", has_text="MedQA-Diag").click()
    assert page.locator("h1:visible").all_inner_texts() == ["mini@1/MedQA-Diag Clinical evidence"]
