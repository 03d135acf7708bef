"""Ledger files: TOML with one `[[source]]` a place and one table a system, an array of scores a measure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ...core import DataError, UnknownName, UsageError
from ...core.toml import loads
from .figures import Figure, Kind, Source


class _System(msgspec.Struct, forbid_unknown_fields=True):
    kind: Kind
    label: str = ""
    average: dict[str, float] = {}
    scores: dict[str, list[float]] = {}


class Ledger:
    """Published figures, findable."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self.figures = tuple(figures)
        seen: dict[tuple[str, str, str], Figure] = {}
        for figure in self.figures:
            key = (figure.source.id, figure.collection, figure.system)
            if key in seen:
                raise DataError(f"source {figure.source.id} has two systems called {figure.system!r}")
            seen[key] = figure

    def __iter__(self) -> Iterator[Figure]:
        return iter(self.figures)

    def __len__(self) -> int:
        return len(self.figures)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Every source once."""
        return tuple({f.source.id: f.source for f in self.figures}.values())

    def select(self, *, collection: str = "", protocol: str = "", source: str = "", system: str = "") -> list[Figure]:
        """Figures that fit; an empty word fits all."""
        return [
            f
            for f in self.figures
            if collection in ("", f.collection)
            and protocol in ("", f.protocol)
            and source in ("", f.source.id)
            and system in ("", f.system)
        ]

    def find(self, system: str, collection: str, protocol: str) -> Figure:
        """The figure of one system, with its tasks where any source gives them; a name nobody published is an error."""
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
    folder = files(__package__)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return Ledger(f for name in names for f in _figures(folder.joinpath(name).read_text("utf-8"), name))


def read_ledger(path: str | Path) -> Ledger:
    """A ledger file of one's own."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot be read ({reason})", path=path) from None
    return Ledger(_figures(text, path))


def _figures(text: str, path: str | Path) -> Iterator[Figure]:
    try:
        data: dict[str, Any] = loads(text)
    except ValueError as error:
        raise DataError(f"not TOML ({error})", path=path) from None
    if not isinstance(data.get("source"), list):
        raise DataError("has no [[source]]", path=path)
    for entry in data["source"]:
        try:
            yield from _of_source(dict(entry))
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            raise DataError(f"source {entry.get('id', '?')!r}: {error}", path=path) from None


def _of_source(entry: dict[str, Any]) -> Iterator[Figure]:
    systems: dict[str, dict[str, Any]] = entry.pop("systems", {})
    source = msgspec.convert(entry, Source)
    _same_length("counts of queries", source.queries, source.tasks)
    _same_length("counts of positives", source.positives, source.tasks)
    _same_length("fingerprints", source.fingerprints, source.tasks)
    for name, table in systems.items():
        own = {key: table[key] for key in ("kind", "label", "average") if key in table}
        system = msgspec.convert(own | {"scores": {k: v for k, v in table.items() if k not in own}}, _System)
        per_task = {}
        for measure, values in system.scores.items():
            if len(values) != len(source.tasks):
                raise ValueError(f"{name}: {len(values)} values of {measure} for {len(source.tasks)} tasks")
            scaled = (_unit(v, source.scale, f"{name}: {measure}") for v in values)
            per_task[measure] = dict(zip(source.tasks, scaled, strict=True))
        average = {m: _unit(v, source.scale, f"{name}: {m}") for m, v in system.average.items()}
        if not per_task and not average:
            raise ValueError(f"{name}: no figures")
        yield Figure(name, system.label or name, system.kind, source, per_task, average)


def _same_length(what: str, values: tuple[Any, ...], tasks: tuple[str, ...]) -> None:
    if values and len(values) != len(tasks):
        raise ValueError(f"{len(values)} {what} for {len(tasks)} tasks")


def _unit(value: float, scale: int, what: str) -> float:
    if not 0 <= value <= scale:
        raise ValueError(f"{what}: {value} is not between 0 and {scale}")
    return value / scale
