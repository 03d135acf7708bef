"""Published figures as data: TOML files with one `[[source]]` per place and one table per system.

A repetition is judged against them task by task: it matches, drifts, or was made under another protocol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from ...core import DataError, ResultError, UnknownName, UsageError
from ...core.files import parse_toml
from ..schema import MICRO, TaskResult

Kind = Literal["retriever", "fused", "reranker", "expansion"]
Verdict = Literal["matches", "drifts", "protocol differs"]


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where figures come from, and all that they share."""

    id: str
    title: str
    url: str
    date: str  # When published, or when read where the place changes: YYYY-MM; empty where that is not known.
    protocol: str  # Name of the protocol they were made under.
    collection: str
    measured: bool  # Whether r2med made them; False for everything that others published.
    scale: Literal[1, 100]  # The highest possible score, as the file writes it.
    decimals: int | None = None  # Digits behind the point that figures of 0 to 100 are printed with; None: many.
    tolerance: float = 0.3  # How far, in points of 100, a faithful repetition may be off.
    tasks: tuple[str, ...] = ()
    queries: tuple[int, ...] = ()
    positives: tuple[int, ...] = ()  # Positive judgments of each task.
    fingerprints: tuple[str, ...] = ()  # Of the tasks' data, where the figures hold for exactly these texts.
    note: str = ""

    def __post_init__(self) -> None:
        for name in ("queries", "positives", "fingerprints"):
            values = getattr(self, name)
            if values and len(values) != len(self.tasks):
                raise ValueError(f"{name}: {len(values)} values for {len(self.tasks)} tasks")

    def unit(self, value: float, what: str) -> float:
        """A score of the file as a score in 0–1."""
        if not 0 <= value <= self.scale:
            raise ValueError(f"{what}: {value} is not between 0 and {self.scale}")
        return value / self.scale


class Figure(NamedTuple):
    """One system of one source. All values are in 0–1."""

    system: str
    label: str
    kind: Kind
    source: Source
    per_task: Mapping[str, Mapping[str, float]]  # Measure → task → value.
    average: Mapping[str, float]  # Measure → mean over all tasks of the collection, as the source states it.
    protocol: str  # That of the source, unless the system has one of its own.
    settings: str = ""  # How the figure was made, as far as the source says.
    caution: str = ""  # What a reader must know about this figure.

    @property
    def collection(self) -> str:
        return self.source.collection

    @property
    def rounding(self) -> float:
        """How far printed figures may be from what was computed, in 0–1."""
        return 0.0 if self.source.decimals is None else 0.5 * 10.0 ** -(self.source.decimals + 2)

    @property
    def average_only(self) -> bool:
        """No figures of single tasks were published."""
        return not self.per_task

    def tasks(self, measure: str) -> Mapping[str, float]:
        """Values of each task; empty where none were published."""
        return self.per_task.get(measure, {})

    def macro(self, measure: str) -> float | None:
        """Mean over the tasks, computed where the tasks are known; None where the measure was not published."""
        values = self.tasks(measure)
        return sum(values.values()) / len(values) if values else self.average.get(measure)

    def by_query(self, measure: str) -> float | None:
        """Mean over queries (over positives for micro recall); None where counts or tasks are unknown."""
        values = self.tasks(measure)
        counts = self.source.positives if measure.startswith(MICRO) else self.source.queries
        if not values or len(counts) != len(values):
            return None
        return sum(n * v for n, v in zip(counts, values.values(), strict=True)) / sum(counts)


class Ledger:
    """Published figures, findable."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self.figures = tuple(figures)
        for (source, _, system), times in Counter((f.source.id, f.collection, f.system) for f in self.figures).items():
            if times > 1:
                raise DataError(f"source {source} has two systems called {system!r}")

    def __iter__(self) -> Iterator[Figure]:
        return iter(self.figures)

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple({f.source.id: f.source for f in self.figures}.values())

    def select(self, *, collection: str = "", protocol: str = "", source: str = "", system: str = "") -> list[Figure]:
        """Figures that fit; an empty word fits all."""
        wanted = (collection, protocol, source, system)
        found = ((f, (f.collection, f.protocol, f.source.id, f.system)) for f in self.figures)
        return [f for f, has in found if all(w in ("", h) for w, h in zip(wanted, has, strict=True))]

    def find(self, system: str, collection: str, protocol: str) -> Figure:
        """The figure of one system, with its tasks where any source gives them; an unknown name is an error."""
        here = self.select(collection=collection, protocol=protocol)
        found = sorted((f for f in here if f.system == system), key=lambda f: f.average_only)
        if found:
            return found[0]
        elsewhere = sorted({f"{f.collection} under {f.protocol}" for f in self.select(system=system)})
        if elsewhere:
            has = ", ".join(elsewhere)
            raise UsageError(f"no figures of {system} on {collection} under {protocol}; the ledger has it on {has}")
        listed = f"r2med leaderboard --published --collection {collection}"
        hint = f"on {collection} under {protocol} ({listed} lists what the ledger has)"
        raise UnknownName("published system", system, [f.system for f in here], hint=hint)


@cache
def ledger() -> Ledger:
    """The ledger that comes with r2med."""
    found = sorted((e for e in files(__package__).iterdir() if e.name.endswith(".toml")), key=lambda e: e.name)
    return Ledger(figure for entry in found for figure in _figures(entry.read_text("utf-8"), entry.name))


def read_ledger(path: str | Path) -> Ledger:
    """A ledger file of one's own."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({getattr(error, 'strerror', None) or error})", path=path) from None
    return Ledger(_figures(text, path))


