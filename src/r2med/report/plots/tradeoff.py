"""Score against what a system costs, with the line of systems that no other beats on both."""

from __future__ import annotations

from collections.abc import Sequence

from ...scoring import Measure
from ..costs import Axis, CostPoint
from .chart import MARGIN, Box, Chart, Label, along, around, linear, logarithmic, tick_text

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


def draw_tradeoff(points: Sequence[CostPoint], axis: Axis, measure: Measure, where: str, *, headed: bool) -> Chart:
    """A point per system, squares for published figures; the dashed line joins the Pareto front.

    A picture for a file is `headed`; a page has a heading of its own.
    """
    subtitle = f"{axis.note} Dashed: no other system is both better and cheaper."
    chart = Chart(WIDTH, f"{measure} against {axis.title.lower()} on {where}", subtitle, headed=headed)
    top = chart.top + 12
    bottom = top + PLOT
    chart.height = round(bottom) + 62
    free = any(p.cost <= 0 for p in points)
    paid = [p.cost for p in points if p.cost > 0]
    start = LEFT + (GUTTER if free else 0)
    x = logarithmic(min(paid), max(paid), start, RIGHT) if paid else linear(0, 1, start, RIGHT)
    y = linear(0, max(100 * max(p.score for p in points), 1.0), bottom, top)
    places = [(x(p.cost) if p.cost > 0 else LEFT + GUTTER / 2, y(100 * p.score)) for p in points]
    chart.x_axis(x._replace(ticks=()), top, bottom, axis.unit + (" (logarithmic)" if x.log else ""))
    for tick in x.ticks if paid else ():
        chart.x_tick(x(tick), top, bottom, short(tick))
    if free:
        chart.x_tick(LEFT + GUTTER / 2, top, bottom, "0")
    chart.y_axis(y, LEFT, RIGHT, f"{measure} × 100, mean of the tasks")
    front, edge = frontier(points), list[tuple[float, float]]()
    for point in front:
        px, py = places[points.index(point)]
        edge += [(px, edge[-1][1]), (px, py)] if edge else [(px, py)]
    edge.append((RIGHT, edge[-1][1]))
    chart.polyline(edge, "axis", width=1.5, dash="5 4")
    for point, place in zip(points, places, strict=True):
        on_front = point in front
        label = f"{point.system}: {100 * point.score:.2f} at {short(point.cost)}"
        with chart.link(point.href, label + (" (on the front)" if on_front else "")):
            chart.marker(*place, 0 if point.measured else 1, radius=6.5 if on_front else 4.5)
    named = [(p, place) for p, place in zip(points, places, strict=True) if len(points) <= LABELLED or p in front]
    labels = [Label(*place, point.system) for point, place in named]
    marks = [around(*place, 6) for place in places]
    chart.labels(labels, Box(LEFT, top, RIGHT, bottom), marks, along(edge), gap=11)
    return chart


def short(value: float) -> str:
    """A number for people: 0.02, 350, 7.1 billion."""
    rounded = float(f"{value:.3g}")
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(rounded) >= size:
            return f"{rounded / size:g} {name}"
    return tick_text(rounded)
