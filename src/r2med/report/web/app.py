"""The web app: addresses in, pages out. It reads; there is nothing to send to it."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

import msgspec

from ...core import R2MedError, UnknownName, UsageError
from .pages.board import board, table_text, tradeoffs
from .pages.compare import compare_page
from .pages.details import document, progress, progress_state, system
from .pages.query import query
from .pages.task import task, written
from .render import Links, Page, PageRequest, page_html, static_file
from .site import Site

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
ANYWHERE = frozenset({"0.0.0.0", "::", "[::]"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::\d{1,5})?")
PAGES: dict[str, Callable[[Site, PageRequest, Links], Page]] = {
    "": board,
    "board": board,
    "tradeoffs": tradeoffs,
    "task": task,
    "written": written,
    "query": query,
    "compare": compare_page,
    "system": system,
    "document": document,
    "progress": progress,
}
STATIC = {
    "app.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "theme.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class Guard:
    """Answers only requests addressed to this machine by a name it knows, which keeps other sites' pages out.

    A page of the web can have its own name resolve to 127.0.0.1 and ask this app as if it were its own server; the
    name then stands in `Host`, and gives it away. An app that listens on all addresses answers to any of them, since
    an address cannot be made to resolve to another one, to the machine's own name, and to names that were allowed.
    """

    def __init__(self, application: Application, host: str = "", allowed: Iterable[str] = ()) -> None:
        self._application = application
        self._any_address = host in ANYWHERE
        own = [socket.gethostname(), f"{socket.gethostname()}.local"] if self._any_address else [host]
        names = {name.casefold().strip("[]") for name in (*own, *allowed) if name}
        self._known = LOOPBACK | names | {f"[{name}]" for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        if not self._welcome(scope):
            said = "This app answers only to the address it was started with; --allow-host NAME adds a name.\n"
            await _refuse(with_headers, 421, said)
        elif scope["method"] not in ("GET", "HEAD"):
            await _refuse(with_headers, 405, "There is nothing to send here.\n", (b"allow", b"GET, HEAD"))
        else:
            await self._application(scope, receive, with_headers)

    def _welcome(self, scope: Scope) -> bool:
        named = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        match = _HOST.fullmatch(named[0]) if len(named) == 1 else None
        if match is None:
            return False
        return match[1].casefold() in self._known or (self._any_address and _is_address(match[1]))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


async def _refuse(send: Send, status: int, text: str, *more: tuple[bytes, bytes]) -> None:
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


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
