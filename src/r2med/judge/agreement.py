"""How far judges agree beyond chance: weighted κ of two (Cohen), α of any number (Krippendorff), with intervals.

Passages of one query are not independent, so resamples draw queries, each with all its passages. Both measures come
from counts that add up over queries: a table of grades for two judges, a table of coincidences for several. A
resample is a weighted sum of these tables, and all resamples are one matrix product.

A measure is None where nothing can be told apart: no pairs, or one grade only (for κ: of either judge). Its interval
is None for fewer than five queries, and where the measure itself would be undefined in more than one resample of
twenty. Where all resamples agree, as after perfect agreement, the interval is what the queries not seen could change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from ..core import UsageError
from ..scoring.intervals import Settings, resample_counts, statistic_bounds
from ..scoring.measures import Float64

Weights = Literal["nominal", "linear", "quadratic"]
Metric = Literal["nominal", "ordinal", "interval"]
WEIGHTS: tuple[Weights, ...] = ("nominal", "linear", "quadratic")
METRICS: tuple[Metric, ...] = ("nominal", "ordinal", "interval")
Grades = Mapping[tuple[str, str], int]
"""Of one judge, by query and passage."""
Statistic = Callable[[Float64], Float64]
"""From tables (… × grades × grades) to a value each, NaN where there is none."""
LEAST_QUERIES = 5
MOST_UNDEFINED = 0.05
_CELLS_AT_ONCE = 1 << 21
_NONE = 1e-9  # coincidences are sums of fractions


class Measured(msgspec.Struct, frozen=True):
    """A measure of agreement with its interval; None where there is none."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


class PairAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Two judges on the passages that both graded; one side may be several people taken together."""

    first: str
    second: str
    pairs: int  # query and passage
    comparisons: int  # more than pairs where one side is several people
    queries: int
    agree: float | None  # share of equal grades
    kappa: dict[Weights, Measured]
    alpha: dict[Metric, Measured]
    table: list[list[int]]  # a row per grade of the first judge, a column per grade of the second


class GroupAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Any number of judges on the passages that at least two of them graded."""

    judges: list[str]
    pairs: int
    queries: int
    alpha: dict[Metric, Measured]


class Compared(NamedTuple):
    """A passage that both sides graded."""

    query_id: str
    doc_id: str
    first: int
    second: int


def both_graded(first: Grades, second: Grades) -> list[Compared]:
    """The passages that two judges graded, in the first one's order."""
    return [Compared(*slot, grade, second[slot]) for slot, grade in first.items() if slot in second]


def pair_agreement(
    first: str, second: str, compared: Sequence[Compared], scale: int, settings: Settings = Settings()  # noqa: B008
) -> PairAgreement:  # fmt: skip
    """Agreement of two sides over what both graded, on a scale of so many grades."""
    values, tables = _tables(compared)
    whole = np.zeros((scale, scale), dtype=np.int64)
    np.add.at(whole, ([c.first for c in compared], [c.second for c in compared]), 1)
    statistics: dict[Any, Statistic] = {weights: _kappa_of(values, weights) for weights in WEIGHTS}
    found = _measure(tables, statistics, settings)
    both_ways = tables + np.swapaxes(tables, -1, -2)
    return PairAgreement(
        first=first,
        second=second,
        pairs=len({(c.query_id, c.doc_id) for c in compared}),
        comparisons=len(compared),
        queries=len(tables),
        agree=float(np.trace(whole)) / len(compared) if compared else None,
        kappa={weights: found[weights] for weights in WEIGHTS},
        alpha=_alphas(both_ways, values, settings),
        table=whole.tolist(),
    )


def group_agreement(
    judges: Mapping[str, Grades], settings: Settings = Settings()  # noqa: B008 (frozen)
) -> GroupAgreement:  # fmt: skip
    """Agreement of several judges over the passages that at least two of them graded."""
    given: dict[tuple[str, str], list[int]] = {}
    for grades in judges.values():
        for slot, grade in grades.items():
            given.setdefault(slot, []).append(grade)
    units = [(slot[0], held) for slot, held in given.items() if len(held) > 1]
    values, tables = _coincidences(units)
    return GroupAgreement(
        judges=list(judges), pairs=len(units), queries=len(tables), alpha=_alphas(tables, values, settings)
    )


