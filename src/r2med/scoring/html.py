"""Scores and comparisons as tables for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.html import block, table
from .measures import Measure

if TYPE_CHECKING:
    from .compare import Comparison, Difference, Pair
    from .evaluation import Evaluation
    from .score_set import ScoreSet

SHOWN = ("nDCG@10", "AP@10", "P@10", "R@10", "R@100", "RR@10")


def evaluation_html(evaluation: Evaluation) -> str:
    """The means of the usual measures, or of those that were asked for."""
    usual = [m.key for m in map(Measure.parse, SHOWN) if m.key in evaluation.per_query]
    keys = usual or list(evaluation.per_query)
    lost = len(evaluation.missing_queries)
    caption = f"Mean of {len(evaluation.query_ids)} judged queries, × 100"
    caption += f"; {lost} without results score 0" if lost else ""
    hidden = len(evaluation.per_query) - len(keys)
    caption += f"; {hidden} more measures in .means" if hidden else ""
    means = evaluation.means
    return table([str(Measure.parse(k)) for k in keys], [[_score(means[k]) for k in keys]], caption=caption, left=0)


def score_set_html(scores: ScoreSet) -> str:
    """A row a system, a column a task."""
    rows = [
        [name, *(_score(float(task.scores[i].mean())) for task in scores.tasks)]
        for i, name in enumerate(scores.systems)
    ]
    caption = f"{scores.measure} × 100; {scores.queries} queries"
    caption += "" if scores.complete else f", {len(scores.tasks)} of {scores.of_tasks} tasks"
    return table(["System", *(task.name for task in scores.tasks)], rows, caption=caption)


def comparison_html(comparison: Comparison) -> str:
    """Systems with intervals, then each pair."""
    ordered = sorted(comparison.systems, key=lambda s: -s.macro.value)
    rows = [
        [s.name, str(comparison.tie_groups[s.name]), _score(s.macro.value), _between(s.macro.low, s.macro.high)]
        for s in ordered
    ]
    scope = ordered[0].macro
    what = "Score" if scope.of_tasks == 1 else "Macro" if scope.complete else f"Mean of {scope.scope}"
    percent = f"{100 * comparison.settings.level:g} %"
    caption = f"{Measure.parse(comparison.measure)} × 100; systems of one group cannot be told apart from its best."
    systems = table(["System", "Group", what, f"{percent} interval"], rows, caption=caption)
    return block(systems, *(_pair(pair, percent) for pair in comparison.pairs))


def _pair(pair: Pair, percent: str) -> str:
    lines: dict[str, Difference] = dict(pair.tasks)
    if pair.macro.of_tasks > 1:
        lines |= {"Macro": pair.macro, "By query": pair.query_weighted}
    rows = [
        [name, str(line.n), f"{100 * line.difference:+.2f}", _between(line.low, line.high, "+"),
         ("<0.001" if line.p_holm < 0.001 else f"{line.p_holm:.3f}") + (" *" if line.different else ""),
         f"{line.wins}/{line.ties}/{line.losses}"]
        for name, line in lines.items()
    ]  # fmt: skip
    caption = "An interval that holds 0 leaves open which is better. * differs after Holm's correction."
    titles = ["Task", "n", "Difference", f"{percent} interval", "p (Holm)", "better/equal/worse"]
    return table(titles, rows, caption=caption, heading=f"{pair.second} minus {pair.first}")


def _score(value: float) -> str:
    return f"{100 * value:.2f}"


def _between(low: float, high: float, sign: str = "") -> str:
    return f"{100 * low:{sign}.2f} to {100 * high:{sign}.2f}"
