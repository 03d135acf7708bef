"""The judging server: who may ask, what is asked, and what is sent back.

Every judge has a secret token, made when the server starts. It stands behind the `#` of the address that is printed,
which browsers never send; the page sends it in a header with each request, reads included. What writes must come as
JSON from a page of this server.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote

import msgspec

from ..core import R2MedError, ResultError, UnknownName, UsageError
from ..report.web.app import (
    JSON,
    ASGIApp,
    Guard,
    Receive,
    Refused,
    Response,
    Scope,
    Send,
    check_site,
    headers_of,
    read_body,
)
from ..report.web.render import static_file
from . import Project
from .desk import Desk, Finished, Sent
from .journal import Conflict, JudgeKind

HTML, CSS, SCRIPT = "text/html; charset=utf-8", "text/css; charset=utf-8", "text/javascript; charset=utf-8"
OWN = {
    "judge.html": HTML,
    "judge.css": CSS,
    "judge.js": SCRIPT,
    "requests.js": SCRIPT,
    "saving.js": SCRIPT,
    "text.js": SCRIPT,
    "time.js": SCRIPT,
    "passage.js": SCRIPT,
}
SHARED = {"app.css": CSS, "theme.js": SCRIPT, "icon.svg": "image/svg+xml"}
"""Files of the web app for results that the judging page uses too."""


class Judge(NamedTuple):
    """Somebody who may use the server, and where."""

    name: str
    kind: JudgeKind
    url: str


class _Code(msgspec.Struct, forbid_unknown_fields=True):
    code: str


class JudgingApp:
    """Pages and data for the judges of a project, as an ASGI application."""

    def __init__(self, project: Project, judges: Sequence[str], adjudicator: str = "") -> None:
        named = [(name, "person") for name in judges] + ([(adjudicator, "adjudicator")] if adjudicator else [])
        if len({name for name, _ in named}) < len(named):
            raise UsageError("two judges cannot have the same name, nor can a judge be the adjudicator")
        self.desks = {name: Desk(project, name, kind) for name, kind in named}  # type: ignore[arg-type]
        self.tokens = {name: secrets.token_urlsafe(32) for name in self.desks}
        self._codes: dict[str, str] = {}
        self._lock = threading.Lock()

    def judges(self, where: str) -> list[Judge]:
        """The judges with their addresses at a server."""
        return [
            Judge(n, d.kind, f"{where}#judge={quote(n, safe='')}&token={self.tokens[n]}") for n, d in self.desks.items()
        ]

    def one_time_fragment(self, name: str) -> str:
        """An end for an address that lets a judge in once: other programs can see what a browser is started with."""
        code = secrets.token_urlsafe(32)
        self._codes[code] = name
        return f"#code={code}"

    def guarded(self, *, host: str = "", allowed: Iterable[str] = ()) -> ASGIApp:
        """The application behind the check of hosts."""
        return Guard(self, host, allowed, methods=("GET", "HEAD", "POST"))

    def warm(self) -> None:
        """Make ready what the first page needs."""
        for desk in self.desks.values():
            if desk.overview().queries:
                desk.query(desk.overview().queries[0].number)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except Refused as refused:
            answer = _json({"error": str(refused)}, refused.status)
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        path, method = scope["path"], scope["method"]
        headers = headers_of(scope)
        if not path.startswith("/api/"):
            return _file("judge.html" if path == "/" else path.removeprefix("/static/"), method)
        check_site(headers, media=JSON if method == "POST" else "")
        if path == "/api/enter":
            if method != "POST":
                raise Refused(405, "A code is sent, not asked for.")
            return self._enter(_decode(await read_body(headers, receive), _Code).code)
        desk = self._desk(headers)
        body = await read_body(headers, receive) if method == "POST" else b""
        return await asyncio.to_thread(respond, desk, method, path, scope["query_string"].decode("latin-1"), body)

    def _desk(self, headers: dict[str, str]) -> Desk:
        name = unquote(headers.get("x-judge", ""))
        given = headers.get("authorization", "").removeprefix("Bearer ")
        expected = self.tokens.get(name, "")
        if not secrets.compare_digest(given.encode(), (expected or secrets.token_urlsafe(32)).encode()):
            raise Refused(401, "Open the address that the server printed when it was last started: it holds a new key.")
        return self.desks[name]

    def _enter(self, code: str) -> Response:
        with self._lock:
            name = self._codes.pop(code, None)
        if name is None:
            raise Refused(401, "This address lets in once: open the one that the server printed.")
        return _json({"judge": name, "token": self.tokens[name]})


def respond(desk: Desk, method: str, path: str, query: str, body: bytes) -> Response:
    """Data for one judge, or the outcome of a write."""
    try:
        return _json(_data(desk, method, path, query, body))
    except Refused as refused:
        return _json({"error": str(refused)}, refused.status)
    except Conflict as conflict:
        return _json({"error": str(conflict), "current": conflict.current}, 409)
    except R2MedError as error:
        return _json({"error": str(error)}, _status(error))


def _data(desk: Desk, method: str, path: str, query: str, body: bytes) -> Any:
    match path.removeprefix("/api/").split("/"), method:
        case ["save"], "POST":
            return {"saved": desk.save(_decode(body, Sent))}
        case ["project"], "GET" | "HEAD":
            return desk.overview()
        case ["query", number], "GET" | "HEAD":
            return desk.query(_count(number))
        case ["query", number, place], "GET" | "HEAD":
            return desk.more(_count(number), _count(place), _count(parse_qs(query).get("from", ["0"])[0]))
    raise Refused(404, "There is no such address.")


def _status(error: R2MedError) -> int:
    if isinstance(error, Finished):
        return 403
    if isinstance(error, UnknownName):
        return 404
    if isinstance(error, UsageError):
        return 400
    return 507 if isinstance(error, ResultError) else 500


def _decode(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"This cannot be read: {error}.") from None


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise Refused(404, "There is no such address.")
    return int(text)


def _json(data: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(data), "application/json", status, cache_control="no-store")


def _file(name: str, method: str) -> Response:
    if method == "POST":
        raise Refused(405, "There is nothing to send here.")
    if name in SHARED:
        return Response(static_file(name), SHARED[name], cache_control="no-cache")
    if name in OWN:
        return Response(static_file(name, __package__ or ""), OWN[name], cache_control="no-cache")
    raise Refused(404, "There is no such page.")
