"""Experiments, as functions: systems are run, planned, evaluated; their parts are called one by one.

    import r2med
    r2med.run("bm25", "bge-small", fuse="rrf", tasks="mini")

Components are named as on the command line (`hyde:gpt4`, `maxsim@50`) or given as objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from ..core import Run, Task, UsageError
from ..core.budget import Budget
from ..core.options import Options, Progress
from ..core.queries import Queries
from ..core.spec import Spec
from ..expand import Diagnosis, Expansions
from ..expand import diagnose as diagnose_expansions
from ..expand import judge as ask_judge
from ..fuse import Normalisation, TunedWeights
from ..llm import chats
from ..pipeline import Builder, Executor, SystemSpec, ablations, check_writable, default_systems, run_experiment
from ..pipeline.experiment import at_lengths, expander_spec, fusion_spec, prompted, reranker_spec
from ..pipeline.run import Notify, check_retrievers, plan_experiment, rank_systems
from ..pipeline.stages import StageEstimate, estimate_all
from ..pipeline.system import Reranking, Spending, System
from ..pipeline.typed import Found, search_text
from ..report.scores import Scores
from ..rerank import DEPTH as RERANK_DEPTH
from ..rerank import Reranker, Rest
from ..results import ResultStore
from ..retrieve import DEPTH
from ..retrieve.contract import on_task
from ..retrieve.custom import scores_pairs
from ..scoring import CUTOFFS, MAIN, STANDARD, Evaluation, Measure, rescored, score
from ..tasks import TaskRef, load, resolve_all

__all__ = [
    "DEPTH",
    "Scores",
    "SystemSpec",
    "default_systems",
    "diagnose",
    "evaluate",
    "expand",
    "fuse",
    "plan",
    "rerank",
    "run",
    "score",
    "search",
    "stored_measure",
    "systems",
    "tune",
]
FIRST_STAGE = "bm25"
"""What a reranker reorders when nothing else is named."""
Component = str | Spec | Any
"""The name of a component, or an object."""


def systems(
    *retrieved: str | Spec | SystemSpec,
    expand: str | Spec | None = None,
    policy: str | None = None,
    passages: int | None = None,
    max_tokens: int | None = None,
    fuse: str | None = None,
    weights: Sequence[float] = (),
    rerank: str | Spec | None = None,
    rest: Rest | None = None,
    max_length: Sequence[int] = (),
    prompts: str | Path | None = None,
) -> list[SystemSpec]:
    """The systems that a command line asks for: each retriever, all of them fused, and each step more on top.

    A whole system (`hyde:gpt4+bm25`) stays as it is. `passages` and `max_tokens` belong to the expansion, `max_length`
    to every model that encodes, `prompts` to every model and to the expansion, as far as the pack has words for them.
    """
    whole = [s for s in map(_system, retrieved) if s.fusion or s.expander or s.reranker]
    plain = list(dict.fromkeys(s.retrievers[0] for s in map(_system, retrieved) if s not in whole))
    single = at_lengths(plain, list(max_length))
    if max_length and single == plain:
        names = ", ".join(map(str, plain or whole))
        raise UsageError(f"max_length changes nothing: {names} cuts no texts, or says where in its spec")
    if not expand and (policy or passages or max_tokens):
        raise UsageError("policy, passages and max_tokens belong to an expansion: name one")
    if not fuse and weights:
        raise UsageError("weights belong to a fusion: name one")
    if not rerank and rest == "drop":
        raise UsageError("rest belongs to a reranker: name one")
    if whole and not single and (expand or fuse or rerank):
        given = next(name for name, value in (("expand", expand), ("fuse", fuse), ("rerank", rerank)) if value)
        raise UsageError(f"{whole[0]} is a whole system: {given} adds nothing to it, put it into the system's spec")
    expander = expander_spec(expand, policy=policy, passages=passages, max_tokens=max_tokens) if expand else None
    if prompts is not None:
        single, expander = prompted(single, expander, _content(prompts))
    fusion = fusion_spec(fuse, weights=weights) if fuse else None
    made = ablations(
        single, fusion=fusion, expander=expander, reranker=reranker_spec(rerank, rest=rest) if rerank else None
    )
    return list(dict.fromkeys([*made, *whole]))


def _system(text: str | Spec | SystemSpec) -> SystemSpec:
    if isinstance(text, SystemSpec):
        return text
    return SystemSpec((text,)) if isinstance(text, Spec) else SystemSpec.typed(text)


def _named(given: Component | SystemSpec, builder: Builder) -> str | Spec | SystemSpec:
    """What was given, an object under the spec that it has as a retriever."""
    return given if isinstance(given, str | Spec | SystemSpec) else builder.own_retriever(given)


def _content(path: str | Path) -> Any:
    from ..core.options import content_at

    return content_at(str(path), "prompts")


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
    rest: Rest | None = None,
) -> Iterator[Prepared]:
    """The systems of a call; objects take part under the specs they have as components."""
    with Builder(options, on_expand=on_expand) as builder:
        named = [_named(g, builder) for g in given]
        if expand is not None and not isinstance(expand, str | Spec):
            expand = builder.own_expander(expand)
        depth = RERANK_DEPTH
        if isinstance(rerank, tuple):
            rerank, depth = rerank
            rerank = reranker_spec(rerank, depth=depth) if isinstance(rerank, str | Spec) else rerank
        if rerank is not None and not isinstance(rerank, str | Spec):
            rerank = builder.own_reranker(rerank).at(depth)
        chosen = systems(*named, expand=expand, policy=policy, fuse=fuse, weights=weights, rerank=rerank, rest=rest)
        made = [builder.build(spec) for spec in chosen]
        if options.retry and not builder.asks:
            raise UsageError("--retry asks chat models again, and no system here asks one")
        yield Prepared(made, builder)


def _defaults(*, best: bool = True) -> tuple[tuple[str, ...], str | None]:
    """The default retrievers, with the best system as a whole one, and the fusion of the retrievers."""
    standard = default_systems()
    whole = (standard.best,) if best and standard.best else ()
    return (*standard.retrievers, *whole), standard.fusion


def run(
    *given: Component | SystemSpec,
    tasks: str | Path | Task | Iterable[Any] = "mini",
    expand: Component | None = None,
    policy: str | None = None,
    fuse: str | None = None,
    weights: Sequence[float] = (),
    rerank: Component | tuple[Component, int] | None = None,
    rest: Rest | None = None,
    depth: int = DEPTH,
    measure: Measure | str = MAIN,
    results: str | Path = "results",
    overwrite: bool = False,
    max_cost: float | None = None,
    options: Options | None = None,
    executor: Executor | None = None,
    notify: Notify = lambda system, task, what: None,
    on_expand: Spending | None = None,
    on_stop: Callable[[dict[str, Any]], None] = lambda usage: None,
) -> Scores:
    """Run systems on tasks, as `r2med run` does, and give the table.

    `given` are retrievers or whole systems (`hyde:gpt4+bm25`), by name or as objects; without any, the default
    systems. Finished results in the folder `results` are reused. `max_cost` is one budget in dollars for all that this
    call spends; `options` say how models are run (`Options(device="cuda")`). Where an error ends the work, `on_stop` is
    told what chat models were asked till then.
    """
    shown, store = Measure.parse(measure), ResultStore(results)
    refs = resolve_tasks(tasks)
    if not given:
        given, usual = _defaults(best=not (expand or fuse or rerank))
        fuse = fuse or usual
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
        check_retrievers(refs, made.systems, store, depth=depth, overwrite=overwrite)
        with executor:
            executor.adopt(made.builder.components)
            try:
                outcome = run_experiment(
                    refs, made.systems, store, depth=depth, overwrite=overwrite, notify=notify, executor=executor
                )
            except BaseException:
                if asked := made.builder.usage():
                    on_stop(asked)
                raise
        usage = made.builder.usage()
    return Scores(outcome.results, shown, kept=outcome.kept, folder=Path(results), usage=usage)


def plan(
    *given: str | Spec | SystemSpec,
    tasks: str | Path | Task | Iterable[Any] = "mini",
    depth: int = DEPTH,
    results: str | Path = "results",
    overwrite: bool = False,
    options: Options | None = None,
) -> list[StageEstimate]:
    """The stages that running systems would take, what of them is cached and what the rest would cost; does nothing.

    Without systems, the default ones, as in `run`.
    """
    refs, fuse = resolve_tasks(tasks), None
    if not given:
        given, fuse = _defaults()
    with _built(given, options or Options(), fuse=fuse) as made:
        plans = plan_experiment(refs, made.systems, ResultStore(results), depth=depth, overwrite=overwrite)
        return estimate_all(plans)


def evaluate(
    system: Component | SystemSpec,
    task: Task,
    *,
    expand: Component | None = None,
    policy: str | None = None,
    rerank: Component | tuple[Component, int] | None = None,
    rest: Rest | None = None,
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
        last = made.systems[-1]
        return score(rank_systems(task, [last], depth=depth)[last.name], task, measures)


def search(
    text: str, task: Task | str = "mini/MedQA-Diag", *, retriever: Component = "bm25", top: int = 5,
    prompts: str | Path | None = None, options: Options | None = None,
) -> list[Found]:  # fmt: skip
    """The best passages of a task for a typed text, with the words that matched."""
    if prompts is not None:
        if not isinstance(retriever, str | Spec):
            raise UsageError("prompts belong to a model of r2med's: an object says itself what it puts before a text")
        (retriever,) = systems(retriever, prompts=prompts)[0].retrievers
    return search_text(loaded(task), text, retriever, top, options=options)


def expand(
    method: Component, task: Task | str, *, limit: int | None = None, options: Options | None = None,
    on_progress: Progress | None = None,
) -> Expansions:  # fmt: skip
    """The texts that a method makes from a task's queries; what was generated before is not generated again."""
    if limit is not None and limit < 1:
        raise UsageError(f"limit is a number of queries, 1 or more, not {limit}")
    with Builder(options) as builder:
        return builder.expander(method).expand(loaded(task), limit=limit, on_progress=on_progress)


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
        inference = ask_judge(expansions, task, chat, retry=builder.options.retry) if chat is not None else None
        by = "words" if chat is None else chat.name
        return diagnose_expansions(expansions, task, searcher, scored, inference=inference, judged_by=by)


