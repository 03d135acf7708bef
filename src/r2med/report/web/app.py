"""The web app: addresses in, pages out, and who may send what to it.

All that can be sent to it is a query to be tried, which is kept nowhere.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ...core import R2MedError, UnknownName, UsageError
from .pages.board import board, table_text, tradeoffs
from .pages.compare import compare_page
from .pages.details import document, progress, progress_state, system
from .pages.query import query
from .pages.task import task, written
from .pages.try_it import try_it
from .render import Links, Page, PageRequest, page_html, static_file
from .site import Site

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
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
NOTHING_TO_SEND = "There is nothing to send here.\n"
MOST_BYTES = 1 << 20  # Of what a page sends.
BODY_SECONDS = 10.0
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
MOST_ASKING = 4  # Typed queries that are answered or waited for at once.
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
    "try": try_it,
}
STATIC = {
    "app.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "theme.js": "text/javascript; charset=utf-8",
    "try.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class Response:
    """What is sent back; an ASGI application of its own."""

    def __init__(
        self, body: str | bytes, media: str = "text/plain; charset=utf-8", status_code: int = 200, **headers: str
    ) -> None:
        self.body = body.encode("utf-8", "replace") if isinstance(body, str) else body
        self.status_code = status_code
        self.headers = {"content-type": media, "content-length": str(len(self.body)), **headers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status_code, "headers": pairs})
        await send({"type": "http.response.body", "body": self.body})


class Guard:
    """Answers only requests addressed to this machine by a name it knows, which keeps other sites' pages out.

    A page of the web can have its own name resolve to 127.0.0.1 and ask this app as if it were its own server; the
    name then stands in `Host`, and gives it away. An app that listens on all addresses answers to any of them, since
    an address cannot be made to resolve to another one, to the machine's own name, and to names that were allowed.
    """

    def __init__(
        self,
        application: ASGIApp,
        host: str = "",
        allowed: Iterable[str] = (),
        *,
        methods: Sequence[str] = ("GET", "HEAD"),
    ) -> None:
        self._application = application
        self._methods = methods
        self._any_address = host in ANYWHERE
        own = [socket.gethostname(), f"{socket.gethostname()}.local"] if self._any_address else [host]
        names = {name.casefold().strip("[]") for name in (*own, *allowed) if name}
        self._known = LOOPBACK | names | {f"[{name}]" for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        answer = self._application
        if not self._welcome(scope):
            said = "This app answers only to the address it was started with; --allow-host NAME adds a name.\n"
            answer = Response(said, status_code=421)
        elif scope["method"] not in self._methods:
            answer = Response(NOTHING_TO_SEND, status_code=405, allow=", ".join(self._methods))
        await answer(scope, receive, with_headers)

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


class Refused(Exception):
    """A request that is not answered, with the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def headers_of(scope: Scope) -> dict[str, str]:
    """The headers of a request by name."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def check_site(headers: dict[str, str], *, media: str = "") -> None:
    """Refuse what another site's page asks for; with `media`, also what no page of ours can have sent."""
    site = headers.get("sec-fetch-site")  # which browsers set, and no page can
    if site not in (None, "same-origin"):
        raise Refused(403, "This was asked for by a page of another site.")
    if not media:
        return
    origin = urlsplit(headers.get("origin", ""))
    same = origin.scheme in ("http", "https") and origin.netloc.casefold() == headers.get("host", "").casefold()
    # A page that tells nobody where it comes from sends its forms with the origin `null`.
    unnamed = media == FORM and site == "same-origin" and headers.get("origin") == "null"
    if not same and not unnamed:
        raise Refused(403, "This was sent by a page of another site, or by no page.")
    if headers.get("content-type", "").partition(";")[0].strip().casefold() != media:
        raise Refused(415, f"Only {media} is taken.")


async def read_body(headers: dict[str, str], receive: Receive) -> bytes:
    """What was sent, up to a limit in size and time."""
    too_long = Refused(413, f"At most {MOST_BYTES:,} bytes are taken.")
    announced = headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > MOST_BYTES:
        raise too_long

    async def read() -> bytes:
        parts, size = list[bytes](), 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "The request ended early.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > MOST_BYTES:
                raise too_long
            if not message.get("more_body"):
                return b"".join(parts)

    try:
        return await asyncio.wait_for(read(), BODY_SECONDS)
    except asyncio.TimeoutError:
        raise Refused(408, "The request took too long.") from None


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


def create_app(site: Site, *, host: str = "", allowed: Iterable[str] = ()) -> ASGIApp:
    """An ASGI application. Pages are made in threads, so that one that takes long does not hold up the others.

    Typed queries have threads of their own: those who wait for a slow model take none away from the pages.
    """
    typing = ThreadPoolExecutor(MOST_ASKING, thread_name_prefix="typed")
    asking = 0

    async def typed(path: str, scope: Scope, receive: Receive) -> Response:
        nonlocal asking
        if path != "/try":
            return Response(NOTHING_TO_SEND, status_code=405, allow="GET, HEAD")
        try:
            check_site(headers_of(scope), media=FORM)
            asked = PageRequest.of_form(path, await read_body(headers_of(scope), receive))
        except Refused as refused:
            return _answer(f"{refused}\n", "text/plain; charset=utf-8", refused.status)
        except ValueError:  # more fields than any form of ours has
            return _answer("This is no form of this app.\n", "text/plain; charset=utf-8", 400)
        if asking >= MOST_ASKING:
            return _answer(f"{MOST_ASKING} queries are being answered: try again in a moment.\n", "text/plain", 503)
        asking += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(typing, respond, site, asked)
        finally:
            asking -= 1

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1").partition("?")[0]
        if scope["method"] == "POST":
            answer = await typed(path, scope, receive)
        else:
            asked = PageRequest.of(path, scope["query_string"].decode("latin-1"))
            answer = await asyncio.to_thread(respond, site, asked)
        await answer(scope, receive, send)

    return Guard(application, host, allowed, methods=("GET", "HEAD", "POST") if site.trying else ("GET", "HEAD"))


def respond(site: Site, asked: PageRequest) -> Response:
    """A page, a table, a file of the app itself, or the state of the latest run."""
    rest, url, status = "/".join(asked.parts), Links(), 200
    if asked.page == "static" and rest in STATIC:
        return _answer(static_file(rest), STATIC[rest], cache="no-cache")
    if asked.page == "api" and rest == "progress":
        site.index.refresh()
        return _answer(msgspec.json.encode(progress_state(site)), "application/json")
    try:
        if asked.page == "table":
            media, text = table_text(site, asked)
            return _answer(text, f"{media}; charset=utf-8")
        page = find_page(site, asked, url)
    except R2MedError as error:
        status = 404 if isinstance(error, NoSuchPage | UnknownName) else 400 if isinstance(error, UsageError) else 500
        if asked.page in ("static", "table"):
            return _answer(f"{error}\n", "text/plain; charset=utf-8", status)
        title = "Not found" if status == 404 else "This cannot be shown"
        page = Page("error.html", title, {"message": str(error), "home": url("board")})
    if page.context.get("error"):
        status = 503 if page.context.get("busy") else 400
    running = (found := site.progress()) is not None and found.running
    html = page_html(page, url, running=running, tryable=site.trying is not None)
    return _answer(html, "text/html; charset=utf-8", status)


def _answer(body: str | bytes, media: str, status: int = 200, *, cache: str = "no-store") -> Response:
    return Response(body, media, status, cache_control=cache)
