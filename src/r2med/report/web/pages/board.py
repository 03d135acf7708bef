"""The leaderboard, with the same table in formats for elsewhere, and scores against costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from ....core.table import Table, points
from ....results.ledger import ledger
from ....results.protocols import MAIN_PROTOCOL
from ....scoring import MAIN, Measure
from ...chart import Scale, linear
from ...collection import CollectionResults
from ...costs import AXES, CostPoint, cost_points
from ...leaderboard import ALL, FAMILIES, MARKS, Row, Standing, cautions, conflict_lines, measured_rows, published_rows
from ...pictures import PHONE, WIDTH, draw_tradeoff, frontier, interval_mark
from ...scores import cut_short, short_name
from ..render import Links, Page, PageRequest
from ..site import Site
from . import Chip, board_filters, chips, choose, collection_chips, measure_chips, measure_param

FORMATS: dict[str, tuple[str, str, Callable[[Table], str]]] = {
    "md": ("Markdown", "text/markdown", lambda table: table.markdown() + "\n"),
    "csv": ("CSV", "text/csv", Table.csv),
    "tex": ("LaTeX", "text/x-tex", Table.latex),
}
AVERAGES = {"macro": ("Macro", "Mean of the tasks"), "query_weighted": ("By query", "Mean of all queries")}
PUBLIC_SHOWS = {ALL: "Submissions and published", "measured": "Submissions"}
SHOWS = {ALL: "Measured and published", "measured": "Measured here", "published": "Published"}


class Board(NamedTuple):
    """A collection, and what the visitor wants to see of it."""

    results: CollectionResults
    measure: Measure
    chosen: Mapping[str, str]
    usual: Mapping[str, str]

    @classmethod
    def read(cls, site: Site, asked: PageRequest) -> Board:
        results = site.results(asked.parts[0] if asked.parts else site.default_collection())
        measure = site.measure(asked.get("measure"))
        main = MAIN_PROTOCOL.get(results.collection, ALL)
        columns = list(dict.fromkeys((*AVERAGES, *results.whole, *results.tasks)))
        options: dict[str, Iterable[str]] = {  # the usual choice first
            "average": ("macro", "query"),
            "kind": ("", *FAMILIES),
            "show": sorted(SHOWS, key=lambda name: name != "measured") if site.submitted else SHOWS,
            "protocol": dict.fromkeys((main, ALL, *protocols(results))),
            "sort": ("average", "other", *columns, "system", "kind", "from"),
            "order": ("", "rising"),
            "intervals": ("", ALL),
            **board_filters.options(site.submitted),
        }
        usual = {name: next(iter(values)) for name, values in options.items()} | {"measure": measure_param(MAIN)}
        chosen = {name: choose(name, asked.get(name, usual[name]), values) for name, values in options.items()}
        return cls(results, measure, chosen | {"measure": measure_param(measure)}, usual)

    def params(self, **changed: str) -> dict[str, str]:
        """The choices as they stand in an address; what is usual is left out."""
        return {name: value for name, value in {**self.chosen, **changed}.items() if value != self.usual[name]}

    @property
    def columns(self) -> list[str]:
        """The columns of scores: the average chosen, the other one, the tasks."""
        tasks = list(dict.fromkeys((*self.results.whole, *self.results.tasks)))
        averages = ["macro", "query_weighted"] if self.chosen["average"] == "macro" else ["query_weighted", "macro"]
        return [*averages[: 2 if len(tasks) > 1 else 1], *tasks]

    def key(self, column: str) -> str:
        """A column as rows name it: tasks by their full names."""
        return column if column in AVERAGES or not self.results.collection else f"{self.results.collection}/{column}"

    def score(self, row: Row, column: str) -> float | None:
        if column in AVERAGES:
            return row.macro if column == "macro" else row.query_weighted
        return row.tasks.get(self.key(column))

    def rows(self, site: Site) -> tuple[list[Row], bool]:
        """The rows, sorted, and whether their intervals are known already."""
        rows, ready, show = list[Row](), True, self.chosen["show"]
        if self.results.systems and show != "published":
            said = site.standing(self.results, self.measure)
            ready = said is not None
            rows = own_rows(site, self.results, self.measure, said)
        if show != "measured":
            rows += published(self.results, self.measure, self.chosen["protocol"])
        return self.ordered(rows), ready

    def chosen_rows(self, rows: Iterable[Row]) -> list[Row]:
        """Those of the kind, size, licence and date that the visitor wants to see."""
        kind = self.chosen["kind"]
        return [row for row in rows if kind in ("", row.family) and board_filters.fits(row, self.chosen)]

    def ordered(self, rows: Iterable[Row]) -> list[Row]:
        """Sorted by a column; what has no number there stands last, either way."""
        sort, falling = self.chosen["sort"], self.chosen["order"] != "rising"
        names: dict[str, Callable[[Row], tuple[str, ...]]] = {
            "system": lambda row: (row.label.casefold(),),
            "kind": lambda row: (row.family, row.label.casefold()),
            "from": lambda row: (row.origin, row.source, row.label.casefold()),
        }
        if sort in names:
            return sorted(rows, key=names[sort], reverse=falling)
        column = self.columns[("average", "other").index(sort)] if sort in ("average", "other") else sort
        found = [(row, self.score(row, column)) for row in rows]
        have = [(row, round(score, 6)) for row, score in found if score is not None]
        lack = [row for row, score in found if score is None]
        ranked = [row for row, _ in sorted(have, key=lambda pair: pair[1], reverse=falling)]
        return [*ranked, *sorted(lack, key=lambda row: (-row.tasks_of[0], row.label.casefold()))]

    def table(self, rows: list[Row]) -> Table:
        cells = []
        for row in rows:
            scores = [points(self.score(row, column), row.decimals) for column in self.columns]
            if row.scope:
                scores[0] = f"{row.scope} tasks"
            origin = f"{row.origin} {row.date} {row.protocol}" if row.date or not row.measured else row.origin
            cells.append([row.label, row.family, origin, *scores])
        caption = " ".join([f"{self.measure} × 100 on {self.results.title}.", *cautions(rows)])
        if any(not row.measured for row in rows):
            caption += " Published figures are other people's, under their own protocol."
        titles = [AVERAGES[c][0] if c in AVERAGES else short_name(c) for c in self.columns]
        return Table(["System", "Kind", "From", *titles], cells, caption, left=3)


def own_rows(site: Site, results: CollectionResults, measure: Measure, said: Standing | None) -> list[Row]:
    """Every system that has results, with all that is known about it."""
    rows = measured_rows(results, measure, said or Standing({}, {}))
    board_filters.add_facts(rows, results, site.model_facts)
    board_filters.add_submissions(rows, site.submitted)
    return rows


def protocols(results: CollectionResults) -> list[str]:
    """Protocols under which figures on a collection were published, the main one first."""
    found = dict.fromkeys(f.protocol for f in ledger() if f.collection == results.collection)
    return sorted(found, key=lambda p: p != MAIN_PROTOCOL.get(results.collection, ""))


def published(results: CollectionResults, measure: Measure, protocol: str = "") -> list[Row]:
    """Figures of others under a protocol, the main one unless told otherwise, or all of them."""
    protocol = protocol or MAIN_PROTOCOL.get(results.collection, ALL)
    here = [f for f in ledger() if f.collection == results.collection]  # nobody has any on folders of one's own
    return published_rows([f for f in here if protocol in (ALL, f.protocol)], measure)


def table_text(site: Site, asked: PageRequest) -> tuple[str, str]:
    """The leaderboard in a format for elsewhere, and the format's media type."""
    _, media, write = FORMATS[choose("format", asked.get("format", "csv"), FORMATS)]
    shown = Board.read(site, asked)
    rows, _ = shown.rows(site)
    return media, write(shown.table(shown.chosen_rows(rows)))


