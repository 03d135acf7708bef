"""The leaderboard: published figures and our own results in one list, each marked for what it is.

Only figures of one protocol stand in one list unless all are asked for: the same model gets other scores elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from ..core import ResultError, UnknownName, UsageError
from ..core.table import NONE, Table, points, share
from ..results import ResultIndex, SystemInfo, macro_average, query_weighted
from ..results.ledger import Conflict, Figure, Kind, average, conflicts, ledger, same_figures, slips
from ..results.protocols import MAIN_PROTOCOL, get_protocol, protocol_of
from ..results.published_models import Terms, system_facts
from ..scoring import MAIN, Measure
from ..scoring.compare import Rank, standings
from ..scoring.evaluation import mean_judged
from ..scoring.intervals import Bootstrap, Settings, SystemScores, score_intervals
from ..scoring.measures import JUDGED
from .collection import ORDER, CollectionResults, collection_named, collection_results, task_names
from .scores import cut_short, short_name

MANY_SYSTEMS, MANY_QUERIES = 100, 20_000
AT_ONCE = 50  # Systems resampled together: the means of more would not fit comfortably in memory.
SCALE = 100
HERE, PUBLISHED, REFERENCE = "measured here", "published", "our reference"
ALL = "all"
MARKS = {
    "≠": "another source has another figure for the same system, or for its reranker over another first stage",
    "*": "stated by the source, which gives no figure of each task",
    "!": "the source states another average than the mean of its tasks, which is shown",
}
FAMILIES = ("lexical", "dense", "fused", "expanded", "reranked", "other")
LEDGER_KIND = {kind: kind for kind in get_args(Kind)} | {"expanded": "expansion", "reranked": "reranker"}
"""What the ledger calls a kind of ours; every other kind of ours is one of retriever."""


class Standing(NamedTuple):
    """What the statistics say about the systems of a collection."""

    scores: dict[str, SystemScores]
    places: dict[str, Place]


class Place(NamedTuple):
    """Where a system stands among those that have every task."""

    letters: str
    group: int
    rank: Rank


def standing(results: CollectionResults, measure: Measure) -> Standing:
    """Intervals of every system, and letters and ranks among those that have every task."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for system, of_system in results.systems.items():
        readable = tuple(t for t in results.tasks if t in of_system and results.matrix(t, measure, [system]))
        if readable:
            alike.setdefault(readable, []).append(system)
    settings = usual_settings(results, few=len(results.systems) <= MANY_SYSTEMS)
    scores, drawn = dict[str, SystemScores](), dict[tuple[str, ...], Bootstrap]()
    for tasks, systems in alike.items():
        for begin in range(0, len(systems), AT_ONCE):
            chunk = results.score_set(measure, systems[begin : begin + AT_ONCE], tasks)
            if chunk is not None:
                bootstrap = Bootstrap(chunk.matrices, settings)
                drawn = {chunk.systems: bootstrap} if tasks == results.whole else drawn
                scores |= {s.name: s for s in score_intervals(chunk, settings, bootstrap=bootstrap)}
    complete = [s for tasks, systems in alike.items() if set(results.whole) <= set(tasks) for s in systems]
    return Standing(scores, places_of(results, measure, complete, drawn))


def places_of(
    results: CollectionResults,
    measure: Measure,
    complete: list[str],
    drawn: Mapping[tuple[str, ...], Bootstrap] | None = None,
) -> dict[str, Place]:
    """Letters and ranks among systems that have every task; none where there are fewer than two of them.

    `drawn` holds what was resampled already, by the systems.
    """
    whole = results.score_set(measure, complete, results.whole) if len(complete) > 1 else None
    if whole is None:
        return {}
    settings = usual_settings(results, few=len(complete) <= MANY_SYSTEMS)
    found = standings(whole.matrices, settings, bootstrap=(drawn or {}).get(whole.systems))
    places = map(Place, found.letters, found.groups, found.ranks)
    return dict(zip(whole.systems, places, strict=True))


def usual_settings(results: CollectionResults, *, few: bool = True) -> Settings:
    """How finely to resample: less finely where there is so much that chance hardly matters."""
    queries = sum(info.queries for info in results.infos.values())
    return Settings(resamples=10_000 if few and queries <= MANY_QUERIES else 2_000)


