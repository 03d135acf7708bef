"""The leaderboard: the table is the product."""

from __future__ import annotations

from typing import Any, NamedTuple

from markupsafe import Markup

from ....core import UnknownName
from ....scoring import Measure
from ...leaderboard import MAIN_PROTOCOL
from ...plots.scales import Scale, linear
from ...scores import SHORT
from ..asked import Asked, Links, Page
from ..charts.interval import interval_mark
from ..data.columns import MEASURES
from ..data.rows import ALL, KINDS, Cell, Line, best, cell_of, ordered, own_lines, protocols, published_lines
from ..export import FORMATS, table_rows
from ..site import Site
from .choices import Chip, chips, collection_chips, collection_title

WAIT = 0.25  # seconds a page waits for intervals before it says that they are on their way


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
        key = new.measure.key
        return {
            "measure": "" if new.measure == MEASURES[0] else key,
            "average": "" if new.average == "macro" else new.average,
            "kind": new.kind,
            "show": "" if new.show == ALL else new.show,
            "protocol": "" if new.protocol == MAIN_PROTOCOL.get(new.collection, ALL) else new.protocol,
            "sort": "" if new.sort == "average" else new.sort,
            "order": "rising" if new.rising else "",
            "intervals": ALL if new.everywhere else "",
        }


class Column(NamedTuple):
    """A column of scores."""

    name: str
    title: str
    full: str
    href: str
    sorted: str
    best: float | None
    task_href: str = ""


def read_choice(site: Site, asked: Asked) -> Choice:
    """The choices of an address; a value nobody knows is an error that says which there are."""
    slug = asked.parts[0] if asked.parts else site.default_collection()
    holdings = site.holdings(slug)
    sort = asked.get("sort", "average")
    columns = ["average", "other", "system", "kind", "from", *holdings.whole, *holdings.tasks]
    known = {
        "average": ("macro", "query"),
        "kind": ("", *KINDS),
        "show": (ALL, "measured", "published"),
        "protocol": (ALL, *protocols(holdings.collection)),
        "sort": columns,
    }
    choice = Choice(
        slug,
        site.measure(asked.get("measure")),
        asked.get("average", "macro"),
        asked.get("kind"),
        asked.get("show", ALL),
        asked.get("protocol", MAIN_PROTOCOL.get(slug, ALL)),
        sort,
        asked.get("order") == "rising",
        asked.get("intervals") == ALL,
    )
    for name, values in known.items():
        given = getattr(choice, name)
        if given not in values and not (name == "protocol" and given == MAIN_PROTOCOL.get(slug)):
            raise UnknownName(name, given, values, hint=f"(there are: {', '.join(v for v in values if v)})")
    return choice


def board_lines(site: Site, choice: Choice, *, wait: float | None) -> tuple[list[Line], bool]:
    """The rows, sorted, and whether their intervals are known already."""
    holdings = site.holdings(choice.collection)
    standing = None
    if holdings.systems and choice.show != "published":
        standing = site.standings.of(holdings, choice.measure, site.shelf.version, wait=wait)
    lines = own_lines(holdings, choice.measure, standing) if choice.show != "published" else []
    ready = standing is not None or not lines
    if choice.show != "measured":
        lines += published_lines(holdings.collection, choice.measure, choice.protocol)
    return ordered(lines, choice.sort, average=choice.average, rising=choice.rising), ready


def board(site: Site, asked: Asked, url: Links) -> Page:
    """The page."""
    choice = read_choice(site, asked)
    holdings = site.holdings(choice.collection)
    everything, ready = board_lines(site, choice, wait=WAIT)
    kinds = [k for k in KINDS if any(line.kind == k for line in everything)]
    lines = [line for line in everything if choice.kind in ("", line.kind)]
    tasks = list(dict.fromkeys([*holdings.whole, *(t for line in lines for t in line.tasks)]))

    def link(**changed: Any) -> str:
        return url("board", choice.collection, **choice.params(**changed))

    columns = [_column(name, lines, choice, link, url, holdings.infos) for name in _columns(tasks)]
    scale = _axis([cell_of(line, "average", choice.average) for line in lines])
    rows = [_row(line, columns, choice, scale, url) for line in lines]
    context = {
        "choice_": choice,
        "collection_title": collection_title(site, choice.collection),
        "collections": collection_chips(site, choice.collection, lambda c: url("board", c, **_carried(choice))),
        "measures": chips([(m, str(m)) for m in MEASURES], choice.measure, lambda m: link(measure=m)),
        "averages": chips(
            [("macro", "Mean of tasks"), ("query", "Mean of queries")], choice.average, lambda a: link(average=a)
        ),
        "kinds": chips([("", "All kinds"), *((k, k.capitalize()) for k in kinds)], choice.kind, lambda k: link(kind=k)),
        "shows": _shows(site, choice, link),
        "protocols": _protocol_chips(holdings.collection, choice, link),
        "intervals": Chip(
            "Hide intervals of tasks" if choice.everywhere else "Show intervals of tasks",
            link(everywhere=not choice.everywhere),
            choice.everywhere,
        ),
        "columns": columns,
        "sorts": {
            name: (link(sort=name, rising=choice.sort != name or not choice.rising), _state(choice, name))
            for name in ("system", "kind", "from")
        },
        "rows": rows,
        "ready": ready,
        "any_group": any(line.group for line in lines),
        "origins": {line.row.origin for line in lines},
        "several_protocols": len({line.row.protocol for line in lines if not line.row.measured}) > 1,
        "any_own": any(line.row.measured for line in lines),
        "trouble": site.problems(holdings),
        "exports": _exports(choice, url),
        "texts": [] if _exports(choice, url)[0][1] else _texts(lines, tasks, choice, holdings.title),
        "export_id": f"{choice.collection}-{choice.measure.key}-{choice.average}",
        "task_links": [c for c in columns if c.task_href],
        "axis": scale,
        "whole": len(holdings.whole),
        "poll": url("api", "standing", choice.collection, measure=choice.params()["measure"]),
    }
    return Page("board.html", "Leaderboard", context, "board")


