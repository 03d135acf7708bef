"""Task and group pages as HTML: the Markdown that r2med writes, turned into elements, with pictures and links.

Pictures are of profiles with intervals, of the ranks of first positives and of the hits of two lists. Of Markdown only
what those pages use is known: headings, paragraphs, lists, quotations, tables, code, bold, links. Everything else means
itself, so a page out of a folder of somebody else's is as harmless as any text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby

import msgspec

from ..core.untrusted import printable
from ..tasks.nano.figures import ROLES, Outcome, TaskFigures
from .chart import MARGIN, NORMAL, SMALL, Chart, fit, linear, logarithmic
from .svg import text_width
from .task_page import ROLE_TITLES
from .task_reading import hit_overlap

WIDTH = 480.0  # narrow, so that its texts can be read where a page is as wide as a telephone
BAR, GAP = 14.0, 12.0
THICK = 8.0
LONGEST = 150.0
DEEPEST = 500
_INLINE = re.compile(
    r"\\(?P<escaped>.)|`(?P<code>[^`]+)`|\*\*(?P<bold>.+?)\*\*|\[(?P<text>[^\]]*)\]\((?P<href>[^)\s]*)\)"
)
_LOCAL = re.compile(r"\[([^\]]*)\]\((?!https://)[^)\s]*\)")
_HEADING = re.compile(r"(#{1,4}) (.*)")
_CELL = re.compile(r"(?<!\\)\|")
_PER_CENT = re.compile(r"(?<=\d) %")  # a line does not break there
_OWN_PAGE = re.compile(r"[\w.-]+\.(?:md|json|html)")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · r2med</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header class="masthead">
<a class="brand" href="index.html"><span aria-hidden="true">◎</span> r2med</a>
<nav aria-label="Pages"><ul>{links}</ul></nav>
</header>
<main id="main" class="written" tabindex="-1">
{body}
</main>
<footer class="bottom"><p>Scores lie between 0 and 1. Not a clinical decision system.</p></footer>
</body>
</html>
"""


def markdown_html(text: str, pictures: Mapping[str, str] | None = None, *, linked: bool = True) -> str:
    """The elements of a page; `pictures` are SVG by the heading below which they stand.

    Without `linked`, links to files beside the page are only their text.
    """
    shown, out = dict(pictures or {}), list[str]()
    if not linked:
        text = _LOCAL.sub(r"\1", text)
    for kind, lines in groupby(text.splitlines(), key=_kind):
        block = list(lines)
        if kind == "heading":
            for line in block:
                out += _heading(line, shown)
        elif kind == "table":
            out.append(_table(block))
        elif kind == "list":
            out.append("<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in block) + "</ul>")
        elif kind == "quote":
            parts = " ".join(line[1:].strip() or "\n" for line in block).split("\n")
            out.append("<blockquote>" + "".join(f"<p>{_inline(part.strip())}</p>" for part in parts) + "</blockquote>")
        elif kind == "text":
            out.append(f'<p class="lead">{_inline(" ".join(block))}</p>')
    return "\n".join(out)


def _kind(line: str) -> str:
    if _HEADING.match(line):
        return "heading"
    starts = {"|": "table", ">": "quote"}
    return "" if not line.strip() else "list" if line.startswith("- ") else starts.get(line[0], "text")


def _heading(line: str, pictures: dict[str, str]) -> Iterator[str]:
    match = _HEADING.match(line)
    assert match is not None
    level, title = len(match[1]), match[2]
    yield f"<h{level}>{_inline(title)}</h{level}>"
    if picture := pictures.get(title):
        yield figure(picture)


def figure(picture: str) -> str:
    """An SVG picture with its own title as the caption."""
    caption = picture.partition("<title>")[2].partition("</title>")[0]
    return f'<figure class="chart">{picture}<figcaption>{caption}.</figcaption></figure>'


def _table(lines: Sequence[str]) -> str:
    head, marks, *rows = ([cell.strip() for cell in _CELL.split(line.strip())[1:-1]] for line in lines)
    left = [mark.startswith(":") for mark in marks]

    def row(tag: str, cells: Sequence[str]) -> str:
        columns = zip(cells, left, strict=False)
        return "".join(f"<{tag}{' class=left' * at_left}>{_inline(cell)}</{tag}>" for cell, at_left in columns)

    body = "".join(f"<tr>{row('td', cells)}</tr>" for cells in rows)
    whole = f"<table><thead><tr>{row('th', head)}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" role="region" aria-label="Table" tabindex="0">{whole}</div>'


def _inline(text: str) -> str:
    out, at = list[str](), 0
    for match in _INLINE.finditer(text):
        out += [_plain(text[at : match.start()]), _element(match)]
        at = match.end()
    return "".join([*out, _plain(text[at:])])


def _element(match: re.Match[str]) -> str:
    if match["escaped"] is not None:
        return _plain(match["escaped"])
    if match["code"] is not None:
        return f"<code>{_plain(match['code'])}</code>"
    if match["bold"] is not None:
        return f"<strong>{_inline(match['bold'])}</strong>"
    href = match["href"].replace("\\", "")
    if href.startswith("https://"):
        return f'<a href="{escape(href)}" rel="noreferrer">{_inline(match["text"])}</a>'
    if _OWN_PAGE.fullmatch(href):
        return f'<a href="{escape(re.sub("[.]md$", ".html", href))}">{_inline(match["text"])}</a>'
    return _inline(match["text"])


def _plain(text: str) -> str:
    return escape(_PER_CENT.sub("\u00a0%", printable(text)))


def whole_page(title: str, body: str, links: Sequence[tuple[str, str]], here: str) -> str:
    """One page of the site: `links` are addresses and names of all pages, `here` the address of this one."""
    style = files("r2med.report.web").joinpath("static", "app.css").read_text("utf-8")
    items = "".join(
        f'<li><a href="{escape(address)}"{" aria-current=page" * (address == here)}>{_plain(name)}</a></li>'
        for address, name in links
    )
    return _PAGE.format(policy=_POLICY, title=_plain(title), style=style, links=items, body=body)


def draw_profiles(tasks: Sequence[TaskFigures]) -> str:
    """A bar for every profile of every task, with the interval of its nDCG@10 where there is one."""
    roles = [role for role in ROLES if any(role in task.profiles for task in tasks)]
    known = any(p.ndcg_at_10_interval is not None for task in tasks for p in task.profiles.values())
    title = "nDCG@10 of the candidate lists" + (", with 95 % intervals over queries" if known else "")
    chart = Chart(WIDTH, title, headed=False, series=[ROLE_TITLES[role] for role in roles])
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
    chart = Chart(WIDTH, "Rank of the first positive", headed=False, series=[ROLE_TITLES[role] for role in depths])
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
