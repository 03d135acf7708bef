"""What every answer carries, and which requests the app answers."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

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
