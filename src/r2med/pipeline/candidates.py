"""Fixed candidates as a first stage: a TREC file, R2MED's `topk_docs`, a results folder, a Nano candidate config."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..core import DataError, Run, Task, UsageError
from ..core.stores import open_store
from ..rerank import load_candidates, on_task
from ..results.store import OWN, read_key, stored_names
from ..tasks.formats import read_candidates

SUFFIXES = (".run.gz", ".run", ".jsonl", ".jsonl.gz", ".trec", ".trec.gz", ".txt")


class Candidates:
    """A retriever that retrieves what was retrieved before.

    `source` is a file (for one task), a folder with a file per task (`results/bm25` or R2MED's `topk_docs/bm25`), or
    `nano:CONFIG` for the candidates that come with a Nano task.
    """

    kind = "stored"

    def __init__(self, source: str) -> None:
        self.source = source
        self.config = source.removeprefix("nano:") if source.startswith("nano:") else ""
        self.path = None if self.config else Path(source).expanduser()
        if self.path is not None and not self.path.exists():
            raise DataError("no such file or folder", path=self.path)
        self.name = f"run~{self.config or _stem(Path(source))}"

    def describe(self) -> dict[str, object]:
        """The source and, for a file, its content."""
        digest = ""
        if self.path is not None and self.path.is_file():
            digest = hashlib.blake2b(self.path.read_bytes(), digest_size=16).hexdigest()
        elif self.path is not None:
            stamps = sorted(
                (p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in self.path.rglob("*") if p.is_file()
            )
            digest = hashlib.blake2b(repr(stamps).encode(), digest_size=16).hexdigest()
        return {"retriever": "candidates", "source": self.config or self.name, "content": digest}

    def retrieve(self, task: Task, *, depth: int = 1000) -> Run:
        """The candidates of a task, checked against its queries and documents."""
        run = on_task(self._nano(task), task) if self.config else load_candidates(self._file(task), task)
        return run.top(depth).renamed(self.name)

    def _nano(self, task: Task) -> Run:
        path, split = task.extra.get("path", ""), task.extra.get("split", "")
        if task.extra.get("layout") != "nano" or not path:
            raise UsageError(f"{task.full_name} is no Nano task: it comes without candidates")
        return read_candidates(open_store(Path(path)), self.config, split, task.documents.ids)

    def _file(self, task: Task) -> Path:
        assert self.path is not None
        if self.path.is_file():
            return self.path
        folders = [self.path / name for name in stored_names(task.collection or OWN)]
        for folder in (*folders, self.path):
            for name in stored_names(task.name):
                for suffix in SUFFIXES:
                    if (found := folder / f"{name}{suffix}").is_file() and _belongs(folder / f"{name}.json", task):
                        return found
        raise DataError(f"holds no candidates for {task.full_name} (a file called {task.name}.run.gz)", path=self.path)


def _belongs(result: Path, task: Task) -> bool:
    """Whether a result that stands beside a run is of this task; where there is none, the run's name must do."""
    return not result.is_file() or read_key(result)[1:] == (task.collection, task.name)


def _stem(path: Path) -> str:
    name = path.resolve().name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name