def _carried(choice: Choice) -> dict[str, str]:
    """Choices that make sense in another collection too."""
    kept = choice.params()
    return {name: kept[name] for name in ("measure", "average", "show")}


def _columns(tasks: list[str]) -> list[str]:
    return ["average", *(["other"] if len(tasks) > 1 else []), *tasks]


def _column(name: str, lines: list[Line], choice: Choice, link: Any, url: Links, infos: dict[str, Any]) -> Column:
    averages = {"macro": ("Macro", "Mean of the tasks"), "query": ("By query", "Mean of all queries")}
    if name in ("average", "other"):
        other = {"macro": "query", "query": "macro"}[choice.average]
        title, full = averages[choice.average if name == "average" else other]
    else:
        title, full = SHORT.get(name, name), name
    here = choice.sort == name
    href = link(sort=name, rising=here and not choice.rising)
    task = url("task", choice.collection, name, measure=choice.params()["measure"]) if name in infos else ""
    return Column(name, title, full, href, _state(choice, name), best(lines, name, choice.average), task)


def _state(choice: Choice, name: str) -> str:
    if choice.sort != name:
        return ""
    return "ascending" if choice.rising else "descending"


def _axis(cells: list[Cell]) -> Scale:
    """The axis of the drawn intervals: dots need no zero, so it spans what there is."""
    ends = [v for c in cells for v in (c.value, c.low, c.high) if v is not None]
    return linear(min(ends, default=0.0), max(ends, default=1.0), 4, 96, count=3)


def _row(line: Line, columns: list[Column], choice: Choice, scale: Scale, url: Links) -> dict[str, Any]:
    row = line.row
    cells = []
    for column in columns:
        cell = cell_of(line, column.name, choice.average)
        value = cell.value
        top = value is not None and column.best is not None and value >= column.best - 1e-9
        with_interval = cell.low is not None and (choice.everywhere or column.name == "average")
        cells.append((value, cell.low if with_interval else None, cell.high if with_interval else None, top))
    average = cell_of(line, "average", choice.average)
    mark = Markup("") if average.value is None else interval_mark(scale, average, hollow=not row.measured)
    return {
        "line": line,
        "row": row,
        "cells": cells,
        "mark": mark,
        "href": url("system", choice.collection, row.system) if row.measured else "",
        "scope": "" if row.complete else f"{row.tasks_of[0]} of {row.tasks_of[1]} tasks",
    }


def _shows(site: Site, choice: Choice, link: Any) -> list[Chip]:
    holdings = site.holdings(choice.collection)
    if not holdings.systems or not protocols(holdings.collection):
        return []
    options = [(ALL, "Measured and published"), ("measured", "Measured here"), ("published", "Published")]
    return chips(options, choice.show, lambda s: link(show=s))


def _protocol_chips(collection: str, choice: Choice, link: Any) -> list[Chip]:
    known = protocols(collection)
    if len(known) < 2 or choice.show == "measured":
        return []
    return chips([*((p, p) for p in known), (ALL, "All protocols")], choice.protocol, lambda p: link(protocol=p))


def _exports(choice: Choice, url: Links) -> list[tuple[str, str]]:
    kinds = (("Markdown", "md"), ("CSV", "csv"), ("LaTeX", "tex"))
    return [(title, url("table", choice.collection, format=ending, **choice.params())) for title, ending in kinds]


def _texts(lines: list[Line], tasks: list[str], choice: Choice, title: str) -> list[tuple[str, str]]:
    """The table to take along, for where there is no server to ask for it."""
    rows, caption = table_rows(lines, tasks, choice.average), f"{choice.measure} × 100 on {title}."
    names = {"md": "Markdown", "csv": "CSV", "tex": "LaTeX"}
    return [(names[ending], write(rows, caption)) for ending, (_, write) in FORMATS.items()]
