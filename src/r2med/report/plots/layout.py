"""What charts share: scales with readable ticks, axes, a wrapped legend, labels that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ...core.untrusted import printable
from .svg import Anchor, Canvas, text_width

SMALL, NORMAL, LARGE = 12.0, 13.0, 16.0
BOLD = 1.12  # how much wider bold is
LONGEST_NAME = 300.0
FAR = 22.0  # from here on, a line leads from a point to its label
MARGIN = 20.0
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
MOST_DECADES = 8
LEAST_WIDTH = 0.4
"""Of a character, in parts of its size."""


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
    every = math.ceil((ceiling - floor) / MOST_DECADES)
    ticks = [m * 10.0**p for p in range(floor, ceiling, every) for m in ((1, 2, 5) if fine else (1,))]
    if (ceiling - floor) % every == 0:
        ticks.append(10.0**ceiling)
    return Scale(10.0**floor, 10.0**ceiling, start, end, tuple(ticks), log=True)


def tick_text(value: float) -> str:
    """A tick without noise: 0.001, 0.25, 20, 1,000."""
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.10f}".rstrip("0").rstrip(".") if value else "0"


class Box(NamedTuple):
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two overlap."""
        return not (
            self.right <= other.left or other.right <= self.left or self.bottom <= other.top or other.bottom <= self.top
        )

    def within(self, other: Box) -> bool:
        """Whether it lies inside the other."""
        across = other.left <= self.left and self.right <= other.right
        return across and other.top <= self.top and self.bottom <= other.bottom


def heading_height(width: float, title: str, subtitle: str) -> float:
    """Room for a wrapped title and a wrapped subtitle."""
    titles, lines = _heading_lines(width, title, subtitle)
    return MARGIN + 24 * len(titles) + 17 * len(lines) + 6


def heading(canvas: Canvas, title: str, subtitle: str) -> None:
    """Title, and under it what the numbers are."""
    titles, lines = _heading_lines(canvas.width, title, subtitle)
    for i, line in enumerate(titles):
        canvas.text(MARGIN, MARGIN + 14 + 24 * i, line, size=LARGE, bold=True)
    top = MARGIN + 24 * len(titles)
    for i, line in enumerate(lines):
        canvas.text(MARGIN, top + 12 + 17 * i, line, size=SMALL, ink="muted")


def _heading_lines(width: float, title: str, subtitle: str) -> tuple[list[str], list[str]]:
    room = width - 2 * MARGIN
    return wrap(title, room, LARGE * BOLD), wrap(subtitle, room, SMALL)


def wrap(text: str, width: float, size: float) -> list[str]:
    """Break a text into lines that fit; a word that is too long by itself loses its middle."""
    lines: list[str] = []
    for word in (fit(w, width, size) for w in text.split()):
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] = f"{lines[-1]} {word}"
        else:
            lines.append(word)
    return lines


def fit(text: str, width: float, size: float) -> str:
    """A text that fits: the middle of one that is too long gives way to dots."""
    whole = printable(text)
    most = int(width / (LEAST_WIDTH * size)) + 2  # no text with more characters fits
    shown = whole
    for kept in range(min(len(whole) - 1, most), 3, -1):
        if len(shown) <= most and text_width(shown, size) <= width:
            break
        head = (kept + 1) // 2
        shown = f"{whole[:head]}…{whole[len(whole) - kept + head :]}"
    return shown


class Entry(NamedTuple):
    """A name in the legend."""

    series: int
    name: str


def legend_rows(entries: Sequence[Entry], width: float) -> list[list[tuple[float, Entry]]]:
    """Entries with their x, in as many rows as they need."""
    rows: list[list[tuple[float, Entry]]] = [[]]
    x = 0.0
    for whole in entries:
        entry = Entry(whole.series, fit(whole.name, LONGEST_NAME, NORMAL))
        needed = 22 + text_width(entry.name, NORMAL) + 18
        if rows[-1] and x + needed > width:
            rows.append([])
            x = 0.0
        rows[-1].append((x, entry))
        x += needed
    return rows


def legend_height(entries: Sequence[Entry], width: float) -> float:
    """How much room a legend takes."""
    return 22.0 * len(legend_rows(entries, width)) + 6


