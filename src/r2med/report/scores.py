"""What `r2med run` shows: one row per system, one column per task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import UsageError
from ..core.budget import known_sum
from ..core.table import Table, points, share
from ..results import TaskResult, macro_average, query_weighted
from ..scoring import CUTOFFS, MAIN, Measure
from ..scoring.evaluation import import_pandas, mean_judged
from ..scoring.measures import JUDGED

if TYPE_CHECKING:
    from ..scoring.intervals import Settings

SHORT = {
    "Bioinformatics": "Bioinf",
    "Medical-Sciences": "MedSci",
    "MedXpertQA-Exam": "MedXpert",
    "MedQA-Diag": "MedQA",
    "PMC-Treatment": "PMC-T",
    "PMC-Clinical": "PMC-C",
    "IIYi-Clinical": "IIYi",
}


COUNTED = ("generations", "raw_query_used", "prompt_tokens", "completion_tokens", "cost", "retries", "rate_limits",
           "lost_calls")  # fmt: skip
"""What `r2med run --json` says about the texts that queries were expanded to."""


def by_system(results: Iterable[TaskResult]) -> dict[str, dict[str, TaskResult]]:
    """System to task, by its full name, to result, in order of appearance."""
    grouped: dict[str, dict[str, TaskResult]] = {}
    for result in results:
        grouped.setdefault(result.system.name, {})[result.task.full_name] = result
    return grouped


def short_name(task: str) -> str:
    """A task's name for the head of a column, without its collection."""
    name = task.rpartition("/")[2]
    return SHORT.get(name, name)


class SystemRow(NamedTuple):
    """One system's scores, 0 to 1."""

    system: str
    kind: str
    tasks: dict[str, float]
    macro: float | None
    weighted: float | None
    judged: float | None  # The share of the top ten that somebody judged, mean of the tasks.


class ScoreTable(NamedTuple):
    """Scores of one measure. Averages stand only in rows that have every column."""

    measure: Measure
    tasks: list[str]
    rows: list[SystemRow]
    caution: str = ""  # What a reader must know about the rankings.

    def table(self) -> Table:
        """As a table; the averages only where there is more than one task to average."""
        collections = {t.rpartition("/")[0] for t in self.tasks}
        names = [short_name(t) if len(collections) == 1 else t for t in self.tasks]
        several = len(self.tasks) > 1
        judged = any(r.judged is not None for r in self.rows)
        rows = [
            [r.system, *(points(r.tasks.get(t)) for t in self.tasks)]
            + ([points(r.macro), points(r.weighted)] if several else [])
            + ([share(r.judged)] if judged else [])
            for r in self.rows
        ]
        where = f" on {next(iter(collections))}" if len(collections) == 1 and "" not in collections else ""
        averages = "; Macro: mean of the tasks, By query: mean of all queries" if several else ""
        averages += f"; {JUDGED}: share of the top ten that somebody judged" if judged else ""
        titles = ["System", *names, *(["Macro", "By query"] if several else []), *([str(JUDGED)] if judged else [])]
        return Table(titles, rows, f"{self.measure} × 100{where}{averages}. {self.caution}".rstrip())


def score_table(results: Iterable[TaskResult], measure: Measure = MAIN) -> ScoreTable:
    """Tabulate results in order of appearance."""
    grouped = by_system(results)
    tasks = list(dict.fromkeys(name for of_system in grouped.values() for name in of_system))
    rows = []
    for name, of_system in grouped.items():
        found = list(of_system.values())
        if any(measure.key not in r.measures for r in found):
            cuts = ", ".join(map(str, CUTOFFS))
            raise UsageError(f"{measure} is not among the stored measures (cut-offs {cuts}); r2med score computes any")
        whole = [(r.task.queries, {measure.key: r.measures[measure.key]}) for r in found]
        whole = whole if len(found) == len(tasks) else []
        rows.append(
            SystemRow(
                system=name,
                kind=found[0].system.kind,
                tasks={r.task.full_name: r.measures[measure.key] for r in found},
                macro=macro_average([scores for _, scores in whole]).get(measure.key),
                weighted=query_weighted(whole).get(measure.key),
                judged=mean_judged(r.judged_at_10 for r in found),
            )
        )
    every = (result for of_system in grouped.values() for result in of_system.values())
    return ScoreTable(measure, tasks, rows, cut_short(measure, every))


def cut_short(measure: Measure, results: Iterable[TaskResult]) -> str:
    """What must be said where rankings end before the cut-off of a measure; empty where none does."""
    ends = sorted({result.depth for result in results if result.ends_before(measure.cutoff)})
    ranks = ", ".join(map(str, ends))
    return f"Rankings were cut at rank {ranks}, so that {measure} counts less than there is to find." if ranks else ""