def rerank(
    reranker: Component, task: Task | str, candidates: Run, *, depth: int | None = None, rest: Rest | None = None,
    options: Options | None = None,
) -> Run:  # fmt: skip
    """The best candidates of each query in a new order; `depth` says how many, else the reranker's spec.

    Of several rerankers in a row, and of what becomes of candidates below the depth, a spec may say more.
    """
    if depth is not None and depth < 1:
        raise UsageError(f"depth must be 1 or more, not {depth}")
    with Builder(options) as builder:
        if isinstance(reranker, str | Spec):
            links = reranker_spec(reranker, rest=rest, depth=depth).links
            steps = [Reranking.of(builder.reranker(link), link) for link in links]
        else:
            steps = [Reranking(builder.reranker(reranker), depth or RERANK_DEPTH, rest or "keep")]
        task = loaded(task)
        for step in steps:
            candidates = step.reranker.rerank(task, candidates, step.depth, rest=step.rest)
        return candidates


def fuse(runs: Sequence[Run], task: Task | str, method: str = "rrf", *, depth: int = DEPTH) -> Run:
    """One ranking from several over the same task; runs may hold fewer of its queries and documents, as in `rerank`."""
    from ..fuse import fusions

    spec, task = fusions.parse(method), loaded(task)
    fusion = fusions.make(spec)
    fusion.check(len(runs))
    name = f"{'+'.join(run.name for run in runs)}.{spec}"
    return fusion.fuse([on_task(run, task) for run in runs], task, depth, name)


