"""Intervals that take their time: the page is there at once, and they come when they come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from r2med.report.web.app import create_app
from r2med.report.web.asked import Asked, ServerLinks
from r2med.report.web.data import standings
from r2med.report.web.pages import board
from r2med.report.web.render import page_html
from r2med.report.web.server import listen
from r2med.report.web.site import Site


@pytest.fixture
def slow_site(results: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site whose statistics take a second longer, as those of hundreds of systems do."""
    quick = standings.work_out

    def slow(*arguments: Any) -> standings.Standing:
        time.sleep(1.0)
        return quick(*arguments)

    monkeypatch.setattr(standings, "work_out", slow)
    monkeypatch.setattr(board, "WAIT", 0.05)
    return Site([results])


def test_the_table_says_that_intervals_are_coming(slow_site: Site) -> None:
    links, asked = ServerLinks(), Asked.from_url("/board/mini")
    html = page_html(board.board(slow_site, asked, links), slow_site, links)
    assert 'aria-busy="true"' in html
    assert "being worked out" in html
    assert html.count('class="interval wait"') == 3
    slow_site.warm()
    html = page_html(board.board(slow_site, asked, links), slow_site, links)
    assert "aria-busy" not in html
    assert html.count('class="interval"') == 3


def test_the_browser_fills_them_in_without_a_jump(slow_site: Site, visit: Callable[..., Any]) -> None:
    opened = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_app(slow_site), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    page = visit()
    page.goto(f"http://127.0.0.1:{opened.getsockname()[1]}/board/mini")
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