def board(site: Site, asked: PageRequest, url: Links) -> Page:
    """The page."""
    shown = Board.read(site, asked)
    results, chosen, slug = shown.results, shown.chosen, shown.results.slug
    everything, ready = shown.rows(site)
    rows = shown.chosen_rows(everything)

    def link(**changed: str) -> str:
        return url("board", slug, **shown.params(**changed))

    def options(name: str, titles: Iterable[tuple[str, str]]) -> list[Chip]:
        return chips(titles, chosen[name], lambda value: link(**{name: value}))

    families = [(f, f.capitalize()) for f in FAMILIES if any(row.family == f for row in everything)]
    kinds = board_filters.Choice("kind", "Kind", [("", "All kinds"), *families])
    known = protocols(results)
    kept = {name: value for name, value in shown.params().items() if name in ("measure", "average", "show")}
    average = shown.columns[0]
    ends = [v for r in rows for v in (shown.score(r, average), *r.intervals.get(average, ())) if v is not None]
    scale = linear(100 * min(ends, default=0.0), 100 * max(ends, default=0.01), 4, 96, count=3)
    exports = [(title, url("table", slug, format=f, **shown.params())) for f, (title, _, _) in FORMATS.items()]
    table = None if exports[0][1] else shown.table(rows)
    every, several = chosen["intervals"] == ALL, len(known) > 1 and chosen["show"] != "measured"
    columns = [_column(shown, name, rows, link, url) for name in shown.columns]
    filters = [(c, options(c.name, c.values)) for c in (kinds, *board_filters.choices(everything, site.submitted))]
    shows = {**SHOWS, **PUBLIC_SHOWS} if site.submitted else SHOWS
    context = {
        "measure": shown.measure,
        "slug": slug,
        "collection_title": results.title,
        "collections": collection_chips(site, slug, lambda c: url("board", c, **kept)),
        "measures": measure_chips(shown.measure, lambda key: link(measure=key)),
        "averages": options("average", [("macro", "Mean of tasks"), ("query", "Mean of queries")]),
        "shows": options("show", shows.items()) if results.systems and known else [],
        "protocols": options("protocol", [*((p, p) for p in known), (ALL, "All protocols")]) if several else [],
        "filters": filters,
        "unfiltered": rows == everything,
        "downloads": [(f.upper(), url("data", slug, format=f)) for f in ("csv", "json")] if site.submitted else [],
        "facts": any(not row.measured for row in rows),
        "sizes": board_filters.draw_sizes(rows, shown.measure, results.title, shown.columns[0]),
        "conflicts": conflict_lines(rows),
        "marks": [(mark, meaning) for mark, meaning in MARKS.items() if any(mark in row.marks for row in rows)],
        "intervals": (f"{'Hide' if every else 'Show'} intervals of tasks", link(intervals="" if every else ALL)),
        "columns": columns,
        "sorts": {name: _sort_link(shown, name, link, words=True) for name in ("system", "kind", "from")},
        "rows": [_row(shown, row, columns, scale, url) for row in rows],
        "ready": ready,
        "any_group": any(row.rank for row in rows) or (not ready and sum(r.measured and r.complete for r in rows) > 1),
        "origins": {row.origin for row in rows},
        "several_protocols": len({row.protocol for row in rows if not row.measured}) > 1,
        "any_own": any(row.measured for row in rows),
        "any_judged": any(row.judged_at_10 is not None for row in rows),
        "trouble": site.problems(),
        "cautions": {row.system: row.caution for row in rows if row.measured},
        "exports": exports,
        "texts": [(title, write(table)) for title, _, write in FORMATS.values()] if table else [],
        "export_id": f"{slug}-{shown.measure.key}-{chosen['average']}-{chosen['protocol']}",
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


def _column(shown: Board, name: str, rows: list[Row], link: Callable[..., str], url: Links) -> Column:
    title, full = AVERAGES[name] if name in AVERAGES else (short_name(name), name)
    place = shown.columns.index(name)
    href, direction = _sort_link(shown, ("average", "other")[place] if name in AVERAGES else name, link, words=False)
    best = max((score for row in rows if (score := shown.score(row, name)) is not None), default=None)
    has_page = name in shown.results.infos
    task = url("task", shown.results.slug, name, measure=measure_param(shown.measure)) if has_page else ""
    return Column(name, title, full, href, direction, best, task)


def _sort_link(shown: Board, name: str, link: Callable[..., str], *, words: bool) -> tuple[str, str]:
    """The address that sorts by a column, or the other way where that is done already, and the present direction."""
    rising = shown.chosen["order"] == "rising"
    if shown.chosen["sort"] != name:
        return link(sort=name, order="rising" if words else ""), ""
    return link(sort=name, order="" if rising else "rising"), "ascending" if rising else "descending"


def _row(shown: Board, row: Row, columns: list[Column], scale: Scale, url: Links) -> dict[str, Any]:
    cells = []
    for number, column in enumerate(columns):
        score, bounds = shown.score(row, column.name), row.intervals.get(shown.key(column.name))
        top = score is not None and column.best is not None and score >= column.best - 1e-11
        cells.append((score, bounds if number == 0 or shown.chosen["intervals"] else None, top))
    (score, bounds, _), mark = cells[0], ""
    if score is not None:
        hundred = (100 * bounds[0], 100 * bounds[1]) if bounds else None
        mark = interval_mark(scale, 100 * score, hundred, hollow=not row.measured)
    href = url("system", shown.results.slug, row.system) if row.measured else ""
    about = [row.source, row.settings, row.caution]
    return {
        "row": row,
        "cells": cells,
        "mark": Markup(mark),
        "href": href,
        "size": board_filters.size_text(row.parameters),
        "classes": board_filters.classes(row),
        "about": "" if row.measured else "; ".join(part for part in about if part),
    }


def tradeoffs(site: Site, asked: PageRequest, url: Links) -> Page:
    """The page."""
    slug = asked.parts[0] if asked.parts else site.default_collection()
    results = site.results(slug)
    measure = site.measure(asked.get("measure"))
    usual = "seconds" if results.systems else "parameters"
    against = choose("cost", asked.get("against", usual), AXES)
    points, left_out = cost_points(results, results.whole, measure, against, site.model_facts)
    points = [p._replace(href=url("system", slug, p.system)) for p in points]
    if against == "parameters":
        for row in published(results, measure):
            if row.parameters is not None and row.macro is not None:
                points.append(CostPoint(f"{row.label} (published)", row.parameters, row.macro, measured=False))

    def link(**changed: str) -> str:
        chosen = {"measure": measure_param(measure), "against": against} | changed
        return url("tradeoffs", slug, **(chosen | {"against": "" if chosen["against"] == usual else chosen["against"]}))

    widths = (WIDTH, PHONE) if points else ()
    drawn = [draw_tradeoff(points, AXES[against], measure, results.title, headed=False, width=w) for w in widths]
    context = {
        "collections": collection_chips(site, slug, lambda c: url("tradeoffs", c)),
        "axes": chips([(k, a.title) for k, a in AXES.items()], against, lambda a: link(against=a)),
        "measures": measure_chips(measure, lambda key: link(measure=key)),
        "axis": AXES[against],
        "measure": measure,
        "title": drawn[0].title if drawn else "",
        "tasks": [info.full_name for info in results.infos.values()],
        "points": sorted(points, key=lambda p: (-p.score, p.cost)),
        "front": frontier(points),
        "pictures": [Markup(picture.render(dark=False)) for picture in drawn],
        "left_out": left_out,
        "cautions": {p.system: cut_short(measure, results.results(p.system)) for p in points if p.measured},
        "any_published": any(not p.measured for p in points),
    }
    return Page("tradeoffs.html", "Trade-offs", context, "tradeoffs")
