"""Documents, queries and names that attack the reader."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import r2med
from r2med.results import ResultStore
from r2med.tasks.load import from_path
from tests.results.sealing import edit

SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
TEXTS = {
    "d1": f"pain {SCRIPT} </title></textarea></svg><svg onload=window.hacked=3>",
    "d2": "pain \u202eesrever \u2066isolate \u200fmark \ufeffBOM \x07bell \x1b[31m",
    "d3": "pain " + "x" * 50_000,
    "d4": "pain javascript:window.hacked=4 {{ 7 * 7 }} {% raw %} ${window.hacked=5}",
    "d5": "pain \u0627\u0644\u0623\u0644\u0645 𝔘🧬 \u2028 line \U000e0041tag",
    "<b/onmouseover=window.hacked=6>": "pain in an id",
}


HOSTILE_NAME = "<img src=x onerror=window.hacked=7>\0\nnew line"
LONG_NAME = "long" * 5000


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    encode = msgspec.json.encode
    corpus = [encode({"id": i, "text": t, "title": SCRIPT if i == "d1" else ""}) for i, t in TEXTS.items()]
    queries = [
        {"id": "q1\"'><i>", "text": f"pain {SCRIPT}", "answer": SCRIPT, "body_system": "\u202eevil"},
        {"id": "q2", "text": "y" * 50_000, "answer": "z" * 50_000},
    ]
    qrels = [{"q_id": q["id"], "p_id": d, "score": 1} for q in queries for d in ("d1", "d3")]
    for name, lines in (("corpus", corpus), ("query", map(encode, queries)), ("qrels", map(encode, qrels))):
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(lines))
    store = ResultStore(tmp_path / "results")
    r2med.run("bm25", tasks=from_path(folder), results=store.root)
    # A name that no command makes, but anybody can write into a file.
    for path in store.root.glob("*/*/*.json"):
        for place, name in (("other", HOSTILE_NAME), ("long", LONG_NAME)):
            other = path.parents[2] / place / path.parent.name / path.name
            other.parent.mkdir(parents=True)
            for suffix in (".json", ".run.gz", ".queries.jsonl"):
                other.with_suffix(suffix).write_bytes(path.with_suffix(suffix).read_bytes())
            edit(other, lambda document, name=name: document["system"].update(name=name))  # type: ignore[misc]
    return tmp_path


@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.slow), 400])
def test_nothing_runs_and_nothing_overflows(
    hostile: Path, serve: Callable[..., Any], visit: Callable[..., Any], width: int
) -> None:
    with serve(hostile / "results", "--tasks", hostile / "own") as server:
        page = visit(width=width)
        page.goto(server.base + "/")
        seen = list[str]()
        todo = ["/", "/board/own?intervals=all", "/tradeoffs/own", "/compare/own"]
        while todo:
            page.goto(server.base + todo.pop())
            seen.append(page.url)
            page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
            assert page.evaluate("window.hacked") is None
            assert page.evaluate("document.querySelectorAll('main img, main script, main iframe, main i').length") == 0
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), page.url
            links = page.evaluate("[...document.querySelectorAll('main a')].map(a => a.getAttribute('href'))")
            wanted = [link for link in links if link.startswith(("/task", "/query", "/document", "/system"))]
            todo += [link for link in dict.fromkeys(wanted) if server.base + link not in seen and "order=" not in link][
                :6
            ]
            if len(seen) > 16:
                break
        kinds = {url.removeprefix(server.base).split("/")[1] for url in seen}
        assert kinds >= {"task", "query", "document", "system"}
        page.goto(server.base + "/query/own/own/" + "q1%22%27%3E%3Ci%3E")
        text = page.locator("main").inner_text()
        assert "<script>window.hacked = 1</script>" in text
        for number in ("U+202E", "U+2066", "U+0007", "U+001B", "U+FEFF"):
            assert number in text
        assert "{{ 7 * 7 }}" in text
        assert "\u202e" not in page.content()
        for ending in ("md", "csv", "tex"):
            table = server.get(f"/table/own?format={ending}").text
            assert "\x00" not in table
            assert "\nnew line" not in table


@pytest.mark.parametrize("width", [1280, 400])
def test_typed_text_stays_text(
    hostile: Path, serve: Callable[..., Any], visit: Callable[..., Any], width: int
) -> None:  # fmt: skip
    """What is typed and what is found: both are hostile here."""
    typed = (
        "pain</textarea><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'> \u202e {{ 7 * 7 }} "
        + "y" * 3000
    )
    with serve(hostile / "results", "--tasks", hostile / "own") as server:
        page = visit(width=width, expected="status of 400")
        page.goto(server.base + "/try?task=own/own")
        page.get_by_label("Query", exact=True).fill(typed)
        page.locator("textarea[name=expansion]").fill(typed)
        page.get_by_label("System 1").fill("bm25")
        for number in (2, 3):
            page.get_by_label(f"System {number}").fill("")
        page.get_by_role("button", name="Search").click()
        page.locator(".hit").first.wait_for()
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.querySelectorAll('main img, main script, main iframe, main i').length") == 0
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.get_by_label("Query", exact=True).input_value() == typed
        assert "U+202E" in page.locator("#answer").inner_text()
        page.get_by_label("System 1").fill("<script>window.hacked = 1</script>")
        page.get_by_role("button", name="Search").click()
        page.get_by_role("alert").wait_for()
        assert page.evaluate("window.hacked") is None


def test_the_single_file_is_as_safe(hostile: Path, visit: Callable[..., Any]) -> None:
    from r2med.report.web.single_file import write_report
    from r2med.report.web.site import Site
    from tests.report.unpack import unpack

    target = hostile / "out.html"
    write_report(Site([hostile / "results"], task_folders=[hostile / "own"]), target, most=5_000_000)
    page = visit(offline=True)
    page.goto(target.as_uri())
    page.locator("form.find").wait_for()
    for anchor in [*unpack(target).pages, "find/script", "find/%3Cimg"]:
        page.evaluate("id => { location.hash = id; }", anchor)
        if anchor.startswith("find/"):
            page.locator("ol.moved + *, .notice").first.wait_for()
        else:
            page.wait_for_function("id => document.querySelector('section.page').id === id", arg=anchor)
        page.evaluate("document.querySelectorAll('main details').forEach(d => { d.open = true; })")
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), anchor
        assert page.evaluate("document.querySelectorAll('main img, main script, main iframe').length") == 0


def test_a_name_of_twenty_thousand_characters_stops_neither_pages_nor_the_report(hostile: Path) -> None:
    """Its pages were cut out of their addresses, which ended the report; drawing it took fourteen seconds."""
    from r2med.report.web.app import find_page
    from r2med.report.web.render import Links, PageRequest, page_html
    from r2med.report.web.single_file import write_report
    from r2med.report.web.site import Site

    site, links = Site([hostile / "results"], task_folders=[hostile / "own"]), Links()
    begun = time.process_time()
    for url in (links("tradeoffs", "own"), links("board", "own"), links("system", "own", LONG_NAME)):
        assert "longlong" in page_html(find_page(site, PageRequest.from_url(url), links), links)
    assert time.process_time() - begun < 7
    written = write_report(site, hostile / "out.html", most=5_000_000)
    assert written.bytes < 5_000_000
    assert written.queries == 2


def test_a_path_in_a_result_is_never_read(
    hostile: Path, serve: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's results name a folder of this machine: it stays closed, and the page says how to open it."""
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "another home"))
    with serve(hostile / "results") as server:
        answer = server.get("/task/own/own").text
        assert "--tasks" in answer
        assert "pain" not in answer
        assert "judgments not loaded" in server.get("/query/own/own/q1%22%27%3E%3Ci%3E").text


def test_what_was_run_here_is_found_again(hostile: Path, serve: Callable[..., Any]) -> None:
    """By its content, wherever the result says it lay."""
    for path in (hostile / "results").glob("*/*/*.json"):
        edit(path, lambda document: document["task"].update(source="/etc"))
    with serve(hostile / "results") as server:
        assert "pain" in server.get("/task/own/own").text
        query = server.get("/query/own/own/q1%22%27%3E%3Ci%3E").text
        assert "judgments not loaded" not in query
        assert "✓ relevant" in query
