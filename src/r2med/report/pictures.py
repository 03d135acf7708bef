"""The pictures: scores with intervals, score against cost or truncation, two systems query by query, one query."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..core import UsageError
from ..scoring import Measure
from ..scoring.compare import Standings
from ..scoring.evaluation import ScoreSet
from ..scoring.intervals import Average, Estimate, SystemScores
from .chart import MARGIN, NORMAL, SMALL, Box, Chart, Label, Scale, along, around, fit, linear, logarithmic, tick_text
from .costs import Axis, CostPoint, CutPoint, Side
from .scores import short_name
from .svg import text_width

MOST = 12
MOST_RANKED = 60
WIDTH = 860.0
STEP = 15.0
LONGEST_TASK = 220.0
TEXTS = {"document": "documents", "query": "queries"}
PHONE, PHONE_SIDE = 360.0, 254.0  # The width of a picture for a narrow screen, and the side of a square one.
LEFT = MARGIN + 56
LABELLED, LABELLED_NARROW = 14, 5
SIDE, MIDDLE_SIDE, PAD = 520.0, 320.0, 14.0  # The middle one serves wide and narrow screens.
SAME = 1e-9
MOST_MARKS = 2_000  # Queries that are drawn one by one; of more, those with about the same scores share a mark.
CELL = 0.05
LARGEST = 16.0
MEAN = "mean of the tasks"
GOLDEN = math.pi * (3 - math.sqrt(5))
Link = Callable[[str, str], str]  # From a task and a query to the address of its page.


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


def draw_ranks(
    systems: Sequence[str], found: Standings, measure: Measure, where: str, *, level: float = 0.95
) -> Chart:  # fmt: skip
    """The rank of every system with the ranks that the tests leave open, its letters and the chance to be best."""
    if len(systems) > MOST_RANKED:
        raise UsageError(f"{len(systems)} systems are too many for one picture of ranks ({MOST_RANKED}); name some")
    subtitle = (
        f"By the mean of the tasks; bars are the ranks that paired tests leave open, {100 * level:g} % for all systems "
        "together. Systems that share a letter do not differ significantly. Right: how often it was first when "
        "queries were resampled."
    )
    chart = Chart(WIDTH, f"Ranks by {measure} on {where}", subtitle)
    order = sorted(range(len(systems)), key=lambda i: (found.ranks[i].rank, systems[i]))
    top, step = chart.top + 4, 24.0
    bottom = top + step * len(order)
    chart.height = round(bottom) + 62
    names = [fit(f"{systems[i]}  {found.letters[i]}", 2 * LONGEST_TASK, NORMAL) for i in order]
    left, right = MARGIN + max(text_width(name, NORMAL) for name in names) + 24, WIDTH - MARGIN - 70
    x = Scale(1, max(len(systems), 2), left, right, _whole_ticks(len(systems)))
    chart.x_axis(x, top, bottom, "rank, 1 the best")
    for place, (i, name) in enumerate(zip(order, names, strict=True)):
        rank, y = found.ranks[i], top + step * (place + 0.5)
        chart.text(left - 16, y + 4.5, name, size=NORMAL, anchor="end")
        chart.bar(x(rank.low), y, x(rank.high), y, 0)
        chart.marker(x(rank.rank), y, 0)
        chart.text(WIDTH - MARGIN, y + 4.5, f"{100 * rank.best:.0f} %", size=NORMAL, anchor="end")
    return chart


def _whole_ticks(last: int) -> tuple[float, ...]:
    """Ranks to write on an axis: about ten of them."""
    return tuple(float(rank) for rank in range(1, max(last, 2) + 1, max(1, -(-last // 10))))


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
    """One query's score under the systems shown, a line each with its name above, and one line for all others."""
    width, left, height = 420.0, 14.0, 38.0
    right, room = width - 14.0, width - 28.0
    bottom = 4 + height * (len(shown) + bool(others))
    chart = Chart(width, f"{measure} of this query under each system", headed=False)
    chart.height = round(bottom) + 40
    x = linear(0, 100, left, right)
    for tick in x.ticks:
        chart.line(x(tick), 6, x(tick), bottom, "grid")
        chart.text(x(tick), bottom + 17, f"{tick:g}", size=SMALL, ink="muted", anchor="middle")
    chart.text((left + right) / 2, bottom + 34, f"{measure} × 100", size=SMALL, ink="muted", anchor="middle")
    for i, (system, score) in enumerate(shown.items()):
        y = 4 + height * (i + 0.75)
        chart.text(left, y - 11, fit(system, room, SMALL), size=SMALL)
        chart.bar(x(0), y, x(100 * score), y, i, width=3)
        chart.marker(x(100 * score), y, i, radius=6)
    if others:
        y = 4 + height * (len(shown) + 0.75)
        noun = "other system" if len(others) == 1 else "others"
        chart.text(left, y - 11, f"{len(others)} {noun}", size=SMALL, ink="muted")
        for score, count in Counter(round(s, 3) for s in others).items():
            chart.marker(x(100 * score), y, 6, radius=min(3 + count**0.5, 10), opacity=0.6)
        mean = sum(others) / len(others)
        chart.line(x(100 * mean), y - 8, x(100 * mean), y + 8, "text", width=2)
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


