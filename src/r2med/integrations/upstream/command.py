"""Flags in, files and a line of scores out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn

from ..core import R2MedError, UsageError
from ..retrieve import Retriever
from .generating import generate_task, make_expander
from .names import ALL, LLMS, METHODS, MODES, RECALL_K, RERANKERS, RETRIEVERS, reranker_name
from .reranking import rerank_task
from .retrieval import Gar, Scored, evaluate_task, paper_retriever
from .tree import Tree, find_tree, load_tasks

PROGRAM = "python -m r2med.upstream"
NEEDS = {
    "eval_retrieval": ("retriever_name",),
    "eval_reranker": ("retriever_name", "reranker_name"),
    "generate_hydoc": ("gar_method", "gar_llm"),
}


class Parser(argparse.ArgumentParser):
    """One that tells a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        """Raise it."""
        raise UsageError(f"{message} ({PROGRAM} --help)")


def parser() -> argparse.ArgumentParser:
    """The repository's flags, and four of ours at the end."""
    made = Parser(prog=PROGRAM, description="The commands of the R2MED repository, on r2med.", allow_abbrev=False)
    add = made.add_argument
    add("--mode", required=True, choices=MODES)
    add("--task", required=True, help=f"{ALL}, or a folder in dataset/ (Biology, MedQA-Diag, …)")
    add("--retriever_name", default="", help=f"{', '.join(RETRIEVERS)}, or any retriever of r2med")
    add("--reranker_name", default="", help=f"{', '.join(RERANKERS)}, or any reranker of r2med")
    add("--recall_k", type=int, default=RECALL_K[0], choices=RECALL_K, help="documents to rerank (default: 10)")
    add("--gar_method", default="", choices=("", *METHODS), help="how texts are generated")
    add("--gar_llm", default="", help=f"{', '.join(LLMS)}, or any LLM of r2med")
    ours = made.add_argument_group("not in the repository")
    ours.add_argument("--root", help="folder that holds dataset/ (default: this one or the one above)")
    ours.add_argument("--overwrite", action="store_true", help="run again what has results")
    ours.add_argument("--device", help="cpu, cuda, cuda:1 …")
    ours.add_argument("--trust_remote_code", action="store_true", help="let a model run code of its own (nv does)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; an error of the user's is one line and an exit code."""
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
    """One mode."""
    missing = [f"--{name}" for name in NEEDS[given.mode] if not getattr(given, name)]
    if missing:
        raise UsageError(f"--mode {given.mode} needs {' and '.join(missing)}")
    tree = find_tree(given.root)
    if given.mode == "generate_hydoc":
        _generate(given, tree)
        return
    options: dict[str, Any] = {"trust_remote_code": given.trust_remote_code}
    if given.device:
        options["device"] = given.device
    done = (_retrieval if given.mode == "eval_retrieval" else _reranking)(given, tree, options)
    print("\t".join(str(round(scored.value * 100, 2)) for scored in done))


def _retrieval(given: argparse.Namespace, tree: Tree, options: dict[str, Any]) -> list[Scored]:
    if bool(given.gar_method) != bool(given.gar_llm):
        raise UsageError("--gar_method and --gar_llm go together")
    gar = Gar(given.gar_method, given.gar_llm) if given.gar_method else None
    retriever = paper_retriever(given.retriever_name, **options)
    done = []
    for task in load_tasks(given.task, tree):
        done.append(evaluate_task(tree, task, retriever, given.retriever_name, gar, overwrite=given.overwrite))
        _say(given.retriever_name, task.name, done[-1])
    return done


def _reranking(given: argparse.Namespace, tree: Tree, options: dict[str, Any]) -> list[Scored]:
    from ..rerank import get_reranker

    @cache
    def first() -> Retriever:
        return paper_retriever(given.retriever_name, **options)

    name = reranker_name(given.reranker_name)
    reranker = get_reranker(name, **options)
    done = []
    for task in load_tasks(given.task, tree):
        scored = rerank_task(
            tree,
            task,
            first,
            reranker,
            retriever_name=given.retriever_name,
            reranker_name=name,
            recall_k=given.recall_k,
            overwrite=given.overwrite,
        )
        done.append(scored)
        _say(f"{name} over {given.retriever_name}", task.name, scored)
    return done


def _generate(given: argparse.Namespace, tree: Tree) -> None:
    expander = make_expander(given.gar_method, given.gar_llm)
    try:
        if expander.warning:
            print(f"Note: {expander.warning}", file=sys.stderr)
        for task in load_tasks(given.task, tree):
            asked = generate_task(
                tree, task, expander, given.gar_method, given.gar_llm, overwrite=given.overwrite
            )  # fmt: skip
            path = tree.hydoc(task.name, given.gar_method, given.gar_llm)
            print(f"{task.name}: {f'{asked} texts in' if asked else 'already in'} {path}")
    finally:
        if (chat := getattr(expander, "chat", None)) is not None:
            chat.close()


def _say(system: str, task: str, scored: Scored) -> None:
    kept = " (was there already; --overwrite runs it again)" if scored.kept else ""
    print(f"{system} on {task}: nDCG@10 {scored.value:.5f}{kept}", file=sys.stderr)
