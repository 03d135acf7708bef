"""All pages in one file that refers to nothing outside itself: no network, no server."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec
from markupsafe import Markup

from ..._version import __version__
from ...core import ResultError
from ...core.atomic import write_bytes
from ...results.ledger import ledger
from ...scoring import MAIN
from ..costs import AXES
from ..leaderboard import ALL
from .app import find_page
from .render import FileLinks, Links, PageRequest, environment, page_html, static_file
from .site import Site

MEASURES = ("", "recall_at_100", "hit_at_10")
SYSTEMS, PAIRS = 40, 4  # Systems that have a page each, and of which every pair is compared.
LONGEST_ANCHOR = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9._/=~-]+")
_TITLES = {"board": "Leaderboard", "tradeoffs": "Trade-offs", "compare": "Compare", "task": "Tasks"}


class Written(msgspec.Struct, kw_only=True):
    """What was written and what was not."""

    path: str
    bytes: int
    pages: int
    queries: int
    of_queries: int
    left_out: list[str]


class _Section(NamedTuple):
    anchor: str
    title: str
    section: str
    html: Markup


def write_report(site: Site, target: Path, *, most: int) -> Written:
    """Write the file; queries that would make it larger than `most` bytes are left out, the hardest kept."""
    if not site.held:
        folders = ", ".join(str(root) for root in site.index.roots)
        raise ResultError(f"{folders}: there are no results to report on (r2med run makes some)")
    site.wait = None
    make = Links()
    general, queries = list(_general(site, make)), list(_queries(site, make))
    kept = _fitting(site, general, queries, most)
    urls = [*general, *queries[:kept]]
    links = FileLinks(_anchors(urls))
    sections = [_section(site, url, links) for url in urls]
    left_out = _left_out(site, kept, len(queries))
    data = _document(sections, left_out).encode("utf-8", "replace")
    write_bytes(target, data)
    return Written(
        path=str(target), bytes=len(data), pages=len(urls), queries=kept, of_queries=len(queries), left_out=left_out
    )


def _general(site: Site, make: Links) -> Iterator[str]:
    """Every page but those of single queries."""
    for slug in site.collections():
        for measure in MEASURES:
            for average in ("", "query"):
                yield make("board", slug, measure=measure, average=average)
        if len({figure.protocol for figure in ledger().select(collection=slug)}) > 1:
            yield make("board", slug, protocol=ALL)
    for slug, results in site.held.items():
        yield make("tradeoffs", slug)
        yield from (make("tradeoffs", slug, against=axis) for axis in list(AXES)[1:])
        if len(results.systems) > 1:
            yield make("compare", slug)
            if len(results.systems) <= PAIRS:
                yield from (make("compare", slug, s=pair) for pair in combinations(sorted(results.systems), 2))
        for task in results.tasks:
            yield make("task", slug, task)
        yield from (make("system", slug, system) for system in list(results.systems)[:SYSTEMS])


def _queries(site: Site, make: Links) -> Iterator[str]:
    """Every query, the hardest of each task first, tasks in turn."""
    ways = []
    for slug, results in site.held.items():
        for task in results.tasks:
            matrix = results.matrix(task, MAIN)
            if matrix is not None:
                order = matrix.scores.mean(axis=0).argsort(kind="stable").tolist()
                ways.append([make("query", slug, task, matrix.query_ids[i]) for i in order])
    for place in range(max(map(len, ways), default=0)):
        yield from (way[place] for way in ways if place < len(way))


def _fitting(site: Site, general: list[str], queries: list[str], most: int) -> int:
    links = FileLinks(_anchors([*general, *queries]))
    room = most - len(static_file("app.css")) - len(static_file("app.js")) - 4096
    for number, url in enumerate([*general, *queries]):
        room -= len(_section(site, url, links).html.encode("utf-8", "replace")) + 256
        if room < 0 and number >= len(general):
            return number - len(general)
    return len(queries)


def _anchors(urls: Iterable[str]) -> dict[str, str]:
    """A readable name for each page; no two pages share one."""
    found: dict[str, str] = {}
    taken = Counter[str]()
    for url in urls:
        base = _UNSAFE.sub("_", url.lstrip("/").replace("?", "~").replace("&", "~"))[:LONGEST_ANCHOR]
        taken[base] += 1
        found[url] = base if taken[base] == 1 else f"{base}~~{taken[base]}"
    return found


def _section(site: Site, url: str, links: FileLinks) -> _Section:
    page = find_page(site, PageRequest.from_url(url), links)
    return _Section(
        links.anchors[url], page.title, page.section, Markup(page_html(page, links, layout="bare.html", live=False))
    )


def _document(sections: list[_Section], left_out: list[str]) -> str:
    script, theme, style = (static_file(name).decode() for name in ("app.js", "theme.js", "app.css"))
    policy = (
        f"default-src 'none'; script-src {_hash(theme)} {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    tops: dict[str, str] = {}
    for section in sections:
        tops.setdefault(section.section, section.anchor)
    html: str = environment().get_template("file.html").render(
        policy=policy,
        title=sections[0].title,
        theme=Markup(theme),
        style=Markup(style),
        script=Markup(script),
        sections=[(name, title, tops[name]) for name, title in _TITLES.items() if name in tops],
        pages=sections,
        left_out=left_out,
        version=__version__,
        date=date.today().isoformat(),
    )  # fmt: skip
    return html


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _left_out(site: Site, kept: int, queries: int) -> list[str]:
    lines = [
        "Of each list only the first ten documents, and of long documents only the beginning.",
        "Of each query only the three best systems of its task, in the order of their scores.",
        "Measures other than nDCG@10, R@100 and hit@10, and choosing other systems: r2med view has them.",
    ]
    if kept < queries:
        lines.append(f"{queries - kept} of {queries} queries, the easiest of each task (--max-size makes room).")
    if any(len(h.systems) > SYSTEMS for h in site.held.values()):
        lines.append(f"How systems beyond the first {SYSTEMS} were made.")
    return lines
