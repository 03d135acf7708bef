"""All pages in one file that refers to nothing outside itself: no network, no server.

The first page stands in it as it is. The others are compressed in blocks of neighbours, and a script in the file
unpacks the block of the page that is asked for. Texts of documents, which many pages show, are kept apart from the
pages, each once.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import combinations, islice
from pathlib import Path
from typing import NamedTuple

import msgspec
from markupsafe import Markup

from ..._version import __version__
from ...core import ResultError
from ...core.files import write_bytes
from ...results.ledger import ledger
from ...scoring import MAIN
from ..costs import AXES
from ..leaderboard import ALL
from .app import find_page
from .render import FileLinks, Links, PageRequest, cut, environment, page_html, plain, static_file, visible
from .site import Site

STATIC = ("theme.js", "app.css", "app.js", "file.js")
MEASURES = ("", "recall_at_100", "hit_at_10")
SYSTEMS, PAIRS = 40, 4  # Systems that have a page each, and of which every pair is compared.
LONGEST_ANCHOR = 200
BLOCK = 1 << 19  # Characters of pages that are compressed together.
GZIP = 31  # The window of zlib that means the format gzip, which browsers unpack.
APART = "\0"  # Between two pages or texts of a block; none holds it.
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
    packed = _pack(site, general, queries, most)
    if packed.queries < len(queries):  # once more, without links to what is left out
        packed = _pack(site, general, queries[: packed.queries], most)
    kept, left_out = packed.queries, _left_out(site, packed.queries, len(queries))
    data = _document(packed, left_out).encode("utf-8", "replace")
    write_bytes(target, data)
    pages = len(packed.entries)
    return Written(
        path=str(target), bytes=len(data), pages=pages, queries=kept, of_queries=len(queries), left_out=left_out
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


class _Packed(NamedTuple):
    """Compressed pages, and where each of them lies."""

    first: _Section
    entries: list[tuple[str, str, str, int, int]]  # anchor, title, section, block and place in it
    blocks: list[str]
    texts: list[str]  # Blocks of texts that pages refer to, in the order of their numbers.
    queries: int


def _pack(site: Site, general: list[str], queries: list[str], most: int) -> _Packed:
    """Compress the general pages, and as many of the queries as there is room for."""
    links = FileLinks(_anchors([*general, *queries]))
    first = _section(site, general[0], links)
    packed, known = _Packed(first, [], [], [], 0), 0
    room = most - sum(len(static_file(name)) for name in STATIC) - 2 * len(first.html.encode()) - 8192
    for urls, needed in ((general, True), (queries, False)):
        for pages in _grouped(_section(site, url, links) for url in urls):
            block = _joined(page.html for page in pages)
            new, known = [visible(cut(text, of)) for text, of in islice(links.texts, known, None)], len(links.texts)
            texts = [_joined(new)] if new else []
            room -= len(block) + sum(map(len, texts)) + sum(len(page.anchor) + len(page.title) for page in pages)
            if room < 0 and not needed:
                return packed
            number = len(packed.blocks)
            packed.blocks.append(block)
            packed.texts.extend(texts)
            packed.entries.extend((p.anchor, plain(p.title), p.section, number, i) for i, p in enumerate(pages))
            packed = packed if needed else packed._replace(queries=packed.queries + len(pages))
    return packed


def _grouped(sections: Iterable[_Section]) -> Iterator[list[_Section]]:
    """Neighbours, of about the size of a block together."""
    group, size = list[_Section](), 0
    for section in sections:
        group.append(section)
        size += len(section.html)
        if size > BLOCK:
            yield group
            group, size = [], 0
    if group:
        yield group


def _joined(parts: Iterable[str]) -> str:
    return _compressed(APART.join(part.replace(APART, "\ufffd") for part in parts))


def _compressed(text: str) -> str:
    packing = zlib.compressobj(9, zlib.DEFLATED, GZIP)
    data = packing.compress(text.encode("utf-8", "replace")) + packing.flush()
    return base64.b64encode(data).decode()


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


def _document(packed: _Packed, left_out: list[str]) -> str:
    theme, style, script, unpacking = (static_file(name).decode() for name in STATIC)
    policy = (
        f"default-src 'none'; script-src {_hash(theme)} {_hash(script)} {_hash(unpacking)}; "
        f"style-src {_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    tops: dict[str, str] = {}
    for anchor, _, section, _, _ in packed.entries:
        tops.setdefault(section, anchor)
    html: str = environment().get_template("file.html").render(
        policy=policy,
        first=packed.first,
        theme=Markup(theme),
        style=Markup(style),
        script=Markup(script),
        unpacking=Markup(unpacking),
        sections=[(name, title, tops[name]) for name, title in _TITLES.items() if name in tops],
        index=_compressed(msgspec.json.encode(packed.entries).decode()),
        blocks=packed.blocks,
        texts=packed.texts,
        pages=len(packed.entries),
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
        "Lists have their first ten documents, and long documents only their beginning.",
        "Queries have the lists of the three best systems of their task, in the order of their scores.",
        "Measures are nDCG@10, R@100 and hit@10; r2med view has others, and all systems to choose from.",
    ]
    if kept < queries:
        lines.append(
            f"{queries - kept} of {queries} queries, the easiest of each task, are left out (--max-size makes room)."
        )
    if any(len(h.systems) > SYSTEMS for h in site.held.values()):
        lines.append(f"How a system was made is told of the first {SYSTEMS}.")
    return lines