def cohens_kappa(first: Sequence[int], second: Sequence[int], weights: Weights = "nominal") -> float | None:
    """Agreement of two judges beyond chance: 1 is perfect, 0 what chance gives.

    None where there is nothing to tell apart: no pairs, or one side with a single grade.
    """
    if len(first) != len(second):
        raise UsageError(f"{len(first)} labels cannot be compared with {len(second)}")
    compared = [Compared("", "", int(a), int(b)) for a, b in zip(first, second, strict=True)]
    values, tables = _tables(compared)
    return _number(_kappa_of(values, weights)(tables.sum(axis=0)))


def krippendorffs_alpha(judges: Sequence[Sequence[int | None]], metric: Metric = "ordinal") -> float | None:
    """Agreement of any number of judges beyond chance; a row per judge, None where one has no grade.

    None where there is nothing to tell apart: nothing graded twice, or a single grade.
    """
    if len({len(row) for row in judges}) > 1:
        raise UsageError("every judge needs a grade, or None, for each passage")
    units = [("", [grade for grade in column if grade is not None]) for column in zip(*judges, strict=True)]
    values, tables = _coincidences([unit for unit in units if len(unit[1]) > 1])
    return _number(_alpha_of(values, metric)(tables.sum(axis=0)))


def _tables(compared: Sequence[Compared]) -> tuple[Float64, Float64]:
    """The grades in use, and a table of both judges' grades for each query."""
    values = sorted({grade for c in compared for grade in (c.first, c.second)})
    places = {grade: i for i, grade in enumerate(values)}
    queries = {query_id: i for i, query_id in enumerate(dict.fromkeys(c.query_id for c in compared))}
    tables = np.zeros((len(queries), len(values), len(values)))
    for c in compared:
        tables[queries[c.query_id], places[c.first], places[c.second]] += 1.0
    return np.array(values, dtype=np.float64), tables


def _coincidences(units: Sequence[tuple[str, Sequence[int]]]) -> tuple[Float64, Float64]:
    """The grades in use, and a table of coincidences for each query.

    Each ordered pair of grades that one passage got counts 1 / (its grades - 1), so that a passage counts as often as
    it was graded.
    """
    values = sorted({grade for _, grades in units for grade in grades})
    places = {grade: i for i, grade in enumerate(values)}
    queries = {query_id: i for i, query_id in enumerate(dict.fromkeys(query_id for query_id, _ in units))}
    tables = np.zeros((len(queries), len(values), len(values)))
    for query_id, grades in units:
        counts = np.bincount([places[grade] for grade in grades], minlength=len(values)).astype(np.float64)
        tables[queries[query_id]] += (np.outer(counts, counts) - np.diag(counts)) / (len(grades) - 1)
    return np.array(values, dtype=np.float64), tables


def _kappa_of(values: Float64, weights: Weights) -> Statistic:
    """κ of tables whose rows and columns are these grades."""
    apart = np.abs(values[:, None] - values[None, :])
    distance = {"nominal": np.sign(apart), "linear": apart, "quadratic": apart**2}[weights]

    def kappa(tables: Float64) -> Float64:
        rows, columns = tables.sum(axis=-1), tables.sum(axis=-2)
        by_chance = np.einsum("...i,ij,...j->...", rows, distance, columns)
        defined = ((rows > 0).sum(axis=-1) > 1) & ((columns > 0).sum(axis=-1) > 1)
        observed = (distance * tables).sum(axis=(-1, -2)) * rows.sum(axis=-1)
        return np.asarray(1.0 - np.divide(observed, by_chance, where=defined, out=np.full_like(by_chance, np.nan)))

    return kappa


