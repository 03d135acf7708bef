"""What several pages choose from: options as rows of links, which work without script, and tasks by address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from ....core import UnknownName, UsageError
from ....scoring import Measure
from ...collection import MEASURES, CollectionResults, collection_title
from ..render import PageRequest
from ..site import Site

T = TypeVar("T")


class Chip(NamedTuple):
    """One choice; without an address it cannot be made here."""

    title: str
    href: str
    chosen: bool
    value: object = ""


def chips(options: Iterable[tuple[T, str]], chosen: T, link: Callable[[T], str]) -> list[Chip]:
    """Options of which one is chosen; those that lead nowhere are left out."""
    found = [Chip(title, link(value), value == chosen, value) for value, title in options]
    return [chip for chip in found if chip.href or chip.chosen]


def measure_chips(chosen: Measure, link: Callable[[str], str]) -> list[Chip]:
    """The measures, by their names in addresses."""
    return chips([(m, str(m)) for m in MEASURES], chosen, lambda m: link(measure_param(m)))


def measure_param(measure: Measure) -> str:
    """A measure in an address; the usual one is left out."""
    return "" if measure == MEASURES[0] else measure.key


def collection_chips(site: Site, chosen: str, link: Callable[[str], str], *, held_only: bool = False) -> list[Chip]:
    """The collections there are."""
    names = list(site.held) if held_only else site.collections()
    return chips([(c, collection_title(c)) for c in names], chosen, link)


def choose(name: str, given: str, options: Iterable[str]) -> str:
    """A choice of an address; one that does not exist is an error that says which there are."""
    known = list(options)
    if given not in known:
        raise UnknownName(name, given, known, hint=f"(there are: {', '.join(k for k in known if k)})")
    return given


def find_task(site: Site, asked: PageRequest) -> tuple[CollectionResults, str]:
    """The collection and the task of an address; only tasks that have results have pages."""
    if len(asked.parts) < 2:
        raise UsageError("this address lacks a task: /task/COLLECTION/TASK")
    results = site.results(asked.parts[0])
    if asked.parts[1] not in results.infos:
        raise UnknownName("task", asked.parts[1], results.infos, hint=f"in {results.slug}, or it has no results yet")
    return results, asked.parts[1]


def best_on(results: CollectionResults, task: str, measure: Measure) -> list[str]:
    """Systems with results on a task, best first."""
    scores: Mapping[str, float] = {
        system: stored[task].result.measures.get(measure.key, 0.0)
        for system, stored in results.systems.items()
        if task in stored
    }
    return sorted(scores, key=lambda s: (-scores[s], s))
