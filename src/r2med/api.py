"""Everything the command can do, as functions.

    import r2med
    r2med.run("bm25", "bge-small", fuse="rrf", tasks="mini")

Components are named as on the command line (`hyde:gpt4`, `maxsim@50`) or given as objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from .core import Run, Task, UsageError
from .core.budget import Budget
from .core.options import Options, Progress
from .core.queries import Queries
from .core.spec import Spec
from .expand import Diagnosis, Expansions
from .expand import diagnose as diagnose_expansions
from .expand import judge as ask_judge
from .llm import chats
from .pipeline import Builder, Executor, SystemSpec, ablations, check_writable, default_systems, run_experiment
from .pipeline.experiment import at_lengths, expander_spec, fusion_spec, reranker_spec
from .pipeline.plan import StageEstimate, estimate_all, plan_experiment
from .pipeline.run import Found, Notify, search_text
from .pipeline.system import Spending, System
from .report import ScoreTable, as_json, score_table
from .report.comparison import from_store, with_snippets
from .rerank import DEPTH as RERANK_DEPTH
from .rerank import Reranker, Rest, rerankers
from .results import ResultIndex, ResultStore, TaskResult
from .retrieve import DEPTH, retrievers
from .retrieve.custom import scores_pairs
from .scoring import CUTOFFS, MAIN, STANDARD, Evaluation, Measure, rescored, score
from .scoring.compare import Comparison
from .scoring.compare import compare as compare_scores
from .scoring.evaluation import import_pandas
from .scoring.intervals import Settings
from .scoring.score_set import ScoreSet
from .tasks import TaskRef, resolve_all

__all__ = [
    "DEPTH",
    "LoadedTask",
    "Scores",
    "SystemSpec",
    "compare",
    "default_systems",
    "diagnose",
    "evaluate",
    "expand",
    "fuse",
    "plan",
    "rerank",
    "resolve_tasks",
    "run",
    "score",
    "search",
    "stored_measure",
    "systems",
]
FIRST_STAGE = "bm25"
"""What a reranker reorders when nothing else is named."""
Component = str | Spec | Any
"""The name of a component, or an object."""


class Scores:
    """Systems × tasks. Shows itself as a table of one measure; `by` shows another of those that were stored."""

    def __init__(self, results: Iterable[TaskResult], measure: Measure = MAIN, *, kept: int = 0) -> None:
        self.results = list(results)
        self.measure = measure
        self.kept = kept
        """How many of them were stored before."""

    @property
    def table(self) -> ScoreTable:
        """The scores of the measure shown, 0 to 1."""
        return score_table(self.results, self.measure)

    def by(self, measure: Measure | str) -> Scores:
        """The same results by another measure."""
        return Scores(self.results, _measure(measure), kept=self.kept)

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary per system and task; measures go by their printed names."""
        return [
            {
                "system": r.system.name,
                "task": r.task.full_name,
                "queries": r.task.queries,
                **{_printed(key): value for key, value in r.measures.items()},
            }
            for r in self.results
        ]

    def to_pandas(self) -> Any:
        """A pandas data frame: a row per system and task."""
        return import_pandas().DataFrame(self.rows())

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


def systems(
    *retrieved: str | Spec | SystemSpec,
    expand: str | Spec | None = None,
    policy: str | None = None,
    passages: int | None = None,
    max_tokens: int | None = None,
    fuse: str | None = None,
    weights: Sequence[float] = (),
    rerank: str | Spec | None = None,
    rest: Rest = "keep",
    max_length: Sequence[int] = (),
    prompts: str | Path | None = None,
) -> list[SystemSpec]:
    """The systems that a command line asks for: each retriever, all of them fused, and each step more on top.

    A whole system (`hyde:gpt4+bm25`) stays as it is. `passages` and `max_tokens` belong to the expansion, `max_length`
    and `prompts` to every model that encodes.
    """
    whole = [s for s in map(_system, retrieved) if s.fusion or s.expander or s.reranker]
    single = at_lengths((s.retrievers[0] for s in map(_system, retrieved) if s not in whole), list(max_length))
    if prompts is not None:
        single = [retrievers.changed(s, prompts=_content(prompts)) if _prompted(s) else s for s in single]
    if not expand and (policy or passages or max_tokens):
        raise UsageError("policy, passages and max_tokens belong to an expansion: name one")
    if not fuse and weights:
        raise UsageError("weights belong to a fusion: name one")
    if not rerank and rest != "keep":
        raise UsageError("rest belongs to a reranker: name one")
    if whole and not single and (expand or fuse or rerank):
        given = next(name for name, value in (("expand", expand), ("fuse", fuse), ("rerank", rerank)) if value)
        raise UsageError(f"{whole[0]} is a whole system: {given} adds nothing to it, put it into the system's spec")
    expander = expander_spec(expand, policy=policy, passages=passages, max_tokens=max_tokens) if expand else None
    fusion = fusion_spec(fuse, weights=weights) if fuse else None
    made = ablations(
        single, fusion=fusion, expander=expander, reranker=reranker_spec(rerank, rest=rest) if rerank else None
    )
    return list(dict.fromkeys([*made, *whole]))


