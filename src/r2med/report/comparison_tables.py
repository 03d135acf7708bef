"""A comparison as tables for a terminal: scores × 100, differences with a sign."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..scoring import Measure
from ..scoring.compare import Comparison, Difference, Pair
from ..scoring.holes import HoleReport
from ..scoring.intervals import Settings
from ..scoring.slices import Slice
from .comparison import AwareScore


class TextTable(NamedTuple):
    """Titles, rows and what the numbers are; the first `left` columns are words."""

    titles: list[str]
    rows: list[list[str]]
    caption: str = ""
    left: int = 1


def systems_table(comparison: Comparison) -> TextTable:
    """Systems by macro-average, with tie groups."""
    ordered = sorted(comparison.systems, key=lambda s: -s.macro.value)
    scope = ordered[0].macro
    single = scope.of_tasks == 1
    rows = [
        [s.name, str(comparison.tie_groups[s.name]), _with_interval(s.macro.value, s.macro.low, s.macro.high)]
        + ([] if single else [_with_interval(s.query_weighted.value, s.query_weighted.low, s.query_weighted.high)])
        for s in ordered
    ]
    macro = "Score" if single else "Macro" if scope.complete else f"Mean of {scope.scope}"
    titles = ["System", "Group", macro, *([] if single else ["By query"])]
    caption = f"{_shown(comparison)}; systems of one group cannot be told apart from its best."
    return TextTable(titles, rows, caption)


def pair_table(pair: Pair, comparison: Comparison) -> TextTable:
    """One pair: a line a task, then the averages."""
    by_name = {s.name: s for s in comparison.systems}
    first, second = by_name[pair.first], by_name[pair.second]
    rows = [
        _difference_row(name, first.tasks[name].value, second.tasks[name].value, line)
        for name, line in pair.tasks.items()
    ]
    if pair.macro.of_tasks > 1:
        scope = "" if pair.macro.complete else f" ({first.macro.scope})"
        rows.append(_difference_row(f"Macro{scope}", first.macro.value, second.macro.value, pair.macro))
        weighted = (first.query_weighted.value, second.query_weighted.value)
        rows.append(_difference_row(f"By query{scope}", *weighted, pair.query_weighted))
    percent = f"{100 * comparison.settings.level:g} %"
    titles = [
        "Task", "n", pair.first, pair.second, "Difference", f"{percent} interval", "p", "p Holm", "p t-test",
        "Detectable", "W/T/L",
    ]  # fmt: skip
    caption = (
        f"{_shown(comparison)}; {pair.second} minus {pair.first}. * differs after Holm's correction. "
        f"Detectable: the smallest true difference found with 80 % power. W/T/L: queries where {pair.second} is "
        f"better, equal, worse."
    )
    return TextTable(titles, rows, caption)


def _difference_row(name: str, first: float, second: float, line: Difference) -> list[str]:
    return [
        name, str(line.n), _score(first), _score(second), _signed(line.difference),
        f"[{_signed(line.low)}, {_signed(line.high)}]", _p(line.p), _p(line.p_holm) + ("*" if line.different else " "),
        "–" if line.t_test is None else _p(line.t_test.p),
        "–" if line.detectable is None else _score(line.detectable),
        f"{line.wins}/{line.ties}/{line.losses}",
    ]  # fmt: skip


def moved_table(pair: Pair) -> TextTable:
    """The queries that moved most."""
    rows = [
        [m.task, m.query_id, m.snippet or "", _score(m.first), _score(m.second), _signed(m.difference)]
        for m in pair.moved
    ]
    titles = ["Task", "Query", "Text", pair.first, pair.second, "Difference"]
    return TextTable(titles, rows, f"The queries that differ most between {pair.first} and {pair.second}.", 3)


def slices_table(slices: Sequence[Slice], systems: Sequence[str], settings: Settings) -> TextTable:
    """Slices with each system's score and its difference from the first."""
    rows = [
        [s.by, s.value, f"{s.n}{' tiny' if s.tiny else ''}"]
        + [_with_interval(e.value, e.low, e.high) for e in s.scores.values()]
        + [f"{_signed(e.value)} [{_signed(e.low)}, {_signed(e.high)}]" for e in s.differences.values()]
        for s in slices
    ]
    titles = ["By", "Slice", "n", *systems, *(f"{name} − {systems[0]}" for name in systems[1:])]
    caption = (
        f"Mean over the queries of a slice with {100 * settings.level:g} % intervals, not corrected for their number."
    )
    return TextTable(titles, rows, caption, 2)


def aware_table(scores: Sequence[AwareScore]) -> TextTable:
    """Strict and aware scores side by side."""
    rows = [
        [
            s.task, s.system, _score(s.strict), _score(s.aware), _signed(s.aware - s.strict),
            str(s.copies_dropped) if s.copies_known else "unknown", str(s.tied_queries),
        ]
        for s in scores
    ]  # fmt: skip
    titles = ["Task", "System", "Strict", "Aware", "Difference", "Copies dropped", "Queries with ties"]
    return TextTable(titles, rows, "Aware: copies of a passage count once, equal scores are averaged over orders.", 2)


def holes_table(reports: dict[str, list[HoleReport]], depth: int) -> TextTable:
    """Holes, bounds and ranks."""
    rows = [
        [
            task, r.system, f"{100 * r.holes:.1f} %", _score(r.judged), f"{_score(r.low)} to {_score(r.high)}",
            _score(r.if_relevant), str(r.rank), str(r.rank_if_relevant), f"{r.best_rank} to {r.worst_rank}",
        ]
        for task, of_task in reports.items()
        for r in of_task
    ]  # fmt: skip
    titles = ["Task", "System", f"hole@{depth}", "Score", "Could be", "If relevant", "Rank", "Then", "Could be"]
    caption = (
        f"hole@{depth}: share of the top {depth} that nobody judged. Could be: the range over every way to call the "
        f"system's own holes relevant or not. If relevant: all holes of all systems relevant."
    )
    return TextTable(titles, rows, caption, 2)


def _shown(comparison: Comparison) -> str:
    settings = comparison.settings
    method = "BCa" if settings.method == "bca" else "percentile"
    return (
        f"{Measure.parse(comparison.measure)} × 100, {100 * settings.level:g} % intervals ({method}, "
        f"{settings.resamples:,} resamples of queries within tasks)"
    )


def _score(value: float) -> str:
    return f"{100 * value:.2f}"


def _signed(value: float) -> str:
    return f"{100 * value:+.2f}"


def _with_interval(value: float, low: float, high: float) -> str:
    return f"{_score(value)} [{_score(low)}, {_score(high)}]"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
