"""The command line of the R2MED repository, on r2med: `python -m r2med.upstream --mode eval_retrieval …`.

The same flags, the same folders, the same keys in the same files, so that scripts written for the repository's `run.py`
go on working; what is computed is computed here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from ...core import DataError, ModelError, R2MedError, Task, UsageError
from ...core.files import write_bytes
from ...core.options import Options
from ...core.spec import Content, Spec
from ...core.untrusted import printable
from ...expand import Expander, Expansion, expanders
from ...expand.replay import read_recorded
from ...llm import chats
from ...models.prompts import OWN, PAPER
from ...pipeline import Builder
from ...pipeline.reproduce import as_published
from ...rerank import rerankers
from .evaluate import (
    RECALL_K,
    Gar,
    Scored,
    evaluate_reranker,
    evaluate_retriever,
    instructions_of,
    paper_retriever,
)
from .tree import ALL, PROMPTS, Tree, find_prompts, find_tree, load_tasks, prompts_of, whose_prompts

API_NAMES: Final = {"o3-mini": "o3-mini"}
"""What the scripts call an API's model where r2med's card names a dated version of it."""
PROGRAM: Final = "python -m r2med.upstream"
NEEDS: Final = {
    "eval_retrieval": ("retriever_name",),
    "eval_reranker": ("retriever_name", "reranker_name"),
    "generate_hydoc": ("gar_method", "gar_llm"),
}
"""The modes, and the flags that each cannot do without."""
TAKES: Final = {"eval_retrieval": ("gar_method", "gar_llm"), "eval_reranker": ("recall_k",), "generate_hydoc": ()}
"""The flags that each takes beside those it needs."""
OLD_RERANKERS: Final = {"bge": "bge-reranker", "mono": "monobert", "llama": "rankllama"}
"""As the scripts spelled them before May 2025."""
METHODS: Final = ("hyde", "query2doc", "lamer", "search-o1", "search-r1")


def expander_spec(method: str, llm: str, prompts: Content | None = None) -> Spec:
    """A method on an LLM as the repository's scripts run it."""
    spec = expanders.changed(expanders.parse(f"{method}:{llm}"), protocol=PAPER, prompts=prompts)
    if llm in API_NAMES and isinstance(spec.argument, Spec):
        return replace(spec, argument=chats.changed(spec.argument, served=API_NAMES[llm]))
    return spec


def generate(
    path: Path, task: Task, expander: Expander, llm: str, *, prompts: str = "", overwrite: bool = False
) -> int:
    """Generate for every query and write the file; returns how many queries were asked.

    Answers are kept in the generation store as they come: a command that was stopped goes on where it was. `prompts`
    says whose prompts they are, where it is not the repository's: a file made with others is refused.
    """
    if not overwrite and path.is_file() and set(task.query_ids) <= set(read_recorded(path, expander.method)):
        if (there := prompts_of(path)) != prompts:
            names = [name or "the repository's" for name in (there, prompts)]
            raise DataError(
                f"was made with {names[0]} prompts, not with {names[1]}: --overwrite replaces it", path=path
            )
        return 0
    made = expander.expand(task)
    if failed := [item for item in made if "failed" in item.statuses]:
        raise ModelError(
            f"{llm} gave no answer to {len(failed)} of {len(made)} queries of {task.name} "
            f"({failed[0].notes.get('error', 'no answer')}); "
            "the same command asks for the rest: answers so far are kept"
        )
    lines = [
        json.dumps(
            {
                "id": item.query_id,
                "text": item.original,
                "hy_doc": as_written(item),
                "doc_id": [doc_id for doc_id, grade in task.qrels.of(item.query_id).items() if grade > 0],
                **({PROMPTS: prompts} if prompts else {}),
            },
            ensure_ascii=False,
        )
        for item in made
    ]
    write_bytes(path, ("\n".join(lines) + "\n").encode())
    return len(made)


def as_written(item: Expansion) -> str:
    """The answer as it came, a chain without an end as well; what an agent found where nothing came from one call."""
    return "\n\n".join(item.raw or item.texts)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, which `main` prints."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} ({PROGRAM} --help)")