class Row(msgspec.Struct, kw_only=True):
    """One system. Scores are in 0–1."""

    system: str
    label: str
    kind: str  # retriever, fused, reranker or expansion; for our own results, the kind of retriever.
    family: str  # lexical, dense, fused, expanded, reranked or other.
    source: str
    date: str
    protocol: str
    measured: bool  # Whether the scores were measured here.
    origin: str  # measured here, published (by others), or our reference (measured by r2med, elsewhere).
    collection: str
    tasks: dict[str, float]  # By the full name of the task.
    macro: float | None
    # Mean over all tasks of the collection; None where tasks are missing, for then it would be another number.
    query_weighted: float | None
    complete: bool
    tasks_of: tuple[int, int]  # How many tasks are known, of how many.
    judged_at_10: float | None = None  # The share of the top ten that somebody judged; of our own results.
    tie_group: int | None = None  # The number of its first letter.
    letters: str = ""  # Our systems that share a letter do not differ significantly.
    rank: Rank | None = None  # Among our systems that have every task.
    also: list[str] = []  # Other sources that state the same figure.
    url: str = ""  # Where it was published.
    settings: str = ""  # How it was made, as far as the source says.
    caution: str = ""  # What a reader must know about it.
    stated: float | None = None  # The average as the source states it.
    average_of: str = "tasks"  # tasks: computed here from all of them; statement: what the source states for them.
    slip: bool = False  # The stated average is not the mean of the source's own tasks, whatever was rounded.
    decimals: int = 2  # Digits that the source prints, at most two.
    conflicts: list[Conflict] = []  # Other figures for the same system.
    parameters: int | None = None  # Of all its models; None where one is not known.
    licence: str = ""  # Licences of its models; empty where one is not known.
    terms: Terms = "unknown"  # What the licences mean for a user.
    released: str = ""  # Of its newest model; empty where one is not known.
    intervals: dict[str, tuple[float, float]] = {}  # Of `macro`, `query_weighted` and tasks, where they were computed.

    @property
    def scope(self) -> str:
        """How many tasks there are, where some are missing and no average over all was stated."""
        return "" if self.complete else f"{self.tasks_of[0]} of {self.tasks_of[1]}"

    @property
    def marks(self) -> str:
        """Signs behind the average: ≠ other sources have other figures, * stated only, ! not the mean of its tasks."""
        stated = self.average_of == "statement" and not self.measured and self.tasks_of[0] < self.tasks_of[1]
        return ("≠" if self.conflicts else "") + ("*" if stated else "") + ("!" if self.slip else "")


class Board(NamedTuple):
    """Ranked rows, the tasks they are about, and what a reader should know."""

    rows: list[Row]
    tasks: list[str]
    notes: list[str]


def board(
    folder: str | Path,
    *,
    collection: str = "",
    published: bool = False,
    measured: bool = False,
    protocol: str = "",
    source: str = "",
    kind: str = "",
    measure: Measure = MAIN,
    default_folder: bool = False,
) -> Board:
    """Collect and rank. A folder that was named must be there; the default one may be missing."""
    if published and measured:
        raise UsageError("--published and --measured exclude each other; leave both out to see both")
    if not published and not Path(folder).is_dir() and (measured or not default_folder):
        raise ResultError(f"{folder}: no such folder of results (r2med run makes one)")
    ours = () if published else ResultIndex([Path(folder)]).all()
    present = list(dict.fromkeys(stored.slug for stored in ours))
    first = next((slug for slug in (*ORDER, *present) if slug in present), "r2med")
    where = collection_named(collection, present) if collection else first
    others = [] if collection else sorted(set(present) - {where})
    notes = [f"there are results on {', '.join(others)} too (--collection)"] if others else []
    rows = published_rows(_figures(where, protocol, source, notes), measure) if not measured else []
    here, columns = [stored for stored in ours if stored.slug == where], list[str]()
    if here:
        found = collection_results(here[0].collection, here, strict=True)
        rows += measured_rows(found, measure)
        notes += found.problems
        columns = list(dict.fromkeys((*found.whole, *found.tasks)))
    if kind:
        known = sorted({r.kind for r in rows})
        rows = [r for r in rows if kind in (r.kind, LEDGER_KIND.get(r.kind, "retriever"))]
        if not rows:
            raise UnknownName("kind", kind, known, hint=f"(there are: {', '.join(known)})")
    if not any(row.tasks or row.macro is not None for row in rows):
        raise ResultError(f"nothing has {measure} on {where} with these choices")
    prefix = f"{rows[0].collection}/" if rows[0].collection else ""
    return Board(ranked(rows), [prefix + t for t in columns or task_names(where, [])], notes)


def _figures(collection: str, protocol: str, source: str, notes: list[str]) -> list[Figure]:
    book = ledger()
    if source and source not in {s.id for s in book.sources}:
        known = [s.id for s in book.sources]
        raise UnknownName("source", source, known, hint=f"(known: {', '.join(known)})")
    if protocol and protocol != ALL:
        get_protocol(protocol)
    everything = book.select(collection=collection, source=source)
    wanted = protocol or (ALL if source else MAIN_PROTOCOL.get(collection, ALL))
    chosen = everything if wanted == ALL else [f for f in everything if f.protocol == wanted]
    if (left := len(everything) - len(chosen)) and not protocol:
        notes.append(f"{left} published figures were made under other protocols (--protocol {ALL} shows them)")
    return chosen