def _system(text: str | Spec | SystemSpec) -> SystemSpec:
    if isinstance(text, SystemSpec):
        return text
    if isinstance(text, Spec):
        return SystemSpec((text,))
    try:
        return SystemSpec.parse(text)
    except UsageError:
        with suppress(UsageError):
            return SystemSpec((retrievers.parse(text),))  # a path may hold a plus: results/bm25+rm3.run
        raise


def _content(path: str | Path) -> Any:
    from .core.parameters import content_at

    return content_at(str(path), "prompts")


def _prompted(spec: Spec) -> bool:
    return "prompts" in retrievers.declared(spec)


def _printed(key: str) -> str:
    """A measure's printed name; micro-averaged recall has its key only."""
    return key if key.startswith("recall_micro") else str(Measure.parse(key))


class Prepared(NamedTuple):
    """Systems that are built, with what made them."""

    systems: list[System]
    builder: Builder


@contextmanager
def _built(
    given: Sequence[Component | SystemSpec],
    options: Options,
    on_expand: Spending | None = None,
    *,
    expand: Component | None = None,
    policy: str | None = None,
    fuse: str | None = None,
    weights: Sequence[float] = (),
    rerank: Component | tuple[Component, int] | None = None,
    rest: Rest = "keep",
) -> Iterator[Prepared]:
    """The systems of a call; objects take part under the specs they have as components."""
    with Builder(options, on_expand=on_expand) as builder:
        named = [g if isinstance(g, str | Spec | SystemSpec) else builder.own_retriever(g) for g in given]
        if expand is not None and not isinstance(expand, str | Spec):
            expand = builder.own_expander(expand)
        depth = RERANK_DEPTH
        if isinstance(rerank, tuple):
            rerank, depth = rerank
            rerank = rerankers.parse(rerank).at(depth) if isinstance(rerank, str | Spec) else rerank
        if rerank is not None and not isinstance(rerank, str | Spec):
            rerank = builder.own_reranker(rerank).at(depth)
        chosen = systems(*named, expand=expand, policy=policy, fuse=fuse, weights=weights, rerank=rerank, rest=rest)
        yield Prepared([builder.build(spec) for spec in chosen], builder)


def run(
    *given: Component | SystemSpec,
    tasks: str | Task | Iterable[Any] = "mini",
    expand: Component | None = None,
    policy: str | None = None,
    fuse: str | None = None,
    weights: Sequence[float] = (),
    rerank: Component | tuple[Component, int] | None = None,
    rest: Rest = "keep",
    depth: int = DEPTH,
    measure: Measure | str = MAIN,
    results: str | Path = "results",
    overwrite: bool = False,
    max_cost: float | None = None,
    options: Options | None = None,
    executor: Executor | None = None,
    notify: Notify = lambda system, task, what: None,
    on_expand: Spending | None = None,
) -> Scores:
    """Run systems on tasks, as `r2med run` does, and give the table.

    `given` are retrievers or whole systems (`hyde:gpt4+bm25`), by name or as objects; without any, the default
    systems. Finished results in the folder `results` are reused. `max_cost` is one budget in dollars for all that this
    call spends; `options` say how models are run (`Options(device="cuda")`).
    """
    shown, store = _measure(measure), ResultStore(results)
    refs = resolve_tasks(tasks)
    if not given:
        names, standard, _ = default_systems()
        given, fuse = tuple(names), fuse or standard
    run_options = (options or Options()).changed({} if max_cost is None else {"budget": Budget(max_cost)})
    executor = executor or Executor()
    with _built(
        given,
        run_options,
        on_expand,
        expand=expand,
        policy=policy,
        fuse=fuse,
        weights=weights,
        rerank=rerank,
        rest=rest,
    ) as made:
        check_writable(store)
        for retriever in {r.name: r for s in made.systems for r in s.retrievers}.values():
            retriever.check()
        with executor:
            executor.adopt(made.builder.components)
            outcome = run_experiment(
                refs, made.systems, store, depth=depth, overwrite=overwrite, notify=notify, executor=executor
            )
    return Scores(outcome.results, shown, kept=outcome.kept)


