"""The results of one collection: systems × tasks, and their per-query scores side by side."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core import DataError, R2MedError, ResultError, Task, UnknownName, UsageError
from ..results import ResultIndex, StoredResult, TaskInfo, TaskResult
from ..results.store import OWN, collection_slug
from ..scoring import CUTOFFS, Measure
from ..scoring.evaluation import ScoreSet, TaskScores
from ..scoring.measures import Float64
from ..tasks import TaskRef, collections, resolve
from ..tasks.catalogue import Place, fold, remembered
from ..tasks.load import every_part
from ..tasks.own import own_collection, own_collections

ORDER = ("r2med", "nano", "mini", "mini-dev", "mini@1")
MEASURES = tuple(
    Measure.parse(m)
    for m in ("nDCG@10", "nDCG@5", "nDCG@100", "AP@10", "RR@10", "P@10", "R@10", "R@100", "R@1000", "hit@1", "hit@10")
)
"""The measures that pages show; their per-query scores are read together."""
MOST_CELLS = 5_000_000
"""Per-query scores of one measure: of more systems × queries, pages show the systems that are looked at."""
_KEYS = tuple(measure.key for measure in MEASURES)


class TaskMatrix(NamedTuple):
    """One measure on one task: a row per system, a column per query."""

    task: str
    systems: tuple[str, ...]
    query_ids: tuple[str, ...]
    scores: Float64

    def rows(self, systems: Sequence[str]) -> Float64:
        return self.scores[[self.systems.index(name) for name in systems]]


@dataclass(frozen=True, eq=False)
class CollectionResults:
    """What there is of one collection."""

    collection: str
    whole: tuple[str, ...]  # Every task of the collection, in the order of the paper or as they were added.
    tasks: tuple[str, ...]  # The tasks that have results.
    infos: dict[str, TaskInfo]
    systems: dict[str, dict[str, StoredResult]]
    """System to task to result. Results on other data than most are left out and named in `problems`."""
    problems: tuple[str, ...] = ()
    unread: dict[StoredResult, str] = field(default_factory=dict)
    """Results whose per-query scores could not be read, and why."""

    @property
    def title(self) -> str:
        return collection_title(self.slug)

    @property
    def slug(self) -> str:
        """Name in addresses and options."""
        return collection_slug(self.collection)

    def get(self, system: str, task: str) -> StoredResult | None:
        return self.systems.get(system, {}).get(task)

    def results(self, system: str) -> list[TaskResult]:
        """The results of a system, in the order of the paper."""
        return [self.systems[system][task].result for task in self.tasks if task in self.systems[system]]

    def affordable(self, task: str) -> bool:
        """Whether the per-query scores of all systems on a task can be held at once."""
        return len(self.systems) * self.infos[task].queries <= MOST_CELLS

    def matrix(
        self, task: str, measure: Measure, systems: Iterable[str] | None = None, *, strict: bool = False
    ) -> TaskMatrix | None:
        """Scores of a task whose queries are the same under all systems; None where nothing can be read.

        A system whose scores cannot be read, or are of other queries, is left out; with `strict` it is an error.
        """
        names, rows, ids = list[str](), list[Float64](), tuple[str, ...]()
        for system in self.systems if systems is None else systems:
            stored = self.get(system, task)
            if stored is None:
                continue
            try:
                found, row = _row(stored, measure)
                if names and found != ids:
                    row = _in_order(row, found, ids, f"{names[0]!r} and {system!r}", stored.full_name)
            except R2MedError as error:
                if strict:
                    raise
                self.unread[stored] = str(error)
                continue
            ids = ids or found
            names.append(system)
            rows.append(row)
        return TaskMatrix(task, tuple(names), ids, np.stack(rows)) if rows else None

    def score_set(
        self, measure: Measure, systems: Sequence[str], tasks: Sequence[str] | None = None, *, strict: bool = False
    ) -> ScoreSet | None:
        """Some systems on the tasks that all of them have; None where there is no such task."""
        found = []
        for task in self.tasks if tasks is None else tasks:
            if all(task in self.systems[system] for system in systems):
                matrix = self.matrix(task, measure, systems, strict=strict)
                if matrix is not None and len(matrix.systems) == len(systems):
                    found.append(TaskScores(self.infos[task].full_name, matrix.query_ids, matrix.scores))
        if not found:
            return None
        return ScoreSet(tuple(systems), tuple(found), max(len(self.whole), len(found)), measure)


def _row(stored: StoredResult, measure: Measure) -> tuple[tuple[str, ...], Float64]:
    if measure.key not in stored.result.measures:
        place, cuts = f"{stored.label} on {stored.full_name}", ", ".join(map(str, CUTOFFS))
        raise UsageError(f"{place}: no {measure} is stored (cut-offs: {cuts})")
    keys = _KEYS if measure in MEASURES else (measure.key,)
    columns = stored.scores(keys)
    return columns.query_ids, columns.values[keys.index(measure.key)]


def _in_order(row: Float64, given: tuple[str, ...], wanted: tuple[str, ...], which: str, task: str) -> Float64:
    """A row of scores with its queries in another order."""
    places = {query_id: i for i, query_id in enumerate(given)}
    if places.keys() != set(wanted):
        raise ResultError(f"{which} have scores of different queries on {task}: run one of them again")
    return row[[places[query_id] for query_id in wanted]]


def collection_results(collection: str, stored: Sequence[StoredResult], *, strict: bool = False) -> CollectionResults:
    """Group the results of one collection.

    A result that cannot be trusted, or was made on other data than most, is left out; with `strict` it is an error.
    Of a collection of one's own, results on what its tasks are now stay, and others are left out.
    """
    problems: list[str] = []
    told: dict[StoredResult, TaskInfo] = {}
    of_task: dict[str, list[StoredResult]] = {}
    for item in stored:
        try:
            told[item] = item.result.task
            of_task.setdefault(item.task, []).append(item)
        except ResultError as error:
            if strict:
                raise
            problems.append(str(error))
    added = _added_tasks(collection)
    usual = {task: _usual(items, told, added.get(task), strict=strict) for task, items in of_task.items()}
    if added and any(added.get(item.task) == info.fingerprint for item, info in told.items()):
        usual = {task: added.get(task, "") for task in usual}
    elif added and told:
        problems.append(f"the results on {collection} were made on other data than it holds here now; run them again")
        added = {}
    systems: dict[str, dict[str, StoredResult]] = {}
    infos: dict[str, TaskInfo] = {}
    for item, info in told.items():
        if info.fingerprint != usual[item.task]:
            problems.append(_left_out(item, added))
            continue
        systems.setdefault(item.label, {})[item.task] = item
        infos.setdefault(item.task, info)
    whole = tuple(added) or tuple(task_names(collection, list(infos)))
    present = tuple(t for t in whole if t in infos) + tuple(t for t in infos if t not in whole)
    return CollectionResults(collection, whole, present, infos, systems, tuple(problems))


def _added_tasks(collection: str) -> dict[str, str]:
    """The tasks of a collection of one's own and their fingerprints; none where it was not added on this machine."""
    try:
        made = own_collection(collection) if collection not in collections() else None
    except DataError:  # whoever names the collection is told
        return {}
    return {task.name: task.fingerprint for task in made.tasks} if made and made.name == collection else {}


