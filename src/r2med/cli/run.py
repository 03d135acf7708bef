"""`r2med run`: the main job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ..core.spec import LINK
from ..expand import expanders
from ..fuse import fusions
from ..rerank import rerankers
from ..retrieve import retrievers
from .choose import print_experiments, print_needs, print_plan
from .common import (
    Number,
    Whole,
    calls_made,
    completing,
    emit,
    json_option,
    note,
    one_form,
    options_from,
    pickle_option,
    progress,
    retry_option,
    say,
    show,
    spending,
    tasks_option,
)

if TYPE_CHECKING:
    from ..pipeline import SystemSpec
    from ..pipeline.stages import StageEstimate
    from ..report.scores import Scores
    from ..results import TaskResult

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class ExperimentFile(click.ParamType[Any]):
    """A file, or the name of an experiment that comes with r2med behind an @."""

    name = "experiment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if str(value).startswith("@") else _FILE.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from ..pipeline.experiment import shipped

        if not incomplete.startswith("@"):
            return _FILE.shell_complete(ctx, param, incomplete)
        return [CompletionItem(f"@{name}") for name in shipped() if f"@{name}".startswith(incomplete)]


OPTIONS = (
    click.argument("experiment", required=False, type=ExperimentFile(), metavar="[EXPERIMENT.toml|@NAME]"),
    click.option("--retriever", "-r", "retrievers", multiple=True, metavar="NAME",
                 shell_complete=completing("retriever"),
                 help=f"{retrievers.help()}, with parameters (bm25:k1=1.2,b=0.75), a model of `r2med models`, a "
                      "Hugging Face id, a folder, module:Class,argument=value, a plug-in; repeatable. Default: BM25, "
                      "the embedded model and their fusion."),
    click.option("--system", "-s", "whole", multiple=True, metavar="SPEC",
                 help="A whole system, such as hyde:gpt4+bm25+bge-small.rrf+maxsim@50; repeatable."),
    click.option("--expand", "-e", multiple=True, metavar="METHOD:LLM", shell_complete=completing("expander"),
                 help=f"Expand the queries first: {expanders.help()}, module:attr; LLM is a chat model of `r2med "
                      "models`, replay:FILE or published:NAME. Repeat it, or write hyde:gpt4+rm3, for methods that "
                      "follow each other."),
    click.option("--passages", "-n", type=Whole(min=1), help="Generations a query, for --expand."),
    click.option("--max-tokens", type=Whole(min=1), help="Most tokens of one answer, for --expand."),
    click.option("--policy", help="How expansions meet retrievers, instead of the method's own policy."),
    click.option("--fuse", metavar="METHOD", shell_complete=completing("fusion"),
                 help=f"Fuse the retrievers: {fusions.help()}, with parameters (rrf:k=100)."),
    click.option("--weights", metavar="W,W", help="For --fuse weighted."),
    click.option("--candidates", multiple=True, metavar="RUN",
                 help="A stored run as first stage: TREC file, topk_docs jsonl, results/SYSTEM, nano:CONFIG."),
    click.option("--rerank", multiple=True, metavar="NAME@DEPTH", shell_complete=completing("reranker"),
                 help=f"{rerankers.help()}, a model (msmarco-minilm@100), module:attr; @DEPTH says how many. Repeat it "
                      "for rerankers that follow each other."),
    click.option("--rest", type=click.Choice(["keep", "drop"]),
                 help="Candidates below the reranker's depth.  [default: keep]"),
    click.option("--depth", type=Whole(min=1), help="Documents per query.  [default: 1000]"),
    click.option("--max-length", "lengths", multiple=True, type=Whole(min=1), metavar="TOKENS",
                 help="Cut texts here instead of at the model's limit; repeat to compare lengths."),
    click.option("--device", help="cpu, cuda, cuda:1 …; default: every GPU there is, else the CPU."),
    click.option("--prompts", type=_FILE, help="A prompt pack that replaces task instructions and prompts."),
    click.option("--max-cost", type=Number(min=0), metavar="DOLLARS", help="What APIs may cost."),
    retry_option,
    click.option("--plan", "--dry-run", "dry_run", is_flag=True,
                 help="Show the stages, what of them is cached and what the rest would take and cost; do nothing."),
    click.option("--executor", type=click.Choice(["local", "ray"]), default="local", show_default=True,
                 help="Where models run: on this machine, or on a Ray cluster."),
    click.option("--workers", type=Whole(min=1), metavar="N",
                 help="Processes, or Ray actors, that encode and rerank.  [default: this process; on Ray one a GPU or "
                      "CPU]"),
    click.option("--address", metavar="ADDRESS",
                 help="Of the Ray cluster; `local` starts one.  [default: RAY_ADDRESS, the one running here, or a new "
                      "one]"),
    click.option("--memory", metavar="SIZE",
                 help="What dense search may hold beside its memory-mapped vectors, such as 2GB."),
    click.option("--verify-cache", "verify", default=0, metavar="N", type=Whole(min=0),
                 help="Encode N cached texts again and compare."),
    click.option("--trust-remote-code", is_flag=True, help="Let a model run code of its own."),
    pickle_option,
    click.option("--measure", default="nDCG@10", show_default=True, help="The measure in the table; all are stored."),
    click.option("--results", default="results", show_default=True, type=click.Path(file_okay=False, path_type=Path),
                 help="Where results are written and looked for."),
    click.option("--overwrite", is_flag=True, help="Run again what is already there."),
    click.option("--markdown", is_flag=True, help="Print the table in Markdown."),
    click.option("--latex", is_flag=True,
                 help="Print it in LaTeX, with intervals and the marks of `r2med compare`."),
)  # fmt: skip


def _with_options(function: Any) -> Any:
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@click.command("run")
@tasks_option(default=())
@_with_options
@json_option
def command(specs: tuple[str, ...], results: Path, measure: str, as_json: bool, **given: Any) -> None:
    """Run systems on tasks and print a table of scores.

    Without options: the built-in Mini benchmark with the default systems. Finished results are reused. @NAME is an
    experiment that comes with r2med, one for each of the best published systems; @ alone lists them.
    """
    from ..api import experiments as api
    from ..pipeline import get_executor, read_experiment
    from ..pipeline.experiment import get_shipped

    file, shown = given["experiment"], api.stored_measure(measure)
    _check_form(file, specs, given, as_json)
    if file == "@":
        print_experiments(as_json=as_json)
        return
    named = file[1:] if isinstance(file, str) else ""
    written = get_shipped(named) if named else read_experiment(file) if file else None
    tasks = specs or (written.tasks if written else ("mini",))
    depth = given["depth"] or (written.depth if written else api.DEPTH)
    asked: dict[str, Any] = {"tasks": tasks, "depth": depth, "results": results, "overwrite": given["overwrite"]}
    if named and given["dry_run"]:
        print_needs(named, lambda made: _plan(made, asked, given), given["executor"], as_json=as_json)
        return
    asked["tasks"] = api.resolve_tasks(tasks)  # before anything is said about systems
    systems = written.systems() if written else _systems(given)
    if given["dry_run"]:
        print_plan(_plan(systems, asked, given), given["executor"], as_json=as_json)
        return
    with progress() as bar:
        options = options_from(given, bar)
        executor = get_executor(
            given["executor"], workers=given["workers"], address=given["address"], device=given["device"], tell=note
        )

        def notify(system: str, task: str, what: str) -> None:
            if what.startswith("stale: "):
                note(f"{system} on {task} is run again: {what.removeprefix('stale: ')}")
            elif what.startswith("note: "):
                note(what.removeprefix("note: "))
            elif what.startswith("total: "):
                bar.total(int(what.removeprefix("total: ")))
            else:
                bar.show(f"{task}: {system}", advance=what != "running")

        scores = api.run(
            *systems, **asked, measure=shown, options=options, executor=executor, notify=notify,
            on_expand=spending(bar), on_stop=_tell_calls,
        )  # fmt: skip
    if as_json:
        emit(scores.to_dict())
        return
    _print_outcome(scores, markdown=given["markdown"], latex=given["latex"])
    if options.verify and scores.kept == len(scores.results):
        note("--verify-cache compared nothing, because no result was made this time")
    note(f"Results, runs and per-query scores: {results}/")


def _plan(systems: Sequence[str | SystemSpec], asked: dict[str, Any], given: dict[str, Any]) -> list[StageEstimate]:
    from ..api import experiments as api

    with progress() as bar:
        return api.plan(*systems, **asked, options=options_from(given, bar))


def _check_form(file: Path | str | None, tasks: tuple[str, ...], given: dict[str, Any], as_json: bool) -> None:
    """Refuse two forms of output, a form that nothing is printed in, and systems beside those of a file."""
    forms = {"markdown": given["markdown"], "latex": given["latex"]}
    one_form(as_json=as_json, **forms)
    if (given["dry_run"] or file == "@") and any(forms.values()):
        raise click.UsageError("--markdown and --latex print scores, and nothing is run here")
    if file == "@" and (tasks or given["dry_run"]):
        raise click.UsageError("@ alone lists the experiments: name one, as @NAME, or leave out --tasks and --plan")
    if file is not None:
        _refuse_beside(file, given)


SYSTEM_FLAGS = ("retrievers", "whole", "candidates", "expand", "passages", "max_tokens", "policy", "fuse", "weights",
                "rerank", "lengths", "prompts")  # fmt: skip
"""What chooses systems: an experiment file does that too."""


def _refuse_beside(what: Path | str, given: dict[str, Any]) -> None:
    """An experiment file or a whole spec names its systems: flags that would name others are refused, not ignored."""
    from ..core import UsageError

    spelled = {"whole": "system", "retrievers": "retriever", "lengths": "max-length"}
    used = [name for name in (*SYSTEM_FLAGS, "rest") if given[name]]
    if used:
        flags = ", ".join(f"--{spelled.get(name, name).replace('_', '-')}" for name in used)
        other = "the file" if isinstance(what, Path) else str(what)
        raise UsageError(f"{what} names the systems: leave out {flags}, or {other}")


def _systems(given: dict[str, Any]) -> list[SystemSpec]:
    from ..api import experiments as api

    retrievers = [*given["retrievers"], *(c if c.startswith("nano:") else f"run:{c}" for c in given["candidates"])]
    fusion, whole = given["fuse"], given["whole"]
    if given["whole"] and not retrievers:
        _refuse_beside("--system", {**given, "whole": ()})
    if not retrievers and not given["whole"]:
        standard = api.default_systems()
        if standard.best and not any(given[flag] for flag in SYSTEM_FLAGS):
            whole = [standard.best]
        retrievers, fusion = standard.retrievers, fusion or standard.fusion
        if standard.missing:
            note(f"BM25 only: {standard.missing}")
    weights = [_weight(text) for text in given["weights"].split(",")] if given["weights"] else []
    made = api.systems(
        *retrievers, expand=f"+{LINK}".join(given["expand"]) or None, policy=given["policy"],
        passages=given["passages"], max_tokens=given["max_tokens"], fuse=fusion, weights=weights,
        rerank=rerankers.join(given["rerank"]), rest=given["rest"], max_length=given["lengths"],
        prompts=given["prompts"],
    ) if retrievers else []  # fmt: skip
    return [*made, *(api.SystemSpec.parse(spec) for spec in whole)]


def _weight(text: str) -> float:
    try:
        weight: float = Number().convert(text, None, None)
    except click.BadParameter as error:
        raise click.BadParameter(error.message, param_hint="--weights") from None
    return weight


def _print_outcome(outcome: Scores, *, markdown: bool, latex: bool) -> None:
    """The table, what rerankers did, and what a reader must know."""
    from ..report.scores import effects_tables

    table = outcome.table.table()
    if markdown or latex:
        say(outcome.to_latex() if latex else table.markdown(), lines=True)
    else:
        show(table)
        for effects in effects_tables(outcome.results):
            say()
            show(effects)
    for line in dict.fromkeys(_warnings(outcome.results)):
        note(line)
    for line in dict.fromkeys(line for result in outcome.results for line in _own_words(result)):
        note(line)
    if outcome.usage is not None:
        _tell_calls(outcome.usage)
    if outcome.kept:
        note(f"{outcome.kept} of {len(outcome.results)} results were there already (--overwrite runs them again)")


def _tell_calls(usage: dict[str, Any]) -> None:
    note(f"Chat models, this time: {calls_made(usage)}")


def _own_words(result: TaskResult) -> list[str]:
    """That a system of the paper's protocol runs without the paper's words."""
    return [f"{result.system.name}: {said} (r2med protocol fetch r2med-paper)" for said in result.system.own_words]


def _of_answers(key: str) -> Callable[[TaskResult], int]:
    """What a result notes about the answers of chat models behind it."""
    return lambda result: sum(noted.get(key) or 0 for noted in result.answers)


def _useless(result: TaskResult) -> int:
    """Answers that told a reranker nothing."""
    told = [noted.get("answers", {}).get("generations", {}) for noted in result.rerankings]
    return sum(of_one.get(status, 0) for of_one in told for status in ("empty", "failed", "refused", "unparsed"))


WARNINGS: dict[tuple[str, str, str], Callable[[TaskResult], object]] = {
    ("query", "queries", "retrieved nothing and scored 0"): lambda result: result.missing_queries,
    ("query", "queries", "without a positive judgment scored 0"): lambda result: result.queries_without_positives,
    ("positive judgment", "positive judgments", "of documents that are not in the corpus"):
        lambda result: result.notes.get("judgments_of_missing_documents"),
    ("query", "queries", "whose documents all have the same score, so that their order says nothing"):
        lambda result: result.notes.get("queries_with_one_score"),
    ("query", "queries", "had no usable expansion; the raw query was used"):
        lambda result: next((noted.get("raw_query_used") for noted in result.expansions), None),
    ("answer", "answers", "of chat models told a reranker nothing; passages kept their order (--retry asks again)"):
        _useless,
    ("call", "calls", "of chat models had to be sent again"): _of_answers("retries"),
    ("time", "times", "the server of a chat model was asked too often"): _of_answers("rate_limits"),
    ("call", "calls", "lost when a process ended, perhaps charged"): _of_answers("lost_calls"),
}  # fmt: skip
"""What is counted, of one and of several, and what it means."""


def _warnings(results: list[TaskResult]) -> Iterator[str]:
    """What a reader must know: one line for what several systems or tasks share."""
    from ..core.table import counted

    for result in results:
        for name, why in (result.notes.get("not_reused") or {}).items():  # type: ignore[attr-defined]
            yield f"{name}: {why}, so its results are never reused; give it a `version` to change that"
        if verified := result.notes.get("verified"):
            yield f"{result.system.name} on {result.task.full_name}: cache verified, {verified}"
    for (one, several, what), count in WARNINGS.items():
        counts: dict[str, dict[str, int]] = {}
        for result in results:
            number = count(result)
            if isinstance(number, int) and number:
                counts.setdefault(result.system.name, {})[result.task.full_name] = number
        alike: dict[tuple[tuple[str, int], ...], list[str]] = {}
        for system, of_system in counts.items():
            alike.setdefault(tuple(of_system.items()), []).append(system)
        for of_tasks, systems in alike.items():
            where = ", ".join(f"{task} {number:,}" for task, number in of_tasks)
            number = counted(sum(number for _, number in of_tasks), one, several)
            yield f"{', '.join(systems)}: {number} {what} ({where})"
