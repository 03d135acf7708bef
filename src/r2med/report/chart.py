"""What charts share: scales with readable ticks, heading, legend, axes, and labels that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..core.untrusted import printable
from .svg import Anchor, Canvas, text_width

SMALL, NORMAL, LARGE = 12.0, 13.0, 16.0
BOLD = 1.12  # How much wider bold is.
MARGIN = 20.0
LONGEST_NAME = 300.0
FAR = 22.0  # From here on, a line leads from a point to its label.
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
MOST_DECADES = 8
LEAST_WIDTH = 0.4  # Of a character, in parts of its size.


class Scale(NamedTuple):
    """Maps `low`..`high` onto `start`..`end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    log: bool = False

    def __call__(self, value: float) -> float:
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
    ceiling = max(ceiling, floor + 1)
    every = math.ceil((ceiling - floor) / MOST_DECADES)
    within = (1, 2, 5) if ceiling - floor <= 2 else (1,)
    ticks = [m * 10.0**p for p in range(floor, ceiling, every) for m in within]
    if (ceiling - floor) % every == 0:
        ticks.append(10.0**ceiling)
    return Scale(10.0**floor, 10.0**ceiling, start, end, tuple(ticks), log=True)


def tick_text(value: float) -> str:
    """A tick without noise: 0.001, 0.25, 20, 1,000."""
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.10f}".rstrip("0").rstrip(".") if value else "0"


def fit(text: str, width: float, size: float) -> str:
    """A text that fits: the middle of one that is too long gives way to dots."""
    whole = shown = printable(text)
    most = int(width / (LEAST_WIDTH * size)) + 2  # no text with more characters fits
    for kept in range(min(len(whole) - 1, most), 3, -1):
        if len(shown) <= most and text_width(shown, size) <= width:
            break
        head = (kept + 1) // 2
        shown = f"{whole[:head]}…{whole[len(whole) - kept + head :]}"
    return shown


def wrap(text: str, width: float, size: float) -> list[str]:
    """Break a text into lines that fit; a word that is too long by itself loses its middle."""
    lines: list[str] = []
    for word in (fit(w, width, size) for w in text.split()):
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] = f"{lines[-1]} {word}"
        else:
            lines.append(word)
    return lines


class Box(NamedTuple):
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.bottom <= other.top or other.bottom <= self.top)

    def within(self, other: Box) -> bool:
        across = other.left <= self.left and self.right <= other.right
        return across and other.top <= self.top and self.bottom <= other.bottom


def around(x: float, y: float, radius: float) -> Box:
    """The square a marker covers."""
    return Box(x - radius, y - radius, x + radius, y + radius)


def along(points: Sequence[tuple[float, float]]) -> list[Box]:
    """Small boxes that cover a broken line."""
    boxes = []
    for (x1, y1), (x2, y2) in pairwise(points):
        steps = max(1, round(max(abs(x2 - x1), abs(y2 - y1)) / 4))
        boxes += [around(x1 + (x2 - x1) * i / steps, y1 + (y2 - y1) * i / steps, 2) for i in range(steps + 1)]
    return boxes


class Label(NamedTuple):
    """A text that belongs to a point."""

    x: float
    y: float
    text: str


# Where a label may stand, in gaps from its point: beside it first, then further off with a line to it, for crowds.
_PLACES: list[tuple[float, float, Anchor]] = [
    (1, 0, "start"), (-1, 0, "end"), (0, -1, "middle"), (0, 1, "middle"),
    (1, -0.8, "start"), (1, 0.8, "start"), (-1, -0.8, "end"), (-1, 0.8, "end"),
]  # fmt: skip
for _step in range(2, 12):
    _PLACES += [(2, -0.9 * _step, "start"), (2, 0.9 * _step, "start")]
    _PLACES += [(-2, -0.9 * _step, "end"), (-2, 0.9 * _step, "end")]


class Chart(Canvas):
    """A picture with a heading, unless the page around it has one, and a legend of series; `top` is below both."""

    def __init__(
        self, width: float, title: str, subtitle: str = "", *, headed: bool = True, series: Sequence[str] = ()
    ) -> None:
        super().__init__(width, title=title, description=subtitle)
        self.top = self._heading(title, subtitle) if headed else 0.0
        if series:
            self.top = self._legend(series, self.top)

    def _heading(self, title: str, subtitle: str) -> float:
        room, y = self.width - 2 * MARGIN, MARGIN
        for line in wrap(title, room, LARGE * BOLD):
            self.text(MARGIN, y + 14, line, size=LARGE, bold=True)
            y += 24
        for line in wrap(subtitle, room, SMALL):
            self.text(MARGIN, y + 12, line, size=SMALL, ink="muted")
            y += 17
        return y + 6

    def _legend(self, series: Sequence[str], top: float) -> float:
        """Markers and names, left to right, in as many rows as they need."""
        x, y = MARGIN, top + 11
        for number, whole in enumerate(series):
            name = fit(whole, LONGEST_NAME, NORMAL)
            needed = 22 + text_width(name, NORMAL) + 18
            if x > MARGIN and x + needed > self.width - MARGIN:
                x, y = MARGIN, y + 22
            self.marker(x + 7, y, number, radius=5.5)
            self.text(x + 22, y + 4.5, name, size=NORMAL)
            x += needed
        return y + 17

    def x_axis(self, scale: Scale, top: float, bottom: float, title: str) -> None:
        """Vertical grid lines, their numbers below, the title below those."""
        self.x_ticks([(scale(tick), tick_text(tick)) for tick in scale.ticks], top, bottom)
        self.line(scale.start, bottom, scale.end, bottom, "axis")
        shown = fit(title, abs(scale.end - scale.start), NORMAL)
        self.text((scale.start + scale.end) / 2, bottom + 40, shown, size=NORMAL, anchor="middle")

    def x_ticks(self, ticks: Iterable[tuple[float, str]], top: float, bottom: float) -> None:
        """Vertical grid lines and what is written below them; a text without room is left out."""
        taken = -math.inf
        for x, text in ticks:
            self.line(x, top, x, bottom, "grid")
            half = text_width(text, SMALL) / 2
            if x - half > taken and x + half <= self.width:
                self.text(x, bottom + 18, text, size=SMALL, ink="muted", anchor="middle")
                taken = x + half + 4

    def y_axis(self, scale: Scale, left: float, right: float, title: str, *, away: float = 46) -> None:
        """Horizontal grid lines, their numbers to the left, the title turned and `away` from the line."""
        for tick in scale.ticks:
            y = scale(tick)
            self.line(left, y, right, y, "grid")
            self.text(left - 8, y + 4, tick_text(tick), size=SMALL, ink="muted", anchor="end")
        self.line(left, scale.end, left, scale.start, "axis")
        shown = fit(title, abs(scale.end - scale.start), NORMAL)
        self.text(left - away, (scale.start + scale.end) / 2, shown, size=NORMAL, anchor="middle", turned=True)

    def labels(
        self, labels: Iterable[Label], area: Box, marks: Sequence[Box], lines: Sequence[Box], *, gap: float = 9
    ) -> None:
        """Write each label beside its point: clear of marks, other labels and lines if it can be, else over a line."""
        used = list(marks)
        for whole in labels:
            label = Label(whole.x, whole.y, fit(whole.text, LONGEST_NAME, SMALL))
            places = [_label_box(label, *place, gap) for place in _PLACES]
            inside = [p for p in places if p[0].within(area)]
            free = [p for p in inside if not any(p[0].meets(other) for other in used)]
            clear = [p for p in free if not any(p[0].meets(line) for line in lines)]
            box, x, y, anchor = (clear or free or inside or places)[0]
            if abs(y - label.y) > FAR:
                self.line(label.x, label.y, x, y, "axis", width=0.8)
            self.text(x, y + SMALL * 0.36, label.text, size=SMALL, anchor=anchor)
            used.append(box)


def _label_box(label: Label, dx: float, dy: float, anchor: Anchor, gap: float) -> tuple[Box, float, float, Anchor]:
    width, height = text_width(label.text, SMALL), SMALL * 1.15
    x, y = label.x + dx * gap, label.y + dy * (gap + height / 2)
    left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
    return Box(left - 1, y - height / 2, left + width + 1, y + height / 2), x, y, anchor