def _left_out(item: StoredResult, added: dict[str, str]) -> str:
    where = f"{item.label} on {item.full_name}"
    if added and item.task not in added:
        return f"{where} is left out: {item.collection} has no task {item.task} here"
    than = f"{item.full_name} holds here now" if added else "most"
    return f"{where} was made on other data than {than}; run it again"


def _usual(items: list[StoredResult], told: dict[StoredResult, TaskInfo], current: str | None, *, strict: bool) -> str:
    """The data that most results of a task were made on; `current` is what the task holds here now, where known."""
    counts = Counter(told[item].fingerprint for item in items)
    if strict and len(counts) > 1:
        first = next((item for item in items if told[item].fingerprint == current), items[0])
        other = next(item for item in items if told[item].fingerprint != told[first].fingerprint)
        again = f"{other.label!r}" if current in counts else "one of them"
        raise ResultError(
            f"{first.label!r} and {other.label!r} were scored on different data of {first.full_name} (fingerprints "
            f"{told[first].fingerprint[:8]} and {told[other].fingerprint[:8]}): run {again} again"
        )
    return counts.most_common(1)[0][0]


def all_collections(index: ResultIndex) -> dict[str, CollectionResults]:
    """Every collection that has results, by its name in addresses, the largest first."""
    grouped: dict[str, list[StoredResult]] = {}
    for stored in index.stored:
        grouped.setdefault(stored.collection, []).append(stored)
    order = sorted(grouped, key=lambda c: (ORDER.index(c) if c in ORDER else len(ORDER), c))
    return {collection_slug(c): collection_results(c, grouped[c]) for c in order}


def collection_title(slug: str) -> str:
    """A collection's name for people."""
    known = collections().get(slug)
    return known.title if known else "Folders of your own" if slug == OWN else slug


def task_names(collection: str, present: Sequence[str]) -> list[str]:
    """All tasks of a collection in the order of the paper; for folders of one's own, those that are there."""
    known = collections().get(collection)
    return [entry.name for entry in known.tasks] if known else sorted(present)


def the_collection(index: ResultIndex, asked: str = "") -> str:
    """The collection to look at, as results name it: the one asked for, else the one that has results."""
    if asked:
        index.refresh()
        return collection_named(asked, dict.fromkeys(stored.slug for stored in index.stored))
    found = list(dict.fromkeys(stored.slug for stored in index.select()))
    if len(found) > 1:
        raise UsageError(f"there are results of {', '.join(found)}: say which with --collection")
    return found[0]


