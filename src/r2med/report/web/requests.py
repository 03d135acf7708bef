"""What pages send: who may send it, and how much of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from .app import Receive, Scope

MOST_BYTES = 1 << 20
BODY_SECONDS = 10.0
JSON, FORM = "application/json", "application/x-www-form-urlencoded"


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
    if not same and not (site == "same-origin" and headers.get("origin") == "null"):
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
