"""The leaderboard: rows with intervals, sorted and filtered, and the same table in formats for elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from markupsafe import Markup

from ....core import UnknownName
from ....core.table import Table, points
from ....results.ledger import ledger
from ....results.protocols import MAIN_PROTOCOL
from ....scoring import Measure
from ....scoring.intervals import SystemScores
from ...collection import CollectionResults
from ...leaderboard import ALL, FAMILIES, Row, measured_rows, published_rows
from ...plots import interval_mark
from ...plots.layout import Scale, linear
from ...scores import short_name
from ..request import Links, Page, PageRequest
from ..site import Site
from .choices import Chip, chips, choose, collection_chips, measure_chips, measure_param

FORMATS: dict[str, tuple[str, str, Callable[[Table], str]]] = {
    "md": ("Markdown", "text/markdown", lambda table: table.markdown() + "\n"),
    "csv": ("CSV", "text/csv", Table.csv),
    "tex": ("LaTeX", "text/x-tex", Table.latex),
}


class Cell(NamedTuple):
    """A score, 0 to 1, with its interval where there is one."""

    value: float | None = None
    bounds: tuple[float, float] | None = None


class Line(NamedTuple):
    """One system: its row, and what statistics say about it."""

    row: Row
    said: SystemScores | None = None

    def cell(self, column: str, average: str) -> Cell:
        """The cell of a column: `average`, the `other` average, or a task."""
        if column in ("average", "other"):
            by_task = (average == "macro") == (column == "average")
            value = self.row.macro if by_task else self.row.query_weighted
            told = self.said and (self.said.macro if by_task else self.said.query_weighted)
            return Cell(value, (told.low, told.high) if told and told.complete and value is not None else None)
        prefix = f"{self.row.collection}/" if self.row.collection else ""
        estimate = self.said.tasks.get(prefix + column) if self.said else None
        return Cell(self.row.tasks.get(prefix + column), (estimate.low, estimate.high) if estimate else None)


class Choice(NamedTuple):
    """What the visitor wants to see."""

    collection: str
    measure: Measure
    average: str
    kind: str
    show: str
    protocol: str
    sort: str
    rising: bool
    everywhere: bool

    def params(self, **changed: Any) -> dict[str, str]:
        """As choices in an address; what is usual is left out."""
        new = self._replace(**changed)
        return {
            "measure": measure_param(new.measure),
            "average": "" if new.average == "macro" else new.average,
            "kind": new.kind,
            "show": "" if new.show == ALL else new.show,
            "protocol": "" if new.protocol == MAIN_PROTOCOL.get(new.collection, ALL) else new.protocol,
            "sort": "" if new.sort == "average" else new.sort,
            "order": "rising" if new.rising else "",
            "intervals": ALL if new.everywhere else "",
        }


def read_choice(site: Site, asked: PageRequest) -> Choice:
    """The choices of an address."""
    slug = asked.parts[0] if asked.parts else site.default_collection()
    results = site.results(slug)
    usual = MAIN_PROTOCOL.get(slug, ALL)
    return Choice(
        slug,
        site.measure(asked.get("measure")),
        choose("average", asked.get("average", "macro"), ("macro", "query")),
        choose("kind", asked.get("kind"), ("", *FAMILIES)),
        choose("show", asked.get("show", ALL), (ALL, "measured", "published")),
        choose("protocol", asked.get("protocol", usual), dict.fromkeys((usual, ALL, *protocols(results)))),
        choose("sort", asked.get("sort", "average"), (*_columns(results), "system", "kind", "from")),
        asked.get("order") == "rising",
        asked.get("intervals") == ALL,
    )


def _columns(results: CollectionResults) -> list[str]:
    tasks = list(dict.fromkeys((*results.whole, *results.tasks)))
    return ["average", *(["other"] if len(tasks) > 1 else []), *tasks]


def protocols(results: CollectionResults) -> list[str]:
    """Protocols under which figures on a collection were published, the main one first."""
    figures = ledger().select(collection=results.collection) if results.collection else []
    found = list(dict.fromkeys(f.protocol for f in figures))
    return sorted(found, key=lambda p: p != MAIN_PROTOCOL.get(results.collection, ""))


def published(results: CollectionResults, measure: Measure, protocol: str) -> list[Row]:
    """Figures of others, under one protocol or all of them; nobody has any on folders of one's own."""
    figures = ledger().select(collection=results.collection) if results.collection else []
    return published_rows([f for f in figures if protocol in (ALL, f.protocol)], measure)


