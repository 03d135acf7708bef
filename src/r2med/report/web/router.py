"""From an address to a page."""

from __future__ import annotations

from collections.abc import Callable

from ...core import UnknownName, UsageError
from .asked import Asked, Links, Page
from .export import FORMATS, table_rows
from .pages.board import board, board_lines, read_choice
from .pages.compare import compare_page
from .pages.document import document
from .pages.progress import progress
from .pages.query import query
from .pages.system import system
from .pages.task import task
from .pages.tradeoffs import tradeoffs
from .site import Site

PAGES: dict[str, Callable[[Site, Asked, Links], Page]] = {
    "": board,
    "board": board,
    "tradeoffs": tradeoffs,
    "task": task,
    "query": query,
    "compare": compare_page,
    "system": system,
    "document": document,
    "progress": progress,
}


class NoSuchPage(UsageError):
    """An address that leads nowhere."""


def find_page(site: Site, asked: Asked, url: Links) -> Page:
    """The page that is asked for."""
    if asked.page not in PAGES:
        raise NoSuchPage("there is no such page")
    if not site.held and asked.page in ("", "compare"):
        return Page("empty.html", "No results yet", {"folders": [str(r) for r in site.shelf.roots],
                    "trouble": site.problems(), "published": url("board", "r2med")}, "board")  # fmt: skip
    return PAGES[asked.page](site, asked, url)


def table_text(site: Site, asked: Asked) -> tuple[str, str]:
    """The leaderboard in a format to take along, and the format's media type."""
    ending = asked.get("format", "csv")
    if ending not in FORMATS:
        raise UnknownName("format", ending, FORMATS, hint=f"(there are: {', '.join(FORMATS)})")
    choice = read_choice(site, asked)
    lines = [line for line in board_lines(site, choice, wait=0.0)[0] if choice.kind in ("", line.kind)]
    holdings = site.holdings(choice.collection)
    tasks = list(dict.fromkeys([*holdings.whole, *(t for line in lines for t in line.tasks)]))
    media, write = FORMATS[ending]
    caption = f"{choice.measure} × 100 on {holdings.title}."
    if any(not line.row.measured for line in lines):
        caption += " Published figures are other people's, under their own protocol."
    return media, write(table_rows(lines, tasks, choice.average), caption)
