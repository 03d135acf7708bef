"""Which rows of the leaderboard are shown: by size, licence and date; and their scores drawn against their size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from ....results.ledger import ledger
from ....results.published_models import system_facts
from ....scoring import Measure
from ...collection import CollectionResults
from ...costs import AXES, CostPoint, Parameters, part_names
from ...leaderboard import Row
from ...pictures import PHONE, WIDTH, draw_tradeoff, short

SIZES = {"none": 0, "up-to-1b": 1e9, "up-to-10b": 1e10, "up-to-100b": 1e11, "larger": float("inf")}
"""Classes of size, and the parameters up to which each reaches."""
SIZE_TITLES = {
    "none": "No model", "up-to-1b": "Up to 1 billion", "up-to-10b": "1 to 10", "up-to-100b": "10 to 100",
    "larger": "Over 100 billion", "unknown": "Not known",
}  # fmt: skip
TERMS_TITLES = {
    "open": "Open", "restricted": "With conditions", "proprietary": "Service", "none": "No model",
    "unknown": "Not known",
}  # fmt: skip
UNDATED = "undated"
NAMES = ("size", "licence", "year")


def options() -> dict[str, list[str]]:
    """All values that an address may name, the usual one first; dates are the years of published figures."""
    years = sorted({source.date[:4] for source in ledger().sources if source.date}, reverse=True)
    return {"size": ["", *SIZE_TITLES], "licence": ["", *TERMS_TITLES], "year": ["", *years, UNDATED]}


def classes(row: Row) -> dict[str, str]:
    """What a row is by each filter; our own results have no date and fit every year."""
    return {"size": _size(row.parameters), "licence": row.terms, "year": _year(row)}


def _size(parameters: int | None) -> str:
    if parameters is None:
        return "unknown"
    return next(name for name, most in SIZES.items() if parameters <= most)


def _year(row: Row) -> str:
    return "" if row.measured else row.date[:4] or UNDATED


def fits(row: Row, chosen: Mapping[str, str]) -> bool:
    """Whether a row is among the chosen ones."""
    return all(not chosen[name] or value in ("", chosen[name]) for name, value in classes(row).items())


class Choice(NamedTuple):
    """One filter: its name in addresses, its title, and the values that there are rows for."""

    name: str
    title: str
    values: list[tuple[str, str]]


def choices(rows: Iterable[Row]) -> list[Choice]:
    """The filters that leave something to choose."""
    found = [classes(row) for row in rows]
    titles = {"size": SIZE_TITLES, "licence": TERMS_TITLES, "year": {y: y for y in options()["year"] if y}}
    made = []
    for name, title in (("size", "Parameters"), ("licence", "Licence"), ("year", "Published")):
        present = {of_row[name] for of_row in found}
        values = [(value, shown) for value, shown in titles[name].items() if value in present]
        made += [Choice(name, title, [("", "All"), *values])] if len(values) > 1 else []
    return made


def add_facts(rows: Sequence[Row], results: CollectionResults, parameters: Parameters) -> None:
    """Sizes and licences of our own systems, where they are known."""
    for row in rows:
        if row.measured:
            info = next(iter(results.systems[row.system].values())).result.system
            facts = system_facts(row.system)
            row.parameters = parameters(part_names(info))
            row.licence, row.terms = facts.licence, facts.terms


def size_text(parameters: int | None) -> str:
    """Parameters for a cell."""
    if parameters is None:
        return "not known"
    return short(parameters).replace(" billion", " B").replace(" million", " M") if parameters else "–"


class SizePicture(NamedTuple):
    """Scores against parameters, drawn, and how many rows have no place in it."""

    pictures: list[Markup]  # wide and narrow
    title: str
    drawn: int
    left_out: int


def draw_sizes(rows: Sequence[Row], measure: Measure, where: str, average: str) -> SizePicture | None:
    """A point for every row with an average and a known size; None where all sizes are the same."""
    points = []
    for row in rows:
        score = row.macro if average == "macro" else row.query_weighted
        if score is not None and row.parameters is not None:
            label = [row.label] if row.label != row.system else []
            note = "" if row.measured else ", ".join([*label, row.protocol])
            points.append(CostPoint(row.system, float(row.parameters), score, measured=row.measured, note=note))
    if len({point.cost for point in points}) < 2:
        return None
    axis = AXES["parameters"]
    drawn = [draw_tradeoff(points, axis, measure, where, headed=False, width=width) for width in (WIDTH, PHONE)]
    pictures = [Markup(picture.render(dark=False)) for picture in drawn]
    return SizePicture(pictures, drawn[0].title, len(points), len(rows) - len(points))
