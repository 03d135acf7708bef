"""Scores and comparisons as tables, for a terminal, a page or a notebook: scores × 100, differences with a sign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.table import NONE, Table, counted, interval, p_value, points, share, signed
from .measures import JUDGED, USUAL, Measure

if TYPE_CHECKING:
    from .compare import Comparison, Difference, Pair
    from .effects import Equivalence
    from .evaluation import Evaluation, ScoreSet
    from .holes import HoleReport
    from .intervals import Settings
    from .populations import Design
    from .slices import Slice


CORRECTED = "corrected by the step-down maximum: lines of tasks for all tasks and pairs, averages for all pairs"


def evaluation_table(evaluation: Evaluation) -> Table:
    """The means of the usual measures, or of those that were asked for."""
    shown = [m for m in USUAL if m in evaluation.per_query.measures] or evaluation.per_query.measures
    lost = len(evaluation.missing_queries)
    caption = f"Mean of {len(evaluation.query_ids)} judged queries, × 100"
    caption += f"; {lost} without results score 0" if lost else ""
    if evaluation.judged_at_10 is not None:
        caption += f"; judged@10: {share(evaluation.judged_at_10)} of the top ten were judged"
    hidden = len(evaluation.per_query) - len(shown)
    caption += f"; {hidden} more measures in .means" if hidden else ""
    return Table(list(map(str, shown)), [[points(evaluation.mean(m)) for m in shown]], caption, left=0)


def score_set_table(scores: ScoreSet) -> Table:
    """A row per system, a column per task."""
    rows = [
        [name, *(points(float(task.scores[i].mean())) for task in scores.tasks)]
        for i, name in enumerate(scores.systems)
    ]
    caption = f"{scores.measure} × 100; {scores.queries} queries"
    caption += "" if scores.complete else f", {len(scores.tasks)} of {scores.of_tasks} tasks"
    return Table(["System", *(task.name for task in scores.tasks)], rows, caption)


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Systems with intervals, then each pair and the queries on which it differs most."""
    found = [systems_table(comparison)]
    for pair in comparison.pairs:
        asked = populations_table(pair, comparison.settings.level)
        found += [pair_table(pair, comparison), *([asked] if asked else [])]
        found += [moved_table(pair)] if pair.moved else []
    return found


def systems_table(comparison: Comparison) -> Table:
    """Systems by macro-average, with letters, ranks and intervals."""
    ordered = sorted(comparison.systems, key=lambda s: -s.macro.value)
    scope = ordered[0].macro
    single = scope.of_tasks == 1
    rows = []
    for system in ordered:
        averages = [system.macro] if single else [system.macro, system.query_weighted]
        cells = [f"{points(a.value)} {interval(a.low, a.high)}" for a in averages]
        rank = comparison.ranks[system.name]
        stands = [comparison.letters[system.name], f"{rank.rank} ({rank.low}–{rank.high})", share(rank.best)]
        judged = [share(comparison.judged_at_10.get(system.name))] if comparison.judged_at_10 else []
        rows.append([system.name, *stands, *cells, *judged])
    macro = "Score" if single else "Macro" if scope.complete else f"Mean of {scope.scope}"
    titles = ["System", "Letters", "Rank", "Best", macro, *([] if single else ["By query"])]
    titles += [str(JUDGED)] if comparison.judged_at_10 else []
    level, average = f"{100 * comparison.settings.level:g} %", "the score" if single else "the mean of the tasks"
    caption = (
        f"{_settings(comparison)}, each by itself; they speak of other queries of these tasks. Systems that share a "
        f"letter do not differ significantly on {average}. Rank: by {average}, and the ranks that the same tests leave "
        f"open ({level}, all systems together). Best: how often it was first when queries were resampled."
    )
    if comparison.judged_at_10:
        caption += f" {JUDGED}: share of the top ten that somebody judged."
    return Table(titles, rows, caption)


def pair_table(pair: Pair, comparison: Comparison) -> Table:
    """One pair: a line per task, then the averages."""
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
        "Task", "n", pair.first, pair.second, "Difference", f"{percent} interval", "p", "p adjusted", "p t-test",
        "Effect", "Detectable", "W/T/L",
    ]  # fmt: skip
    judged = pair.macro.equivalence
    if judged is not None:
        titles.append(f"Margin {points(judged.margin)}")
    caption = (
        f"{Measure.parse(comparison.measure)} × 100; {pair.second} minus {pair.first}, for other queries of these "
        f"tasks. Interval and p: paired randomisation test of the line alone. p adjusted: {CORRECTED}; * differs. "
        f"Effect: in standard deviations of single differences. Detectable: the smallest true difference that gets a "
        f"star with 80 % power (cannot: these queries never get one; –: no difference gets one so often). "
        f"W/T/L: queries where {pair.second} is better, equal, worse."
    )
    if judged is not None:
        alpha = f"{100 * (1.0 - comparison.settings.level):.4g} %"
        caption += f" Margin: two one-sided tests of the line alone, {alpha} each."
    return Table(titles, rows, caption, heading=f"{pair.second} minus {pair.first}")


