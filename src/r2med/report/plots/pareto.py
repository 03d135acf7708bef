"""Score against what a query costs, with the line of systems that nothing beats on both."""

from __future__ import annotations

from collections.abc import Sequence

from ...scoring import Measure
from .data import Axis, Cost
from .layout import MARGIN, Box, Label, along, around, heading, heading_height, place_labels, x_axis, y_axis
from .scales import Scale, linear, logarithmic
from .svg import Canvas

WIDTH, PLOT = 860.0, 430.0


def frontier(costs: Sequence[Cost]) -> list[Cost]:
    """Systems that no other beats by scoring more for no higher price, cheapest first."""
    best: list[Cost] = []
    for cost in sorted(costs, key=lambda c: (c.per_query, -c.score)):
        if not best or cost.score > best[-1].score:
            best.append(cost)
    return best


def draw_pareto(costs: Sequence[Cost], measure: Measure, where: str, axis: Axis) -> Canvas:
    """A point a system; the dashed line joins the Pareto-best."""
    title = f"{measure} against {'time' if axis == 'seconds' else 'price'} on {where}"
    subtitle = (
        "Wall time of all stages but loading and scoring, divided by the number of queries."
        if axis == "seconds"
        else "Dollars paid for tokens, per thousand queries."
    )
    if axis == "seconds" and any(c.cached for c in costs):
        subtitle += " Embeddings that came from the cache took no time."
    subtitle += f" Dashed: no other system is both better and {'faster' if axis == 'seconds' else 'cheaper'}."
    top = heading_height(WIDTH, title, subtitle) + 10
    left, right, bottom = MARGIN + 66, WIDTH - MARGIN - 10, top + PLOT
    canvas = Canvas(WIDTH, bottom + 62, title=title, description=subtitle)
    heading(canvas, title, subtitle)
    x = _cost_scale([c.per_query * _factor(axis) for c in costs], left, right)
    y = linear(0, max(100 * max(c.score for c in costs), 1.0), bottom, top)
    name = "seconds per query" if axis == "seconds" else "dollars per 1,000 queries"
    x_axis(canvas, x, top, bottom, name + (" (logarithmic)" if x.log else ""))
    y_axis(canvas, y, left, right, f"{measure} × 100, mean of the tasks")
    places = [(x(c.per_query * _factor(axis)), y(100 * c.score)) for c in costs]
    best = frontier(costs)
    edge: list[tuple[float, float]] = []
    for cost in best:
        px, py = places[costs.index(cost)]
        edge += [(px, edge[-1][1]), (px, py)] if edge else [(px, py)]
    edge.append((right, edge[-1][1]))
    canvas.polyline(edge, "axis", width=1.5, dash="5 4")
    for i, (px, py) in enumerate(places):
        canvas.marker(px, py, i, radius=6.5)
    labels = [Label(px, py, c.system) for c, (px, py) in zip(costs, places, strict=True)]
    marks = [around(px, py, 6) for px, py in places]
    place_labels(canvas, labels, Box(left, top, right, bottom), marks, along(edge), gap=11)
    return canvas


def _factor(axis: Axis) -> float:
    return 1.0 if axis == "seconds" else 1000.0


def _cost_scale(values: Sequence[float], left: float, right: float) -> Scale:
    """Logarithmic where all values are positive; a price of nothing needs a linear one."""
    if min(values) > 0:
        return logarithmic(min(values), max(values), left, right)
    return linear(0, max(values) or 1.0, left, right)