def board_lines(site: Site, choice: Choice) -> tuple[list[Line], bool]:
    """The lines, sorted, and whether their intervals are known already."""
    results = site.results(choice.collection)
    lines, ready = list[Line](), True
    if results.systems and choice.show != "published":
        found = site.standing(results, choice.measure)
        ready = found is not None
        said, groups = (found.scores, found.groups) if found else ({}, {})
        lines = [Line(row, said.get(row.system)) for row in measured_rows(results, choice.measure, groups)]
    if choice.show != "measured":
        lines += [Line(row) for row in published(results, choice.measure, choice.protocol)]
    return ordered(lines, choice.sort, average=choice.average, rising=choice.rising), ready


def ordered(lines: Iterable[Line], sort: str, *, average: str, rising: bool) -> list[Line]:
    """Sorted by a column; what has no number there stands last, either way."""
    names: dict[str, Callable[[Line], tuple[str, ...]]] = {
        "system": lambda x: (x.row.label.casefold(),),
        "kind": lambda x: (x.row.family, x.row.label.casefold()),
        "from": lambda x: (x.row.origin, x.row.source, x.row.label.casefold()),
    }
    if sort in names:
        return sorted(lines, key=names[sort], reverse=not rising)
    found = [(line, line.cell(sort, average).value) for line in lines]
    have = sorted(
        ((line, v) for line, v in found if v is not None), key=lambda pair: round(pair[1], 6), reverse=not rising
    )
    lack = sorted((x for x, v in found if v is None), key=lambda x: (-x.row.tasks_of[0], x.row.label.casefold()))
    return [*(line for line, _ in have), *lack]


def board(site: Site, asked: PageRequest, url: Links) -> Page:
    """The page."""
    choice = read_choice(site, asked)
    results = site.results(choice.collection)
    everything, ready = board_lines(site, choice)
    lines = [line for line in everything if choice.kind in ("", line.row.family)]
    families = [f for f in FAMILIES if any(line.row.family == f for line in everything)]

    def link(**changed: Any) -> str:
        return url("board", choice.collection, **choice.params(**changed))

    columns = [_column(name, lines, choice, link, url, results) for name in _columns(results)]
    averages = [line.cell("average", choice.average) for line in lines]
    ends = [v for c in averages for v in (c.value, *(c.bounds or ())) if v is not None]
    scale = linear(100 * min(ends, default=0.0), 100 * max(ends, default=0.01), 4, 96, count=3)
    others = choice.params()
    exports = [(FORMATS[f][0], url("table", choice.collection, format=f, **others)) for f in FORMATS]
    table = None if exports[0][1] else board_table(lines, results, choice)
    context = {
        "choice_": choice,
        "collection_title": results.title,
        "collections": collection_chips(
            site, choice.collection, lambda c: url("board", c, **{k: others[k] for k in ("measure", "average", "show")})
        ),
        "measures": measure_chips(choice.measure, lambda key: link(measure=site.measure(key))),
        "averages": chips(
            [("macro", "Mean of tasks"), ("query", "Mean of queries")], choice.average, lambda a: link(average=a)
        ),
        "kinds": chips(
            [("", "All kinds"), *((f, f.capitalize()) for f in families)], choice.kind, lambda k: link(kind=k)
        ),
        "shows": _shows(results, choice, link),
        "protocols": _protocol_chips(results, choice, link),
        "intervals": Chip(
            "Hide intervals of tasks" if choice.everywhere else "Show intervals of tasks",
            link(everywhere=not choice.everywhere),
            choice.everywhere,
        ),
        "columns": columns,
        "sorts": {
            name: (link(sort=name, rising=choice.sort != name or not choice.rising), _direction(choice, name))
            for name in ("system", "kind", "from")
        },
        "rows": [_row(line, columns, choice, scale, url) for line in lines],
        "ready": ready,
        "any_group": any(line.row.tie_group for line in lines),
        "origins": {line.row.origin for line in lines},
        "several_protocols": len({line.row.protocol for line in lines if not line.row.measured}) > 1,
        "any_own": any(line.row.measured for line in lines),
        "trouble": site.problems(),
        "exports": exports,
        "texts": [(title, write(table)) for title, _, write in FORMATS.values()] if table else [],
        "export_id": f"{choice.collection}-{choice.measure.key}-{choice.average}",
        "axis": scale,
        "whole": len(results.whole),
    }
    return Page("board.html", "Leaderboard", context, "board")


