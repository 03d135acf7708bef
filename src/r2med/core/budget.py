"""What has been spent: calls, tokens, dollars, counted from many threads; and one limit for a whole command."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from .errors import R2MedError, UsageError

BYTES_PER_TOKEN = 4  # English prose; services bill what they count themselves


def estimate_tokens(text: str) -> int:
    """About a token per four bytes of text."""
    return len(text.encode()) // BYTES_PER_TOKEN + 1


class BudgetSpent(R2MedError):
    """The next call could cost more than is left; everything paid for so far is kept."""

    exit_code = 3


class Usage:
    """Counters of one model behind an API, or of one that runs here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls = 0  # requests that were answered
        self.attempts = 0  # times something was sent
        self.retries = 0
        self.rate_limited = 0  # times the server said that it was asked too often
        self.waited = 0.0  # seconds between attempts
        self.failures = 0  # requests that could not be answered
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.estimated = 0  # answers whose tokens the server did not count, so we did
        self.seconds = 0.0  # sum over calls; several run at once
        self.cost = 0.0  # dollars, as far as prices are known
        self.unpriced = 0  # answered calls whose price is not known

    def add(self, **amounts: float) -> None:
        """Add to counters by name."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    @property
    def priced(self) -> float | None:
        """Dollars; None where the price of a call is not known."""
        return None if self.unpriced else self.cost

    def snapshot(self) -> dict[str, Any]:
        """All counters as plain data."""
        with self._lock:
            return {key: value for key, value in vars(self).items() if not key.startswith("_")}


class Hold(msgspec.Struct):
    """Money set aside for one call under way."""

    actual: float | None = None  # what it came to; None: the call failed and took nothing that we know of


class Budget:
    """Keeps what is spent, and the most that calls under way may cost, within a limit.

    Whoever runs a command makes one and gives it to every model that can cost money.
    """

    def __init__(self, limit: float | None) -> None:
        if limit is not None and not limit >= 0:  # not a number is refused too
            raise UsageError(f"a budget must not be negative, not {limit}")
        self.limit = limit
        self.spent = 0.0
        self._held = 0.0
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, ahead: float) -> Iterator[Hold]:
        """Set `ahead` dollars aside for a call, waiting for others to settle where that may make room."""
        with self._changed:
            while self.limit is not None and self.spent + self._held + ahead > self.limit:
                if self._held <= 0:
                    raise BudgetSpent(
                        f"the budget of ${self.limit:g} is spent: ${self.spent:.4f} so far, and the next call may "
                        f"take ${ahead:.4f}; what was finished is kept: allow more to go on"
                    )
                self._changed.wait()
            self._held += ahead
        hold = Hold()
        try:
            yield hold
        finally:
            with self._changed:
                left = self._held - ahead
                self._held = left if left > 1e-12 else 0.0
                self.spent += hold.actual or 0.0
                self._changed.notify_all()