def collection_named(asked: str, present: Collection[str]) -> str:
    """A collection by its name, in any spelling: one of those that have results, else one that could have some."""
    known = dict.fromkeys((*present, *collections(), OWN))
    alike = (name for name in known if fold(name) == fold(asked))
    if found := asked if asked in known else next(alike, None):
        return found
    if made := own_collection(asked):
        return made.name
    there = ", ".join(present) or "none"
    raise UnknownName("collection", asked, known, hint=f"(there are results of {there})")


class SideBySide(NamedTuple):
    """Scores of the tasks that all systems have, the results behind them, and tasks that only some have."""

    scores: ScoreSet
    results: CollectionResults
    left_out: tuple[str, ...]


def side_by_side(
    index: ResultIndex, systems: Sequence[str], measure: Measure, *, collection: str = "", tasks: Iterable[str] = ()
) -> SideBySide:
    """Per-query scores of systems on the tasks of one collection that all of them have; `tasks` narrows further.

    Without names: every system. The same queries on the same data, or a refusal that names both systems.
    """
    chosen = index.select(systems, collection=collection and the_collection(index, collection))
    by_label: dict[str, set[str]] = {}
    for stored in chosen:
        by_label.setdefault(stored.label, set()).add(stored.full_name)
    wanted, shared = set(tasks), set.intersection(*by_label.values())
    if absent := sorted(wanted - shared):
        raise UsageError(f"not every system has results on {', '.join(absent)}")
    if not shared:
        raise UsageError(f"{' and '.join(by_label)} have no task in common")
    several = sorted({s.slug for s in chosen if s.full_name in (wanted or shared)})
    if len(several) > 1:
        raise UsageError(
            f"the systems share tasks of several collections ({', '.join(several)}): choose by --collection"
        )
    inside = [s for s in chosen if s.slug == several[0]]
    results = collection_results(inside[0].collection, inside, strict=True)
    in_order = [t for t in results.tasks if results.infos[t].full_name in (wanted or shared)]
    if not in_order:  # the data of every task that they share have changed
        raise ResultError("; ".join(results.problems))
    check_depths(results, in_order, measure)
    scores = results.score_set(measure, list(by_label), in_order, strict=True)
    assert scores is not None
    whole = max(scores.of_tasks, len(results.tasks))
    left_out = tuple(results.infos[t].full_name for t in results.tasks if t not in in_order)
    return SideBySide(replace(scores, of_tasks=whole), results, left_out)


def check_depths(results: CollectionResults, tasks: Iterable[str], measure: Measure) -> None:
    """Refuse rankings of a task of which one ends before the measure's cut-off and before another."""
    for task in tasks:
        stored = [of_task[task] for of_task in results.systems.values() if task in of_task]
        least, most = (end(stored, key=lambda item: item.result.depth) for end in (min, max))
        if least.result.depth < most.result.depth and least.result.ends_before(measure.cutoff):
            raise ResultError(
                f"{least.label!r} was ranked to depth {least.result.depth} on {least.full_name} and {most.label!r} to "
                f"{most.result.depth}, so that {measure} counts less of the first: run one of them again, or leave it "
                f"out"
            )


class Behind(NamedTuple):
    """The task that a result was made on, or why it is not here."""

    task: Task | None
    why: str = ""


def task_behind(info: TaskInfo, folders: Iterable[Path] = ()) -> Behind:
    """The task that a result was made on, where it is on this machine and unchanged.

    Read are tasks of the catalogue, the folder that the same content was last run from on this machine, collections of
    one's own, and some folders. A result also says which folder it was made from, but anybody can write that: it is
    never read.
    """
    why = "The folder of its task is not known on this machine."
    for find in _places(info, folders):
        try:
            for ref in find():
                with warnings.catch_warnings():  # what is odd about it was told when it was run
                    warnings.simplefilter("ignore")
                    task = ref.load()
                if task.fingerprint == info.fingerprint:
                    return Behind(task)
                where = info.full_name if ref.entry else ref.path
                why = f"{where} on this machine is not what these results were made on."
        except R2MedError as error:
            why = f"{error}."
    return Behind(None, why)


def _at(info: TaskInfo, place: Place) -> TaskRef:
    return TaskRef(info.name, info.collection, None, Path(place.path), place.split, place.judged)


def _places(info: TaskInfo, folders: Iterable[Path]) -> Iterator[Callable[[], list[TaskRef]]]:
    """Where to look for a task, one place after the other."""
    if info.collection in collections():
        yield lambda: resolve(info.full_name)
        return
    if place := remembered(info.fingerprint):
        yield lambda: [_at(info, place)]
    yield lambda: [_at(info, t) for c in own_collections() for t in c.tasks if t.fingerprint == info.fingerprint]
    for folder in folders:
        yield lambda folder=folder: [ref for ref in every_part(folder) if ref.name == info.name]  # type: ignore[misc]
