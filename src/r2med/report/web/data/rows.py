"""The leaderboard's rows: ours and published ones, with intervals, ready to be sorted and filtered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ....results import ResultStore
from ....results.ledger import ledger
from ....scoring import Measure
from ...leaderboard import MAIN_PROTOCOL, Row, measured_rows, published_rows
from .holdings import Holdings
from .shelf import Entry
from .standings import Standing

KINDS = ("lexical", "dense", "fused", "expanded", "reranked", "other")
ALL = "all"


class Cell(NamedTuple):
    """A score × 100 with its interval."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Line(NamedTuple):
    """One system."""

    row: Row
    kind: str
    macro: Cell
    weighted: Cell
    tasks: dict[str, Cell]
    group: int | None


def own_lines(holdings: Holdings, measure: Measure, standing: Standing | None) -> list[Line]:
    """Our results."""
    lines = []
    for system, entries in holdings.systems.items():
        results = [e.result for e in entries.values()]
        # One system at a time: tie groups come from the standing, which is kept.
        row = measured_rows(ResultStore("."), results, measure)[0]
        row.system = row.label = system
        if lacking := set(holdings.whole) - {r.task.name for r in results}:
            row.complete, row.macro, row.query_weighted = False, None, None
            row.tasks_of = (len(holdings.whole) - len(lacking), len(holdings.whole))
        said = standing.scores.get(system) if standing else None
        macro, weighted = Cell(row.macro), Cell(row.query_weighted)
        tasks = {name.rpartition("/")[2]: Cell(value) for name, value in row.tasks.items()}
        if said is not None:
            tasks = {
                t: Cell(c.value, 100 * e.low, 100 * e.high) if (e := said.tasks.get(t)) else c for t, c in tasks.items()
            }
            if row.complete and said.macro.complete:
                macro = Cell(row.macro, 100 * said.macro.low, 100 * said.macro.high)
                weighted = Cell(row.query_weighted, 100 * said.query_weighted.low, 100 * said.query_weighted.high)
        group = standing.groups.get(system) if standing else None
        lines.append(Line(row, kind_of(next(iter(entries.values()))), macro, weighted, tasks, group))
    return lines


def published_lines(collection: str, measure: Measure, protocol: str) -> list[Line]:
    """Figures of others, under one protocol or all of them."""
    figures = ledger().select(collection=collection)
    if protocol != ALL:
        figures = [f for f in figures if f.protocol == protocol]
    return [
        Line(
            row,
            published_kind(row),
            Cell(row.macro),
            Cell(row.query_weighted),
            {name.rpartition("/")[2]: Cell(value) for name, value in row.tasks.items()},
            None,
        )
        for row in published_rows(figures, measure)
    ]


def protocols(collection: str) -> list[str]:
    """Protocols under which figures on a collection were published, the main one first."""
    found = list(dict.fromkeys(f.protocol for f in ledger().select(collection=collection)))
    main = MAIN_PROTOCOL.get(collection, "")
    return sorted(found, key=lambda p: p != main)


def kind_of(entry: Entry) -> str:
    """The family of one of our systems: that of its last stage."""
    system = entry.result.system
    described = system.description
    if system.kind in ("reranked", "reranker") or any(key in described for key in ("reranking", "reranker")):
        return "reranked"
    if system.kind in ("expanded", "expansion") or any(key in described for key in ("expander", "expansion")):
        return "expanded"
    if system.kind in KINDS:
        return system.kind
    return "dense" if system.kind in ("late-interaction", "sparse", "api") else "other"


def published_kind(row: Row) -> str:
    """The family of a published system."""
    named = {"expansion": "expanded", "reranker": "reranked", "fused": "fused"}
    if row.kind in named:
        return named[row.kind]
    return "lexical" if row.system.startswith("bm25") else "dense"


def ordered(lines: Iterable[Line], sort: str, *, average: str, rising: bool) -> list[Line]:
    """Sorted by a column; what has no number there stands last, either way."""
    if sort in ("system", "kind", "from"):
        names = {
            "system": lambda x: x.row.label.casefold(),
            "kind": lambda x: (x.kind, x.row.label.casefold()),
            "from": lambda x: (x.row.origin, x.row.source, x.row.label.casefold()),
        }
        return sorted(lines, key=names[sort], reverse=not rising)

    def value(line: Line) -> float | None:
        return cell_of(line, sort, average).value

    found = list(lines)
    have = sorted((x for x in found if value(x) is not None), key=lambda x: value(x) or 0.0, reverse=not rising)
    lack = sorted((x for x in found if value(x) is None), key=lambda x: (-x.row.tasks_of[0], x.row.label.casefold()))
    return [*have, *lack]


def cell_of(line: Line, column: str, average: str) -> Cell:
    """The cell of a column: an average or a task."""
    if column in ("", "average"):
        return line.macro if average == "macro" else line.weighted
    if column == "other":
        return line.weighted if average == "macro" else line.macro
    return line.tasks.get(column, Cell(None))


def best(lines: Sequence[Line], column: str, average: str) -> float | None:
    """The highest number of a column."""
    values = [v for line in lines if (v := cell_of(line, column, average).value) is not None]
    return max(values, default=None)
