"""Score against what a system costs, with the line of systems that nothing beats on both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from ...plots.data import Cost
from ...plots.layout import Box, Label, along, around, place_labels, x_axis, y_axis
from ...plots.pareto import frontier
from ...plots.scales import Scale, linear, logarithmic, tick_text
from ..text import plain
from .canvas import LinkedCanvas

WIDTH, HEIGHT = 860.0, 470.0
LEFT, RIGHT, TOP, BOTTOM = 76.0, 830.0, 16.0, 400.0
GUTTER = 46.0  # a place of its own for what costs nothing
LABELLED = 14


class Point(NamedTuple):
    """One system."""

    system: str
    cost: float
    score: float
    href: str
    measured: bool


def best_points(points: Sequence[Point]) -> list[Point]:
    """The Pareto front, cheapest first."""
    best = frontier([Cost(str(i), p.score, p.cost, False) for i, p in enumerate(points)])
    return [points[int(c.system)] for c in best]


def draw_tradeoff(points: Sequence[Point], cost_title: str, score_title: str, title: str) -> Markup:
    """A point a system; squares are published figures; the dashed line joins the best."""
    canvas = LinkedCanvas(WIDTH, HEIGHT, title=title)
    free = any(p.cost <= 0 for p in points)
    paid = [p.cost for p in points if p.cost > 0]
    start = LEFT + (GUTTER if free else 0)
    x = logarithmic(min(paid), max(paid), start, RIGHT) if paid else linear(0, 1, start, RIGHT)
    y = linear(0, max(100 * max(p.score for p in points), 1.0), BOTTOM, TOP)
    x_axis(canvas, x._replace(ticks=()), TOP, BOTTOM, cost_title + (" (logarithmic)" if x.log else ""))
    for tick in x.ticks if paid else ():
        canvas.line(x(tick), TOP, x(tick), BOTTOM, "grid")
        canvas.text(x(tick), BOTTOM + 18, short(tick), size=12, ink="muted", anchor="middle")
    y_axis(canvas, y, LEFT, RIGHT, score_title)
    if free:
        canvas.line(LEFT + GUTTER / 2, TOP, LEFT + GUTTER / 2, BOTTOM, "grid")
        canvas.text(LEFT + GUTTER / 2, BOTTOM + 18, tick_text(0), size=12, ink="muted", anchor="middle")
    places = [_place(p, x, y) for p in points]
    front = best_points(points)
    edge: list[tuple[float, float]] = []
    for point in front:
        px, py = _place(point, x, y)
        edge += [(px, edge[-1][1]), (px, py)] if edge else [(px, py)]
    edge.append((RIGHT, edge[-1][1]))
    canvas.polyline(edge, "axis", width=1.5, dash="5 4")
    for point, (px, py) in zip(points, places, strict=True):
        on_front = point in front
        label = f"{point.system}: {100 * point.score:.2f} at {short(point.cost)}"
        with canvas.link(point.href, label + (" (on the front)" if on_front else "")):
            canvas.marker(px, py, 0 if point.measured else 1, radius=6.5 if on_front else 4.5)
    shown = list(points) if len(points) <= LABELLED else front
    labels = [Label(*_place(p, x, y), plain(p.system)) for p in shown]
    place_labels(canvas, labels, Box(LEFT, TOP, RIGHT, BOTTOM), [around(*p, 6) for p in places], along(edge), gap=11)
    return canvas.markup()


def _place(point: Point, x: Scale, y: Scale) -> tuple[float, float]:
    return (x(point.cost) if point.cost > 0 else LEFT + GUTTER / 2), y(100 * point.score)


def short(value: float) -> str:
    """A number for people: 0.02, 350, 7.1 billion."""
    rounded = float(f"{value:.3g}")
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(rounded) >= size:
            return f"{rounded / size:g} {name}"
    return tick_text(rounded)