class Column(NamedTuple):
    """A column of scores."""

    name: str
    title: str
    full: str
    href: str
    direction: str
    best: float | None
    task_href: str = ""


def _column(
    name: str, lines: list[Line], choice: Choice, link: Callable[..., str], url: Links, results: CollectionResults
) -> Column:
    averages = {"macro": ("Macro", "Mean of the tasks"), "query": ("By query", "Mean of all queries")}
    if name in ("average", "other"):
        title, full = averages["macro" if (choice.average == "macro") == (name == "average") else "query"]
    else:
        title, full = short_name(name), name
    href = link(sort=name, rising=choice.sort == name and not choice.rising)
    best = max((v for x in lines if (v := x.cell(name, choice.average).value) is not None), default=None)
    has_page = name in results.infos
    task = url("task", results.slug, name, measure=measure_param(choice.measure)) if has_page else ""
    return Column(name, title, full, href, _direction(choice, name), best, task)


def _direction(choice: Choice, name: str) -> str:
    if choice.sort != name:
        return ""
    return "ascending" if choice.rising else "descending"


def _row(line: Line, columns: list[Column], choice: Choice, scale: Scale, url: Links) -> dict[str, Any]:
    cells = []
    for column in columns:
        cell = line.cell(column.name, choice.average)
        top = cell.value is not None and column.best is not None and cell.value >= column.best - 1e-11
        with_interval = choice.everywhere or column.name == "average"
        cells.append((cell.value, cell.bounds if with_interval else None, top))
    value, bounds = line.cell("average", choice.average)
    mark = ""
    if value is not None:
        hundred = (100 * bounds[0], 100 * bounds[1]) if bounds else None
        mark = interval_mark(scale, 100 * value, hundred, hollow=not line.row.measured)
    href = url("system", choice.collection, line.row.system) if line.row.measured else ""
    return {"line": line, "row": line.row, "cells": cells, "mark": Markup(mark), "href": href}


def _shows(results: CollectionResults, choice: Choice, link: Callable[..., str]) -> list[Chip]:
    if not results.systems or not protocols(results):
        return []
    options = [(ALL, "Measured and published"), ("measured", "Measured here"), ("published", "Published")]
    return chips(options, choice.show, lambda s: link(show=s))


def _protocol_chips(results: CollectionResults, choice: Choice, link: Callable[..., str]) -> list[Chip]:
    known = protocols(results)
    if len(known) < 2 or choice.show == "measured":
        return []
    return chips([*((p, p) for p in known), (ALL, "All protocols")], choice.protocol, lambda p: link(protocol=p))


def board_table(lines: list[Line], results: CollectionResults, choice: Choice) -> Table:
    """The board as a table."""
    columns = _columns(results)
    titles = {"average": "Macro", "other": "By query"}
    if choice.average == "query":
        titles = {"average": "By query", "other": "Macro"}
    rows = []
    for line in lines:
        row = line.row
        scores = [points(line.cell(column, choice.average).value) for column in columns]
        if row.scope:
            scores[0] = f"{row.scope} tasks"
        origin = row.origin if row.measured else f"{row.origin} {row.date} {row.protocol}"
        rows.append([row.label, row.family, origin, *scores])
    caption = f"{choice.measure} × 100 on {results.title}."
    if any(not line.row.measured for line in lines):
        caption += " Published figures are other people's, under their own protocol."
    return Table(["System", "Kind", "From", *(titles.get(c, short_name(c)) for c in columns)], rows, caption, left=3)


def table_text(site: Site, asked: PageRequest) -> tuple[str, str]:
    """The leaderboard in a format for elsewhere, and the format's media type."""
    wanted = asked.get("format", "csv")
    if wanted not in FORMATS:
        raise UnknownName("format", wanted, FORMATS, hint=f"(there are: {', '.join(FORMATS)})")
    choice = read_choice(site, asked)
    lines = [x for x in board_lines(site, choice)[0] if choice.kind in ("", x.row.family)]
    _, media, write = FORMATS[wanted]
    return media, write(board_table(lines, site.results(choice.collection), choice))
