"""Which rows of the leaderboard are shown: by size, licence and date; and their scores drawn against their size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from ....results.ledger import ledger
from ....scoring import Measure
from ...collection import CollectionResults
from ...costs import AXES, CostPoint, Facts, models_of
from ...leaderboard import Row
from ...pictures import MEAN, PHONE, WIDTH, draw_tradeoff, short
from ...submissions import Submitted

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
STATUS_TITLES = {"verified": "Verified", "unverified": "Not verified"}
UNDATED = "undated"


def options(submitted: Mapping[str, Submitted]) -> dict[str, list[str]]:
    """All values that an address may name, the usual one first; dates are the years of figures."""
    dates = [source.date for source in ledger().sources] + [s.submission.manifest.date for s in submitted.values()]
    years = sorted({date[:4] for date in dates if date}, reverse=True)
    found = {"size": ["", *SIZE_TITLES], "licence": ["", *TERMS_TITLES], "year": ["", *years, UNDATED]}
    if submitted:
        found |= {"status": ["", *STATUS_TITLES], "of": ["", *sorted({s.system.protocol for s in submitted.values()})]}
    return found


def classes(row: Row) -> dict[str, str]:
    """What a row is by each filter; it fits every choice of a filter that says nothing about it.

    Our own results have no date. Only submissions to a public board are verified or not, and have a protocol to choose.
    """
    found = {"size": _size(row.parameters), "licence": row.terms, "year": _year(row)}
    submitted = row.origin in STATUS_TITLES
    return found | {"status": row.origin if submitted else "", "of": row.protocol if submitted else ""}


def _size(parameters: int | None) -> str:
    if parameters is None:
        return "unknown"
    return next(name for name, most in SIZES.items() if parameters <= most)


def _year(row: Row) -> str:
    return row.date[:4] or ("" if row.measured and row.origin not in STATUS_TITLES else UNDATED)


def fits(row: Row, chosen: Mapping[str, str]) -> bool:
    """Whether a row is among the chosen ones."""
    return all(not chosen.get(name) or value in ("", chosen[name]) for name, value in classes(row).items())


class Choice(NamedTuple):
    """One filter: its name in addresses, its title, and the values that there are rows for."""

    name: str
    title: str
    values: list[tuple[str, str]]


def choices(rows: Iterable[Row], submitted: Mapping[str, Submitted]) -> list[Choice]:
    """The filters that leave something to choose."""
    found = [classes(row) for row in rows]
    words = {"size": SIZE_TITLES, "licence": TERMS_TITLES, "status": STATUS_TITLES}
    dated = "Submitted" if submitted else "Published"
    titles = {"status": "Checked", "of": "Protocol", "size": "Parameters", "licence": "Licence", "year": dated}
    made, values = [], options(submitted)
    for name in (name for name in titles if name in values):
        present = {of_row[name] for of_row in found}
        there = [(value, words.get(name, {}).get(value, value)) for value in values[name] if value and value in present]
        made += [Choice(name, titles[name], [("", "All"), *there])] if len(there) > 1 else []
    return made


def add_submissions(rows: Iterable[Row], submitted: Mapping[str, Submitted]) -> None:
    """What is known about systems that came with submissions: whose they are, their date, whether they are verified."""
    for row in rows:
        if found := submitted.get(row.system):
            row.source, row.date = found.submission.name, found.submission.manifest.date
            row.protocol, row.origin = found.system.protocol, found.status(row.tasks)


def add_facts(rows: Sequence[Row], results: CollectionResults, model_facts: Facts) -> None:
    """Sizes and licences of our own systems, where they are known."""
    for row in rows:
        if row.measured:
            info = next(iter(results.systems[row.system].values())).result.system
            facts = model_facts(models_of(info))
            row.parameters, row.licence, row.terms = facts.parameters, facts.licence, facts.terms


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
    mean = MEAN if average == "macro" else "mean of all queries"
    drawn = [draw_tradeoff(points, axis, measure, where, headed=False, width=w, average=mean) for w in (WIDTH, PHONE)]
    pictures = [Markup(picture.render(dark=False)) for picture in drawn]
    return SizePicture(pictures, drawn[0].title, len(points), len(rows) - len(points))
