"""What work costs: calls, tokens and dollars, counted from many threads; one limit for a whole command; time saved.

A cache saves the seconds that earlier runs spent on what was found there; with them a result says what a first run
costs. Each stage says what it used of each cache set. A later stage of the same system that uses the same vectors would
find them made by the earlier one, also in a first run: they are counted once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from .errors import R2MedError, UsageError

T = TypeVar("T")
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


@dataclass(frozen=True)  # Python 3.10 has no generic NamedTuple
class Timed(Generic[T]):
    """A value and the seconds it took."""

    value: T
    seconds: float

    @classmethod
    def of(cls, make: Callable[[], T]) -> Timed[T]:
        """Make a value and measure it."""
        begin = time.perf_counter()
        return cls(make(), time.perf_counter() - begin)

    @property
    def nbytes(self) -> int:
        """Memory that the value takes, where it says so."""
        return int(getattr(self.value, "nbytes", 0))


class Reused(NamedTuple):
    """What was used of one cache set; None where an earlier r2med stored it without the time it took."""

    seconds: float | None
    """What making all of it took, whenever that was."""
    saved: float | None
    """The part of it that was there already."""


Account = Mapping[str, Reused]
"""By cache set, whatever names it."""


def together(accounts: Iterable[Account]) -> dict[str, Reused]:
    """What one stage used in several steps, each of its own texts."""
    total: dict[str, Reused] = {}
    for account in accounts:
        for name, used in account.items():
            before = total.get(name, Reused(0.0, 0.0))
            total[name] = Reused(known_sum((before.seconds, used.seconds)), known_sum((before.saved, used.saved)))
    return total


def in_turn(first: Account, second: Account) -> dict[str, Reused]:
    """What two steps used one after the other: of a set that both used, the one that used more of it counts."""
    larger = {name: max(first[name], used, key=_unknown_last) for name, used in second.items() if name in first}
    return {**first, **second, **larger}


def _unknown_last(used: Reused) -> float:
    return float("inf") if used.seconds is None else used.seconds


def saved_seconds(stages: Mapping[str, Account]) -> dict[str, float | None]:
    """What the cache saved in each stage, in their order; None where nobody measured it."""
    made: dict[str, float] = {}
    found: dict[str, float | None] = {}
    for stage, account in stages.items():
        found[stage] = 0.0
        for name, used in account.items():
            if used.saved is None or used.seconds is None:
                saved = None if name not in made else 0.0  # what an earlier stage lacks is said there
            else:
                saved = max(0.0, min(used.saved, used.seconds - made.get(name, 0.0)))
            found[stage] = known_sum((found[stage], saved))
            made[name] = max(made.get(name, 0.0), used.seconds or 0.0)
    return found


def known_sum(values: Iterable[float | None]) -> float | None:
    """A sum; None where one of its parts is not known."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
