"""What models never saw, against their score."""

from __future__ import annotations

from collections.abc import Sequence

from ...scoring import Measure
from ..scores import SHORT
from .data import CutPoint, Side
from .layout import (
    MARGIN,
    Box,
    Entry,
    Label,
    along,
    around,
    heading,
    heading_height,
    legend,
    legend_height,
    place_labels,
    x_axis,
    y_axis,
)
from .scales import linear
from .svg import Canvas

WIDTH, PLOT = 860.0, 460.0
TEXTS = {"document": "documents", "query": "queries"}


def draw_truncation(points: Sequence[CutPoint], measure: Measure, where: str, side: Side) -> Canvas:
    """A mark for each system on each task; marks of one task are joined, so that a slope is the price of cutting."""
    systems = list(dict.fromkeys(p.system for p in points))
    tasks = list(dict.fromkeys(p.task for p in points))
    title = f"Truncation against {measure} on {where}"
    subtitle = f"Share of the tokens of {TEXTS[side]} that the model never reads; a line joins the marks of a task."
    entries = [Entry(i, name) for i, name in enumerate(systems)]
    top = heading_height(WIDTH, title, subtitle)
    plot_top = top + legend_height(entries, WIDTH - 2 * MARGIN) + 10
    left, right, bottom = MARGIN + 66, WIDTH - MARGIN - 70, plot_top + PLOT
    canvas = Canvas(WIDTH, bottom + 62, title=title, description=subtitle)
    heading(canvas, title, subtitle)
    legend(canvas, entries, top)
    x = linear(0, max(100 * max(p.share for p in points), 1.0), left, right)
    y = linear(0, max(100 * max(p.score for p in points), 1.0), bottom, plot_top)
    x_axis(canvas, x, plot_top, bottom, f"tokens of {TEXTS[side]} never read, %")
    y_axis(canvas, y, left, right, f"{measure} × 100")
    labels: list[Label] = []
    marks: list[Box] = []
    lines: list[Box] = []
    for task in tasks:
        of_task = sorted((p for p in points if p.task == task), key=lambda p: (p.share, p.score))
        places = [(x(100 * p.share), y(100 * p.score)) for p in of_task]
        if len(places) > 1:
            canvas.polyline(places, "axis", width=1.2)
            lines += along(places)
        marks += [around(px, py, 6) for px, py in places]
        labels.append(Label(*places[-1], SHORT.get(task, task)))
    for point in points:
        canvas.marker(x(100 * point.share), y(100 * point.score), systems.index(point.system))
    place_labels(canvas, labels, Box(left, plot_top, WIDTH - MARGIN, bottom), marks, lines)
    return canvas
