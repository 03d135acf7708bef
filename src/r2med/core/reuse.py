"""What a cache saves: seconds that earlier runs spent on what was found there, and so what a first run costs.

Each stage says what it used of each cache set. A later stage of the same system that uses the same vectors would find
them made by the earlier one, also in a first run: they are counted once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


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
