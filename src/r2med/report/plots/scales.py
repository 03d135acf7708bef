"""Scales: from values to pixels, with ticks that people can read."""

from __future__ import annotations

import math
from typing import NamedTuple

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


class Scale(NamedTuple):
    """Maps `low`..`high` onto `start`..`end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high, v = self.low, self.high, value
        if self.log:
            low, high, v = math.log10(low), math.log10(high), math.log10(value)
        share = (v - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


def linear(low: float, high: float, start: float, end: float, *, count: int = 6) -> Scale:
    """A linear scale that begins and ends on a tick."""
    if high <= low:
        low, high = low - 1.0, high + 1.0
    rough = (high - low) / max(count - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s for s in STEPS if s * power >= rough * (1 - 1e-9)) * power
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(round(i * step, 10) for i in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], start, end, ticks)


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    """A logarithmic scale over whole decades, or with ticks at 1, 2, 5 where it spans few."""
    floor, ceiling = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    if ceiling <= floor:
        ceiling = floor + 1
    fine = ceiling - floor <= 2
    ticks = [m * 10.0**p for p in range(floor, ceiling) for m in ((1, 2, 5) if fine else (1,))] + [10.0**ceiling]
    return Scale(10.0**floor, 10.0**ceiling, start, end, tuple(ticks), log=True)


def tick_text(value: float) -> str:
    """A tick without noise: 0.001, 0.25, 20, 1,000."""
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.10f}".rstrip("0").rstrip(".") if value else "0"
