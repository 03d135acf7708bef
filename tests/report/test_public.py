"""The site of a public board: true numbers, whole links, nothing from elsewhere, nothing that must not be shown."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import msgspec
import pytest

import r2med
from r2med.core import DataError, R2MedError, UsageError
from r2med.core.files import home
from tests.builders import QUERIES, lines, r2med_folder
from tests.results.sealing import edit

TASKS = ("mini@1/Biology", "mini@1/MedQA-Diag")
SECRET = "what a patient said in confidence"
MARKUP = "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'>"
URL = "https://board.example.org/b"


class Bundles:
    """Three submissions: two of a system of the same name, one on data of somebody's own; and a fourth with lies."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.good = folder, folder / "good"
        self.good.mkdir()
        one, own, lies = folder / "one", folder / "own", folder / "lies"
        r2med.run("bm25", "bm25-lucene", tasks=list(TASKS), results=one)
        cases = r2med_folder(folder / "cases", queries=lines([{**query, "text": SECRET} for query in QUERIES]))
        r2med.run("bm25", tasks=str(cases), results=own)
        for results in (own, lies):
            if results is lies:
                shutil.copytree(one, lies)
            for path in results.glob("*/*/*.json"):
                edit(path, lambda d: d["environment"].update(commit=MARKUP, versions={MARKUP: MARKUP}))
        (false,) = lies.glob("bm25/*/Biology.json")
        edit(false, lambda d: d["measures"].update(recall_micro_at_10=0.123))
        self.pack(
            "one", one, title="One & only", date="2025-01-02", authors='O\'Neil & "Co"', url="https://example.org/"
        )
        self.pack("again", one, "bm25", title="Again", date="2026-03-04")
        self.pack("own", own, title="Own data", date="2026-02-03")
        r2med.pack_bundle(folder / "lies.zip", results=lies, title="=Lies", date="2026-05-06")

    def pack(self, name: str, results: Path, *systems: str, **about: str) -> None:
        r2med.pack_bundle(self.good / f"{name}.zip", *systems, results=results, **about)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(tmp_path_factory.mktemp("home")))
        return Bundles(tmp_path_factory.mktemp("bundles"))


class Site:
    """A site that was written, and what was said about it."""

    def __init__(self, folder: Path, written: Any) -> None:
        self.folder, self.written = folder, written

    def text(self, name: str) -> str:
        return (self.folder / name).read_text("utf-8")

    def page(self, pattern: str) -> str:
        (path,) = self.folder.glob(pattern)
        return path.read_text("utf-8")


