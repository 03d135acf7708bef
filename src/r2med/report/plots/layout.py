"""What charts share: a framed area with axes, a wrapped legend, labels that keep out of each other's way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from .scales import Scale, tick_text
from .svg import Anchor, Canvas, text_width

SMALL, NORMAL, LARGE = 12.0, 13.0, 16.0
BOLD = 1.12  # how much wider bold is
LONGEST_NAME = 300.0
FAR = 22.0  # from here on, a line leads from a point to its label
MARGIN = 20.0


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
    shown = text
    for kept in range(len(text) - 1, 3, -1):
        if text_width(shown, size) <= width:
            break
        head = (kept + 1) // 2
        shown = f"{text[:head]}…{text[len(text) - kept + head :]}"
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