def plan(
    *given: str | Spec | SystemSpec,
    tasks: str | Task | Iterable[Any] = "mini",
    depth: int = DEPTH,
    results: str | Path = "results",
    overwrite: bool = False,
    options: Options | None = None,
) -> list[StageEstimate]:
    """The stages that running systems would take, what of them is cached and what the rest would cost; does nothing."""
    refs, quiet = resolve_tasks(tasks), (options or Options()).changed({"dry_run": True})
    with _built(given, quiet) as made:
        plans = plan_experiment(refs, made.systems, ResultStore(results), depth=depth, overwrite=overwrite)
        return estimate_all(plans)


def evaluate(
    system: Component | SystemSpec,
    task: Task,
    *,
    expand: Component | None = None,
    policy: str | None = None,
    rerank: Component | tuple[Component, int] | None = None,
    rest: Rest = "keep",
    measures: Iterable[Measure | str] = STANDARD,
    depth: int = DEPTH,
    options: Options | None = None,
) -> Evaluation:
    """Rank a task with a system and score the ranking; nothing is stored.

    `system` is a retriever or a whole system, by name or as an object: an encoder (R2MED's `CustomModel`,
    sentence-transformers, MTEB, a function from texts to an array), a searcher of MTEB's. A cross-encoder reranks BM25.
    """
    if not isinstance(task, Task):
        raise TypeError("a system is evaluated on a task; score(run, qrels) scores a run")
    if isinstance(system, Run):
        raise TypeError("score(run, qrels) scores a run")
    if isinstance(system, Reranker) or (not isinstance(system, str | Spec | SystemSpec) and scores_pairs(system)):
        if rerank is not None:
            raise UsageError("system and rerank are both rerankers: a first stage is missing")
        system, rerank = FIRST_STAGE, system
    with _built([system], options or Options(), expand=expand, policy=policy, rerank=rerank, rest=rest) as made:
        return score(made.systems[-1].rank(task, depth), task, measures)


def search(
    text: str, task: Task | str = "mini/MedQA-Diag", *, retriever: Component = "bm25", top: int = 5,
    options: Options | None = None,
) -> list[Found]:  # fmt: skip
    """The best passages of a task for a typed text, with the words that matched."""
    return search_text(_load(task), text, retriever, top, options=options)


def expand(
    method: Component, task: Task | str, *, limit: int | None = None, options: Options | None = None,
    on_progress: Progress | None = None,
) -> Expansions:  # fmt: skip
    """The texts that a method makes from a task's queries; what was generated before is not generated again."""
    with Builder(options) as builder:
        return builder.expander(method).expand(_load(task), limit=limit, on_progress=on_progress)


def diagnose(
    expansions: Expansions, task: Task, retriever: Component = "bm25", *, judge: str | None = None,
    build: Builder | None = None,
) -> Diagnosis:  # fmt: skip
    """Where an expansion's gain comes from: right and wrong inferences, and the oracle's ceiling, by nDCG@10.

    `judge` names a chat model that decides whether a text names the answer, instead of word matching.
    """
    with nullcontext(build) if build is not None else Builder() as builder:
        searcher = builder.retriever(retriever)
        index = searcher.prepare(task)

        def scored(queries: Queries) -> dict[str, float]:
            return rescored(index.search(queries, DEPTH), task.qrels, MAIN)

        chat = builder.chat(chats.parse(judge)) if judge else None
        inference = ask_judge(expansions, task, chat) if chat is not None else None
        by = "words" if chat is None else chat.name
        return diagnose_expansions(expansions, task, searcher, scored, inference=inference, judged_by=by)


def rerank(
    reranker: Component, task: Task | str, candidates: Run, *, depth: int | None = None, rest: Rest = "keep",
    options: Options | None = None,
) -> Run:  # fmt: skip
    """The best candidates of each query in a new order."""
    with Builder(options) as builder:
        made = builder.reranker(reranker)
        wanted = depth or _depth(reranker)
        return made.rerank(_load(task), candidates, wanted, rest=rest)


