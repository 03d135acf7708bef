"""`r2med run`: the main job."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .common import emit, json_option, note, published_in, resolve_all, tasks_option
from .progress import Bar, progress, spending
from .run_output import print_outcome, print_plan

if TYPE_CHECKING:
    from ..pipeline import SystemSpec

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OPTIONS = (
    click.argument("experiment", required=False, type=_FILE, metavar="[EXPERIMENT.toml]"),
    click.option("--retriever", "-r", "retrievers", multiple=True, metavar="NAME",
                 help="bm25, bm25-lucene, bm25:k1=1.2,b=0.75, a model of `r2med models`, a Hugging Face id, a folder, "
                      "module:attr, a plug-in; repeatable. Default: BM25, the embedded model and their fusion."),
    click.option("--expand", "-e", metavar="METHOD:LLM",
                 help="Expand the queries first: hyde:LLM, query2doc:LLM, lamer:LLM, search-o1:LLM, search-r1:LLM, "
                      "concepts, oracle; LLM may be replay:FILE or published:NAME."),
    click.option("--passages", "-n", type=click.IntRange(min=1), help="Generations a query, for --expand."),
    click.option("--max-tokens", type=click.IntRange(min=1), help="Most tokens of one answer, for --expand."),
    click.option("--policy", help="How expansions meet retrievers, instead of the method's own policy."),
    click.option("--fuse", metavar="METHOD", help="Fuse the retrievers: rrf, weighted, combsum, combmnz, tuned."),
    click.option("--weights", metavar="W,W", help="For --fuse weighted."),
    click.option("--candidates", multiple=True, metavar="RUN",
                 help="A stored run as first stage: TREC file, topk_docs jsonl, results/SYSTEM, nano:CONFIG."),
    click.option("--rerank", metavar="NAME@DEPTH", help="maxsim@50, msmarco-minilm@100, rankgpt:LLM@20 …"),
    click.option("--rest", type=click.Choice(["keep", "drop"]), default="keep", show_default=True,
                 help="Candidates below the reranker's depth."),
    click.option("--depth", type=click.IntRange(min=1), help="Documents per query.  [default: 1000]"),
    click.option("--max-length", "lengths", multiple=True, type=click.IntRange(min=1), metavar="TOKENS",
                 help="Cut texts here instead of at the model's limit; repeat to compare lengths."),
    click.option("--device", help="cpu, cuda, cuda:1 …; default: every GPU there is, else the CPU."),
    click.option("--prompts", type=_FILE, help="A prompt pack that replaces the task instructions."),
    click.option("--max-cost", type=click.FloatRange(min=0), metavar="DOLLARS", help="What APIs may cost."),
    click.option("--plan", "--dry-run", "dry_run", is_flag=True,
                 help="Show the stages, what of them is cached and what the rest would take and cost; do nothing."),
    click.option("--executor", type=click.Choice(["local", "ray"]), default="local", show_default=True,
                 help="Where models run: on this machine, or on a Ray cluster."),
    click.option("--workers", type=click.IntRange(min=1), metavar="N",
                 help="Processes, or Ray actors, that encode and rerank.  [default: this process; on Ray one a GPU or "
                      "CPU]"),
    click.option("--address", metavar="ADDRESS",
                 help="Of the Ray cluster; `local` starts one.  [default: RAY_ADDRESS, the one running here, or a new "
                      "one]"),
    click.option("--memory", metavar="SIZE",
                 help="What dense search may hold beside its memory-mapped vectors, such as 2GB."),
    click.option("--verify-cache", "verify", default=0, metavar="N", type=click.IntRange(min=0),
                 help="Encode N cached texts again and compare."),
    click.option("--trust-remote-code", is_flag=True, help="Let a model run code of its own."),
    click.option("--measure", default="nDCG@10", show_default=True, help="The measure in the table; all are stored."),
    click.option("--results", default="results", show_default=True, type=click.Path(file_okay=False, path_type=Path),
                 help="Where results are written and looked for."),
    click.option("--overwrite", is_flag=True, help="Run again what is already there."),
    click.option("--markdown", is_flag=True, help="Print the table in Markdown."),
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

    Without options: the built-in Mini benchmark with the default systems. What is done is not done again.
    """
    from ..core import UsageError
    from ..pipeline import Builder, Experiment, check_writable, get_executor, read_experiment, run_experiment
    from ..pipeline.plan import plan_experiment
    from ..report import as_json as document
    from ..results import ResultStore
    from ..scoring import CUTOFFS, STANDARD, Measure

    shown = Measure.parse(measure)
    if shown not in STANDARD:
        raise UsageError(
            f"{shown} is not among the stored measures; its cut-off is one of {', '.join(map(str, CUTOFFS))}"
        )
    file = given["experiment"]
    written = read_experiment(file) if file else None
    refs, store = resolve_all(specs or (written.tasks if written else ("mini",))), ResultStore(results)
    for ref in refs:
        ref.present()  # before anything is said or loaded
    asked = written or Experiment(system=_specs(given))
    with progress() as bar, ExitStack() as stack:
        builder = stack.enter_context(Builder(published_in(refs), **_options(given, bar)))
        systems = [builder.build(spec) for spec in asked.system]
        for warning in dict.fromkeys(s.expander.warning for s in systems if s.expander and s.expander.warning):
            note(f"Note: {warning}")
        depth = given["depth"] or asked.depth
        executor = get_executor(
            given["executor"], workers=given["workers"], address=given["address"], device=given["device"], tell=note
        )
        if given["dry_run"]:
            plans = plan_experiment(refs, systems, store, depth=depth, overwrite=given["overwrite"])
            print_plan(plans, given["executor"], as_json=as_json)
            return
        check_writable(store)
        for retriever in {r.name: r for s in systems for r in s.retrievers}.values():
            if hasattr(retriever, "check"):
                retriever.check()  # a key that is missing is missed now, not after an hour
        stack.enter_context(executor).adopt(builder.made)
        bar.total(len(refs) * len(systems))

        def notify(system: str, task: str, what: str) -> None:
            if what.startswith("stale: "):
                note(f"{system} on {task} is run again: {what.removeprefix('stale: ')}")
            else:
                bar.show(f"{system} on {task}", advance=what != "running")

        outcome = run_experiment(
            refs, systems, store, depth=depth, overwrite=given["overwrite"], notify=notify, executor=executor
        )
    if as_json:
        emit(document(outcome.results))
        return
    print_outcome(outcome, shown, markdown=given["markdown"])
    note(f"Results, runs and per-query scores: {results}/")


