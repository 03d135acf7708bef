"""Results that others made: their runs are scored again, and bundles are gathered as submissions to a public board.

A run is scored against the judgments that are on this machine. A result whose scores are not true is never shown. Where
the judgments of a task are at hand, a result on other data of that task is not shown either, so that strangers cannot
outvote it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from ..core import DataError, IdTable, Qrels, R2MedError, Run, Task, UsageError
from ..core.parallel import in_processes
from ..core.untrusted import file_name, inside
from ..results import ResultIndex, StoredResult, TaskInfo, TaskResult
from ..results.beside import RUN
from ..results.bundle import BundledSystem, Manifest, Unpacked, without_paths
from ..scoring import Evaluation, Measure, score
from ..scoring.evaluation import judged_without_results
from ..tasks import TaskRef, collections, resolve
from ..tasks.load import every_part
from .collection import task_behind

Status = Literal["verified", "differs", "unverified"]
SAME = 1e-9  # Scores that differ by less were rounded differently.
SHOWN = 20  # Differences that are listed.
Unpack = Callable[[Path, Path], Unpacked]
"""From a bundle and an empty folder to the bundle unpacked and checked; a higher room knows how."""


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
    facts: dict[str, float] = {
        "missing_queries": judged_without_results(run, qrels),
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


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """One bundle on the board."""

    id: str  # SHA-256 of its manifest.
    name: str  # Its title, or the name of its file; with a part of its id where two share one.
    slug: str  # The name in addresses.
    file: str  # What the file was called.
    manifest: Manifest
    verdicts: list[Verdict]  # Of every result, shown or not.

    @property
    def status(self) -> Status:
        """The worst of its verdicts."""
        return worst(verdict.status for verdict in self.verdicts)


class Submitted(NamedTuple):
    """One system on the board, and the submission that it came with."""

    submission: Submission
    system: BundledSystem
    verdicts: dict[str, Verdict]  # By the full name of the task.

    def status(self, tasks: Iterable[str]) -> Status:
        """Whether all its results on some tasks are verified."""
        return worst(self.verdicts[task].status for task in tasks if task in self.verdicts)


class Gathered(NamedTuple):
    """Everything that a board shows."""

    submissions: list[Submission]  # By date and id, oldest first.
    results: ResultIndex
    systems: dict[str, Submitted]  # By the label under which results are shown.
    left_out: list[str]
    false: int  # How many results are left out because their scores are not true.


def worst(statuses: Iterable[Status]) -> Status:
    """The status of a whole."""
    found = set(statuses)
    return "differs" if "differs" in found else "unverified" if "unverified" in found or not found else "verified"


class Checked(NamedTuple):
    """One result of a bundle, and what became of it."""

    path: Path  # Of the result file, unpacked.
    fingerprint: str  # Of the data that it was made on.
    verdict: Verdict


class CheckedBundle(NamedTuple):
    """A bundle that lies unpacked in a folder and contradicts itself nowhere."""

    path: Path  # Of the bundle.
    root: Path  # The folder of its results.
    id: str
    manifest: Manifest
    results: list[Checked]


class Checker:
    """Unpacks bundles and scores their runs again; judgments are read once."""

    def __init__(self, unpack: Unpack, folders: Sequence[Path]) -> None:
        self._unpack, self._judgments = unpack, Judgments(folders)

    def __call__(self, job: tuple[Path, Path]) -> CheckedBundle:
        """Unpack and check a bundle; the second path is an empty folder."""
        bundle = self._unpack(*job)
        verdicts = verify(bundle.results, self._judgments)
        checked = [
            Checked(stored.path, stored.result.task.fingerprint, verdict)
            for stored, verdict in zip(bundle.results, verdicts, strict=True)
        ]
        return CheckedBundle(bundle.path, bundle.results[0].root, bundle.id, bundle.manifest, checked)


def gather(
    paths: Sequence[Path],
    scratch: Path,
    unpack: Unpack,
    folders: Sequence[Path],
    *,
    workers: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Gathered:
    """Unpack bundles below a scratch folder, check them, and put aside what must not be shown.

    `folders` are looked in for judgments, too. The number of workers changes nothing but the time.
    """
    left_out: list[str] = []
    bundles: dict[str, CheckedBundle] = {}
    jobs = [(path, inside(scratch, f"{number}", "folder")) for number, path in enumerate(paths)]
    checked = in_processes(jobs, partial(Checker, unpack, folders), workers)
    for done, bundle in enumerate(checked, start=1):
        if bundle.id in bundles:
            left_out.append(f"{bundle.path.name} is the same bundle as {bundles[bundle.id].path.name}")
        else:
            bundles[bundle.id] = bundle
        on_progress(done, len(paths))
    ordered = sorted(bundles.values(), key=lambda bundle: (bundle.manifest.date, bundle.id))
    submissions = _submissions(ordered)
    results = [(made, one) for made, bundle in zip(submissions, ordered, strict=True) for one in bundle.results]
    true_data: dict[str, set[str]] = {}
    for _, one in results:
        if one.verdict.status == "verified":
            true_data.setdefault(one.verdict.task, set()).add(one.fingerprint)
    for made, one in results:
        if why := _why_not(one, true_data.get(one.verdict.task)):
            place = f"{one.verdict.system} on {one.verdict.task} ({made.name})"
            left_out.append(f"{place} is not shown: {without_paths(why)}")
            one.path.unlink()
    roots = [bundle.root for bundle in ordered]
    index = ResultIndex(roots, [made.name for made in submissions], every=math.inf)
    index.refresh()
    by_root = dict(zip(roots, submissions, strict=True))
    systems = {stored.label: _submitted(by_root[stored.root], stored.system) for stored in index.stored}
    false = sum(one.verdict.status == "differs" for _, one in results)
    return Gathered(submissions, index, systems, left_out, false)


def _submissions(bundles: Sequence[CheckedBundle]) -> list[Submission]:
    """Every bundle under a name of its own."""
    called = [bundle.manifest.title or bundle.path.name.removesuffix(".zip") for bundle in bundles]
    often = Counter(name.casefold() for name in called)
    made = []
    for bundle, plain in zip(bundles, called, strict=True):
        name = plain if often[plain.casefold()] == 1 else f"{plain} {bundle.id[:8]}"
        said = (one.verdict for one in bundle.results)
        verdicts = [msgspec.structs.replace(verdict, reason=without_paths(verdict.reason)) for verdict in said]
        made.append(
            Submission(
                id=bundle.id, name=name, slug=file_name(f"{name} {bundle.id}"), file=bundle.path.name,
                manifest=bundle.manifest, verdicts=verdicts,
            )
        )  # fmt: skip
    return made


def _why_not(checked: Checked, true_data: set[str] | None) -> str:
    """Why a result must not be shown; empty where it may."""
    if checked.verdict.status == "differs":
        return checked.verdict.reason
    if true_data and checked.fingerprint not in true_data:
        return "it was made on other data of this task than those that are verified here"
    return ""


def _submitted(submission: Submission, system: str) -> Submitted:
    bundled = next(one for one in submission.manifest.systems if one.name == system)
    return Submitted(submission, bundled, {v.task: v for v in submission.verdicts if v.system == system})