def _depth(reranker: Component) -> int:
    named = isinstance(reranker, str | Spec)
    return (rerankers.parse(reranker).depth if named else None) or RERANK_DEPTH


def fuse(runs: Sequence[Run], task: Task | str, method: str = "rrf", *, depth: int = DEPTH) -> Run:
    """One ranking from several over the same task."""
    from .fuse import fusions

    spec = fusions.parse(method)
    fusion = fusions.make(spec)
    fusion.check(len(runs))
    return fusion.fuse(runs, _load(task), depth, f"{'+'.join(run.name for run in runs)}.{spec}")


def compare(
    *compared: str | Mapping[str, Evaluation] | Mapping[str, Mapping[str, Evaluation]],
    results: str | Path = "results",
    measure: Measure | str = MAIN,
    collection: str = "",
    tasks: Iterable[str] = (),
    settings: Settings | None = None,
) -> Comparison:
    """Compare systems query by query, with intervals and paired tests.

    `compare("bm25", "bge-small")` takes them from a results folder; `compare({"mine": e1, "theirs": e2})` takes
    evaluations of one task, or of several as `{"mine": {"task": e, …}, …}`.
    """
    shown, chosen = _measure(measure), settings or Settings()
    if len(compared) == 1 and isinstance(compared[0], Mapping):
        nested = {
            name: of_task if isinstance(of_task, Mapping) else {"score": of_task}
            for name, of_task in compared[0].items()
        }
        for name, of_task in nested.items():
            if not all(isinstance(e, Evaluation) for e in of_task.values()):
                raise UsageError(f"{name!r} is no evaluation: r2med.evaluate(system, task) gives one")
        return compare_scores(ScoreSet.of_evaluations(nested, shown), chosen)
    named = [s for s in compared if isinstance(s, str)]
    if len(named) != len(compared) or len(named) < 2:
        raise UsageError("compare takes two or more names of stored systems, or one dictionary of evaluations")
    stored = from_store(ResultIndex([Path(results)]), named, shown, collection=collection, tasks=tasks)
    return with_snippets(compare_scores(stored.scores, chosen), stored)


class LoadedTask(NamedTuple):
    """A task that is in memory already, where a reference to one is asked for."""

    task: Task

    @property
    def name(self) -> str:
        """The task's name."""
        return self.task.name

    @property
    def collection(self) -> str:
        """Its collection."""
        return self.task.collection

    @property
    def full_name(self) -> str:
        """How the task is called in results."""
        return self.task.full_name

    def load(self) -> Task:
        """The task itself."""
        return self.task


def resolve_tasks(tasks: str | Task | Iterable[Any]) -> list[TaskRef | LoadedTask]:
    """The tasks that names, folders or loaded tasks stand for, each once and on this machine.

    Two different tasks of one name are refused: they would share their results.
    """
    found: dict[str, TaskRef | LoadedTask] = {}
    for spec in [tasks] if isinstance(tasks, str | Task) else tasks:
        for ref in _references(spec):
            first = found.setdefault(ref.full_name, ref)
            if first is not ref and not _same(first, ref):
                raise UsageError(f"two different tasks are called {ref.full_name!r}: rename one")
    if not found:
        raise UsageError("no tasks are given")
    return list(found.values())


def _references(spec: str | Task | TaskRef | LoadedTask) -> Iterator[TaskRef | LoadedTask]:
    if not isinstance(spec, str):
        yield LoadedTask(spec) if isinstance(spec, Task) else spec
        return
    for ref in resolve_all([spec]):
        ref.present()
        yield ref


def _same(first: TaskRef | LoadedTask, second: TaskRef | LoadedTask) -> bool:
    if isinstance(first, TaskRef) and isinstance(second, TaskRef):
        return first.present().resolve() == second.present().resolve() and first.split == second.split
    return first.load().fingerprint == second.load().fingerprint


def _load(task: Task | str) -> Task:
    if isinstance(task, Task):
        return task
    from .tasks import load

    return load(task)


def stored_measure(measure: Measure | str) -> Measure:
    """A measure that every result holds; any other has to be computed from the stored run."""
    chosen = _measure(measure)
    if chosen not in STANDARD:
        cuts = ", ".join(map(str, CUTOFFS))
        raise UsageError(f"{chosen} is not among the stored measures; its cut-off is one of {cuts}")
    return chosen


def _measure(measure: Measure | str) -> Measure:
    return Measure.parse(measure)
