"""Whether results are true: their runs are scored again against the judgments that are on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from ..core import DataError, IdTable, Qrels, R2MedError, Run, Task, UsageError
from ..results import StoredResult, TaskInfo, TaskResult
from ..results.beside import RUN
from ..scoring import Evaluation, Measure, score
from ..tasks import TaskRef, collections, resolve
from ..tasks.load import every_part
from .collection import task_behind

Status = Literal["verified", "differs", "unverified"]
SAME = 1e-9  # Scores that differ by less were rounded differently.
SHOWN = 20  # Differences that are listed.


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A number that a result states, and what its run and the judgments give."""

    what: str  # The key of a measure, or the name of a count.
    stated: float
    computed: float
    query: str = ""  # Empty for the mean over queries.


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one result."""

    system: str
    task: str  # Its full name.
    status: Status
    reason: str = ""  # Why it differs or cannot be verified.
    differences: list[Difference] = []  # The first of them.


class Judged(NamedTuple):
    """What a run is scored with of the task that a result says it was made on, or why that is not here."""

    qrels: Qrels | None
    doc_ids: IdTable = IdTable(())
    query_ids: IdTable = IdTable(())
    why: str = ""
    other: str = ""  # The task whose data these are, where the result names another.

    @classmethod
    def by(cls, task: Task) -> Judged:
        return cls(task.qrels, task.documents.ids, task.query_ids)


class Judgments:
    """Judgments of this machine by what results say about their tasks; all that were asked for are kept, no texts."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self._folders = tuple(folders)
        self._known: dict[tuple[str, str], Judged] = {}

    def of(self, info: TaskInfo) -> Judged:
        """The judgments of the task of a result."""
        key = (info.full_name, info.fingerprint)
        if key not in self._known:
            self._known[key] = self._find(info)
        return self._known[key]

    def _find(self, info: TaskInfo) -> Judged:
        found = task_behind(info, self._folders)
        if found.task is not None:
            return Judged.by(found.task)
        if info.collection in collections():
            return Judged(None, why=found.why, other=_other_task(info))
        same = self._by_content.get(info.fingerprint)
        return Judged.by(same.load()) if same else Judged(None, why=found.why)

    @cached_property
    def _by_content(self) -> dict[str, TaskRef]:
        """The tasks of the folders, whatever they are called."""
        return {ref.load().fingerprint: ref for folder in self._folders for ref in every_part(folder)}


def _other_task(info: TaskInfo) -> str:
    """Another task of the same collection that holds the data which a result says it was made on."""
    for ref in resolve(info.collection):
        try:
            if ref.name != info.name and ref.load().fingerprint == info.fingerprint:
                return ref.full_name
        except R2MedError:
            continue  # not on this machine
    return ""


def verify(
    stored: Sequence[StoredResult],
    judgments: Judgments,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Verdict]:
    """Score every run again."""
    made = list[Verdict]()
    for one in stored:
        made.append(_verdict(one, judgments))
        on_progress(len(made), len(stored))
    return made


def _verdict(stored: StoredResult, judgments: Judgments) -> Verdict:
    found = judgments.of(stored.result.task)
    if found.qrels is None:
        reason = f"was made on the data of {found.other}" if found.other else found.why
        return _said(stored, "differs" if found.other else "unverified", reason)
    try:
        differences = list(_differences(stored, found, found.qrels))
    except (DataError, UsageError) as error:
        return _said(stored, "differs", str(error).removeprefix(f"{stored.path.with_suffix(RUN)}: "))
    if not differences:
        return _said(stored, "verified")
    first, more = differences[0], len(differences) - 1
    where = f" of query {first.query}" if first.query else ""
    reason = f"{first.what}{where} is {first.computed:.6f}, stated is {first.stated:.6f}"
    return _said(stored, "differs", reason + (f", and {more} more differ" if more else ""), differences[:SHOWN])


def _said(stored: StoredResult, status: Status, reason: str = "", differences: Sequence[Difference] = ()) -> Verdict:
    return Verdict(
        system=stored.system, task=stored.full_name, status=status, reason=reason, differences=list(differences)
    )


def _differences(stored: StoredResult, judged: Judged, qrels: Qrels) -> Iterator[Difference]:
    result = stored.result
    run = stored.whole_run(judged.doc_ids)
    unknown = next((query for query in run.query_ids if query not in judged.query_ids), None)
    if unknown is not None:
        raise DataError(f"its run has a query that the task does not: {unknown!r}")
    evaluation = score(run, qrels, [Measure.parse(key) for key in result.of_queries])
    computed = evaluation.to_dict()
    for key, stated in result.measures.items():
        if key not in computed:
            raise DataError(f"it states a measure that cannot be computed here: {key!r}")
        if abs(stated - computed[key]) > SAME:
            yield Difference(what=key, stated=stated, computed=computed[key])
    for what, found in _facts(run, evaluation, len(judged.doc_ids), qrels).items():
        said = _stated(result, what)
        if said is not None and abs(said - found) > SAME:
            yield Difference(what=what, stated=said, computed=found)
    if run.depth > result.depth:
        yield Difference(what="depth", stated=result.depth, computed=run.depth)
    yield from _queries(stored, evaluation, result.of_queries)


def _facts(run: Run, evaluation: Evaluation, documents: int, qrels: Qrels) -> dict[str, float]:
    """What else a result states about its run and its task."""
    rows = run.query_ids.positions(qrels.query_ids)
    empty = np.append(run.lengths(), 0)[rows] == 0  # the last place stands for a query that the run lacks (-1)
    facts: dict[str, float] = {
        "missing_queries": int(empty.sum()),
        "queries_without_positives": evaluation.without_positives,
        "queries": len(qrels.query_ids),
        "documents": documents,
        "judgments": len(qrels),
    }
    judged = evaluation.judged_at_10
    return facts if judged is None else facts | {"judged_at_10": judged}


def _stated(result: TaskResult, what: str) -> float | None:
    found: float | None = getattr(result.task if what in ("queries", "documents", "judgments") else result, what)
    return found


def _queries(stored: StoredResult, evaluation: Evaluation, keys: Sequence[str]) -> Iterator[Difference]:
    """Scores of single queries that differ."""
    columns = stored.scores(keys)
    if columns.query_ids != tuple(evaluation.query_ids):
        raise DataError("its per-query scores are of other queries than the judged ones")
    by_key = evaluation.per_query.by_key()
    for row, key in enumerate(keys):
        computed = by_key[Measure.parse(key).key]
        for place in np.flatnonzero(np.abs(columns.values[row] - computed) > SAME).tolist():
            stated, found = float(columns.values[row, place]), float(computed[place])
            yield Difference(what=key, stated=stated, computed=found, query=columns.query_ids[place])
