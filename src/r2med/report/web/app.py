"""The web app: addresses in, pages out. It reads; there is nothing to send to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ...core import R2MedError, UnknownName, UsageError
from .guard import Application, Guard, Receive, Scope, Send
from .pages import NoSuchPage, find_page
from .pages.board import table_text
from .pages.details import progress_state
from .render import page_html, static_file
from .request import Links, Page, PageRequest
from .site import Site

STATIC = {
    "app.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "theme.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class Answer(NamedTuple):
    """What is sent back."""

    status: int
    media: str
    body: bytes
    cache: str = "no-store"


def create_app(site: Site, *, host: str = "", allowed: Iterable[str] = ()) -> Application:
    """An ASGI application. Pages are made in threads, so that one that takes long does not hold up the others."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1").partition("?")[0]
        asked = PageRequest.of(path, scope["query_string"].decode("latin-1"))
        answer = await asyncio.to_thread(respond, site, asked)
        headers = {"content-type": answer.media, "cache-control": answer.cache, "content-length": str(len(answer.body))}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
        await send({"type": "http.response.body", "body": answer.body})

    return Guard(application, host, allowed)


def respond(site: Site, asked: PageRequest) -> Answer:
    """A page, a table, a file of the app itself, or the state of the latest run."""
    rest = "/".join(asked.parts)
    if asked.page == "static":
        if rest not in STATIC:
            return Answer(404, "text/plain", b"there is no such file\n")
        return Answer(200, STATIC[rest], static_file(rest), "no-cache")
    if asked.page == "api" and rest == "progress":
        site.index.refresh()
        return Answer(200, "application/json", msgspec.json.encode(progress_state(site)))
    if asked.page == "table":
        try:
            media, text = table_text(site, asked)
        except R2MedError as error:
            return Answer(_status(error), "text/plain; charset=utf-8", f"{error}\n".encode("utf-8", "replace"))
        return Answer(200, f"{media}; charset=utf-8", text.encode("utf-8", "replace"))
    html, status = page_or_error(site, asked)
    return Answer(status, "text/html; charset=utf-8", html.encode("utf-8", "replace"))


def page_or_error(site: Site, asked: PageRequest) -> tuple[str, int]:
    """The HTML of a page, or of a page that says what is wrong, and the status."""
    status, url = 200, Links()
    try:
        page = find_page(site, asked, url)
    except R2MedError as error:
        status = _status(error)
        title = "Not found" if status == 404 else "This cannot be shown"
        page = Page("error.html", title, {"message": str(error), "home": url("board")})
    running = (found := site.progress()) is not None and found.running
    return page_html(page, url, running=running), status


def _status(error: R2MedError) -> int:
    if isinstance(error, NoSuchPage | UnknownName):
        return 404
    return 400 if isinstance(error, UsageError) else 500