def legend(canvas: Canvas, entries: Sequence[Entry], top: float) -> None:
    """Markers and names, left to right."""
    for i, row in enumerate(legend_rows(entries, canvas.width - 2 * MARGIN)):
        for x, entry in row:
            y = top + 22 * i + 11
            canvas.marker(MARGIN + x + 7, y, entry.series, radius=5.5)
            canvas.text(MARGIN + x + 22, y + 4.5, entry.name, size=NORMAL)


def x_axis(canvas: Canvas, scale: Scale, top: float, bottom: float, title: str) -> None:
    """Vertical grid lines, their numbers below, the title below those."""
    for tick in scale.ticks:
        x = scale(tick)
        canvas.line(x, top, x, bottom, "grid")
        canvas.text(x, bottom + 18, tick_text(tick), size=SMALL, ink="muted", anchor="middle")
    canvas.line(scale.start, bottom, scale.end, bottom, "axis")
    shown = fit(title, abs(scale.end - scale.start), NORMAL)
    canvas.text((scale.start + scale.end) / 2, bottom + 40, shown, size=NORMAL, anchor="middle")


def y_axis(canvas: Canvas, scale: Scale, left: float, right: float, title: str) -> None:
    """Horizontal grid lines, their numbers to the left, the title turned."""
    for tick in scale.ticks:
        y = scale(tick)
        canvas.line(left, y, right, y, "grid")
        canvas.text(left - 8, y + 4, tick_text(tick), size=SMALL, ink="muted", anchor="end")
    canvas.line(left, scale.end, left, scale.start, "axis")
    shown = fit(title, abs(scale.end - scale.start), NORMAL)
    canvas.text(left - 46, (scale.start + scale.end) / 2, shown, size=NORMAL, anchor="middle", turned=True)


class Label(NamedTuple):
    """A text that belongs to a point."""

    x: float
    y: float
    text: str


def place_labels(
    canvas: Canvas, labels: Iterable[Label], area: Box, marks: Sequence[Box], lines: Sequence[Box], *, gap: float = 9
) -> None:
    """Write each label beside its point: clear of marks, other labels and lines if it can be, else across a line."""
    used = list(marks)
    for whole in labels:
        label = Label(whole.x, whole.y, fit(whole.text, LONGEST_NAME, SMALL))
        places = [_label_box(label, *place, gap) for place in _PLACES]
        inside = [p for p in places if p[0].within(area)]
        free = [p for p in inside if not any(p[0].meets(other) for other in used)]
        clear = [p for p in free if not any(p[0].meets(line) for line in lines)]
        box, x, y, anchor = (clear or free or inside or places)[0]
        if abs(y - label.y) > FAR:
            canvas.line(label.x, label.y, x, y, "axis", width=0.8)
        canvas.text(x, y + SMALL * 0.36, label.text, size=SMALL, anchor=anchor)
        used.append(box)


def _label_box(label: Label, dx: float, dy: float, anchor: Anchor, gap: float) -> tuple[Box, float, float, Anchor]:
    width, height = text_width(label.text, SMALL), SMALL * 1.15
    x, y = label.x + dx * gap, label.y + dy * (gap + height / 2)
    left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
    return Box(left - 1, y - height / 2, left + width + 1, y + height / 2), x, y, anchor


_BESIDE: tuple[tuple[float, float, Anchor], ...] = (
    (1, 0, "start"),
    (-1, 0, "end"),
    (0, -1, "middle"),
    (0, 1, "middle"),
    (1, -0.8, "start"),
    (1, 0.8, "start"),
    (-1, -0.8, "end"),
    (-1, 0.8, "end"),
)
# Further off, with a line to the point: for crowds.
_AWAY: tuple[tuple[float, float, Anchor], ...] = tuple(
    place
    for step in range(2, 12)
    for place in (
        (2, -0.9 * step, "start"),
        (2, 0.9 * step, "start"),
        (-2, -0.9 * step, "end"),
        (-2, 0.9 * step, "end"),
    )
)
_PLACES = _BESIDE + _AWAY


def along(points: Sequence[tuple[float, float]]) -> list[Box]:
    """Small boxes that cover a broken line."""
    boxes = []
    for (x1, y1), (x2, y2) in pairwise(points):
        steps = max(1, round(max(abs(x2 - x1), abs(y2 - y1)) / 4))
        boxes += [around(x1 + (x2 - x1) * i / steps, y1 + (y2 - y1) * i / steps, 2) for i in range(steps + 1)]
    return boxes


def around(x: float, y: float, radius: float) -> Box:
    """The square a marker covers."""
    return Box(x - radius, y - radius, x + radius, y + radius)