def parser() -> argparse.ArgumentParser:
    """The repository's flags, and some of ours at the end."""
    made = Parser(prog=PROGRAM, description="The commands of the R2MED repository, on r2med.", allow_abbrev=False)
    add = made.add_argument
    add("--mode", required=True, choices=NEEDS)
    add("--task", required=True, help=f"{ALL}, or a folder in dataset/ (Biology, MedQA-Diag, …)")
    add("--retriever_name", default="", help="bm25, bge, nv or any other retriever that r2med models lists")
    add("--reranker_name", default="", help="bge-reranker, monobert, rankllama or any other")
    add("--recall_k", type=int, default=RECALL_K[0], choices=RECALL_K, help="documents to rerank (default: 10)")
    add("--gar_method", default="", choices=("", *METHODS), help="how texts are generated")
    add("--gar_llm", default="", help="qwen-7b, gpt4 or any other chat model that r2med models lists")
    ours = made.add_argument_group("not in the repository")
    ours.add_argument("--root", help="folder that holds dataset/ (default: this one or the one above)")
    ours.add_argument("--prompts", help="a prompt pack instead of the repository's instructions and prompts")
    ours.add_argument("--overwrite", action="store_true", help="run again what has results")
    ours.add_argument("--device", help="cpu, cuda, cuda:1 …")
    ours.add_argument("--trust_remote_code", action="store_true", help="let a model run code of its own")
    ours.add_argument("--allow_pickle", action="store_true", help="load weights that are published as pickles only")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; a user's mistake is one line and an exit code."""
    try:
        run(parser().parse_args(arguments))
    except R2MedError as error:
        print(f"r2med: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("r2med: interrupted; what was finished is kept, the same command goes on from there", file=sys.stderr)
        return 130
    return 0


def run(given: argparse.Namespace) -> None:
    """Run one mode."""
    missing = [f"--{name}" for name in NEEDS[given.mode] if not getattr(given, name)]
    if missing:
        raise UsageError(f"--mode {given.mode} needs {' and '.join(missing)}")
    used = (
        *NEEDS[given.mode],
        *TAKES[given.mode],
    )  # scripts may pass all flags to all modes
    for name in ("retriever_name", "reranker_name", "recall_k", "gar_method", "gar_llm"):
        if name not in used and getattr(given, name) not in ("", RECALL_K[0]):
            print(f"r2med: --mode {given.mode} does not use --{name}", file=sys.stderr)
    tree = find_tree(given.root)
    given.pack = find_prompts(tree, given.prompts)
    options = Options(
        device=given.device or None, trust_remote_code=given.trust_remote_code, allow_pickle=given.allow_pickle
    )
    with Builder(options) as builder:
        if given.mode == "generate_hydoc":
            _generate(given, tree, builder)
        elif given.mode == "eval_reranker":
            _reranking(given, tree, builder)
        else:
            _retrieval(given, tree, builder)


def _retrieval(given: argparse.Namespace, tree: Tree, builder: Builder) -> None:
    if bool(given.gar_method) != bool(given.gar_llm):
        raise UsageError("--gar_method and --gar_llm go together")
    gar = Gar(given.gar_method, given.gar_llm) if given.gar_method else None
    retriever = builder.retriever(paper_retriever(given.retriever_name, given.pack))
    retriever.check()
    _say_whose("instructions", instructions_of(retriever.spec))
    evaluate = partial(evaluate_retriever, tree, retriever, gar, overwrite=given.overwrite)
    _evaluate(given, tree, given.retriever_name, evaluate)


def _reranking(given: argparse.Namespace, tree: Tree, builder: Builder) -> None:
    name = OLD_RERANKERS.get(given.reranker_name, given.reranker_name)
    reranker = builder.reranker(as_published(rerankers.parse(name), rerankers))
    first = paper_retriever(given.retriever_name, given.pack)
    _say_whose("instructions", instructions_of(first))
    evaluate = partial(
        evaluate_reranker, tree, reranker, first, builder, recall_k=given.recall_k, overwrite=given.overwrite
    )
    _evaluate(given, tree, f"{name} over {given.retriever_name}", evaluate)


def _evaluate(given: argparse.Namespace, tree: Tree, system: str, evaluate: Callable[[Task], Scored]) -> None:
    """Evaluate every task; the last line on standard output holds the scores."""
    done = []
    for task in load_tasks(given.task, tree):
        scored = evaluate(task)
        kept = " (was there already; --overwrite runs it again)" if scored.kept else ""
        print(printable(f"{system} on {task.name}: nDCG@10 {scored.value:.5f}{kept}"), file=sys.stderr)
        done.append(scored.value)
    print("\t".join(str(round(value * 100, 2)) for value in done))


def _say_whose(what: str, whose: str) -> None:
    """Say that a result is not made with the repository's own words."""
    if whose == OWN:
        print(f"{what}: {OWN} (the paper's: r2med protocol fetch {PAPER})", file=sys.stderr)


def _generate(given: argparse.Namespace, tree: Tree, builder: Builder) -> None:
    expander = builder.expander(expander_spec(given.gar_method, given.gar_llm, given.pack))
    if expander.warning:
        print(f"Note: {expander.warning}", file=sys.stderr)
    prompts = whose_prompts(expander)
    _say_whose("prompts", prompts)
    for task in load_tasks(given.task, tree):
        path = tree.texts(task.name, given.gar_method, given.gar_llm)
        asked = generate(path, task, expander, given.gar_llm, prompts=prompts, overwrite=given.overwrite)
        print(printable(f"{task.name}: {f'{asked} texts in' if asked else 'already in'} {path}"))
