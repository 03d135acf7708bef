"""Reading Nano folders back: tasks, candidates, figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core import DataError, Run, Task, Unavailable
from ..core.stores import open_store
from ..tasks import TaskRef
from ..tasks.formats import candidate_configs, read_candidates
from ..tasks.load import absent_message
from ..tasks.nano.figures import NanoProfile, group
from ..tasks.nano.metadata import Metadata, read_metadata
from ..tasks.nano.names import role_of
from .nano_figures import Measured, measure


class NanoTask(NamedTuple):
    """A task with the candidates that lie beside it."""

    task: Task
    split: str
    runs: dict[str, Run]
    metadata: Metadata | None

    @property
    def safeguarded(self) -> set[str]:
        """Queries whose hybrid list ends in an appended positive, as far as the folder says."""
        return set(self.metadata.safeguarded_queries) if self.metadata else set()

    def measure(self, *, intervals: bool = True) -> Measured:
        """The figures of its profiles."""
        return measure(self.task, self.runs, self.safeguarded, split=self.split, intervals=intervals)


def read_nano(ref: TaskRef) -> NanoTask:
    """Read a task and its candidates; the metadata must belong to the data."""
    if ref.path is None:
        raise Unavailable(absent_message(ref.entry))
    task, store = ref.load(), open_store(ref.path)
    runs = {}
    for config in candidate_configs(store):
        if any(name.startswith((f"{config}/{ref.split}-", f"{config}/{ref.split}.")) for name in store.names()):
            runs[config] = read_candidates(store, config, ref.split, task.documents.ids)
    dense = [config for config in runs if role_of(config) == "dense"]
    if len(dense) > 1:
        raise DataError(f"{ref.split} has several dense profiles ({', '.join(dense)}); keep one", path=ref.path)
    metadata = read_metadata(ref.path, ref.split) if ref.path.is_dir() else None
    if metadata is not None and metadata.fingerprint != task.fingerprint:
        raise DataError(f"metadata/{ref.split}.json was made for other data; build the task again", path=ref.path)
    return NanoTask(task, ref.split, runs, metadata)


def profile(refs: Sequence[TaskRef], *, source: str) -> NanoProfile:
    """The table of a Nano group."""
    read = [read_nano(ref) for ref in refs]
    if bare := next((r for r in read if not r.runs), None):
        raise DataError(f"{bare.task.full_name} has no candidates: it is not a Nano task (r2med nano build makes one)")
    return group([r.measure().figures for r in read], source=source)