def frontier(points: Sequence[CostPoint]) -> list[CostPoint]:
    """Systems that no other beats by scoring more for no higher price, cheapest first."""
    best: list[CostPoint] = []
    for point in sorted(points, key=lambda p: (p.cost, -p.score)):
        if not best or point.score > best[-1].score:
            best.append(point)
    return best


def draw_tradeoff(
    points: Sequence[CostPoint], axis: Axis, measure: Measure, where: str, *, headed: bool, width: float = WIDTH,
    average: str = MEAN,
) -> Chart:  # fmt: skip
    """A point per system, squares for published figures; the dashed line joins the Pareto front.

    A picture for a file is `headed`; a page has a heading of its own. `average` says what the scores are.
    """
    subtitle = f"{axis.note} Dashed: no other system is both better and cheaper."
    chart = Chart(width, f"{measure} against {axis.title.lower()} on {where}", subtitle, headed=headed)
    wide = width > PHONE
    top, left, right = chart.top + 12, LEFT if wide else LEFT - 14, width - MARGIN - (20 if wide else 0)
    bottom = top + (400.0 if wide else 300.0)
    chart.height = round(bottom) + 62
    free = any(p.cost <= 0 for p in points)
    paid = [p.cost for p in points if p.cost > 0]
    gutter = (right - left) / 8 if free else 0.0  # a place for what costs nothing, which a logarithmic scale has not
    x = logarithmic(min(paid), max(paid), left + gutter, right) if paid else linear(0, 1, left + gutter, right)
    y = linear(0, max(100 * max(p.score for p in points), 1.0), bottom, top)
    places = [(x(p.cost) if p.cost > 0 else left + gutter / 2, y(100 * p.score)) for p in points]
    chart.x_axis(x._replace(ticks=()), top, bottom, axis.unit + (" (logarithmic)" if x.log else ""))
    marked = [(left + gutter / 2, "0")] if free else []
    chart.x_ticks([*marked, *((x(tick), short(tick)) for tick in (x.ticks if paid else ()))], top, bottom)
    chart.y_axis(y, left, right, f"{measure} × 100, {average}", away=46 if wide else 36)
    front, edge = frontier(points), list[tuple[float, float]]()
    for point in front:
        px, py = places[points.index(point)]
        edge += [(px, edge[-1][1]), (px, py)] if edge else [(px, py)]
    edge.append((right, edge[-1][1]))
    chart.polyline(edge, "axis", width=1.5, dash="5 4")
    for point, place in zip(points, places, strict=True):
        on_front = point in front
        named = f"{point.system} ({point.note})" if point.note else point.system
        label = f"{named}: {100 * point.score:.2f} at {short(point.cost)}"
        with chart.link(point.href, label + (" (on the front)" if on_front else "")):
            chart.marker(*place, 0 if point.measured else 1, radius=6.5 if on_front else 4.5)
    few = len(points) <= (LABELLED if wide else LABELLED_NARROW)
    named_points = [(p, place) for p, place in zip(points, places, strict=True) if few or (wide and p in front)]
    labels = [Label(*place, fit(point.system, width * 0.36, SMALL)) for point, place in named_points]
    marks = [around(*place, 6) for place in places]
    chart.labels(labels, Box(left, top, right, bottom), marks, along(edge), gap=11)
    return chart


def short(value: float) -> str:
    """A number for people: 0.02, 350, 7.1 billion."""
    rounded = float(f"{value:.3g}")
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(rounded) >= size:
            return f"{rounded / size:g} {name}"
    return tick_text(rounded)


class _Mark(NamedTuple):
    group: int
    first: float
    second: float
    queries: int
    label: str
    href: str = ""


