"""One way to ask an embedding service: limited in rate, patient where that helps, silent about the key."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from ...core import MissingExtra, ModelError, Unavailable, UsageError

LONGEST_WAIT = 120.0
TOO_LONG = ("maximum context length", "too long", "max_tokens", "maximum input length", "tokens must be", "token limit")


class TextTooLong(Exception):
    """The service says that an input exceeds the model's limit."""


class RateLimit:
    """Spreads requests and tokens over a minute; each request learns when its turn is."""

    def __init__(self, requests: int | None, tokens: int | None) -> None:
        self._requests, self._tokens = requests, tokens
        self._free_at = 0.0
        self._lock = threading.Lock()

    def wait(self, tokens: int) -> None:
        """Sleep until a request of so many tokens may go out."""
        span = max(60 / self._requests if self._requests else 0, 60 * tokens / self._tokens if self._tokens else 0)
        if span == 0:
            return
        with self._lock:
            now = time.monotonic()
            turn = max(self._free_at, now)
            self._free_at = turn + span
        time.sleep(max(turn - now, 0))


class Service:
    """An HTTP endpoint that answers JSON to JSON."""

    def __init__(
        self,
        url: str,
        headers: dict[str, str],
        secret: str,
        *,
        timeout: float,
        attempts: int,
        limit: RateLimit,
        notes: Counter[str],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise MissingExtra("calling an embedding service", "api") from None
        self._httpx: Any = httpx
        self._client = httpx.Client(headers=headers, timeout=timeout)
        self._secret = secret
        self._sleep = sleep
        self._lock = threading.Lock()
        self.url, self.attempts, self.limit, self.notes = url, attempts, limit, notes

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    @property
    def host(self) -> str:
        """For messages."""
        return str(self._httpx.URL(self.url).host)

    def post(self, body: dict[str, object], tokens: int) -> dict[str, Any]:
        """Ask until an answer comes, waiting longer each time; only what may pass by itself is repeated."""
        problem, wait = "", 0.0
        for attempt in range(self.attempts):
            if attempt:
                self._count("retries")
                self._sleep(wait)
            self.limit.wait(tokens)
            self._count("requests")
            try:
                response = self._client.post(self.url, json=body)
            except self._httpx.TimeoutException:
                problem, wait = "did not answer in time", _backoff(attempt)
                continue
            except self._httpx.TransportError as error:
                problem, wait = f"cannot be reached ({self._clean(str(error))})", _backoff(attempt)
                continue
            if response.status_code == 429 or response.status_code >= 500:
                problem = f"answered {response.status_code}"
                wait = _retry_after(response.headers.get("retry-after")) or _backoff(attempt)
                continue
            return self._read(response)
        raise Unavailable(f"{self.host} {problem}, {self.attempts} times; what was encoded is kept, run it again later")

    def _count(self, what: str) -> None:
        with self._lock:
            self.notes[what] += 1

    def _read(self, response: Any) -> dict[str, Any]:
        status = response.status_code
        if status in (401, 403):
            raise UsageError(f"{self.host} refused the API key ({status})")
        if status >= 400:
            message = self._clean(_message(response.text))
            if status in (400, 413, 422) and any(hint in message.lower() for hint in TOO_LONG):
                raise TextTooLong(message)
            raise ModelError(f"{self.host} refused the request ({status}): {message}")
        try:
            return msgspec.json.decode(response.content, type=dict[str, Any])
        except (ValueError, RecursionError):
            kind = response.headers.get("content-type", "something").split(";")[0]
            raise ModelError(f"{self.host} answered with {kind} that is not the JSON of embeddings") from None

    def _clean(self, message: str) -> str:
        one_line = " ".join(message.split())
        return (one_line.replace(self._secret, "…") if self._secret else one_line)[:200]


def _message(text: str) -> str:
    """The service's own words, dug out of its JSON where there is any."""
    try:
        found = msgspec.json.decode(text.encode())
    except (ValueError, RecursionError):
        return text
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    return str(found)


def _backoff(attempt: int) -> float:
    """Half a second doubled each time, give or take half, so that parallel requests do not come back together."""
    return float(min(0.5 * 2**attempt, 30.0) * random.uniform(0.5, 1.5))


def _retry_after(value: str | None) -> float | None:
    """Seconds from the header, which holds seconds or a date."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(timezone.utc)).total_seconds()
        except (TypeError, ValueError):
            return None
    return min(max(seconds, 0.01), LONGEST_WAIT)
