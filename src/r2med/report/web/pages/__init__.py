"""One function per page: from what is asked to what its template shows."""

from __future__ import annotations

from collections.abc import Callable

from ....core import UsageError
from ..request import Links, Page, PageRequest
from ..site import Site
from .board import board
from .compare import compare_page
from .details import document, progress, system
from .query import query
from .task import task
from .tradeoffs import tradeoffs

PAGES: dict[str, Callable[[Site, PageRequest, Links], Page]] = {
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


def find_page(site: Site, asked: PageRequest, url: Links) -> Page:
    """The page that is asked for."""
    if asked.page not in PAGES:
        raise NoSuchPage("there is no such page")
    if not site.held and asked.page in ("", "compare"):
        folders = [str(root) for root in site.index.roots]
        context = {"folders": folders, "trouble": site.problems(), "published": url("board", "r2med")}
        return Page("empty.html", "No results yet", context, "board")
    return PAGES[asked.page](site, asked, url)