def _options(given: dict[str, Any], bar: Bar) -> dict[str, Any]:
    from ..core.sizes import parse_size
    from ..expand import Settings

    settings = Settings(passages=given["passages"], max_tokens=given["max_tokens"])
    options = {key: given[key] for key in ("device", "max_cost") if given[key] is not None}
    options |= {key: given[key] for key in ("prompts", "trust_remote_code", "verify", "dry_run")}
    options["memory"] = parse_size(given["memory"]) if given["memory"] else None
    return options | {"settings": settings, "on_progress": bar.within, "on_expand": spending(bar)}


def _specs(given: dict[str, Any]) -> list[SystemSpec]:
    from ..pipeline import ladder
    from ..pipeline.defaults import default_systems
    from ..pipeline.experiment import RUN

    retrievers, fusion = [*given["retrievers"], *(f"{RUN}{c}" for c in given["candidates"])], given["fuse"] or ""
    if not retrievers:
        retrievers, standard, missing = default_systems()
        fusion = fusion or standard
        if missing:
            note(f"BM25 only: {missing}")
    weights = [_number(w) for w in given["weights"].split(",")] if given["weights"] else []
    return ladder(
        at_lengths(retrievers, given["lengths"]), fuse=fusion, weights=weights, expand=given["expand"] or "",
        policy=given["policy"], rerank=given["rerank"] or "", rest=given["rest"],
    )  # fmt: skip


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number", param_hint="--weights") from None


def at_lengths(retrievers: list[str], lengths: tuple[int, ...]) -> list[str]:
    """Each model at each length; lexical retrievers and stored runs have none."""
    from ..pipeline.experiment import RUN
    from ..retrieve.specs import LEXICAL, parse_spec

    specs = []
    for spec in retrievers:
        name, parameters = parse_spec(spec)
        if not lengths or name in LEXICAL or spec.startswith(RUN) or "max_length" in parameters:
            specs.append(spec)
        else:
            joint = "," if parameters else ":"
            specs += [f"{spec}{joint}max_length={length}" for length in lengths]
    return specs
