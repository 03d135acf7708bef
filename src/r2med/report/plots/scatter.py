"""Two systems, query by query."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...scoring import Measure
from .data import FamilyPoint
from .layout import MARGIN, NORMAL, SMALL, Entry, fit, heading, heading_height, legend, legend_height, x_axis, y_axis
from .scales import linear
from .svg import Canvas

PLOT = 520.0
LEFT = MARGIN + 66
WIDTH = LEFT + PLOT + MARGIN + 20
CLOSE = 1e-9
LARGEST = 16.0  # radius of the largest mark


def draw_scatter(points: Sequence[FamilyPoint], first: str, second: str, measure: Measure, where: str) -> Canvas:
    """Every query at its two scores; above the diagonal the second system is better. Area counts queries."""
    above = sum(p.queries for p in points if p.second > p.first + CLOSE)
    below = sum(p.queries for p in points if p.first > p.second + CLOSE)
    same = sum(p.queries for p in points) - above - below
    title = f"{second} against {first} on {where}"
    subtitle = (
        f"{measure} × 100 of each of {above + below + same} queries; {second} is better on {above}, "
        f"{first} on {below}, equal on {same}. The area of a mark is the number of queries."
    )
    families = list(dict.fromkeys(p.family for p in points))
    entries = [Entry(i, name) for i, name in enumerate(families)]
    top = heading_height(WIDTH, title, subtitle)
    plot_top = top + legend_height(entries, WIDTH - 2 * MARGIN) + 10
    bottom, right = plot_top + PLOT, LEFT + PLOT
    canvas = Canvas(WIDTH, bottom + 62, title=title, description=subtitle)
    heading(canvas, title, subtitle)
    legend(canvas, entries, top)
    x, y = linear(0, 100, LEFT, right), linear(0, 100, bottom, plot_top)
    x_axis(canvas, x, plot_top, bottom, f"{first} ({measure} × 100)")
    y_axis(canvas, y, LEFT, right, f"{second} ({measure} × 100)")
    canvas.line(x(0), y(0), x(100), y(100), "axis", width=1.5)
    canvas.text(LEFT + 10, plot_top + 20, fit(f"{second} better", PLOT * 0.6, SMALL), size=SMALL, ink="muted")
    canvas.text(
        right - 10, bottom - 12, fit(f"{first} better", PLOT * 0.6, SMALL), size=SMALL, ink="muted", anchor="end"
    )
    unit = min(4.5, LARGEST / math.sqrt(max(p.queries for p in points)))
    for point in sorted(points, key=lambda p: -p.queries):
        radius = unit * math.sqrt(point.queries)
        place = x(100 * point.first), y(100 * point.second)
        canvas.marker(*place, families.index(point.family), radius=radius, opacity=0.72)
        if radius > 10 and sum(_near(point, other) for other in points) == 1:
            canvas.text(place[0], place[1] + 4, str(point.queries), size=NORMAL - 2, ink="paper", anchor="middle")
    return canvas


def _near(point: FamilyPoint, other: FamilyPoint) -> bool:
    """Whether two marks would cover each other's middle."""
    return abs(point.first - other.first) < 0.03 and abs(point.second - other.second) < 0.03
