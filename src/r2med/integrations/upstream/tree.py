"""The repository's folders and files: where tasks, texts and scores lie below one root, and whose prompts are used.

Folders are `dataset/<task>`, `results/…` and `output/topk_docs/…`. Instructions and prompts are those of a pack, of a
clone's own files, or what was fetched.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ...core import DataError, Task, UnknownName
from ...core.options import content_at
from ...core.spec import Content
from ...core.untrusted import file_name, inside
from ...expand import Expander
from ...models.prompts import OWN, PAPER, pack_of
from ...pipeline.protocol_pack import fetch_pack
from ...results.protocols import get_protocol
from ...tasks import resolve
from ...tasks.catalogue import TaskEntry, entries, find_tasks

Kind = Literal["base retriever", "gar", "reranker"]
ALL: Final = "All"  # What `--task` calls the eight tasks of R2MED.
PROMPTS: Final = "prompts"
"""Key of a line that says whose prompts it was made with; the repository's own files have none."""
FILE: Final = "src/instrcution.py"
"""What tells a clone of the repository from any other folder with a dataset in it."""


class Tree(NamedTuple):
    """Where everything lies; a name that somebody typed is one folder of it, whatever its characters."""

    root: Path

    @property
    def dataset(self) -> Path:
        return self.root / "dataset"

    def scores(self, kind: Kind, *names: str, task: str) -> Path:
        """Scores of a system: `results/base retriever/<retriever>/<task>.json`, and the like."""
        return inside(below(inside(self.root, f"results/{kind}", "kind"), *names), f"{task}.json", "task")

    def candidates(self, retriever: str, task: str) -> Path:
        """The first hundred documents of each query."""
        return inside(below(self.root / "output" / "topk_docs", retriever), f"{task}.jsonl", "task")

    def texts(self, task: str, method: str, llm: str) -> Path:
        return below(inside(self.dataset, task, "task"), method, llm) / "query_with_hydoc.jsonl"


def below(folder: Path, *names: str) -> Path:
    """A folder below another, one level for each name.

    One that is there under the name itself is used, as the repository's own are; the name of any other is made safe.
    """
    for name in names:
        there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        folder /= file_name(name, known=there)
    return folder


def find_tree(root: str | None) -> Tree:
    """The root that is named; else this folder or, where one has changed into the repository's `src`, its parent."""
    candidates = [Path(root).expanduser()] if root else [Path.cwd(), Path.cwd().parent]
    for candidate in candidates:
        if (candidate / "dataset").is_dir():
            return Tree(candidate)
    hint = "put R2MED's task folders there, or try: r2med data convert mini dataset --to r2med"
    raise DataError(f"there is no dataset folder in {candidates[0]} ({hint})")


def load_tasks(asked: str, tree: Tree) -> Iterator[Task]:
    """The tasks, one at a time; all of them are known to be there before the first is read."""
    for name in find_names(asked, tree):
        folder = inside(tree.dataset, name, "task")
        refs = resolve(str(folder.resolve()))
        if len(refs) != 1:
            raise DataError(f"holds {len(refs)} tasks, not one", path=folder)
        try:
            family = find_tasks(name)[0].family  # decides which instructions it gets
        except UnknownName:
            family = ""
        yield replace(refs[0].load(), name=name, family=family)


def find_names(asked: str, tree: Tree) -> list[str]:
    """The task folders that `--task` stands for: `All`, a folder's name, or any other spelling of an R2MED task."""
    if asked.casefold() == ALL.casefold():
        return [_folder(entry, tree) for entry in entries("r2med")]
    there = sorted(p.name for p in tree.dataset.iterdir() if p.is_dir())
    if asked in there:
        return [asked]
    try:
        return [_folder(entry, tree) for entry in find_tasks(asked)]
    except UnknownName:
        raise UnknownName("task", asked, there, hint=f"(in {tree.dataset}: {', '.join(there) or 'nothing'})") from None


def _folder(entry: TaskEntry, tree: Tree) -> str:
    for name in (entry.name, *entry.aliases):
        if inside(tree.dataset, name, "task").is_dir():
            return name
    raise DataError(f"has no task {entry.name}", path=tree.dataset)


def find_prompts(tree: Tree, given: str | None) -> Content | None:
    """The pack that was named; otherwise a clone's own files are read into R2MED_HOME, where the protocol finds them.

    Files of a clone that are not those of the published commit are named on standard error, and not used.
    """
    if given:
        return content_at(given, "prompts")
    protocol = get_protocol(PAPER)
    here = pack_of(PAPER)
    if (tree.root / FILE).is_file() and (here is None or here.whole != protocol.prompts):
        try:
            fetch_pack(protocol, tree.root)
        except DataError as why:
            print(f"r2med: {why}", file=sys.stderr)
    return None


def whose_prompts(expander: Expander) -> str:
    """Whose prompts texts are generated with; empty where they are the repository's own."""
    pack = expander.spec.get("prompts")
    if not isinstance(pack, Content):
        return OWN
    return "" if pack.whole == get_protocol(PAPER).prompts else f"{pack.label}~{pack.whole}"


def prompts_of(path: Path) -> str:
    """Whose prompts a file of generated texts was made with; empty: the repository's, or not stated."""
    try:
        with path.open("rb") as stream:
            first = json.loads(stream.readline() or b"{}")
    except (OSError, ValueError, RecursionError):
        return ""
    return str(first.get(PROMPTS, "")) if isinstance(first, dict) else ""
