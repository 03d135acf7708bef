"""How long to wait: between requests, so that a service's limits are kept, and after it said no."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

FIRST_WAIT, LONGEST_BACKOFF, LONGEST_WAIT = 0.5, 30.0, 120.0


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