def _alpha_of(values: Float64, metric: Metric) -> Statistic:
    """α of tables of coincidences whose rows and columns are these grades."""

    def alpha(tables: Float64) -> Float64:
        counts = tables.sum(axis=-1)
        # Between two grades lie, for an ordinal scale, all grades given between them and half of those at either end.
        at = np.cumsum(counts, axis=-1) - counts / 2.0 if metric == "ordinal" else np.broadcast_to(values, counts.shape)
        distance = (at[..., :, None] - at[..., None, :]) ** 2
        if metric == "nominal":
            distance = np.sign(distance)
        by_chance = np.einsum("...i,...ij,...j->...", counts, distance, counts)
        defined = (counts > _NONE).sum(axis=-1) > 1
        observed = (distance * tables).sum(axis=(-1, -2)) * (counts.sum(axis=-1) - 1.0)
        return np.asarray(1.0 - np.divide(observed, by_chance, where=defined, out=np.full_like(by_chance, np.nan)))

    return alpha


def _alphas(tables: Float64, values: Float64, settings: Settings) -> dict[Metric, Measured]:
    statistics: dict[Any, Statistic] = {metric: _alpha_of(values, metric) for metric in METRICS}
    found = _measure(tables, statistics, settings)
    return {metric: found[metric] for metric in METRICS}


def _measure(tables: Float64, statistics: Mapping[Any, Statistic], settings: Settings) -> dict[Any, Measured]:
    """Several measures of the same tables, on the same resamples of queries."""
    whole = tables.sum(axis=0)
    values = {name: _number(statistic(whole)) for name, statistic in statistics.items()}
    wanted = {name: statistics[name] for name, value in values.items() if value is not None}
    if len(tables) < LEAST_QUERIES or not wanted:
        return {name: Measured(value) for name, value in values.items()}
    resampled = _resampled(tables, wanted, settings)
    found = {}
    for name, value in values.items():
        if value is None:
            found[name] = Measured()
            continue
        without = statistics[name](whole - tables)  # each query left out in turn
        bounds = _interval(value, resampled[name], without, settings)
        found[name] = Measured(value, *(bounds or (None, None)))
    return found


def _resampled(tables: Float64, statistics: Mapping[Any, Statistic], settings: Settings) -> dict[Any, Float64]:
    queries, grades, _ = tables.shape
    rng = np.random.Generator(np.random.PCG64(settings.seed))
    step = max(1, _CELLS_AT_ONCE // max(queries, grades * grades))
    parts: dict[Any, list[Float64]] = {name: [] for name in statistics}
    for begin in range(0, settings.resamples, step):
        counts = resample_counts(rng, min(step, settings.resamples - begin), queries)
        drawn = (counts @ tables.reshape(queries, -1)).reshape(-1, grades, grades)
        for name, statistic in statistics.items():
            parts[name].append(statistic(drawn))
    return {name: np.concatenate(some) for name, some in parts.items()}


def _interval(value: float, resampled: Float64, without: Float64, settings: Settings) -> tuple[float, float] | None:
    defined = resampled[~np.isnan(resampled)]
    if np.isnan(without).any() or len(defined) < (1.0 - MOST_UNDEFINED) * len(resampled):
        return None
    queries = len(without)
    if np.ptp(defined) < 1e-12:
        unseen = 1.0 - ((1.0 - settings.level) / 2.0) ** (1.0 / queries)  # share of queries that may all be otherwise
        seen = value * (1.0 - unseen)
        return (seen if value > 0 else max(seen - unseen, -1.0)), seen + unseen
    influence = (without.mean() - without) * (queries - 1) / queries
    low, high = statistic_bounds(value, defined, influence, settings)
    return low, min(high, 1.0)


def _number(value: Float64) -> float | None:
    return None if np.isnan(value) else float(value)


def people_and(name: str, people: Iterable[Grades], grades: Grades, scale: int, settings: Settings) -> PairAgreement:
    """Agreement of a judge with all people together: every passage counts once for each person who graded it."""
    compared = [c for person in people for c in both_graded(person, grades)]
    return pair_agreement("people", name, compared, scale, settings)