def published_rows(figures: Iterable[Figure], measure: Measure = MAIN) -> list[Row]:
    """Rows of the ledger; the same figure at another place is one row, which names the place in `also`."""
    rows = []
    for collection, here in _by_collection(figures).items():
        whole = len(task_names(collection, []))
        clashing = _conflicts(collection, measure.key)
        for figure, *repeats in same_figures(here, measure.key, whole):
            row = _published_row(figure, measure)
            row.also, row.conflicts = [f.source.id for f in repeats], clashing.get(id(figure), [])
            rows.append(row)
    return rows


def _by_collection(figures: Iterable[Figure]) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        found.setdefault(figure.collection, []).append(figure)
    return found


@cache
def _conflicts(collection: str, key: str) -> dict[int, list[Conflict]]:
    """What conflicts in the whole ledger, whichever figures are shown."""
    whole = len(task_names(collection, []))
    return conflicts(same_figures(ledger().select(collection=collection), key, whole), key, whole)


def _published_row(figure: Figure, measure: Measure) -> Row:
    key = measure.key
    tasks, whole = figure.tasks(key), task_names(figure.collection, list(figure.tasks(key)))
    every, stated = bool(tasks) and set(whole) <= set(tasks), figure.average.get(key)
    macro = average(figure, key, len(whole))
    retriever = "lexical" if figure.system.startswith("bm25") else "dense"
    facts = system_facts(figure.system)
    unknown_first_stage = figure.kind == "reranker" and "+" not in figure.system
    return Row(
        system=figure.system,
        label=figure.label,
        kind=figure.kind,
        family={"expansion": "expanded", "reranker": "reranked", "fused": "fused"}.get(figure.kind, retriever),
        source=figure.source.id,
        date=figure.source.date,
        protocol=figure.protocol,
        measured=False,
        origin=REFERENCE if figure.source.measured else PUBLISHED,
        collection=figure.collection,
        tasks={f"{figure.collection}/{t}": tasks[t] for t in whole if t in tasks},
        macro=macro,
        query_weighted=figure.by_query(key) if every else None,
        complete=macro is not None,
        tasks_of=(len(tasks), len(whole) or len(task_names(figure.collection, []))),
        url=figure.source.url,
        settings=figure.settings or get_protocol(figure.protocol).summary,
        caution=figure.caution,
        stated=stated,
        average_of="tasks" if macro != stated else "statement",
        slip=slips(figure, key, len(whole)),
        decimals=2 if figure.source.decimals is None else min(2, figure.source.decimals),
        parameters=None if unknown_first_stage else facts.parameters,
        licence=facts.licence,
        terms=facts.terms,
        released=facts.released,
    )


def measured_rows(results: CollectionResults, measure: Measure = MAIN, said: Standing | None = None) -> list[Row]:
    """Rows of our own results, with the intervals of a standing; without one, only letters and ranks are computed."""
    rows = [_measured_row(system, results, measure) for system in results.systems]
    said = said or Standing({}, places_of(results, measure, [row.system for row in rows if row.complete]))
    for row in rows:
        if place := said.places.get(row.system):
            row.tie_group, row.letters, row.rank = place.group, place.letters, place.rank
        if found := said.scores.get(row.system):
            row.intervals = {task: (e.low, e.high) for task, e in found.tasks.items()}
            for name, average in (("macro", found.macro), ("query_weighted", found.query_weighted)):
                if row.complete and average.complete:
                    row.intervals[name] = (average.low, average.high)
    return rows


def _measured_row(system: str, results: CollectionResults, measure: Measure) -> Row:
    key = measure.key
    scored = {r.task.name: r for r in results.results(system) if key in r.measures}
    complete = bool(results.whole) and set(results.whole) <= set(scored)
    info = next(iter(results.systems[system].values())).result.system
    whole = [(scored[t].task.queries, {key: scored[t].measures[key]}) for t in results.whole] if complete else []
    return Row(
        system=system,
        label=system,
        kind=info.kind,
        family=family_of(info),
        source=HERE,
        date="",
        protocol=protocol_of(info),
        measured=True,
        origin=HERE,
        collection=results.collection,
        tasks={r.task.full_name: r.measures[key] for r in scored.values()},
        macro=macro_average([scores for _, scores in whole]).get(key),
        query_weighted=query_weighted(whole).get(key),
        complete=complete,
        tasks_of=(sum(t in scored for t in results.whole), len(results.whole)),
        judged_at_10=mean_judged(r.judged_at_10 for r in scored.values()),
        caution=cut_short(measure, scored.values()),
    )


