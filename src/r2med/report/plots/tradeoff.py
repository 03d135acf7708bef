"""Score against what a system costs, with the line of systems that no other beats on both."""

from __future__ import annotations

from collections.abc import Sequence

from ...scoring import Measure
from ..costs import Axis, CostPoint
from .layout import (
    MARGIN,
    SMALL,
    Box,
    Label,
    Scale,
    along,
    around,
    heading,
    heading_height,
    linear,
    logarithmic,
    place_labels,
    tick_text,
    x_axis,
    y_axis,
)
from .svg import Canvas

WIDTH, PLOT = 860.0, 400.0
LEFT, RIGHT = MARGIN + 56, WIDTH - MARGIN - 20
GUTTER = 70.0
"""A place of its own for what costs nothing, which a logarithmic scale has not."""
LABELLED = 14


def frontier(points: Sequence[CostPoint]) -> list[CostPoint]:
    """Systems that no other beats by scoring more for no higher price, cheapest first."""
    best: list[CostPoint] = []
    for point in sorted(points, key=lambda p: (p.cost, -p.score)):
        if not best or point.score > best[-1].score:
            best.append(point)
    return best


def draw_tradeoff(points: Sequence[CostPoint], axis: Axis, measure: Measure, where: str, *, headed: bool) -> Canvas:
    """A point per system, squares for published figures; the dashed line joins the Pareto front.

    A picture for a file is `headed`; a page has a heading of its own.
    """
    title = f"{measure} against {axis.title.lower()} on {where}"
    subtitle = f"{axis.note} Dashed: no other system is both better and cheaper."
    top = heading_height(WIDTH, title, subtitle) + 10 if headed else 16.0
    bottom = top + PLOT
    canvas = Canvas(WIDTH, bottom + 62, title=title, description=subtitle if headed else "")
    if headed:
        heading(canvas, title, subtitle)
    free = any(p.cost <= 0 for p in points)
    paid = [p.cost for p in points if p.cost > 0]
    start = LEFT + (GUTTER if free else 0)
    x = logarithmic(min(paid), max(paid), start, RIGHT) if paid else linear(0, 1, start, RIGHT)
    y = linear(0, max(100 * max(p.score for p in points), 1.0), bottom, top)
    x_axis(canvas, x._replace(ticks=()), top, bottom, axis.unit + (" (logarithmic)" if x.log else ""))
    ticks = [(x(tick), short(tick)) for tick in x.ticks] if paid else []
    for px, text in [*([(LEFT + GUTTER / 2, "0")] if free else []), *ticks]:
        canvas.line(px, top, px, bottom, "grid")
        canvas.text(px, bottom + 18, text, size=SMALL, ink="muted", anchor="middle")
    y_axis(canvas, y, LEFT, RIGHT, f"{measure} × 100, mean of the tasks")
    front = frontier(points)
    edge: list[tuple[float, float]] = []
    for point in front:
        px, py = _place(point, x, y)
        edge += [(px, edge[-1][1]), (px, py)] if edge else [(px, py)]
    edge.append((RIGHT, edge[-1][1]))
    canvas.polyline(edge, "axis", width=1.5, dash="5 4")
    for point in points:
        on_front = point in front
        label = f"{point.system}: {100 * point.score:.2f} at {short(point.cost)}"
        with canvas.link(point.href, label + (" (on the front)" if on_front else "")):
            canvas.marker(*_place(point, x, y), 0 if point.measured else 1, radius=6.5 if on_front else 4.5)
    named = list(points) if len(points) <= LABELLED else front
    labels = [Label(*_place(p, x, y), p.system) for p in named]
    marks = [around(*_place(p, x, y), 6) for p in points]
    place_labels(canvas, labels, Box(LEFT, top, RIGHT, bottom), marks, along(edge), gap=11)
    return canvas


def _place(point: CostPoint, x: Scale, y: Scale) -> tuple[float, float]:
    return (x(point.cost) if point.cost > 0 else LEFT + GUTTER / 2), y(100 * point.score)


def short(value: float) -> str:
    """A number for people: 0.02, 350, 7.1 billion."""
    rounded = float(f"{value:.3g}")
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(rounded) >= size:
            return f"{rounded / size:g} {name}"
    return tick_text(rounded)
