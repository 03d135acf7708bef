"""One figure at several places, and figures of one system that differ between places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from ..protocols import get_protocol
from . import Figure

BEYOND_ROUNDING = 0.001
"""Averages further apart than this, in 0–1, conflict: 0.1 of 100, more than rounding to one decimal explains."""


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """Another figure for the same system. Scores are in 0–1."""

    system: str
    source: str
    protocol: str
    macro: float  # The other figure.
    difference: float  # This figure less the other.
    differs: Literal["protocol", "source", "first stage"]
    # Another protocol, the same protocol at another place, or the same reranker over another first stage.
    settings: str  # How the other was made, as far as its source or its protocol says.
    caution: str  # What a reader must know about the other.

    def line(self, system: str, macro: float, protocol: str) -> str:
        """Both figures in one sentence."""
        mine, other = f"{100 * macro:.2f} ({protocol})", f"{100 * self.macro:.2f} ({self.protocol})"
        over = f" as {self.system}" if self.system != system else ""
        why = "; ".join(part for part in (self.settings, self.caution) if part)
        return f"{system}: {mine}, but {other}{over}: {why}"


def average(figure: Figure, measure: str, tasks: int) -> float | None:
    """The mean over all tasks of the collection: as the source states it, unless its own tasks have another mean.

    None where a task is missing and nothing is stated.
    """
    stated, computed = figure.average.get(measure), figure.macro(measure)
    if len(figure.tasks(measure)) < tasks or computed is None:
        return stated
    return computed if stated is None or slips(figure, measure, tasks) else stated


def slips(figure: Figure, measure: str, tasks: int) -> bool:
    """Whether the stated average is not the mean of the source's own tasks, whatever was rounded."""
    stated, computed = figure.average.get(measure), figure.macro(measure)
    if stated is None or computed is None or len(figure.tasks(measure)) < tasks:
        return False
    return abs(stated - computed) > 2 * figure.rounding + 1e-9


def same_figures(figures: Iterable[Figure], measure: str, tasks: int) -> list[list[Figure]]:
    """Figures that repeat each other, together; the first of each has figures of tasks, where any has."""
    groups: dict[tuple[str, str, str], list[list[Figure]]] = {}
    for figure in sorted(figures, key=lambda f: f.average_only):
        if figure.macro(measure) is None:
            continue
        known = groups.setdefault((figure.collection, figure.protocol, figure.system), [])
        same = next((group for group in known if _equal(figure, group[0], measure, tasks)), None)
        if same is None:
            known.append([figure])
        else:
            same.append(figure)
    return [group for known in groups.values() for group in known]


def _equal(figure: Figure, known: Figure, measure: str, tasks: int) -> bool:
    """Whether a figure repeats one that is known, but for rounding."""
    rounding = figure.rounding + known.rounding + 1e-9
    values, known_values = figure.tasks(measure), known.tasks(measure)
    if values:
        return all(t in known_values and abs(v - known_values[t]) <= rounding for t, v in values.items())
    first, second = average(figure, measure, tasks), average(known, measure, tasks)
    return first is not None and second is not None and abs(first - second) <= max(rounding, 0.0005 + 1e-9)


def conflicts(groups: Iterable[list[Figure]], measure: str, tasks: int) -> dict[int, list[Conflict]]:
    """By the id() of a figure, what conflicts with it; `groups` are from `same_figures`."""
    alike: dict[str, list[tuple[list[Figure], float]]] = defaultdict(list)
    for group in groups:
        macro = average(group[0], measure, tasks)
        if macro is not None:
            for key in dict.fromkeys((group[0].system, _reranker(group[0]) or group[0].system)):
                alike[key].append((group, macro))
    found: dict[int, dict[int, Conflict]] = defaultdict(dict)
    for members in alike.values():
        for group, macro in members:
            others = [(other[0], score) for other, score in members if other is not group]
            for figure in group:
                found[id(figure)] |= {id(other): c for other, c in _against(figure, macro, others)}
    return {number: list(of_figure.values()) for number, of_figure in found.items()}


def _against(
    figure: Figure, macro: float, others: Iterable[tuple[Figure, float]]
) -> Iterator[tuple[Figure, Conflict]]:  # fmt: skip
    for other, score in others:
        if abs(macro - score) <= BEYOND_ROUNDING + 1e-9:
            continue
        same = other.system == figure.system
        yield (
            other,
            Conflict(
                system=other.system,
                source=other.source.id,
                protocol=other.protocol,
                macro=score,
                difference=macro - score,
                differs="first stage" if not same else "protocol" if other.protocol != figure.protocol else "source",
                settings=other.settings or get_protocol(other.protocol).summary,
                caution=other.caution,
            ),
        )


def _reranker(figure: Figure) -> str:
    """The reranker of a system, without its depth; empty for other kinds."""
    if figure.kind != "reranker" or "+" not in figure.system:
        return ""
    return "reranker " + figure.system.rpartition("+")[2].partition("@")[0]
