"""Two systems, query by query."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...scoring.score_set import ScoreSet
from .chart import MARGIN, SMALL, Chart, fit, linear

PLOT, PAD = 520.0, 14.0
LEFT = MARGIN + 56
RIGHT = LEFT + PLOT + 2 * PAD
SAME = 1e-9
MOST_MARKS = 2_000
"""Queries that are drawn one by one; of more, those with about the same scores share a mark."""
CELL = 0.05
LARGEST = 16.0
GOLDEN = math.pi * (3 - math.sqrt(5))

Link = Callable[[str, str], str]
"""From a task and a query to the address of its page."""


class _Mark(NamedTuple):
    group: int
    first: float
    second: float
    queries: int
    label: str
    href: str = ""


def draw_scatter(
    scores: ScoreSet, where: str, *, headed: bool, group: Callable[[str], str] = str, link: Link | None = None
) -> Chart:
    """The first two systems of `scores`: above the diagonal the second is better.

    Tasks of one `group` share a colour. A picture for a file is `headed`; a page has a heading of its own.
    """
    first, second = scores.systems[:2]
    groups = list(dict.fromkeys(group(task.name) for task in scores.tasks))
    each = scores.queries <= MOST_MARKS
    shared = "Queries with about the same scores share a mark, whose area is their number."
    subtitle = f"{_counts(scores)} {'Queries with equal scores lie around each other.' if each else shared}"
    chart = Chart(RIGHT + 16, f"{second} against {first} on {where}", subtitle, headed=headed, series=groups)
    top = chart.top + 6 + PAD
    bottom = top + PLOT
    chart.height = round(bottom + PAD) + 62
    x, y = linear(0, 100, LEFT + PAD, LEFT + PAD + PLOT), linear(0, 100, bottom, top)
    chart.x_axis(x, top, bottom + PAD, f"{first} ({scores.measure} × 100)")
    chart.y_axis(y, LEFT, RIGHT, f"{second} ({scores.measure} × 100)")
    chart.line(x(0), y(0), x(100), y(100), "axis", width=1.5)
    room = PLOT * 0.6
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
        px, py = min(max(px, LEFT + 4), RIGHT - 4), min(max(py, top - PAD + 4), bottom + PAD - 4)
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