def family_of(system: SystemInfo) -> str:
    """The family of one of our systems: that of its last stage."""
    described = system.description
    if system.kind in ("reranked", "reranker") or any(key in described for key in ("reranking", "reranker")):
        return "reranked"
    if system.kind in ("expanded", "expansion") or any(key in described for key in ("expander", "expansion")):
        return "expanded"
    if system.kind in FAMILIES:
        return system.kind
    return "dense" if system.kind in ("late-interaction", "sparse", "api") else "other"


def ranked(rows: Iterable[Row]) -> list[Row]:
    """Best average first, to the digits that published figures have; those without one last, most tasks first."""
    return sorted(rows, key=lambda r: (r.macro is None, -round(r.macro or 0.0, 6), -r.tasks_of[0], r.system, r.source))


def board_table(rows: Sequence[Row], tasks: Sequence[str], measure: Measure) -> Table:
    """The table; the count of tasks where an average would mislead."""
    placed, protocols = any(r.rank for r in rows), len({r.protocol for r in rows}) > 1
    judged = any(r.judged_at_10 is not None for r in rows)
    titles = ["System", *(["Letters", "Rank", "Best"] if placed else []), "Macro", *map(short_name, tasks)]
    cells = [
        [
            row.system,
            *(_place_cells(row) if placed else []),
            row.scope or f"{points(row.macro, row.decimals)}{row.marks}",
            *(points(row.tasks.get(t), row.decimals) for t in tasks),
            *([share(row.judged_at_10)] if judged else []),
            *([row.protocol] if protocols else []),
            f"{row.origin} {row.date}".strip(),
        ]
        for row in rows
    ]
    titles += [str(JUDGED)] if judged else []
    return Table([*titles, *(["Protocol"] if protocols else []), "From"], cells, board_caption(rows, measure))


def _place_cells(row: Row) -> list[str]:
    if row.rank is None:
        return [NONE, NONE, NONE]
    return [row.letters, f"{row.rank.rank} ({row.rank.low}–{row.rank.high})", share(row.rank.best)]


def board_caption(rows: Sequence[Row], measure: Measure) -> str:
    """What the numbers are and what they are not."""
    protocols = list(dict.fromkeys(r.protocol for r in rows if r.origin == PUBLISHED))
    text = f"{measure} × 100; Macro: mean of the tasks."
    if any(r.judged_at_10 is not None for r in rows):
        text += f" {JUDGED}: share of the top ten that somebody judged."
    text += "".join(f" {line}" for line in cautions(rows))
    if protocols:
        text += f" Published figures are not ours; protocol {', '.join(protocols)}."
    if len(protocols) > 1:
        text += " Figures of different protocols are not comparable."
    shown = "".join(r.marks for r in rows)
    text += "".join(f" {mark} {meaning}." for mark, meaning in MARKS.items() if mark in shown)
    if any(r.rank for r in rows):
        text += " Letters, Rank and Best are about systems measured here, by Macro: those that share a letter do not"
        text += " differ significantly (randomisation test, 5 % over all pairs); Rank has the ranks that these tests"
        text += " leave open; Best is how often it was first when queries were resampled."
    return text


def cautions(rows: Iterable[Row]) -> list[str]:
    """What must be said about systems measured here, a line each."""
    return [f"{row.system}: {row.caution}" for row in rows if row.measured and row.caution]


def conflict_lines(rows: Iterable[Row]) -> list[str]:
    """One line for each pair of figures that conflict, of the rows shown."""
    lines: dict[frozenset[tuple[str, str]], str] = {}
    for row in rows:
        for other in row.conflicts:
            pair = frozenset({(row.source, row.system), (other.source, other.system)})
            if row.macro is not None:
                lines.setdefault(pair, other.line(row.system, row.macro, row.protocol))
    return list(lines.values())


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What `r2med leaderboard --json` prints: scores × 100."""

    def scaled(value: float | None) -> float | None:
        return None if value is None else round(SCALE * value, 10)

    documents: list[dict[str, Any]] = msgspec.to_builtins(rows)
    for document in documents:
        del document["intervals"]
        document |= {key: scaled(document[key]) for key in ("macro", "query_weighted", "stated")}
        for other in document["conflicts"]:
            other |= {key: scaled(other[key]) for key in ("macro", "difference")}
        document |= {"scale": SCALE, "tasks": {task: scaled(value) for task, value in document["tasks"].items()}}
    return documents
