"""Results folders and tasks as files that other tools read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..core import DataError, Task, UsageError
from ..core.atomic import atomic_folder, write_bytes
from ..core.trec import write_qrels, write_run
from ..core.untrusted import inside
from ..report.collection import task_behind
from ..results import ResultIndex, ResultStore, StoredResult
from ..results.store import stored_names
from ..tasks import convert, resolve
from .runs import to_dict


class Exported(NamedTuple):
    """One written file or folder."""

    of: str
    kind: str
    path: str


def export_trec(source: str, out: Path, *, systems: Sequence[str] = ()) -> list[Exported]:
    """TREC runs with judgments from a results folder; judgments and topics from tasks."""
    with atomic_folder(out) as folder:
        if (store := results_in(source)) is None:
            _only_results(systems)
            tasks = [ref.load() for ref in resolve(source)]
            made = [one for task in tasks for one in _task_files(task, folder, out, topics=True)]
        else:
            chosen = ResultIndex([store.root]).select(systems)
            made = [_run_file(stored, folder, out) for stored in chosen]
            behind = {s.full_name: task_behind(s.result.task) for s in chosen}
            made += [one for task in behind.values() if task for one in _task_files(task, folder, out, topics=False)]
    return made


def export_beir(source: str, out: Path, *, systems: Sequence[str] = ()) -> list[Exported]:
    """BEIR folders of tasks; runs of a results folder as BEIR's dicts in JSON."""
    if (store := results_in(source)) is None:
        _only_results(systems)
        return [Exported(c.task, "task", c.path) for c in convert(resolve(source), out, to="beir")]
    made = []
    with atomic_folder(out) as folder:
        for stored in ResultIndex([store.root]).select(systems):
            write_bytes(_place(folder, stored, ".json"), msgspec.json.encode(to_dict(stored.whole_run())) + b"\n")
            path = _place(out, stored, ".json")
            made.append(Exported(f"{stored.system} on {stored.full_name}", "run", str(path)))
    return made


def results_in(source: str) -> ResultStore | None:
    """The results folder at `source`; None where it is something else, such as the name of a task."""
    folder = Path(source).expanduser()
    if not folder.is_dir():
        return None
    for path in folder.glob("*/*/*.json"):
        if path.with_suffix(".run.gz").is_file():
            return ResultStore(folder)
    return None


def _run_file(stored: StoredResult, folder: Path, out: Path) -> Exported:
    """A run below `folder`, which will be `out`."""
    write_run(stored.whole_run(), _place(folder, stored, ".run"))
    return Exported(f"{stored.system} on {stored.full_name}", "run", str(_place(out, stored, ".run")))


def _task_files(task: Task, folder: Path, out: Path, *, topics: bool) -> list[Exported]:
    """Judgments and topics of a task below `folder`, which will be `out`."""
    stem = "/".join(stored_names(name)[0] for name in (task.collection, task.name) if name)

    def place(root: Path, suffix: str) -> Path:
        return inside(root, stem + suffix, "task")

    write_qrels(task.qrels, place(folder, ".qrels"))
    made = [Exported(task.full_name, "judgments", str(place(out, ".qrels")))]
    if topics:
        lines = [f"{_field(q.id)}\t{' '.join(q.text.split())}\n" for q in task.queries]
        write_bytes(place(folder, ".topics.tsv"), "".join(lines).encode())
        made.append(Exported(task.full_name, "topics", str(place(out, ".topics.tsv"))))
    return made


def _field(identifier: str) -> str:
    if identifier.split() != [identifier]:
        raise DataError(f"id {identifier!r} holds white space, which TREC files cannot carry")
    return identifier


def _place(root: Path, stored: StoredResult, suffix: str) -> Path:
    return ResultStore(root).path(*stored.key).with_suffix(suffix)


def _only_results(systems: Sequence[str]) -> None:
    if systems:
        raise UsageError("--system chooses among the systems of a results folder; this is a task")