def _figures(text: str, path: str | Path) -> Iterator[Figure]:
    try:
        data: dict[str, Any] = parse_toml(text)
    except ValueError as error:
        raise DataError(f"not TOML ({error})", path=path) from None
    if not isinstance(data.get("source"), list):
        raise DataError("has no [[source]]", path=path)
    for entry in data["source"]:
        try:
            systems: dict[str, dict[str, Any]] = entry.pop("systems", {})
            source = msgspec.convert(entry, Source)
            yield from (_figure(name, table, source) for name, table in systems.items())
        except (msgspec.ValidationError, ValueError, TypeError, AttributeError) as error:
            name = entry.get("id", "?") if isinstance(entry, dict) else "?"
            raise DataError(f"source {name!r}: {error}", path=path) from None


class _System(msgspec.Struct, forbid_unknown_fields=True):
    kind: Kind
    label: str = ""
    protocol: str = ""
    settings: str = ""
    caution: str = ""
    average: dict[str, float] = {}
    scores: dict[str, list[float]] = {}


def _figure(name: str, table: dict[str, Any], source: Source) -> Figure:
    """A system's table: what `_System` has, and an array of scores per measure."""
    own = {key: table[key] for key in table if key in _System.__struct_fields__ and key != "scores"}
    system = msgspec.convert(own | {"scores": {k: v for k, v in table.items() if k not in own}}, _System)
    if not system.scores and not system.average:
        raise ValueError(f"{name}: no figures")
    per_task = {}
    for measure, values in system.scores.items():
        if len(values) != len(source.tasks):
            raise ValueError(f"{name}: {len(values)} values of {measure} for {len(source.tasks)} tasks")
        scaled = (source.unit(v, f"{name}: {measure}") for v in values)
        per_task[measure] = dict(zip(source.tasks, scaled, strict=True))
    average = {m: source.unit(v, f"{name}: {m}") for m, v in system.average.items()}
    protocol = system.protocol or source.protocol
    label, said = system.label or name, (system.settings, system.caution)
    return Figure(name, label, system.kind, source, per_task, average, protocol, *said)


class TaskVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One task. Scores are in 0–1."""

    task: str
    verdict: Verdict
    published: float
    measured: float
    difference: float
    reasons: list[str]  # Why the protocol differs.


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """One system on one collection."""

    system: str
    collection: str
    protocol: str
    protocol_fingerprint: str
    measure: str
    source: str
    date: str
    tolerance: float  # In points of 100.
    tasks: list[TaskVerdict]
    missing: list[str]  # Published tasks that were not run.
    notes: list[str] = []

    @property
    def ok(self) -> bool:
        """Every published task was run and matches."""
        return bool(self.tasks) and not self.missing and all(t.verdict == "matches" for t in self.tasks)


def verdicts(
    figure: Figure, results: Iterable[TaskResult], measure: str, *, tolerance: float, reasons: Mapping[str, list[str]]
) -> list[TaskVerdict]:
    """Judge each result whose task was published; `reasons` holds, by task, how its making differs."""
    published = figure.tasks(measure)
    data = dict(zip(figure.source.tasks, figure.source.fingerprints, strict=False))
    judged = []
    for result in results:
        name = result.task.name
        if name not in published:
            continue
        if measure not in result.measures:
            raise ResultError(f"{result.system.name} on {result.task.full_name} has no {measure}")
        why = list(reasons.get(name, []))
        if name in data and data[name] != result.task.fingerprint:
            why.append("the task's data are not those of the published figure")
        difference = result.measures[measure] - published[name]
        within = abs(difference) * 100 <= tolerance + 1e-9
        judged.append(
            TaskVerdict(
                task=result.task.full_name,
                verdict="protocol differs" if why else "matches" if within else "drifts",
                published=published[name],
                measured=result.measures[measure],
                difference=difference,
                reasons=why,
            )
        )
    return judged
