"""The repository's folders: `dataset/<task>`, `results/…`, `output/topk_docs/…`, all below one root."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..core import DataError, Task, UnknownName
from ..results.store import slug
from ..tasks import resolve
from ..tasks.catalogue import TaskEntry, entries, find_tasks
from .names import ALL

HYDOC = "query_with_hydoc.jsonl"


class Tree(NamedTuple):
    """Where everything lies."""

    root: Path

    @property
    def dataset(self) -> Path:
        """Task folders."""
        return self.root / "dataset"

    def base(self, retriever: str, task: str) -> Path:
        """Scores of a retriever."""
        return self.root / "results" / "base retriever" / slug(retriever) / f"{task}.json"

    def gar(self, method: str, llm: str, retriever: str, task: str) -> Path:
        """Scores of a retriever with generated texts."""
        return self.root / "results" / "gar" / method / slug(llm) / slug(retriever) / f"{task}.json"

    def reranker(self, reranker: str, retriever: str, top_k: int, task: str) -> Path:
        """Scores of a reranker over a retriever, as the published tree files them.

        The repository's script leaves the retriever out: there, one retriever's scores overwrite another's.
        """
        return self.root / "results" / "reranker" / slug(reranker) / slug(retriever) / f"top_{top_k}" / f"{task}.json"

    def topk(self, retriever: str, task: str) -> Path:
        """The first hundred documents of each query."""
        return self.root / "output" / "topk_docs" / slug(retriever) / f"{task}.jsonl"

    def hydoc(self, task: str, method: str, llm: str) -> Path:
        """Generated texts."""
        return self.dataset / task / method / slug(llm) / HYDOC


def find_tree(root: str | None) -> Tree:
    """The root that is named; else this folder or, where one has changed into the repository's `src`, its parent."""
    candidates = [Path(root).expanduser()] if root else [Path.cwd(), Path.cwd().parent]
    for candidate in candidates:
        if (candidate / "dataset").is_dir():
            return Tree(candidate)
    hint = "put R2MED's task folders there, or try: r2med data convert mini dataset --to r2med"
    raise DataError(f"there is no dataset folder in {candidates[0]} ({hint})")


def find_names(asked: str, tree: Tree) -> list[str]:
    """The task folders that `--task` stands for: `All`, a folder's name, or any other spelling of an R2MED task."""
    if asked.casefold() == ALL.casefold():
        return [_folder(entry, tree) for entry in entries("r2med")]
    there = sorted(p.name for p in tree.dataset.iterdir() if p.is_dir())
    if asked in there:
        return [asked]
    try:
        found = find_tasks(asked)
    except UnknownName:
        raise UnknownName("task", asked, there, hint=f"(in {tree.dataset}: {', '.join(there) or 'nothing'})") from None
    return [_folder(entry, tree) for entry in found]


def _folder(entry: TaskEntry, tree: Tree) -> str:
    for name in (entry.name, *entry.aliases):
        if (tree.dataset / name).is_dir():
            return name
    raise DataError(f"has no task {entry.name}", path=tree.dataset)


def load_tasks(asked: str, tree: Tree) -> Iterator[Task]:
    """The tasks, one at a time; all of them are known to be there before the first is read."""
    for name in find_names(asked, tree):
        refs = resolve(str((tree.dataset / name).resolve()))
        if len(refs) != 1:
            raise DataError(f"holds {len(refs)} tasks, not one", path=tree.dataset / name)
        yield replace(refs[0].load(), name=name, family=_family(name))


def _family(name: str) -> str:
    """Which instructions a task gets: those of the R2MED task of its name."""
    try:
        return find_tasks(name)[0].family
    except UnknownName:
        return ""
