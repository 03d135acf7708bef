"""Stored rankings as a retriever: a TREC file, R2MED's `topk_docs`, a results folder, a Nano candidate config.

run:FILE            one task
run:FOLDER          a file per task: `results/bm25`, or R2MED's `topk_docs/bm25`
nano:CONFIG         the candidates that come with a Nano task
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ..core import DataError, Hit, IdTable, Run, Task, UsageError, fingerprint
from ..core.files import open_regular
from ..core.queries import Queries
from ..core.run import read_run
from ..core.spec import Content, Spec
from ..core.stores import open_path
from ..core.untrusted import file_name
from .contract import Build, Index, Retriever, check_depth, on_task, retrievers

SUFFIXES = (".run.gz", ".run", ".jsonl", ".jsonl.gz", ".trec", ".trec.gz", ".txt")


@retrievers.register("run", argument="file", needs_argument=True)
class StoredRun(Retriever):
    """A ranking that was stored before."""

    kind = "stored"
    prepares = "load"

    def __init__(self, content: Content) -> None:
        self.content, self.path = content, content.located()
        self.spec = Spec("run", content)

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> StoredRun:
        """The stored run of a spec."""
        del build
        assert isinstance(spec.argument, Content)
        return cls(spec.argument)

    def describe(self) -> dict[str, object]:
        """The content, wherever it lies."""
        return {"retriever": "run", "content": self.content.whole}

    def prepare(self, task: Task) -> Index:
        """The stored ranking of a task, checked against its queries and documents."""
        if Content.of(self.path).whole != self.content.whole:
            raise DataError("has changed since this run began", path=self.path)
        path = self._file(task)
        check_result(path, task)
        return StoredRanking(load_candidates(path, task).renamed(self.name), task)

    def _file(self, task: Task) -> Path:
        if self.path.is_file():
            return self.path
        plain, where = {task.name, task.collection}, task.collection or "own"
        for folder in (self.path / file_name(where, known=plain), self.path / file_name(where), self.path):
            for name in (file_name(task.name, known=plain), file_name(task.name)):
                found = [path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()]
                if found[1:]:
                    first, second = (path.name for path in found[:2])
                    raise DataError(f"holds two rankings of {task.full_name}: {first} and {second}", path=folder)
                if found:
                    return found[0]
        raise DataError(f"holds no candidates for {task.full_name} (a file called {task.name}.run.gz)", path=self.path)


@retrievers.register("nano", argument="text", needs_argument=True)
class NanoCandidates(Retriever):
    """The candidates that come with a Nano task."""

    kind = "stored"
    prepares = "load"

    def __init__(self, config: str) -> None:
        self.config = config
        self.spec = Spec("nano", config)

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> NanoCandidates:
        """The candidates of a config."""
        del build
        return cls(str(spec.argument))

    def describe(self) -> dict[str, object]:
        """The config; which candidates it holds depends on the task."""
        return {"retriever": "nano", "config": self.config}

    def task_facts(self, task: Task) -> dict[str, object]:
        """The candidates themselves: the task's own fingerprint does not cover them."""
        run = self._candidates(task)
        return {"candidates": fingerprint("candidates", [list(run.query_ids), run.docs.tolist()])}

    def prepare(self, task: Task) -> Index:
        """The candidates of a task."""
        return StoredRanking(on_task(self._candidates(task), task).renamed(self.name), task)

    def _candidates(self, task: Task) -> Run:
        if task.candidates is None:
            raise UsageError(f"{task.full_name} is no Nano task: it comes without candidates")
        return task.candidates(self.config)


class StoredRanking(NamedTuple):
    """A ranking over a task's own queries."""

    run: Run
    task: Task

    def search(self, queries: Queries, depth: int) -> Run:
        """The stored ranking; it answers no other query than those it was made for."""
        check_depth(depth)
        if queries.ids != self.task.query_ids or queries.originals != self.task.query_texts or not queries.plain:
            raise UsageError(f"{self.run.name} is a stored ranking and answers its own queries only")
        if list(queries.column) != list(queries.originals):
            raise UsageError(f"{self.run.name} is a stored ranking: expanded queries cannot change it")
        return self.run.top(depth)


class ResultTask(msgspec.Struct):
    """What a result says of its task."""

    name: str
    fingerprint: str
    collection: str = ""


class ResultFile(msgspec.Struct):
    """A result that lies beside its run."""

    task: ResultTask


def check_result(path: Path, task: Task) -> None:
    """Refuse a run whose result, the JSON file beside it, is of other data: ids alone do not tell versions apart."""
    stem = next((path.name.removesuffix(suffix) for suffix in SUFFIXES if path.name.endswith(suffix)), path.stem)
    try:
        with open_regular(path.with_name(f"{stem}.json")) as stream:
            found = msgspec.json.decode(stream.read(), type=ResultFile).task
    except (OSError, ValueError, RecursionError):
        return  # there is none, or it is no result
    if found.fingerprint != task.fingerprint:
        made_on = f"{found.collection}/{found.name}" if found.collection else found.name
        raise DataError(f"was made on {made_on}, whose data are not those of {task.full_name} here", path=path)


class TopkLine(msgspec.Struct):
    """A line of `topk_docs/<task>.jsonl`: documents of a query, with scores or only in order."""

    id: str | int
    topk_pid: list[tuple[str | int, float] | str]

    def __post_init__(self) -> None:
        if len({isinstance(entry, str) for entry in self.topk_pid}) > 1:
            raise ValueError("some documents have a score and others none")


def load_candidates(path: str | Path, task: Task, *, other_queries: Literal["refuse", "drop"] = "refuse") -> Run:
    """Candidates from a TREC run or a JSON-lines file, plain or compressed, over the task's documents.

    With `other_queries="drop"` a run of more queries than the task has is no error.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file", path=path)
    run = read_topk(path) if _is_json(path) else read_run(path)
    if other_queries == "drop":
        run = run.for_queries(IdTable(q for q in run.query_ids if q in task.query_ids))
    try:
        return on_task(run, task)
    except DataError as error:
        raise DataError(error.message, path=path) from None


def read_topk(path: Path) -> Run:
    """R2MED's first-stage files: one JSON object a line with `id` and `topk_pid`, pairs of document and score."""
    decode = msgspec.json.Decoder(TopkLine, strict=False).decode
    rankings: dict[str, list[Hit]] = {}
    with open_path(path) as stream:
        for number, line in enumerate(stream, start=1):
            if line.isspace():
                continue
            try:
                record = decode(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f'expected {{"id", "topk_pid"}} ({error})', path=path, line=number) from None
            if str(record.id) in rankings:
                raise DataError(f"query {str(record.id)!r} stands twice", path=path, line=number)
            rankings[str(record.id)] = _hits(record)
    if not rankings:
        raise DataError("holds no candidates", path=path)
    try:
        return Run.from_rankings(rankings, name=path.name.split(".")[0])
    except DataError as error:
        raise DataError(error.message, path=path) from None


def _hits(record: TopkLine) -> list[Hit]:
    size = len(record.topk_pid)
    return [
        Hit(entry, float(size - i)) if isinstance(entry, str) else Hit(str(entry[0]), entry[1])
        for i, entry in enumerate(record.topk_pid)
    ]


def _is_json(path: Path) -> bool:
    with open_path(path) as stream:
        for line in stream:
            if not line.isspace():
                return line.lstrip().startswith(b"{")
    raise DataError("is empty", path=path)
