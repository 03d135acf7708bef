"""Texts that attack the judge: shown as text, and nothing in them hidden."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from r2med.judge import Project
from r2med.report.web.render import _ODD
from tests.judge.conftest import make_project, serving
from tests.report.test_browser import OVERFLOW

SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
ODD = [chr(code) for code in (*range(0x9), 0xB, 0xC, 0x1B, 0x7F, 0x9F, 0x61C, 0x200B, 0x200E, 0x200F, 0x2028, 0x202A,
                              0x202E, 0x2060, 0x2066, 0x2069, 0xFEFF, 0xFFF9, 0xE0001, 0xE0041)]  # fmt: skip
TEXTS = {
    "script": f"pain {SCRIPT} </title></textarea></svg><svg onload=window.hacked=3> javascript:window.hacked=4",
    "odd": "pain " + " x ".join(ODD) + " end",
    "long-word": "pain " + "x" * 50_000,
    "huge": "All of it is pain. " * 550_000,
    "<b/onmouseover=window.hacked=5>'\"": "pain in an id",
    "nothing": "",
}
QUERIES = {"q\"'><i>\0": f"pain {SCRIPT} \u202e {'y' * 20_000}"}


@pytest.fixture
def hostile(tmp_path: Path) -> Project:
    return make_project(
        tmp_path / "p", QUERIES, TEXTS, titles={"script": f"{SCRIPT}\u202e"}, terms=("(", "[a-", "pa*", "\\", "pain"),
        grades=(f"no {SCRIPT}", "yes \u202e"), question=f"{SCRIPT}?", name=f"{SCRIPT}\u202e", description=SCRIPT,
    )  # fmt: skip


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_runs_and_nothing_is_hidden(hostile: Project, visit: Callable[..., Any], width: int) -> None:
    with serving(hostile.folder, "--judge", "<img src=x onerror=window.hacked=6>") as clients:
        (client,) = clients.values()
        page = visit(width=width)
        page.goto(client.url)
        page.locator("li.passage.current").wait_for()
        for _ in TEXTS:
            page.keyboard.press("n")
            page.keyboard.insert_text(SCRIPT)
            page.keyboard.press("Escape")
            page.keyboard.press("1")
        page.wait_for_function("() => !document.querySelector('li.passage:not([data-state=saved])')")
        assert page.evaluate("window.hacked") is None
        assert (
            page.evaluate("document.querySelectorAll('main img, main script, main iframe, main i, main b').length") == 0
        )
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.evaluate(OVERFLOW) == []
        text = page.locator("main").inner_text()
        assert text.count("<script>window.hacked = 1</script>") >= 3
        for character in ODD:
            assert f"U+{ord(character):04X}" in text
        everything = page.evaluate("document.documentElement.innerText + document.title")
        assert not [c for c in _ODD.findall(everything) if c not in "\r"]
        journal = hostile.journal("<img src=x onerror=window.hacked=6>")
        assert len(journal.grades()) == len(TEXTS)
        assert {entry.note for entry in journal.entries()} == {SCRIPT}
        page.keyboard.press("?")
        page.get_by_role("heading", name="Keys").wait_for()


def test_ten_megabytes_are_folded_and_come_in_pieces(hostile: Project, visit: Callable[..., Any]) -> None:
    with serving(hostile.folder, "--judge", "Ada") as clients:
        assert len(clients["Ada"].ask("/api/query/0").text) < 150_000
        page = visit()
        page.goto(clients["Ada"].url)
        passage = page.locator("li.passage[data-doc=huge]")
        passage.focus()
        more = passage.get_by_role("button", name="Show more")
        more.wait_for()
        assert "characters are left" in more.inner_text()
        before = len(passage.locator(".text").inner_text())
        assert before < 10_000
        page.keyboard.press("f")
        page.wait_for_function(
            "n => document.querySelector('li.passage[data-doc=huge] .text').textContent.length > n + 40000", arg=before
        )
        shown = passage.locator(".text").evaluate("e => e.textContent")
        assert TEXTS["huge"].startswith(shown)
        passage.locator(".sentence").nth(1000).evaluate("s => getSelection().selectAllChildren(s)")
        page.keyboard.press("m")
        page.wait_for_function("() => document.querySelector('li.passage[data-doc=huge]').dataset.state === 'saved'")
        (entry,) = hostile.journal("Ada").entries()
        assert entry.support == "All of it is pain."
