"""The main job and the comparison as function calls: what `r2med run` and `r2med compare` do, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from .core import Task, UnknownName, UsageError
from .pipeline import Builder, Outcome, SystemSpec, check_writable, ladder, run_experiment
from .pipeline.defaults import default_systems
from .report import ScoreTable, as_json, score_table
from .report.comparison import from_store, with_snippets
from .results import ResultIndex, ResultStore, TaskResult
from .retrieve import Retriever, get_retriever
from .retrieve.encoders.load import Options
from .retrieve.specs import MODEL_PARAMETERS
from .scoring import MAIN, Evaluation, Measure
from .scoring.compare import Comparison
from .scoring.compare import compare as compare_scores
from .scoring.intervals import Settings
from .scoring.score_set import ScoreSet
from .tasks import TaskRef, resolve

OPTIONS = tuple(
    dict.fromkeys(
        ["verify", "memory", "prompts", "settings", "published", "on_progress", *MODEL_PARAMETERS]
        + [field.name for field in fields(Options)]
    )
)
"""What `run` hands on to models and expanders."""


class Scores:
    """Systems × tasks. Shows itself as a table of one measure; `by` shows another of those that were stored."""

    def __init__(self, results: Iterable[TaskResult], measure: Measure = MAIN) -> None:
        self.results = list(results)
        self.measure = measure

    @property
    def table(self) -> ScoreTable:
        """The scores of the measure shown, 0 to 1."""
        return score_table(self.results, self.measure)

    def by(self, measure: Measure | str) -> Scores:
        """The same results by another measure."""
        return Scores(self.results, _measure(measure))

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary per system and task, as `pandas.DataFrame` takes them."""
        return [
            {"system": r.system.name, "task": r.task.full_name, "queries": r.task.queries, **r.measures}
            for r in self.results
        ]

    def to_dict(self) -> dict[str, Any]:
        """The document that `r2med run --json` prints."""
        return as_json(self.results)

    def to_markdown(self) -> str:
        """The table in Markdown."""
        return self.table.table().markdown()

    def __repr__(self) -> str:
        return self.table.table().text()

    def _repr_html_(self) -> str:
        return self.table.table().html()


def run(
    *retrievers: str | Retriever | Any,
    tasks: str | Iterable[str] = "mini",
    expand: str = "",
    fuse: str = "",
    rerank: str = "",
    depth: int = 1000,
    measure: Measure | str = MAIN,
    results: str | Path = "results",
    overwrite: bool = False,
    **options: Any,
) -> Scores:
    """Run systems on tasks, as `r2med run` does, and give the table.

    Without retrievers: the default systems. Names are those of the command line; an object may be a retriever or
    whatever `r2med.evaluate` takes as one. Results are kept in `results`, and what is done is not done again.
    `options` are those of models: `device`, `max_length`, `max_cost`, `trust_remote_code` and so on.
    """
    if unknown := next((name for name in options if name not in OPTIONS), None):
        raise UnknownName("option", unknown, OPTIONS)
    shown, store = _measure(measure), ResultStore(results)
    refs = _resolve([tasks] if isinstance(tasks, str | Task) else tasks)
    names, given = _named(retrievers)
    if not names:
        names, standard, _ = default_systems()
        fuse = fuse or standard
    specs = ladder(names, expand=expand, fuse=fuse, rerank=rerank)
    check_writable(store)
    outcome = _run(specs, given, refs, store, depth, overwrite, options)
    return Scores(outcome.results, shown)


class _WithObjects(Builder):
    """A builder that has some retrievers already."""

    given: Mapping[str, Retriever] = {}

    def _retriever(self, spec: str) -> Retriever:
        return self.given[spec] if spec in self.given else super()._retriever(spec)


def _run(
    specs: list[SystemSpec], given: dict[str, Retriever], refs: list[TaskRef], store: ResultStore, depth: int,
    overwrite: bool, options: dict[str, Any],
) -> Outcome:  # fmt: skip
    builder = _WithObjects(**options)
    builder.given = given
    with builder:
        systems = [builder.build(spec) for spec in specs]
        return run_experiment(refs, systems, store, depth=depth, overwrite=overwrite)


def _named(retrievers: Iterable[str | Retriever | Any]) -> tuple[list[str], dict[str, Retriever]]:
    names: list[str] = []
    given: dict[str, Retriever] = {}
    for retriever in retrievers:
        if isinstance(retriever, str):
            names.append(retriever)
            continue
        made = get_retriever(retriever)
        names.append(made.name)
        given[made.name] = made
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise UsageError(f"two retrievers are called {twice!r}: their results would share a folder")
    return names, given


def compare(
    *systems: str | Mapping[str, Evaluation] | Mapping[str, Mapping[str, Evaluation]],
    results: str | Path = "results",
    measure: Measure | str = MAIN,
    collection: str = "",
    tasks: Iterable[str] = (),
    **settings: Any,
) -> Comparison:
    """Compare systems query by query, with intervals and paired tests.

    `compare("bm25", "bge-small")` takes them from a results folder; `compare({"mine": e1, "theirs": e2})` takes
    evaluations of one task, or of several as `{"mine": {"task": e, …}, …}`. `settings`: `level`, `method`,
    `resamples`, `seed`.
    """
    shown, chosen = _measure(measure), _settings(settings)
    if len(systems) == 1 and isinstance(systems[0], Mapping):
        nested = {
            name: of_task if isinstance(of_task, Mapping) else {"score": of_task}
            for name, of_task in systems[0].items()
        }
        for name, of_task in nested.items():
            if not all(isinstance(e, Evaluation) for e in of_task.values()):
                raise UsageError(f"{name!r} is no evaluation: r2med.evaluate(system, task) gives one")
        return compare_scores(ScoreSet.of_evaluations(nested, shown), chosen)
    named = [s for s in systems if isinstance(s, str)]
    if len(named) != len(systems) or len(named) < 2:
        raise UsageError("compare takes two or more names of stored systems, or one dictionary of evaluations")
    compared = from_store(ResultIndex([Path(results)]), named, shown, collection=collection, tasks=tasks)
    return with_snippets(compare_scores(compared.scores, chosen), compared)


def _settings(given: dict[str, Any]) -> Settings:
    known = Settings.__struct_fields__
    if unknown := sorted(set(given) - set(known)):
        raise UsageError(f"unknown setting {unknown[0]!r}; there are {', '.join(known)}")
    return Settings(**given)


def _measure(measure: Measure | str) -> Measure:
    return Measure.parse(measure) if isinstance(measure, str) else measure


def _resolve(specs: Iterable[str]) -> list[TaskRef]:
    """Each task once, and on this machine."""
    named = list(specs)
    if loaded := next((spec for spec in named if isinstance(spec, Task)), None):
        raise UsageError(
            f"run takes names or folders, not {loaded.full_name} itself: r2med.evaluate(system, task) does"
        )
    found = {ref.full_name: ref for spec in named for ref in resolve(spec)}
    if not found:
        raise UsageError("no tasks are given")
    for ref in found.values():
        ref.present()
    return list(found.values())
