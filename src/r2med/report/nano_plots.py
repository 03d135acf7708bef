"""The pictures of task and group pages: profiles with intervals, ranks of first positives, hits of two lists."""

from __future__ import annotations

from collections.abc import Sequence

from ..tasks.nano.figures import ROLES, Inspected, TaskFigures
from .chart import MARGIN, NORMAL, SMALL, Chart, fit, linear, logarithmic
from .svg import text_width
from .task_reading import hit_overlap

WIDTH = 720.0
BAR, GAP = 14.0, 12.0
LONGEST = 200.0
DEEPEST = 500
TITLES = {"bm25": "BM25", "dense": "Dense", "hybrid": "Reranking hybrid"}


def draw_profiles(tasks: Sequence[TaskFigures]) -> str:
    """A bar for every profile of every task, with the interval of its nDCG@10 where there is one."""
    roles = [role for role in ROLES if any(role in task.profiles for task in tasks)]
    chart = Chart(WIDTH, "nDCG@10 of the candidate lists", headed=False, series=[TITLES[role] for role in roles])
    names = [fit(task.split, LONGEST, NORMAL) for task in tasks]
    left = MARGIN + max(text_width(name, NORMAL) for name in names) + 12
    band = BAR * len(roles) + GAP
    top = chart.top + 6
    bottom = top + band * len(tasks)
    chart.height = round(bottom) + 56
    x = linear(0, 1, left, WIDTH - MARGIN - 10)
    chart.x_axis(x, top, bottom, "nDCG@10")
    for row, (name, task) in enumerate(zip(names, tasks, strict=True)):
        middle = top + band * (row + 0.5)
        chart.text(left - 10, middle + 4.5, name, size=NORMAL, anchor="end")
        for place, role in enumerate(roles):
            profile = task.profiles.get(role)
            if profile is None:
                continue
            y = middle + BAR * (place - (len(roles) - 1) / 2)
            chart.bar(x(0), y, x(profile.ndcg_at_10), y, place, width=BAR - 6)
            if profile.ndcg_at_10_interval is not None:
                low, high = profile.ndcg_at_10_interval
                chart.line(x(low), y, x(high), y, "text", width=1.5)
    return chart.render(dark=False)


def draw_first_ranks(page: Inspected) -> str:
    """Share of the queries whose first positive stands at a rank or before it, rank by rank."""
    roles = list(page.figures.profiles)
    chart = Chart(WIDTH, "Rank of the first positive", headed=False, series=[TITLES[role] for role in roles])
    top = chart.top + 6
    bottom, left = top + 240.0, MARGIN + 60
    chart.height = round(bottom) + 56
    x, y = logarithmic(1, DEEPEST, left, WIDTH - MARGIN - 10), linear(0, 100, bottom, top)
    chart.x_axis(x, top, bottom, "first positive at this rank or before")
    chart.y_axis(y, left, WIDTH - MARGIN - 10, "queries, %")
    for series, role in enumerate(roles):
        ranks = sorted(rank for o in page.outcomes if (rank := o.first_rank[role]) is not None)
        before, at = 0.0, 1
        for count, rank in enumerate([*ranks, DEEPEST], 1):
            end = min(rank, DEEPEST)
            chart.bar(x(at), y(before), x(end), y(before), series)
            if count <= len(ranks):
                after = 100 * count / len(page.outcomes)
                chart.bar(x(end), y(before), x(end), y(after), series)
                before, at = after, end
    return chart.render(dark=False)


def draw_hits(page: Inspected) -> str:
    """Queries with a positive among the first ten of BM25, of the dense list, of both, of neither."""
    counts, names = (
        hit_overlap(page),
        {"both": "both", "bm25": "BM25 alone", "dense": "dense alone", "neither": "neither"},
    )
    chart = Chart(WIDTH, "Queries with a positive among the first ten", headed=False)
    left, top, most = MARGIN + 110, 8.0, max(*counts.values(), 1)
    chart.height = round(top + 26 * len(counts) + 8)
    x = linear(0, most, left, WIDTH - MARGIN - 60)
    for row, (part, count) in enumerate(counts.items()):
        y = top + 26 * row + 13
        chart.text(left - 10, y + 4.5, names[part], size=NORMAL, anchor="end")
        chart.bar(x(0), y, x(count), y, row, width=12)
        chart.text(x(count) + 12, y + 4.5, f"{count:,}", size=SMALL)
    return chart.render(dark=False)
