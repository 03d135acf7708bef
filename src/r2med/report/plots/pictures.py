"""Scores with intervals by task, truncation against score, one query's scores, and an interval for a table cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ...core import UsageError
from ...scoring import Measure
from ...scoring.intervals import Average, Estimate, SystemScores
from ..costs import CutPoint, Side
from ..scores import short_name
from .chart import MARGIN, NORMAL, SMALL, Box, Chart, Label, Scale, along, around, fit, linear
from .svg import text_width

MOST = 12
WIDTH = 860.0
STEP = 15.0
LONGEST_TASK = 220.0
TEXTS = {"document": "documents", "query": "queries"}


def draw_scores(scores: Sequence[SystemScores], measure: Measure, where: str, *, level: float = 0.95) -> Chart:
    """Dot plot: every system on every task and on the average, with intervals; best average first."""
    if not scores:
        raise UsageError("there are no systems to draw")
    if len(scores) > MOST:
        raise UsageError(f"{len(scores)} systems are too many for one picture of scores ({MOST}); name some (--system)")
    ordered = sorted(scores, key=lambda s: -s.macro.value)
    rows = [(fit(name, LONGEST_TASK, NORMAL), row) for name, row in _rows(ordered)]
    subtitle = (
        f"Score × 100 with {100 * level:g} % interval (bootstrap over queries). "
        "They may overlap and still differ: r2med compare."
    )
    chart = Chart(WIDTH, f"{measure} on {where}", subtitle, series=[s.name for s in ordered])
    top, band = chart.top + 4, STEP * len(ordered) + 14
    bottom = top + band * len(rows)
    chart.height = round(bottom) + 62
    left = MARGIN + max(text_width(name, NORMAL) for name, _ in rows) + 14
    highest = 100 * min(1.0, max(e.high for _, row in rows for e in row))
    x = linear(0, max(highest, 1.0), left, WIDTH - MARGIN - 10, count=8)
    for i in range(0, len(rows), 2):
        chart.rect(MARGIN, top + band * i, WIDTH - 2 * MARGIN, band, "grid", opacity=0.35)
    chart.x_axis(x, top, bottom, f"{measure} × 100")
    for i, (name, row) in enumerate(rows):
        middle, average = top + band * (i + 0.5), i == len(rows) - 1 and len(rows) > 1
        if average:
            chart.line(MARGIN, top + band * i, WIDTH - MARGIN, top + band * i, "axis", width=1.5)
        chart.text(left - 12, middle + 4.5, name, size=NORMAL, anchor="end", bold=average)
        for series, estimate in enumerate(row):
            y = middle + STEP * (series - (len(row) - 1) / 2)
            chart.bar(x(100 * max(estimate.low, 0.0)), y, x(100 * min(estimate.high, 1.0)), y, series)
            chart.marker(x(100 * estimate.value), y, series)
    return chart


def _rows(scores: Sequence[SystemScores]) -> list[tuple[str, list[Estimate | Average]]]:
    """One row per task, and the average where there is more than one; it says when tasks are missing."""
    rows: list[tuple[str, list[Estimate | Average]]] = [
        (task.rpartition("/")[2], [s.tasks[task] for s in scores]) for task in scores[0].tasks
    ]
    if len(rows) > 1:
        macro = scores[0].macro
        of = "" if macro.complete else f" of {macro.of_tasks}"
        rows.append((f"Mean of {macro.tasks}{of} tasks", [s.macro for s in scores]))
    return rows


def draw_truncation(points: Sequence[CutPoint], measure: Measure, where: str, side: Side) -> Chart:
    """A mark for each system on each task; marks of one task are joined, so that a slope is the price of cutting."""
    systems = list(dict.fromkeys(p.system for p in points))
    tasks = list(dict.fromkeys(p.task for p in points))
    subtitle = f"Share of the tokens of {TEXTS[side]} that the model never reads; a line joins the marks of a task."
    chart = Chart(WIDTH, f"Truncation against {measure} on {where}", subtitle, series=systems)
    top = chart.top + 6
    left, right, bottom = MARGIN + 66, WIDTH - MARGIN - 70, top + 460.0
    chart.height = round(bottom) + 62
    x = linear(0, max(100 * max(p.share for p in points), 1.0), left, right)
    y = linear(0, max(100 * max(p.score for p in points), 1.0), bottom, top)
    chart.x_axis(x, top, bottom, f"tokens of {TEXTS[side]} never read, %")
    chart.y_axis(y, left, right, f"{measure} × 100")
    labels: list[Label] = []
    marks: list[Box] = []
    lines: list[Box] = []
    for task in tasks:
        of_task = sorted((p for p in points if p.task == task), key=lambda p: (p.share, p.score))
        places = [(x(100 * p.share), y(100 * p.score)) for p in of_task]
        if len(places) > 1:
            chart.polyline(places, "axis", width=1.2)
            lines += along(places)
        marks += [around(px, py, 6) for px, py in places]
        labels.append(Label(*places[-1], short_name(task)))
    for point in points:
        chart.marker(x(100 * point.share), y(100 * point.score), systems.index(point.system))
    chart.labels(labels, Box(left, top, WIDTH - MARGIN, bottom), marks, lines)
    return chart


def draw_field(shown: Mapping[str, float], others: Sequence[float], measure: Measure) -> Chart:
    """One query's score under the systems shown, a line each, and one line for all others."""
    left, right, height = 170.0, 596.0, 26.0
    bottom = 10 + height * (len(shown) + bool(others))
    chart = Chart(620, f"{measure} of this query under each system", headed=False)
    chart.height = round(bottom) + 40
    x = linear(0, 100, left, right)
    for tick in x.ticks:
        chart.line(x(tick), 6, x(tick), bottom, "grid")
        chart.text(x(tick), bottom + 17, f"{tick:g}", size=SMALL, ink="muted", anchor="middle")
    chart.text((left + right) / 2, bottom + 34, f"{measure} × 100", size=SMALL, ink="muted", anchor="middle")
    for i, (system, score) in enumerate(shown.items()):
        y = 10 + height * (i + 0.5)
        chart.text(left - 12, y + 4, fit(system, left - 20, SMALL), size=SMALL, anchor="end")
        chart.bar(x(0), y, x(100 * score), y, i, width=3)
        chart.marker(x(100 * score), y, i, radius=6)
    if others:
        y = 10 + height * (len(shown) + 0.5)
        noun = "other system" if len(others) == 1 else "others"
        chart.text(left - 12, y + 4, f"{len(others)} {noun}", size=SMALL, ink="muted", anchor="end")
        for score, count in Counter(round(s, 3) for s in others).items():
            chart.marker(x(100 * score), y, 6, radius=min(3 + count**0.5, 10), opacity=0.6)
        mean = sum(others) / len(others)
        chart.line(x(100 * mean), y - 10, x(100 * mean), y + 10, "text", width=2)
    return chart


def interval_mark(scale: Scale, value: float, bounds: tuple[float, float] | None, *, hollow: bool) -> str:
    """A dot with whiskers for a table cell; a hollow diamond for a figure of others, which has no interval."""
    x, y = scale(value), 8.0
    parts = [f'<line class="l-grid" x1="{scale.start}" y1="{y}" x2="{scale.end}" y2="{y}"/>']
    if bounds is not None:
        low, high = scale(bounds[0]), scale(bounds[1])
        parts.append(f'<line class="whisker" x1="{low:.1f}" y1="{y}" x2="{high:.1f}" y2="{y}"/>')
    if hollow:
        corners = f"{x:.1f},{y - 4} {x + 4:.1f},{y} {x:.1f},{y + 4} {x - 4:.1f},{y}"
        parts.append(f'<polygon class="hollow" points="{corners}"/>')
    else:
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y}" r="4"/>')
    size = 'width="100" height="16" viewBox="0 0 100 16"'
    return f'<svg class="mark" {size} aria-hidden="true">{"".join(parts)}</svg>'  # numbers only: nothing to escape
