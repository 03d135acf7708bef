"""Scores with their intervals, a band of dots per task."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import UsageError
from ...scoring import Measure
from ...scoring.intervals import Average, Estimate, SystemScores
from .layout import MARGIN, NORMAL, Entry, heading, heading_height, legend, legend_height, x_axis
from .scales import linear
from .svg import Canvas, text_width

MOST = 12
WIDTH = 860.0
STEP = 15.0


def draw_scores(scores: Sequence[SystemScores], measure: Measure, where: str, *, level: float = 0.95) -> Canvas:
    """Dot plot: every system on every task and on the average, with intervals; best average first."""
    if not scores:
        raise UsageError("there are no systems to draw")
    if len(scores) > MOST:
        raise UsageError(f"{len(scores)} systems are too many for one picture of scores ({MOST}); name some (--system)")
    ordered = sorted(scores, key=lambda s: -s.macro.value)
    rows = _rows(ordered)
    title = f"{measure} on {where}"
    subtitle = (
        f"Score × 100 with {100 * level:g} % interval (bootstrap over queries). "
        "They may overlap and still differ: r2med compare."
    )
    entries = [Entry(i, s.name) for i, s in enumerate(ordered)]
    top = heading_height(WIDTH, title, subtitle)
    plot_top = top + legend_height(entries, WIDTH - 2 * MARGIN) + 8
    band = STEP * len(ordered) + 14
    bottom = plot_top + band * len(rows)
    canvas = Canvas(WIDTH, bottom + 62, title=title, description=subtitle)
    heading(canvas, title, subtitle)
    legend(canvas, entries, top)
    left = MARGIN + max(text_width(name, NORMAL) for name, _ in rows) + 14
    highest = 100 * min(1.0, max(e.high for _, row in rows for e in row))
    x = linear(0, max(highest, 1.0), left, WIDTH - MARGIN - 10, count=8)
    for i in range(0, len(rows), 2):
        canvas.rect(MARGIN, plot_top + band * i, WIDTH - 2 * MARGIN, band, "grid", opacity=0.35)
    x_axis(canvas, x, plot_top, bottom, f"{measure} × 100")
    for i, (name, row) in enumerate(rows):
        middle, average = plot_top + band * (i + 0.5), i == len(rows) - 1 and len(rows) > 1
        if average:
            canvas.line(MARGIN, plot_top + band * i, WIDTH - MARGIN, plot_top + band * i, "axis", width=1.5)
        canvas.text(left - 12, middle + 4.5, name, size=NORMAL, anchor="end", bold=average)
        for series, estimate in enumerate(row):
            y = middle + STEP * (series - (len(row) - 1) / 2)
            canvas.bar(x(100 * max(estimate.low, 0.0)), y, x(100 * min(estimate.high, 1.0)), y, series)
            canvas.marker(x(100 * estimate.value), y, series)
    return canvas


def _rows(scores: Sequence[SystemScores]) -> list[tuple[str, list[Estimate | Average]]]:
    """One row a task, and the average where there is more than one; it says when tasks are missing."""
    rows: list[tuple[str, list[Estimate | Average]]] = [
        (task.rpartition("/")[2], [s.tasks[task] for s in scores]) for task in scores[0].tasks
    ]
    if len(rows) > 1:
        macro = scores[0].macro
        of = "" if macro.complete else f" of {macro.of_tasks}"
        rows.append((f"Mean of {macro.tasks}{of} tasks", [s.macro for s in scores]))
    return rows