def tune(
    *retrievers: Component, tasks: str | Path | Task | Iterable[Any] = "mini-dev", norm: Normalisation = "min-max",
    steps: int = 10, depth: int = DEPTH, options: Options | None = None,
) -> TunedWeights:  # fmt: skip
    """Choose the weights of a fusion on tasks that nothing is reported on; the spec runs on any other."""
    from ..fuse import best_weights

    if len(retrievers) < 2:
        raise UsageError("a fusion needs two retrievers or more")
    if steps < 1:
        raise UsageError(f"a grid of weights needs a step or more, not {steps}")
    with Builder(options) as builder:
        members = [builder.build(_system(_named(retriever, builder))) for retriever in retrievers]
        ranked = []
        for ref in resolve_tasks(tasks):
            task = ref.load()
            found = rank_systems(task, members, depth=depth)
            ranked.append((task, [found[member.name] for member in members]))
    return best_weights(ranked, norm=norm, steps=steps, depth=depth)


def stored_measure(measure: Measure | str) -> Measure:
    """A measure that every result holds; any other has to be computed from the stored run."""
    chosen = Measure.parse(measure)
    if chosen not in STANDARD:
        cuts = ", ".join(map(str, CUTOFFS))
        raise UsageError(f"{chosen} is not among the stored measures; its cut-off is one of {cuts}")
    return chosen


class LoadedTask(NamedTuple):
    """A task that is in memory already, where a reference to one is asked for."""

    task: Task

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def collection(self) -> str:
        return self.task.collection

    @property
    def full_name(self) -> str:
        return self.task.full_name

    def load(self) -> Task:
        return self.task


def resolve_tasks(tasks: str | Path | Task | Iterable[Any]) -> list[TaskRef | LoadedTask]:
    """The tasks that names, folders or loaded tasks stand for, each once and on this machine.

    Two different tasks of one name are refused: they would share their results.
    """
    found: dict[str, TaskRef | LoadedTask] = {}
    for spec in [tasks] if isinstance(tasks, str | Path | Task) else tasks:
        for ref in _references(spec):
            first = found.setdefault(ref.full_name, ref)
            if first is not ref and not _same(first, ref):
                raise UsageError(f"two different tasks are called {ref.full_name!r}: rename one")
    if not found:
        raise UsageError("no tasks are given")
    return list(found.values())


def _references(spec: object) -> Iterator[TaskRef | LoadedTask]:
    if isinstance(spec, str | Path):
        for ref in resolve_all([spec]):
            ref.present()
            yield ref
    elif isinstance(spec, Task | TaskRef | LoadedTask):
        yield LoadedTask(spec) if isinstance(spec, Task) else spec
    else:
        raise UsageError(f"{spec!r} is no task: give a name, a folder or a loaded task")


def _same(first: TaskRef | LoadedTask, second: TaskRef | LoadedTask) -> bool:
    if isinstance(first, TaskRef) and isinstance(second, TaskRef):
        parts = [(ref.present().resolve(), ref.split, ref.judged) for ref in (first, second)]
        return parts[0] == parts[1]
    return first.load().fingerprint == second.load().fingerprint


def loaded(task: Task | str) -> Task:
    """A task, read where only its name is given."""
    return task if isinstance(task, Task) else load(task)