def _difference_row(name: str, first: float, second: float, line: Difference) -> list[str]:
    return [
        name, str(line.n), points(first), points(second), signed(line.difference),
        _ends(line.low, line.high) if line.wins + line.losses else NONE, p_value(line.p),
        p_value(line.p_adjusted) + ("*" if line.different else " "),
        NONE if line.t_test is None else p_value(line.t_test.p),
        NONE if line.effect is None else signed(round(line.effect, 2) / 100),
        points(line.detectable, 1) if line.reachable else "cannot",
        f"{line.wins}/{line.ties}/{line.losses}",
        *([] if line.equivalence is None else [_verdict(line.equivalence)]),
    ]  # fmt: skip


def _verdict(judged: Equivalence) -> str:
    if judged.equivalent and judged.verdict != "equivalent":
        return f"{judged.verdict}, within margin"
    if judged.not_worse and judged.verdict == "undecided":
        return "undecided, not worse"
    return judged.verdict


def populations_table(pair: Pair, level: float) -> Table | None:
    """One difference asked about three populations; None where there is one task."""
    found = pair.populations
    if found is None:
        return None
    others, tasks = found.other_queries, found.other_tasks
    rows = [
        ["these queries", signed(found.these_queries), "exact", NONE],
        ["other queries of these tasks", signed(found.these_queries), _ends(others.low, others.high),
         p_value(pair.macro.p)],
        ["other tasks of this kind", signed(found.these_queries), _ends(tasks.low, tasks.high),
         NONE if found.p_other_tasks is None else p_value(found.p_other_tasks)],
    ]  # fmt: skip
    caption = (
        f"The macro difference of {pair.second} and {pair.first}, asked about three populations; intervals and p of "
        f"this pair alone. Standard deviation of tasks {points(found.deviation_of_tasks, 1)}, of queries within tasks "
        f"{points(found.deviation_of_queries, 1)}. Other tasks: t-test over {found.tasks} tasks, or what other queries "
        f"leave open where that is more."
    )
    return Table(["Population", "Difference", f"{100 * level:g} % interval", "p"], rows, caption)


def design_table(found: Design) -> Table:
    """Queries a task needs, by the number of tasks."""
    rows = [
        [str(row.tasks), f"{row.queries_same_tasks:,}",
         NONE if row.queries_other_tasks is None else f"{row.queries_other_tasks:,}"]
        for row in found.rows
    ]  # fmt: skip
    caption = (
        f"Queries a task needs to find a macro difference of {points(found.effect)} points with {share(found.power)} "
        f"power at {share(1.0 - found.level)}, {found.systems} systems compared together. {NONE}: more tasks are "
        f"needed. From {counted(found.pairs, 'pair')} of real systems: differences of queries vary by "
        f"{points(found.deviation_of_queries, 1)} points within a task"
    )
    caption += "." if found.deviation_of_tasks is None else f", tasks by {points(found.deviation_of_tasks, 1)}."
    return Table(["Tasks", "Other queries of these tasks", "Other tasks of this kind"], rows, caption, left=0)


def _ends(low: float, high: float) -> str:
    return f"[{signed(low)}, {signed(high)}]"


def moved_table(pair: Pair) -> Table:
    """The queries that differ most."""
    rows = [
        [m.task, m.query_id, m.snippet or "", points(m.first), points(m.second), signed(m.difference)]
        for m in pair.moved
    ]
    titles = ["Task", "Query", "Text", pair.first, pair.second, "Difference"]
    return Table(titles, rows, f"The queries that differ most between {pair.first} and {pair.second}.", 3)


def slices_table(slices: Sequence[Slice], systems: Sequence[str], settings: Settings) -> Table:
    """Groups of queries with each system's score and its difference from the first."""
    rows = [
        [s.by, s.value, f"{s.n}{' tiny' if s.tiny else ''}"]
        + [f"{points(e.value)} {interval(e.low, e.high)}" for e in s.scores.values()]
        + [f"{signed(e.value)} {_ends(e.low, e.high)}" for e in s.differences.values()]
        for s in slices
    ]
    titles = ["By", "Slice", "n", *systems, *(f"{name} − {systems[0]}" for name in systems[1:])]
    percent = f"{100 * settings.level:g} %"
    caption = f"Mean over the queries of a slice with {percent} intervals, not corrected for their number."
    return Table(titles, rows, caption, 2)


def holes_table(reports: Mapping[str, Sequence[HoleReport]], depth: int) -> Table:
    """Unjudged documents, the bounds they leave, and ranks."""
    rows = [
        [
            task, r.system, share(r.holes, 1), points(r.judged), f"{points(r.low)} to {points(r.high)}",
            points(r.if_relevant), str(r.rank), str(r.rank_if_relevant), f"{r.best_rank} to {r.worst_rank}",
        ]
        for task, of_task in reports.items()
        for r in of_task
    ]  # fmt: skip
    titles = ["Task", "System", f"hole@{depth}", "Score", "Could be", "If relevant", "Rank", "Then", "Could be"]
    caption = (
        f"hole@{depth}: share of the top {depth} that nobody judged. Could be: the range over every way to label "
        f"the holes of all systems; of ranks, what these ranges leave open. If relevant, and the rank Then: all holes "
        f"of all systems relevant, with the least grade that the measure calls so."
    )
    return Table(titles, rows, caption, 2)


def _settings(comparison: Comparison) -> str:
    settings = comparison.settings
    method = "BCa" if settings.method == "bca" else "percentile"
    return (
        f"{Measure.parse(comparison.measure)} × 100, {100 * settings.level:g} % intervals ({method}, "
        f"{settings.resamples:,} resamples of queries within tasks)"
    )
