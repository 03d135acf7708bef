"""Intervals that take their time: the page is there at once, and they come when they come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from r2med.report.web import site as sites
from r2med.report.web.app import create_app
from r2med.report.web.background import Background
from r2med.report.web.pages.board import board
from r2med.report.web.render import Links, PageRequest, page_html
from r2med.report.web.server import listen, make_server
from r2med.report.web.site import Site


@pytest.fixture
def slow_site(results: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site whose statistics take a second longer, as those of hundreds of systems do."""
    quick = sites.standing  # type: ignore[attr-defined]

    def slow(*arguments: Any) -> Any:
        time.sleep(1.0)
        return quick(*arguments)

    monkeypatch.setattr(sites, "standing", slow)
    made = Site([results])
    made.wait = 0.05
    return made


def test_the_table_says_that_intervals_are_coming(slow_site: Site) -> None:
    links, asked = Links(), PageRequest.from_url("/board/mini@1")
    html = page_html(board(slow_site, asked, links), links)
    assert 'aria-busy="true"' in html
    assert "being worked out" in html
    assert html.count('class="interval wait"') == 3
    slow_site.warm()
    html = page_html(board(slow_site, asked, links), links)
    assert "aria-busy" not in html
    assert html.count('class="interval"') == 3


def test_work_is_done_once_until_what_it_depends_on_changes() -> None:
    work, made = Background(), list[int]()

    def make() -> int:
        made.append(1)
        return len(made)

    first, second = object(), object()
    assert work.get("a", first, make, wait=None) == 1
    assert work.get("a", first, make, wait=None) == 1
    assert work.get("b", first, make, wait=None) == 2
    assert work.get("a", second, make, wait=None) == 3


def test_what_goes_wrong_is_told_to_who_asks() -> None:
    def fail() -> int:
        raise ValueError("no")

    work = Background()
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            work.get("a", None, fail, wait=None)
    assert work.get("b", None, lambda: 7, wait=None) == 7


def test_the_browser_fills_them_in_without_a_jump(slow_site: Site, visit: Callable[..., Any]) -> None:
    opened = listen("127.0.0.1", 0)
    server = make_server(create_app(slow_site))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    page = visit()
    page.goto(f"http://127.0.0.1:{opened.getsockname()[1]}/board/mini@1")
    assert page.locator("[aria-busy=true]").count() == 1
    before = page.locator("tbody tr").nth(2).bounding_box()
    page.locator("#scores:not([aria-busy])").wait_for()
    assert page.locator("small.interval:not(.wait)").count() == 3
    after = page.locator("tbody tr").nth(2).bounding_box()
    assert after["y"] == pytest.approx(before["y"], abs=1)
    assert after["height"] == pytest.approx(before["height"], abs=1)
    page.close()
    server.should_exit = True
    thread.join(10)
    opened.close()
