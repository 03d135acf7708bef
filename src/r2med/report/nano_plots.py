"""The pictures of task and group pages: profiles with intervals, ranks of first positives, hits of two lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from ..tasks.nano.figures import ROLES, Outcome, TaskFigures
from .chart import MARGIN, NORMAL, SMALL, Chart, fit, linear, logarithmic
from .svg import text_width
from .task_reading import hit_overlap

WIDTH = 480.0  # narrow, so that its texts can be read where a page is as wide as a telephone
BAR, GAP = 14.0, 12.0
THICK = 8.0
LONGEST = 150.0
DEEPEST = 500
TITLES = {"bm25": "BM25", "dense": "Dense", "hybrid": "Reranking hybrid"}


def draw_profiles(tasks: Sequence[TaskFigures]) -> str:
    """A bar for every profile of every task, with the interval of its nDCG@10 where there is one."""
    roles = [role for role in ROLES if any(role in task.profiles for task in tasks)]
    known = any(p.ndcg_at_10_interval is not None for task in tasks for p in task.profiles.values())
    title = "nDCG@10 of the candidate lists" + (", with 95 % intervals over queries" if known else "")
    chart = Chart(WIDTH, title, headed=False, series=[TITLES[role] for role in roles])
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
            _bar(chart, x(0), x(profile.ndcg_at_10), y, place)
            if profile.ndcg_at_10_interval is not None:
                low, high = profile.ndcg_at_10_interval
                chart.line(x(low), y, x(high), y, "text", width=1.5)
    return chart.render(dark=False)


def _bar(chart: Chart, start: float, end: float, y: float, series: int) -> None:
    """A bar that ends where its value lies, its round ends included; nothing for zero."""
    width = min(THICK, end - start)
    if width > 0:
        chart.bar(start + width / 2, y, end - width / 2, y, series, width=width)


def draw_first_ranks(depths: Mapping[str, int], outcomes: Sequence[Outcome]) -> str:
    """Share of the queries whose first positive stands at a rank or before it; a line ends where its lists end."""
    chart = Chart(WIDTH, "Rank of the first positive", headed=False, series=[TITLES[role] for role in depths])
    top = chart.top + 6
    bottom, left = top + 240.0, MARGIN + 60
    chart.height = round(bottom) + 56
    x, y = logarithmic(1, DEEPEST, left, WIDTH - MARGIN - 10), linear(0, 100, bottom, top)
    chart.x_axis(x, top, bottom, "first positive at this rank or before")
    chart.y_axis(y, left, WIDTH - MARGIN - 10, "queries, %")
    for series, (role, depth) in enumerate(depths.items()):
        ranks = Counter(min(rank, DEEPEST) for o in outcomes if (rank := o.first_rank[role]) is not None)
        reached, at = 0, 1
        for rank in sorted({*ranks, max(1, min(depth, DEEPEST))}):
            before = y(100 * reached / len(outcomes))
            reached += ranks[rank]
            chart.bar(x(at), before, x(rank), before, series)
            chart.bar(x(rank), before, x(rank), y(100 * reached / len(outcomes)), series)
            at = rank
    return chart.render(dark=False)


def draw_hits(outcomes: Sequence[Outcome]) -> str:
    """Queries with a positive among the first ten of BM25, of the dense list, of both, of neither."""
    names = {"both": "both", "bm25": "BM25 alone", "dense": "dense alone", "neither": "neither"}
    colours = {"bm25": 0, "dense": 1, "both": 3, "neither": 6}  # those of BM25 and dense as in the other pictures
    counts = hit_overlap(outcomes)
    chart = Chart(WIDTH, "Queries with a positive among the first ten", headed=False)
    left, top, most = MARGIN + 110, 8.0, max(*counts.values(), 1)
    chart.height = round(top + 26 * len(counts) + 8)
    x = linear(0, most, left, WIDTH - MARGIN - 60)
    for row, (part, count) in enumerate(counts.items()):
        y = top + 26 * row + 13
        chart.text(left - 10, y + 4.5, names[part], size=NORMAL, anchor="end")
        _bar(chart, x(0), x(count), y, colours[part])
        chart.text(x(count) + 12, y + 4.5, f"{count:,}", size=SMALL)
    return chart.render(dark=False)


def task_pictures(figures: TaskFigures, outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The pictures of a task, by the heading of its page below which they stand."""
    depths = {role: profile.top_k for role, profile in figures.profiles.items()}
    drawn = {
        "Evaluation profiles": draw_profiles([figures]),
        "Metric interpretation": draw_first_ranks(depths, outcomes),
    }
    if {"bm25", "dense"} <= figures.profiles.keys():
        drawn["Model improvement notes"] = draw_hits(outcomes)
    return drawn


class _Written(msgspec.Struct):
    """What pictures need of the JSON file beside a page."""

    fingerprint: str
    figures: TaskFigures
    outcomes: list[Outcome]


def written_pictures(data: bytes, fingerprint: str) -> dict[str, str]:
    """The same pictures from the JSON file beside a written page; none where it is not of that task, or not right."""
    try:
        found = msgspec.json.decode(data, type=_Written)
    except (ValueError, RecursionError):  # msgspec's errors, bad UTF-8, nesting without end
        return {}
    if found.fingerprint != fingerprint or not found.outcomes or not _drawable(found):
        return {}
    return task_pictures(found.figures, found.outcomes)


def _drawable(found: _Written) -> bool:
    """Whether all values lie where the scales do: anybody can write such a file."""
    profiles = found.figures.profiles
    shares = [v for p in profiles.values() for v in (p.ndcg_at_10, *(p.ndcg_at_10_interval or ()))]
    ranks = [o.first_rank.get(role, 0) for o in found.outcomes for role in profiles]
    return (
        bool(profiles)
        and profiles.keys() <= set(ROLES)
        and all(0 <= share <= 1 for share in shares)
        and all(rank is None or rank >= 1 for rank in ranks)
    )
