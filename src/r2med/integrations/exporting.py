"""Results folders and tasks as files that other tools read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..core import DataError, Task, UsageError
from ..core.files import atomic_folder, write_bytes
from ..core.run import write_qrels, write_run
from ..core.untrusted import inside
from ..report.collection import collection_results, task_behind
from ..results import ResultIndex, ResultStore, StoredResult, TaskInfo
from ..results.beside import RUN
from ..results.store import stored_names
from ..tasks import convert, resolve_all
from .runs import to_dict


class Exported(NamedTuple):
    """One written file or folder."""

    of: str
    kind: str
    path: str


def export_trec(source: str, out: Path, *, systems: Sequence[str] = ()) -> list[Exported]:
    """TREC runs with judgments from a results folder; judgments and topics from tasks."""
    results = results_in(source)
    with atomic_folder(out) as folder:
        if results is None:
            _only_results(systems)
            return [one for ref in resolve_all([source]) for one in _task_files(ref.load(), folder, out, topics=True)]
        made, tasks = [], dict[str, TaskInfo]()
        for stored in select_results(results, systems):
            path = _place(stored, ".run")
            write_run(stored.whole_run(), inside(folder, path, "run"))
            made.append(Exported(f"{stored.system} on {stored.full_name}", "run", str(inside(out, path, "run"))))
            tasks[stored.full_name] = stored.result.task
        for name, (task, why) in ((name, task_behind(info)) for name, info in tasks.items()):
            if task is None:
                warnings.warn(f"the judgments of {name} are not written. {why}", stacklevel=2)
            else:
                made += _task_files(task, folder, out, topics=False)
    return made


def export_beir(source: str, out: Path, *, systems: Sequence[str] = ()) -> list[Exported]:
    """BEIR folders of tasks; runs of a results folder as BEIR's dicts in JSON."""
    if (results := results_in(source)) is None:
        _only_results(systems)
        return [Exported(c.task, "task", c.path) for c in convert(resolve_all([source]), out, to="beir")]
    made = []
    with atomic_folder(out) as folder:
        for stored in select_results(results, systems):
            path = _place(stored, ".json")
            write_bytes(inside(folder, path, "run"), msgspec.json.encode(to_dict(stored.whole_run())) + b"\n")
            made.append(Exported(f"{stored.system} on {stored.full_name}", "run", str(inside(out, path, "run"))))
    return made


def select_results(results: Path, systems: Sequence[str] = ()) -> list[StoredResult]:
    """The results of some systems, or of all; those on one task must be of the same data, or are refused."""
    chosen = ResultIndex([results]).select(systems)
    for collection in dict.fromkeys(stored.collection for stored in chosen):
        collection_results(collection, [s for s in chosen if s.collection == collection], strict=True)
    return chosen


def results_in(source: str) -> Path | None:
    """The results folder at `source`; None where it is something else, such as the name of a task."""
    folder = Path(source).expanduser()
    held = folder.glob("*/*/*.json") if folder.is_dir() else ()
    return folder if any(path.with_suffix(RUN).is_file() for path in held) else None


def _task_files(task: Task, folder: Path, out: Path, *, topics: bool) -> list[Exported]:
    """Write the judgments of a task, and its topics, into a folder that will lie at `out`."""
    stem = "/".join(stored_names(name)[0] for name in (task.collection, task.name) if name)
    write_qrels(task.qrels, inside(folder, f"{stem}.qrels", "task"))
    made = [Exported(task.full_name, "judgments", str(inside(out, f"{stem}.qrels", "task")))]
    if topics:
        if bad := next((q.id for q in task.queries if q.id.split() != [q.id]), None):
            raise DataError(f"id {bad!r} holds white space, which TREC files cannot carry")
        lines = [f"{q.id}\t{' '.join(q.text.split())}\n" for q in task.queries]
        write_bytes(inside(folder, f"{stem}.topics.tsv", "task"), "".join(lines).encode())
        made.append(Exported(task.full_name, "topics", str(inside(out, f"{stem}.topics.tsv", "task"))))
    return made


def _place(stored: StoredResult, suffix: str) -> str:
    return ResultStore("").path(*stored.key).with_suffix(suffix).as_posix()


def _only_results(systems: Sequence[str]) -> None:
    if systems:
        raise UsageError("--system chooses among the systems of a results folder; this is a task")
