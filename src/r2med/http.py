"""One HTTP endpoint that answers JSON to JSON: patient where that helps, quick where not, silent about the key."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec

from .core import MissingExtra, ModelError, Unavailable, UsageError
from .core.budget import Usage

FIRST_WAIT, LONGEST_BACKOFF, LONGEST_WAIT = 0.5, 30.0, 120.0

MOST_BYTES = 8 << 20
# Of one answer. Eight answers of 32,000 tokens are about two million bytes.
CONNECT_SECONDS = 10.0
PASSING = {408, 409, 425, 429}
# Refusals that may be gone the next time, besides everything from 500 up.
BAD_KEY = {401, 403}
THIS_REQUEST = {400, 413, 422}
TOO_LONG = (
    "context length",
    "context_length",
    "context size",
    "too long",
    "maximum input",
    "too many tokens",
    "exceed",
)
FILTERED = ("content_filter", "content management policy", "content_policy", "safety system", "responsibleai")
NO_MONEY = ("insufficient_quota", "billing", "exceeded your current quota", "credit balance")


class Rejected(Exception):
    """This request cannot be answered, though others may be."""

    def __init__(self, message: str, *, filtered: bool = False) -> None:
        super().__init__(message)
        self.filtered = filtered


class Answer(NamedTuple):
    """A decoded body and how long it took."""

    body: dict[str, Any]
    seconds: float


class _TryAgain(Exception):
    """Something that may pass by itself."""

    def __init__(self, problem: str, wait: float | None = None) -> None:
        super().__init__(problem)
        self.wait = wait


class Endpoint:
    """A URL below which chat completions are served, and the key for it."""

    def __init__(
        self,
        base_url: str,
        key: str,
        usage: Usage,
        *,
        timeout: float,
        attempts: int,
        connections: int,
        limit: RateLimit,
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise MissingExtra("calling a chat endpoint", "api") from None
        self._httpx: Any = httpx
        self.url = completions_url(base_url)
        self.host = urlsplit(self.url).hostname or ""
        self._key = checked_key(key)
        self._usage, self._timeout, self._attempts, self._limit = usage, timeout, attempts, limit
        self._client = httpx.Client(
            headers=self._headers(),
            timeout=httpx.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout), pool=None),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            follow_redirects=False,  # a key goes to the host it was meant for
        )

    def __repr__(self) -> str:
        return f"Endpoint({self.host!r})"

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def post(self, body: dict[str, object], tokens: int, stop: threading.Event) -> Answer:
        """Ask until an answer comes, waiting longer each time; what cannot change is not asked twice."""
        content = msgspec.json.encode(body)
        problem = "was not asked"
        for attempt in range(self._attempts):
            if attempt:
                self._usage.add(retries=1)
            self._limit.wait(tokens, stop)
            if stop.is_set():
                break
            self._usage.add(attempts=1)
            try:
                return self._once(content)
            except _TryAgain as why:
                problem = str(why)
                if attempt + 1 < self._attempts:
                    stop.wait(why.wait if why.wait is not None else backoff(attempt))
        times = "once" if self._attempts == 1 else f"{self._attempts} times"
        raise Unavailable(f"{self.host} {problem}, {times}; what was generated is kept, run it again later")

    def _once(self, content: bytes) -> Answer:
        begun = time.monotonic()
        try:
            with self._client.stream("POST", self.url, content=content) as response:
                raw = self._read(response, begun)
        except self._httpx.TimeoutException:
            raise _TryAgain("did not answer in time") from None
        except (self._httpx.TransportError, self._httpx.DecodingError) as error:
            raise _TryAgain(f"cannot be reached ({self._clean(str(error)) or type(error).__name__})") from None
        seconds = time.monotonic() - begun
        if self._key and (key := self._key.encode()) in raw:
            raw = raw.replace(key, b"[key]")  # a server that echoes it does not get it into a store
        return Answer(self._judge(response, raw), seconds)

    def _read(self, response: Any, begun: float) -> bytes:
        """The whole body, within its size and time: a server may drip bytes for ever."""
        parts, size = [], 0
        for part in response.iter_bytes():
            size += len(part)
            if size > MOST_BYTES:
                raise Rejected(f"{self.host} answered with more than {MOST_BYTES >> 20} MB")
            if time.monotonic() - begun > self._timeout:
                raise _TryAgain("did not answer in time")
            parts.append(part)
        return b"".join(parts)

    def _judge(self, response: Any, raw: bytes) -> dict[str, Any]:
        status = response.status_code
        if status == 200:
            body = self._decode(response, raw)
            error = body.get("error")
            if not error:
                return body
            # Some gateways say 200 to everything and put what happened into the body.
            code = error.get("code") if isinstance(error, dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else 500
        self._refuse(status, self._clean(_message(raw)), retry_after(response.headers))
        raise AssertionError("not reached")

    def _refuse(self, status: int, message: str, wait: float | None) -> None:
        said = message.lower()
        if status in BAD_KEY:
            raise UsageError(
                f"{self.host} refused the API key ({status})"
                if self._key
                else f"{self.host} wants an API key ({status})"
            )
        if status == 429 and any(hint in said for hint in NO_MONEY):
            raise UsageError(f"{self.host}: the account has no credit left ({message})")
        if status in PASSING or status >= 500:
            raise _TryAgain(f"answered {status} ({message})" if message else f"answered {status}", wait)
        if status in THIS_REQUEST:
            filtered = any(hint in said for hint in FILTERED)
            if filtered or any(hint in said for hint in TOO_LONG):
                raise Rejected(f"{self.host} refused this request ({status}): {message}", filtered=filtered)
        if status < 400:
            raise ModelError(f"{self.host} answered {status}, not an answer: check the base URL")
        raise ModelError(f"{self.host} refused the request ({status}): {message}")

    def _decode(self, response: Any, raw: bytes) -> dict[str, Any]:
        try:
            return msgspec.json.decode(raw, type=dict[str, Any])
        except (ValueError, RecursionError):
            kind = response.headers.get("content-type", "something").split(";")[0]
            raise _TryAgain(f"answered with {kind} that is not the JSON of a chat completion") from None

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._key and self.host.endswith(".azure.com"):
            headers["api-key"] = self._key
        elif self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers

    def _clean(self, message: str) -> str:
        """One short line that does not hold the key."""
        one_line = " ".join(message.split())
        return (one_line.replace(self._key, "[key]") if self._key else one_line)[:200]


def completions_url(base_url: str) -> str:
    """`/chat/completions` below the base URL; Azure's carries its version as a query, which stays at the end."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = base_url if "@" not in base_url else "OPENAI_BASE_URL"
        raise UsageError(f"{shown!r} is not the URL of a chat endpoint (http://host/v1)")
    path = parts.path.rstrip("/")
    path = path if path.endswith("/chat/completions") else f"{path}/chat/completions"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def checked_key(key: str) -> str:
    """The key, if it can be sent at all; a message about it never shows it."""
    key = key.strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError("the API key holds characters that no key has (spaces, line breaks or accents)")
    return key


