"""Two systems, query by query, every mark a way to its query."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from ...plots.layout import Entry, fit, legend, legend_height, x_axis, y_axis
from ...plots.scales import linear
from ..text import plain
from .canvas import LinkedCanvas

LEFT, PLOT, PAD = 76.0, 520.0, 14.0
WIDTH = LEFT + PLOT + 2 * PAD + 16
GOLDEN = math.pi * (3 - math.sqrt(5))


class Dot(NamedTuple):
    """One query."""

    task: str
    query_id: str
    first: float
    second: float
    href: str


def draw_queries(dots: Sequence[Dot], tasks: Sequence[str], first: str, second: str, measure: str) -> Markup:
    """Above the diagonal the second system is better. Queries with equal scores lie around each other in a spiral."""
    entries = [Entry(i, plain(task)) for i, task in enumerate(tasks)]
    top = legend_height(entries, WIDTH - 40) + 8 + PAD
    bottom, right = top + PLOT, LEFT + PAD + PLOT
    canvas = LinkedCanvas(WIDTH, bottom + PAD + 58, title=plain(f"{second} against {first}, query by query"))
    legend(canvas, entries, 0)
    x, y = linear(0, 100, LEFT + PAD, right), linear(0, 100, bottom, top)
    x_axis(canvas, x, top, bottom + PAD, f"{plain(first)} ({measure} × 100)")
    y_axis(canvas, y, LEFT, right + PAD, f"{plain(second)} ({measure} × 100)")
    canvas.line(x(0), y(0), x(100), y(100), "axis", width=1.5)
    canvas.text(LEFT + PAD + 24, top + 22, fit(f"{plain(second)} better", PLOT * 0.6, 12), size=12, ink="muted")
    canvas.text(
        right - 10, bottom - 28, fit(f"{plain(first)} better", PLOT * 0.6, 12), size=12, ink="muted", anchor="end"
    )
    places = [(round(d.first, 3), round(d.second, 3)) for d in dots]
    crowd, seen = Counter(places), Counter[tuple[float, float]]()
    radius = 4.5 if len(dots) < 300 else 3.2
    for dot, place in zip(dots, places, strict=True):
        number = seen[place]
        seen[place] += 1
        away = min(radius * 1.7, 60 / math.sqrt(crowd[place])) * math.sqrt(number)
        px = x(100 * dot.first) + away * math.cos(number * GOLDEN)
        py = y(100 * dot.second) + away * math.sin(number * GOLDEN)
        px, py = min(max(px, LEFT + 4), right + PAD - 4), min(max(py, top - PAD + 4), bottom + PAD - 4)
        label = f"{dot.task} {dot.query_id}: {100 * dot.first:.1f} and {100 * dot.second:.1f}"
        with canvas.link(dot.href, label):
            canvas.marker(px, py, tasks.index(dot.task), radius=radius, opacity=0.85)
    return canvas.markup()
