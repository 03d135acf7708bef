"""What the files of a results folder hold: a result and how its numbers were made, and how far a run is.

`<task>.json` is a `TaskResult`, with versions, machine and commit. `.progress.json` is written while a run goes, and
read by whoever looks on.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections import Counter
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from .._version import __version__
from ..core import DataError, ResultError
from ..core.files import open_regular, write_bytes
from ..core.portable import process_lives
from ..core.untrusted import inside

SCHEMA = 1
UNCACHED = ("load", "fuse", "score")
"""Stages of which nothing is ever kept."""
OWN_WORDS = "r2med's own"  # The name of instructions and prompts that no protocol has.
MICRO = "recall_micro"  # How measures begin that count positive judgments rather than queries.
PROGRESS = ".progress.json"
KEPT_FINISHED = 200
_LARGEST = 1 << 20
_EVERY = 0.25  # seconds: results that were there already would otherwise cost a write each
PACKAGES = ("numpy", "onnxruntime", "tokenizers", "torch", "transformers", "sentence-transformers")


class SystemInfo(msgspec.Struct, kw_only=True):
    """The system that was run."""

    name: str  # Its printed spec: what results are filed under.
    kind: str  # `lexical`, `dense`, `fused`, `expanded`, `reranked` …
    description: dict[str, object]  # Everything that changes its rankings.
    spec: dict[str, object] = {}
    # What it is made of, as data: `retrievers`, `fusion`, `expander`, `reranker`. Empty in files of the first edition.

    @property
    def own_words(self) -> list[str]:
        """What of a system under a protocol of instructions is in r2med's own words, said plainly."""
        retrievers, first = tables(self.description.get("retrievers")), table(self.description.get("expander"))
        said = ["instructions"] if any(described.get("prompts") == OWN_WORDS for described in retrievers) else []
        methods = [method for method in (first, *tables(first.get("then"))) if method.get("protocol")]
        said += ["prompts"] if any("pack" not in table(method.get("prompts")) for method in methods) else []
        return [f"{what}: {OWN_WORDS}" for what in said]


def table(value: object) -> dict[str, Any]:
    """A table that stands in a result file; empty where something else does, for anybody may have written it."""
    return value if isinstance(value, dict) else {}


def tables(value: object) -> list[dict[str, Any]]:
    """The tables of a list that stands in a result file."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


class TaskInfo(msgspec.Struct, kw_only=True):
    """The task it was run on."""

    name: str  # As in the catalogue, or the folder's name.
    collection: str  # Empty for a folder of one's own.
    family: str  # Which instructions and prompts fit.
    source: str  # Data set on the hub, `built in`, or the folder.
    revision: str  # Pinned commit of the data.
    fingerprint: str  # Hash of all content.
    queries: int  # Judged queries.
    documents: int  # In the corpus.
    judgments: int  # Positive or not.

    @property
    def full_name(self) -> str:
        return f"{self.collection}/{self.name}" if self.collection else self.name


class TaskResult(msgspec.Struct, kw_only=True):
    """One system on one task: `<task>.json`."""

    schema: int  # Version of this layout.
    fingerprint: str  # Hash of all that the result depends on: a changed input is noticed by it.
    system: SystemInfo  # What was run.
    task: TaskInfo  # What it was run on.
    measures: dict[str, float]
    # Mean over judged queries of each measure, 0 to 1; `recall_micro_at_k` counts judgments.
    depth: int  # Documents per query.
    missing_queries: int  # Judged queries for which nothing was retrieved; they score 0.
    queries_without_positives: int  # They score 0 too.
    judged_at_10: float | None = None
    # Mean share of the top ten that somebody judged: what is not judged counts as irrelevant. None in older files.
    seconds: dict[str, float]  # Wall time of each stage.
    saved_seconds: dict[str, float | None] | None = None
    # What a stage found in the cache, and the seconds that making it took: with `seconds`, what a first run takes. None
    # where that was not measured; older files have none at all.
    notes: dict[str, object] = {}
    # What must be said about the number: truncation, expansion, a reranker's effect, tokens, cost.
    environment: dict[str, object] = {}
    # When it was made (UTC), versions, processor, cores, commit, and whether the C extension was used.
    files: dict[str, str] = {}
    # Hashes of the files beside it, by suffix; checked when they are read. Empty in files of the first edition.
    checksum: str = ""
    # Of all the rest, added when the result is stored. A result without a valid checksum is refused.

    def ends_before(self, cutoff: int | None) -> bool:
        """Whether rankings were cut before a measure's cut-off, so that it counts less than there is to find."""
        return cutoff is not None and self.depth < min(cutoff, self.task.documents)

    @property
    def of_queries(self) -> tuple[str, ...]:
        """The measures that each query has a score of."""
        return tuple(key for key in self.measures if not key.startswith(MICRO))

    @property
    def cold_seconds(self) -> dict[str, float | None]:
        """What each stage takes where nothing is in the cache; None where that was not measured."""
        saved = self.saved_seconds
        if saved is None:
            return {stage: seconds if stage in UNCACHED else None for stage, seconds in self.seconds.items()}
        added = {stage: (seconds, saved.get(stage, 0.0)) for stage, seconds in self.seconds.items()}
        return {stage: None if more is None else seconds + more for stage, (seconds, more) in added.items()}

    @property
    def expansions(self) -> list[dict[str, Any]]:
        """What is noted of the texts that queries were expanded to: once, or for each of several retrievers."""
        noted = (self.notes, *(part for part in self.notes.values() if isinstance(part, dict)))
        return [found for part in noted if isinstance(found := part.get("expansion"), dict)]

    @property
    def rerankings(self) -> list[dict[str, Any]]:
        """What is noted of each reranker, in their order."""
        before = self.notes.get("reranked_before")
        noted = [*(before if isinstance(before, list) else ()), self.notes.get("rerank")]
        return [part for part in noted if isinstance(part, dict)]

    @property
    def answers(self) -> list[dict[str, Any]]:
        """What is noted of the answers of chat models behind it: of its expansion, then of each reranker."""
        expanded = [noted for noted in self.expansions[:1] if "store" in noted]
        reranked = (noted.get("answers") for noted in self.rerankings)
        return [*expanded, *(noted for noted in reranked if isinstance(noted, dict))]

    @property
    def generations(self) -> dict[str, int]:
        """How many of these answers were ok, and how many were not, by their status."""
        found: Counter[str] = Counter()
        for noted in self.answers:
            statuses = noted.get("generations")
            for status, count in statuses.items() if isinstance(statuses, dict) else ():
                found[str(status)] += count if isinstance(count, int) else 0
        return dict(found)