def _message(raw: bytes) -> str:
    """The server's own words, dug out of its JSON where there is any."""
    try:
        found = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        text = raw[:2000].decode("utf-8", "replace").lstrip()
        return "" if text.startswith("<") else text
    code = ""
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
            if isinstance(found, dict) and isinstance(found.get("code"), str):
                code = found["code"]
    words = found if isinstance(found, str) else msgspec.json.encode(found).decode()
    return f"{code}: {words}" if code and code not in words else words


class RateLimit:
    """Spreads requests and tokens over a minute; each request learns when its turn is."""

    def __init__(self, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self._requests, self._tokens = requests_per_minute, tokens_per_minute
        self._free_at = 0.0
        self._lock = threading.Lock()

    def wait(self, tokens: int, stop: threading.Event) -> None:
        """Sleep until a request of so many tokens may go out, or until `stop`."""
        span = max(60 / self._requests if self._requests else 0, 60 * tokens / self._tokens if self._tokens else 0)
        if span == 0:
            return
        with self._lock:
            now = time.monotonic()
            turn = max(self._free_at, now)
            self._free_at = turn + span
        if turn > now:
            stop.wait(turn - now)


def backoff(attempt: int) -> float:
    """Half a second doubled each time, give or take half, so that parallel requests do not come back together."""
    return float(min(FIRST_WAIT * 2**attempt, LONGEST_BACKOFF) * random.uniform(0.5, 1.5))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the service asks for: `retry-after-ms`, or `retry-after` as seconds or a date."""
    seconds: float
    try:
        if milliseconds := headers.get("retry-after-ms"):
            seconds = float(milliseconds) / 1000
        elif not (value := headers.get("retry-after")):
            return None
        elif value.replace(".", "", 1).isdigit():
            seconds = float(value)
        else:
            seconds = (parsedate_to_datetime(value) - datetime.now(timezone.utc)).total_seconds()
    except (TypeError, ValueError):
        return None
    return None if math.isnan(seconds) else min(max(seconds, 0.01), LONGEST_WAIT)