class Scores:
    """Systems × tasks. Shows itself as a table of one measure; `by` shows another of those that were stored."""

    def __init__(
        self,
        results: Iterable[TaskResult],
        measure: Measure = MAIN,
        *,
        kept: int = 0,
        folder: Path | None = None,
        usage: dict[str, Any] | None = None,
    ) -> None:
        self.results = list(results)
        self.measure = measure
        self.kept = kept
        """How many of them were stored before."""
        self.folder = folder
        """Where they are stored, with the scores of single queries."""
        self.usage = usage
        """What was asked of chat models this time; None where none was asked."""

    @property
    def table(self) -> ScoreTable:
        """The scores of the measure shown, 0 to 1."""
        return score_table(self.results, self.measure)

    def by(self, measure: Measure | str) -> Scores:
        """The same results by another measure."""
        return Scores(self.results, Measure.parse(measure), kept=self.kept, folder=self.folder, usage=self.usage)

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary per system and task; measures go by their printed names."""
        return [
            {
                "system": r.system.name,
                "task": r.task.full_name,
                "queries": r.task.queries,
                **{_printed(key): value for key, value in r.measures.items()},
                str(JUDGED): r.judged_at_10,
            }
            for r in self.results
        ]

    def to_pandas(self) -> Any:
        """A pandas data frame: a row per system and task."""
        return import_pandas().DataFrame(self.rows())

    def to_dict(self) -> dict[str, Any]:
        """The document that `r2med run --json` prints."""
        return as_json(self.results) | ({} if self.usage is None else {"usage": self.usage})

    def to_markdown(self) -> str:
        """The table in Markdown."""
        return self.table.table().markdown()

    def to_latex(self, settings: Settings | None = None) -> str:
        """A table of each collection for a paper: intervals, the best in bold, and the marks of `r2med compare`."""
        if self.folder is None:
            raise UsageError("intervals need the scores of single queries, and these results have no folder")
        from ..scoring.intervals import Settings
        from .comparison import stored_latex

        return stored_latex(self.results, self.folder, self.measure, settings or Settings())

    def __repr__(self) -> str:
        return self.table.table().text()

    def _repr_html_(self) -> str:
        return self.table.table().html()


def _printed(key: str) -> str:
    """A measure's printed name; micro-averaged recall has its key only."""
    return key if key.startswith("recall_micro") else str(Measure.parse(key))


def effects_tables(results: Iterable[TaskResult]) -> list[Table]:
    """What reranking did to each task, a table for each system that has any."""
    rows: dict[str, list[list[str]]] = {}
    for result in results:
        effect = result.notes.get("before_after")
        if isinstance(effect, dict):
            key = effect["measure"]
            scores = [points(effect[side][key]) for side in ("before", "after", "oracle")]
            shares = [f"{effect[side]:.0%}" for side in ("helped", "hurt")]
            rows.setdefault(result.system.name, []).append([result.task.full_name, *scores, *shares])
    titles = ["Task", "Before", "After", "Oracle", "Helped", "Hurt"]
    caption = "nDCG@10 × 100 of the first stage, of the reranker, and of the best order of the same candidates."
    return [Table(titles, of_system, caption, heading=f"Reranking by {name}") for name, of_system in rows.items()]


def as_json(results: Sequence[TaskResult]) -> dict[str, Any]:
    """The document `r2med run --json` prints."""
    return {
        "schema": 1,
        "systems": [
            {
                "name": name,
                "kind": found[0].system.kind,
                "tasks": {r.task.full_name: r.measures for r in found},
                "macro": macro_average([r.measures for r in found]),
                "query_weighted": query_weighted([(r.task.queries, r.measures) for r in found]),
                "judged_at_10": {r.task.full_name: r.judged_at_10 for r in found},
                "seconds": _total_seconds(r.seconds for r in found),
                "cold_seconds": _total_seconds(r.cold_seconds for r in found),
                **_extras(found),
            }
            for name, found in ((name, list(of.values())) for name, of in by_system(results).items())
        ],
    }


def _extras(results: list[TaskResult]) -> dict[str, Any]:
    """What a reranker did to each task, and what must be said about the system's numbers."""
    effects = {r.task.full_name: r.notes["before_after"] for r in results if "before_after" in r.notes}
    expansions = {r.task.full_name: r.expansions[0] for r in results if r.expansions}
    said = [*expansions.values(), *(noted for result in results for noted in result.rerankings)]
    warnings = list(dict.fromkeys(str(noted["warning"]) for noted in said if noted.get("warning")))
    warnings += results[0].system.own_words
    counted = {task: {key: e.get(key) for key in COUNTED} for task, e in expansions.items()}
    asked = {r.task.full_name: [n["answers"] for n in r.rerankings if "answers" in n] for r in results}
    reranked = {task: answers for task, answers in asked.items() if answers}
    found = {"before_after": effects, "expansion": counted, "reranker_answers": reranked, "warnings": warnings}
    return {key: value for key, value in found.items() if value}


def _total_seconds(results: Iterable[Mapping[str, float | None]]) -> dict[str, float | None]:
    """The sum over tasks of each stage; None where one of them is not known."""
    total: dict[str, float | None] = {}
    for of_result in results:
        for stage, seconds in of_result.items():
            total[stage] = known_sum((total.get(stage, 0.0), seconds))
    return total