def draw_scatter(
    scores: ScoreSet, where: str, *, headed: bool, group: Callable[[str], str] = str, link: Link | None = None,
    side: float = SIDE,
) -> Chart:  # fmt: skip
    """The first two systems of `scores`: above the diagonal the second is better.

    Tasks of one `group` share a colour. A picture for a file is `headed`; a page has a heading of its own.
    """
    first, second = scores.systems[:2]
    groups = list(dict.fromkeys(group(task.name) for task in scores.tasks))
    each = scores.queries <= MOST_MARKS
    shared = "Queries with about the same scores share a mark, whose area is their number."
    subtitle = f"{_counts(scores)} {'Queries with equal scores lie around each other.' if each else shared}"
    wide = side >= SIDE
    left = LEFT if wide else LEFT - 14
    edge = left + side + 2 * PAD
    chart = Chart(edge + 16, f"{second} against {first} on {where}", subtitle, headed=headed, series=groups)
    top = chart.top + 6 + PAD
    bottom = top + side
    chart.height = round(bottom + PAD) + 62
    x, y = linear(0, 100, left + PAD, left + PAD + side), linear(0, 100, bottom, top)
    chart.x_axis(x, top, bottom + PAD, f"{first} ({scores.measure} × 100)")
    chart.y_axis(y, left, edge, f"{second} ({scores.measure} × 100)", away=46 if wide else 36)
    chart.line(x(0), y(0), x(100), y(100), "axis", width=1.5)
    room = side * 0.6
    chart.text(x(0) + 24, top + 22, fit(f"{second} better", room, SMALL), size=SMALL, ink="muted")
    chart.text(x(100) - 10, bottom - 28, fit(f"{first} better", room, SMALL), size=SMALL, ink="muted", anchor="end")
    group_of = {task.name: groups.index(group(task.name)) for task in scores.tasks}
    marks = list(_each_query(scores, group_of, link) if each else _by_place(scores, group_of))
    crowd, seen = Counter((m.first, m.second) for m in marks), Counter[tuple[float, float]]()
    unit = min(4.5, LARGEST / math.sqrt(max(m.queries for m in marks)))
    for mark in sorted(marks, key=lambda m: -m.queries):
        place = (mark.first, mark.second)
        number, seen[place] = seen[place], seen[place] + 1
        radius = (4.5 if len(marks) < 300 else 3.2) if each else unit * math.sqrt(mark.queries)
        away = min(radius * 1.7, 60 / math.sqrt(crowd[place])) * math.sqrt(number)  # equal scores lie in a spiral
        px = x(100 * mark.first) + away * math.cos(number * GOLDEN)
        py = y(100 * mark.second) + away * math.sin(number * GOLDEN)
        px, py = min(max(px, left + 4), edge - 4), min(max(py, top - PAD + 4), bottom + PAD - 4)
        with chart.link(mark.href, mark.label):
            chart.marker(px, py, mark.group, radius=radius, opacity=0.85)
    return chart


def _counts(scores: ScoreSet) -> str:
    differences = np.concatenate([task.scores[1] - task.scores[0] for task in scores.tasks])
    better, worse = int((differences > SAME).sum()), int((differences < -SAME).sum())
    first, second = scores.systems[:2]
    return (
        f"{scores.measure} × 100 of each of {len(differences)} queries; {second} is better on {better}, "
        f"{first} on {worse}, equal on {len(differences) - better - worse}."
    )


def _each_query(scores: ScoreSet, group_of: dict[str, int], link: Link | None) -> Iterator[_Mark]:
    for task in scores.tasks:
        for query_id, first, second in zip(task.query_ids, *task.scores[:2].round(3).tolist(), strict=True):
            label = f"{task.name} {query_id}: {100 * first:.1f} and {100 * second:.1f}"
            yield _Mark(group_of[task.name], first, second, 1, label, link(task.name, query_id) if link else "")


def _by_place(scores: ScoreSet, group_of: dict[str, int]) -> Iterator[_Mark]:
    """A mark for all queries of a task whose scores fall into one cell of a grid."""
    for task in scores.tasks:
        cells = np.round(task.scores[:2] / CELL).astype(np.int64)
        places, counts = np.unique(cells, axis=1, return_counts=True)
        for (first, second), count in zip(places.T.tolist(), counts.tolist(), strict=True):
            label = f"{task.name}: {count} queries at about {100 * CELL * first:.0f} and {100 * CELL * second:.0f}"
            yield _Mark(group_of[task.name], CELL * first, CELL * second, count, label)