@pytest.fixture(scope="module")
def site(bundles: Bundles, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """All four submissions, built where the data of somebody's own are not known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(tmp_path_factory.mktemp("elsewhere")))
        folder = tmp_path_factory.mktemp("site") / "board"
        written = r2med.build_board(bundles.good, bundles.folder / "lies.zip", out=folder, title="A & B", url=URL)
        return Site(folder, written)


class References(HTMLParser):
    """What a page loads and where it leads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            assert not name.startswith("on"), value
            if name in ("src", "href", "action", "xlink:href") and value is not None:
                (self.leads if tag == "a" else self.loads).append(value)


def test_every_link_leads_to_a_file_of_the_site_and_nothing_is_loaded_from_elsewhere(site: Site) -> None:
    pages = sorted(site.folder.rglob("*.html"))
    assert len(pages) == site.written.pages
    reached, outside = set(), set()
    for path in pages:
        html = path.read_text("utf-8")
        assert "default-src &#39;none&#39;" in html
        found = References(html)
        for place in (*found.loads, *found.leads):
            if urlsplit(place).scheme:
                assert place in found.leads, f"{path.name} loads {place}"
                outside.add(place)
            elif not place.startswith("#"):
                target = (path.parent / unquote(urlsplit(place).path)).resolve()
                assert target.is_file(), f"{path.name}: {place}"
                assert target.is_relative_to(site.folder.resolve())
                reached.add(target)
    assert outside == {"https://example.org/"}
    assert {path.resolve() for path in pages} - reached == set(), "pages that no link leads to"


def test_what_is_verified_what_is_not_and_what_is_left_out(site: Site) -> None:
    written = site.written
    assert (written.submissions, written.verified, written.false, written.systems) == (4, 2, 1, 6)
    (said,) = [line for line in written.left_out if "not shown" in line]
    assert said.startswith("bm25 on mini@1/Biology (=Lies) is not shown: recall_micro_at_10 is ")
    board = json.loads(site.text("data/board.json"))
    assert [(one["name"], one["status"]) for one in board["submissions"]] == [
        ("One & only", "verified"),
        ("Own data", "unverified"),
        ("Again", "verified"),
        ("=Lies", "differs"),
    ]
    assert "✗ not true" in site.page("submission/*Lies*.html")
    own = site.page("submission/Own_data*.html")
    assert "? not verified" in own
    assert str(home()) not in own


def rows(site: Site, name: str) -> list[dict[str, str]]:
    with (site.folder / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_numbers_to_download_are_those_of_the_results(site: Site, bundles: Bundles) -> None:
    main = [row for row in rows(site, "data/mini@1.csv") if row["measure"] == "ndcg_at_10"]
    names = {row["system"] for row in main}
    assert names == {"bm25 (One & only)", "bm25 (Again)", "bm25 (=Lies)", "bm25-lucene (One & only)",
                     "bm25-lucene (=Lies)"}  # fmt: skip
    stored = {s.task: s for s in r2med.results.ResultIndex([bundles.folder / "one"]).select() if s.system == "bm25"}
    row = next(row for row in main if row["system"] == "bm25 (Again)")
    assert (row["status"], row["protocol"], row["date"]) == ("verified", "default", "2026-03-04")
    for task, one in stored.items():
        assert float(row[task]) == pytest.approx(100 * one.result.measures["ndcg_at_10"], rel=1e-5)
    mean = sum(100 * one.result.measures["ndcg_at_10"] for one in stored.values()) / len(stored)
    lies = next(row for row in main if row["system"] == "bm25 (=Lies)")
    assert lies["Biology"] == ""
    document = json.loads(site.text("data/mini@1.json"))
    same = next(r for r in document["rows"] if r["system"] == "bm25 (Again)" and r["measure"] == "ndcg_at_10")
    assert same["submission_id"] == row["submission_id"]
    assert same["tasks"]["mini@1/Biology"] == pytest.approx(100 * stored["Biology"].result.measures["ndcg_at_10"])
    assert mean > 0
    (path,) = site.folder.glob("data/mini@1_Biology*.csv")
    single = rows(site, f"data/{path.name}")
    scores = stored["Biology"].scores(["ndcg_at_10"])
    assert [row["query_id"] for row in single] == list(scores.query_ids)
    assert [float(row["bm25 (Again)"]) for row in single] == pytest.approx(scores.values[0].tolist(), abs=1e-6)


def test_protocol_and_date_stand_beside_every_system(site: Site) -> None:
    for pattern in ("index.html", "task/mini_401_Biology*.html"):
        html = site.page(pattern)
        assert html.count('title="Protocol"') == html.count('title="Date"') >= 4, pattern
        assert "2026-03-04" in html


def test_a_submission_has_its_command_and_its_costs(site: Site) -> None:
    html = site.page("submission/Again*.html")
    assert "r2med run --tasks mini@1/Biology,mini@1/MedQA-Diag --system bm25</pre>" in html
    for title in ("Seconds", "Tokens", "Dollars", "Parameters"):
        assert f"<dt>{title}" in html
    assert "O&#39;Neil &amp; &#34;Co&#34;" in site.page("submission/One*.html")


def test_the_feed_is_rss(site: Site) -> None:
    root = ElementTree.fromstring(site.text("feed.xml"))
    (channel,) = root
    assert (root.tag, root.attrib["version"], channel.tag) == ("rss", "2.0", "channel")
    assert channel.findtext("title") == "A & B"
    assert channel.findtext("link") == f"{URL}/index.html"
    assert channel.findtext("description")
    assert channel.findtext("lastBuildDate") == "Wed, 06 May 2026 00:00:00 GMT"
    (own,) = channel.findall("{http://www.w3.org/2005/Atom}link")
    assert own.attrib == {"rel": "self", "type": "application/rss+xml", "href": f"{URL}/feed.xml"}
    linked = re.findall(r'<link rel="alternate" type="([^"]+)"[^>]* href="([^"]+)"', site.text("index.html"))
    assert linked == [("application/rss+xml", "feed.xml")]
    items = channel.findall("item")
    assert [item.findtext("title") for item in items] == ["=Lies", "Again", "Own data", "One & only"]
    for item in items:
        place = (item.findtext("link") or "").removeprefix(f"{URL}/")
        assert (site.folder / unquote(place)).is_file()
        guid = item.find("guid")
        assert guid is not None
        assert guid.attrib == {"isPermaLink": "false"}
        assert re.fullmatch(r"urn:sha256:[0-9a-f]{64}", guid.text or "")
        moment = parsedate_to_datetime(item.findtext("pubDate") or "")
        assert moment.tzinfo is not None
    assert items[0].findtext("description", "").startswith("Some of its scores are not true")


def test_without_an_address_the_feed_has_no_links(bundles: Bundles, tmp_path: Path) -> None:
    r2med.build_board(bundles.good / "own.zip", out=tmp_path / "site")
    (channel,) = ElementTree.parse(tmp_path / "site" / "feed.xml").getroot()
    assert channel.findtext("link") == "urn:r2med:board"
    assert [item.find("link") for item in channel.findall("item")] == [None]


def test_texts_of_somebodys_own_are_not_shown_unless_asked_for(bundles: Bundles, tmp_path: Path) -> None:
    cases = bundles.folder / "cases"

    def texts(**more: Any) -> bool:
        folder = tmp_path / str(len(more))
        written = r2med.build_board(bundles.good / "own.zip", out=folder, tasks=[cases], **more)
        assert (written.verified, written.submissions) == (1, 1)
        assert written.left_out == []
        return any(SECRET in path.read_text("utf-8") for path in folder.rglob("*.html"))

    assert not texts()
    assert texts(own_texts=True)


def test_the_same_submissions_give_the_same_site_and_an_earlier_one_is_replaced(
    bundles: Bundles, tmp_path: Path
) -> None:
    made = bundles.good / "again.zip"
    (tmp_path / "in").mkdir()
    shutil.copy(made, tmp_path / "in" / "again.zip")
    r2med.build_board(made, out=tmp_path / "a")
    written = r2med.build_board(tmp_path / "in", made, out=tmp_path / "b")
    assert written.left_out == ["again.zip is the same bundle as again.zip"]

    def content(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    first, second = content(tmp_path / "a"), content(tmp_path / "b")
    assert {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)} <= {
        name for name in second if b"same bundle" in second[name]
    }
    r2med.build_board(bundles.good / "own.zip", out=tmp_path / "a", title="Other")
    assert "Again" not in (tmp_path / "a" / "index.html").read_text("utf-8")
    assert not list((tmp_path / "a").glob("task/mini*"))


@pytest.mark.slow
def test_the_site_is_the_same_for_any_number_of_processes(bundles: Bundles, tmp_path: Path) -> None:
    given = (bundles.good, bundles.folder / "lies.zip")
    one = r2med.build_board(*given, out=tmp_path / "one")
    several = r2med.build_board(*given, out=tmp_path / "several", workers=3)
    assert msgspec.structs.replace(several, folder=one.folder) == one
    names = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*"))
    assert names == sorted(path.relative_to(tmp_path / "several") for path in (tmp_path / "several").rglob("*"))
    for name in (name for name in names if (tmp_path / "one" / name).is_file()):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "several" / name).read_bytes(), name


def test_a_folder_of_something_else_is_left_alone(bundles: Bundles, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("you")
    with pytest.raises(DataError, match="neither empty nor a board"):
        r2med.build_board(bundles.good, out=tmp_path / "letters")
    assert [path.name for path in (tmp_path / "letters").iterdir()] == ["dear.txt"]


def test_one_bad_bundle_stops_the_build_and_is_named(bundles: Bundles, tmp_path: Path) -> None:
    shutil.copy(bundles.good / "again.zip", tmp_path / "a.zip")
    (tmp_path / "b.zip").write_bytes((bundles.good / "again.zip").read_bytes()[:-3000])
    with pytest.raises(R2MedError, match=r"b\.zip.*not a readable zip file"):
        r2med.build_board(tmp_path, out=tmp_path / "site")
    assert not (tmp_path / "site").exists()
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match="no bundle is given"):
        r2med.build_board(tmp_path / "none", out=tmp_path / "site")
    with pytest.raises(R2MedError, match="no name needs"):
        r2med.build_board(tmp_path / "a.zip", out=tmp_path / "site", title=MARKUP)


@pytest.mark.parametrize("width", [1280, 400])
def test_it_opens_from_disk_without_a_network(site: Site, visit: Callable[..., Any], width: int) -> None:
    page = visit(width=width, offline=True)
    pages = ("submissions/all", "submission/Own*", "submission/*Lies*", "task/own*", "query/mini*q01*", "compare/mini*")
    for pattern in ("index", *pages):
        page.goto(min(site.folder.glob(f"{pattern}.html")).as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), pattern
        assert page.evaluate("window.hurt") is None


def test_filters_with_and_without_script(site: Site, visit: Callable[..., Any]) -> None:
    page = visit(offline=True)
    page.goto((site.folder / "index.html").as_uri())
    shown = page.locator("table.board tbody tr:visible")
    everything = shown.count()
    assert everything == 5
    page.get_by_role("group", name="Submitted").get_by_role("link", name="2025").click()
    assert page.url.endswith("index.html")
    assert shown.count() == 2
    page.get_by_role("group", name="Submitted").get_by_role("link", name="All").click()
    assert shown.count() == everything
    page = visit(offline=True, java_script_enabled=False)
    page.goto((site.folder / "index.html").as_uri())
    page.get_by_role("link", name="2025").click()
    assert page.locator("table.board tbody tr").count() == 2
    page.go_back()
    page.get_by_role("link", name="R@100").click()
    assert "recall_at_100" in page.url
    assert page.locator("table.board tbody tr").count() == everything