class QueryScores(msgspec.Struct, kw_only=True):
    """One line of `<task>.queries.jsonl`."""

    query_id: str  # As in the task.
    measures: dict[str, float]  # Each measure of this query.


def environment() -> dict[str, object]:
    """The machine and the software now; packages that were not imported so far are not listed."""
    from importlib.metadata import PackageNotFoundError, version  # imports the email package

    versions = {"r2med": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        if package.replace("-", "_") in sys.modules:
            try:
                versions[package] = version(package)
            except PackageNotFoundError:
                continue
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions,
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "commit": _commit(),
        "native": "r2med._fast" in sys.modules and "r2med._sparse" in sys.modules,
    }


@cache
def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open() as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@cache
def _commit() -> str | None:
    """Commit of the checkout r2med runs from; None for an installed package."""
    return commit_of(Path(__file__).resolve().parents[3] / ".git")


def commit_of(git: Path) -> str | None:
    """The commit that a repository is at, its branches in files of their own or packed; None where there is none."""
    try:
        head = (git / "HEAD").read_text().strip()
        branch = head.removeprefix("ref: ")
        if branch == head:
            return head
        own = inside(git, branch, "branch")
        if own.is_file():
            return own.read_text().strip()
        packed = (line.partition(" ") for line in (git / "packed-refs").read_text().splitlines())
        return next((commit for commit, _, name in packed if name == branch), None)
    except (OSError, DataError):
        return None


class Step(msgspec.Struct, frozen=True):
    """One system on one task."""

    system: str
    task: str


class Progress(msgspec.Struct, kw_only=True):
    """How far a run is: `.progress.json`. Times are seconds since 1970."""

    started: float
    updated: float
    done: int
    total: int
    current: Step | None = None
    finished: list[Step] = []  # The latest ones only.
    ended: float | None = None
    pid: int = 0
    host: str = ""

    @property
    def running(self) -> bool:
        """Whether somebody is still at it; a run that was killed has no end and no process."""
        if self.ended is not None:
            return False
        if self.host != platform.node() or self.pid <= 0:
            return time.time() - self.updated < 3600
        return process_lives(self.pid)


class ProgressFile:
    """Keeps `.progress.json` up to date. That it cannot be written never stops a run."""

    def __init__(self, root: str | Path) -> None:
        self.path = Path(root) / PROGRESS
        self._state: Progress | None = None
        self._written = 0.0

    def begin(self, total: int) -> None:
        """A run of `total` steps starts."""
        now = time.time()
        self._state = Progress(started=now, updated=now, done=0, total=total, pid=os.getpid(), host=platform.node())
        self._write(force=True)

    def step(self, system: str, task: str, *, finished: bool = False) -> None:
        """A step starts or, with `finished`, is done."""
        state = self._state
        if state is None:
            return
        here = Step(system, task)
        if finished:
            state.done += 1
            state.finished = [*state.finished, here][-KEPT_FINISHED:]
            state.current = None if state.current == here else state.current
        else:
            state.current = here
        self._write(force=not finished)

    def end(self) -> None:
        if self._state is not None:
            self._state.ended, self._state.current = time.time(), None
            self._write(force=True)

    def _write(self, *, force: bool) -> None:
        state, now = self._state, time.time()
        if state is None or not (force or now - self._written >= _EVERY):
            return
        state.updated = self._written = now
        try:
            write_bytes(self.path, msgspec.json.encode(state))
        except ResultError:
            self._state = None


def read_progress(root: str | Path) -> Progress | None:
    """The state of the latest run into a results folder; None where there is none or it cannot be read."""
    path = Path(root) / PROGRESS
    try:
        if path.is_symlink():
            return None
        with open_regular(path) as stream:
            return msgspec.json.decode(stream.read(_LARGEST), type=Progress)
    except (OSError, ValueError, RecursionError):
        return None
