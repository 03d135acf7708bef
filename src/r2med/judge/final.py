"""The final grade of each pooled passage, by the rule that the project names, and the judgments that these grades give.

    adjudicated  equal grades stand; where judges differ, the adjudicator decides
    majority     the grade of more than half of the judges; where there is none, the adjudicator decides
    median       the middle grade, of an even number the lower of the two in the middle
    lowest       the lowest grade
    highest      the highest grade

A passage needs as many grades as the project asks judges for each pair; with fewer only the adjudicator decides. The
adjudicator decides what the rule leaves open, and nothing else. LLM judges do not count unless the project says so; one
that was measured to agree with people may fill what no person judged.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..core import DataError, Documents, IdTable, Qrels, UsageError
from ..core.table import counted as number_of
from ..core.untrusted import printable
from ..scoring.intervals import Settings as IntervalSettings
from ..scoring.measures import Bools
from ..tasks.corpus import load_corpus
from . import Project, Rule
from .agreement import Grades, PairAgreement, Weights, people_and
from .journal import Journal, Slot

KNOWN = "known"
"""The name of grades that came with the data."""
FILL_WEIGHTS: Weights = "linear"
Kind = Literal["person", "llm", "adjudicator", "known"]
How = Literal["single", "agreed", "rule", "adjudicated", "filled", "open"]


class Judged(NamedTuple):
    """What one judge has done so far."""

    name: str
    kind: Kind
    finished: bool
    grades: dict[Slot, int]
    skipped: int = 0
    seconds: tuple[float, ...] = ()
    forks: tuple[Slot, ...] = ()
    spec: str = ""  # the chat model's, of an LLM


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one pooled passage."""

    query_id: str
    doc_id: str
    grade: int | None  # None where it is open
    how: How
    judges: dict[str, int]  # the grades it comes from
    why: str = ""  # it is open


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """The final grades of a project, and how each came about."""

    rule: Rule
    judges: list[str]  # people whose grades count, and `known` where it does
    adjudicators: list[str]
    left_out: list[str]  # people who have not finished
    fill: str  # the LLM judge that filled holes, or empty
    verdicts: list[Verdict]
    forks: dict[str, list[Slot]]  # by judge: what two clones of the project say differently

    @property
    def grades(self) -> dict[Slot, int]:
        """The grades that stand, by query and passage."""
        return {(v.query_id, v.doc_id): v.grade for v in self.verdicts if v.grade is not None}

    def slots(self, *how: How) -> list[Slot]:
        """The pairs whose grade came about in some way."""
        return [(v.query_id, v.doc_id) for v in self.verdicts if v.how in how]

    @property
    def open(self) -> list[Verdict]:
        """What has no grade yet."""
        return [v for v in self.verdicts if v.how == "open"]

    def counts(self) -> dict[str, int]:
        """How many pairs came about in each way."""
        return dict(Counter(v.how for v in self.verdicts))


def read_judges(project: Project) -> list[Judged]:
    """What every judge of a project has done, and the grades that came with its data as those of `known`."""
    found: dict[str, Judged] = {}
    for journal in project.journals():
        try:
            judged = _read(project, journal)
        finally:
            journal.close()
        if journal.torn:
            lost = number_of(journal.torn, "line")
            warnings.warn(f"{journal.path}: {lost} cannot be read; what stood there does not count", stacklevel=1)
        if judged.name in found:
            raise DataError(f"is a second journal of {printable(judged.name)}", path=journal.path)
        if judged.name == KNOWN and project.settings.known_counts:
            raise DataError(f"is of a judge called {KNOWN}, which stands for the data here", path=journal.path)
        found[judged.name] = judged
    known = {(p.query_id, p.doc_id): p.known for pool in project.pool.values() for p in pool if p.known is not None}
    if known and project.settings.known_counts:
        _check_scale(project, known, "pool.jsonl")
        found[KNOWN] = Judged(KNOWN, "known", finished=True, grades=known)
    return list(found.values())


def counting(project: Project) -> tuple[Kind, ...]:
    """The kinds of judges whose grades make the final grade."""
    return ("person", "known", "llm") if project.settings.llm_counts else ("person", "known")


def _read(project: Project, journal: Journal) -> Judged:
    entries = [entry for entry in journal.entries() if entry.doc_id]
    grades = {entry.slot: entry.grade for entry in entries if entry.grade is not None and not entry.skipped}
    pooled = {(p.query_id, p.doc_id) for pool in project.pool.values() for p in pool}
    if strange := next((slot for slot in grades if slot not in pooled), None):
        raise DataError(f"grades {printable(str(strange))}, which is not in the pool", path=journal.path)
    _check_scale(project, grades, str(journal.path))
    return Judged(
        journal.header.judge,
        journal.header.kind,
        journal.finished,
        grades,
        skipped=sum(entry.skipped for entry in entries),
        seconds=tuple(entry.seconds for entry in entries if entry.seconds is not None and entry.grade is not None),
        forks=tuple(sorted(journal.forks)),
        spec=journal.header.spec,
    )


def _check_scale(project: Project, grades: Grades, path: str) -> None:
    highest = len(project.settings.grades) - 1
    if strange := next((grade for grade in grades.values() if not 0 <= grade <= highest), None):
        raise DataError(f"holds the grade {strange}; this project has 0 to {highest}", path=path)


def final_grades(
    project: Project,
    *,
    unfinished: bool = False,
    fill: str | None = None,
    fill_pairs: int = 50,
    fill_kappa: float = 0.4,
    intervals: IntervalSettings = IntervalSettings(),  # noqa: B008 (frozen)
) -> Final:
    """The final grade of every pooled passage. People who have not finished count with `unfinished` only.

    `fill` names an LLM judge in place of the one in the project's settings, or nobody (""). It must have been
    compared with people on `fill_pairs` pairs, with a linearly weighted κ of at least `fill_kappa` at the lower end of
    its interval.
    """
    everybody = read_judges(project)
    counted = [j for j in everybody if j.kind in counting(project) and (j.finished or unfinished)]
    adjudicators = [j for j in everybody if j.kind == "adjudicator"]  # each decision is final when it is made
    named = project.settings.fill if fill is None else fill
    filler: Grades = {}
    if named:
        filler = _filler(project, everybody, counted, named, fill_pairs, fill_kappa, intervals)
    touched = {slot for j in everybody if j.kind in ("person", "adjudicator") for slot in j.grades}
    verdicts = []
    for pool in project.pool.values():
        for pooled in pool:
            slot = (pooled.query_id, pooled.doc_id)
            verdict = _verdict(project, slot, counted, adjudicators)
            if verdict.how == "open" and not verdict.judges and slot in filler and slot not in touched:
                verdict = _as(slot, filler[slot], "filled", {named: filler[slot]})
            verdicts.append(verdict)
    return Final(
        rule=project.settings.rule,
        judges=[j.name for j in counted],
        adjudicators=[j.name for j in adjudicators],
        left_out=[j.name for j in everybody if j.kind in counting(project) and not (j.finished or unfinished)],
        fill=named,
        verdicts=verdicts,
        forks={j.name: list(j.forks) for j in everybody if j.forks},
    )


def _verdict(project: Project, slot: Slot, counted: Sequence[Judged], adjudicators: Sequence[Judged]) -> Verdict:
    """What the judges, or else the adjudicator, make of one passage."""
    given = {j.name: j.grades[slot] for j in counted if slot in j.grades}
    wanted, rule = project.settings.judges_per_pair, project.settings.rule
    values = list(given.values())
    if len(values) >= wanted:
        if len(set(values)) == 1:
            return _as(slot, values[0], "agreed" if len(values) > 1 else "single", given)
        if (grade := by_rule(values, rule)) is not None:
            return _as(slot, grade, "rule", given)
    decisions = {j.name: j.grades[slot] for j in adjudicators if slot in j.grades}
    if len(set(decisions.values())) == 1:
        return _as(slot, next(iter(decisions.values())), "adjudicated", given | decisions)
    why = "no adjudicator has decided"
    if decisions:
        why = "adjudicators differ"
    elif len(values) < wanted:
        why = f"{len(values)} of {wanted} grades"
    return _as(slot, None, "open", given | decisions, why)


def _as(slot: Slot, grade: int | None, how: How, judges: dict[str, int], why: str = "") -> Verdict:
    return Verdict(query_id=slot[0], doc_id=slot[1], grade=grade, how=how, judges=judges, why=why)


def by_rule(grades: Sequence[int], rule: Rule) -> int | None:
    """The grade that a rule makes of grades that differ; None where it needs an adjudicator."""
    ordered = sorted(grades)
    match rule:
        case "lowest":
            return ordered[0]
        case "highest":
            return ordered[-1]
        case "median":
            return ordered[(len(ordered) - 1) // 2]
        case "majority":
            grade, votes = Counter(ordered).most_common(1)[0]
            return grade if 2 * votes > len(ordered) else None
        case "adjudicated":
            return None


def against_people(
    project: Project, llm: Judged, people: Sequence[Judged], intervals: IntervalSettings
) -> PairAgreement:  # fmt: skip
    """How far an LLM judge agrees with people, all of them together."""
    persons = [j.grades for j in people if j.kind == "person"]
    return people_and(llm.name, persons, llm.grades, len(project.settings.grades), intervals)


def _filler(
    project: Project,
    everybody: Sequence[Judged],
    counted: Sequence[Judged],
    name: str,
    pairs: int,
    kappa: float,
    intervals: IntervalSettings,
) -> Grades:
    """The grades of an LLM judge that may fill holes."""
    llms = {j.name: j for j in everybody if j.kind == "llm"}
    if name not in llms:
        there = ", ".join(map(printable, llms)) or "none"
        raise UsageError(f"{printable(name)} is no LLM judge of this project; there are: {there}")
    found = against_people(project, llms[name], counted, intervals)
    if refusal := refusal_to_fill(found, pairs, kappa):
        raise UsageError(f"{printable(name)} may not fill what no person judged: {refusal}")
    return llms[name].grades


def refusal_to_fill(found: PairAgreement, pairs: int = 50, kappa: float = 0.4) -> str:
    """Why an LLM judge may not fill holes; empty where it may."""
    if found.pairs < pairs:
        return f"it was compared with people on {found.pairs} pairs, and {pairs} are needed"
    measured = found.kappa[FILL_WEIGHTS]
    if measured.low is None:
        return "its agreement with people has no interval: too few queries, or too few different grades"
    if measured.low < kappa:
        return f"its {FILL_WEIGHTS} κ with people may be as low as {measured.low:.2f}, and {kappa:g} is needed"
    return ""


def pooled_corpus(project: Project, corpus: str | None = None) -> Documents:
    """The documents that were pooled from, unchanged; `corpus` is where they lie now."""
    source = corpus or project.settings.source
    try:
        documents = load_corpus(source).documents
    except (DataError, UsageError) as error:
        if corpus is not None:
            raise
        raise UsageError(f"{error}; say where the corpus lies with --corpus") from None
    if documents.fingerprint != project.settings.corpus_fingerprint:
        raise DataError("is not the corpus that was pooled: its documents have changed since", path=source)
    return documents


class Judgments(NamedTuple):
    """The final grades as judgments of documents, copies included, with what each has from whom."""

    qrels: Qrels
    best_rank: npt.NDArray[np.int64]  # of each judgment; 0 where it is in the pool whoever found it
    systems: list[frozenset[str]]  # that found each; none where it is in the pool whoever found it

    def without(self, systems: frozenset[str]) -> Qrels:
        """The judgments that a pool without these systems has."""
        return _kept(self.qrels, np.array([not found or bool(found - systems) for found in self.systems], dtype=bool))

    def at_depth(self, depth: int) -> Qrels:
        """The judgments of a shallower pool."""
        return _kept(self.qrels, self.best_rank <= depth)


def final_judgments(project: Project, grades: Mapping[Slot, int], queries: Sequence[str]) -> Judgments:
    """The grades of some queries; one below the lowest that counts as relevant is 0. Copies get the same grade."""
    settings = project.settings
    rows: list[tuple[str, int, int, frozenset[str]]] = []
    sizes = []
    for query_id in queries:
        seen: set[str] = set()
        for pooled in project.pool[query_id]:
            grade = grades.get((query_id, pooled.doc_id))
            if grade is None:
                continue
            anyway = pooled.sampled or (settings.pool_known and pooled.known is not None) or not pooled.systems
            rank = 0 if anyway else min(pooled.systems.values())
            found = frozenset() if anyway else frozenset(pooled.systems)
            for doc_id in (pooled.doc_id, *pooled.copies):
                if doc_id in seen:
                    raise DataError(f"has {doc_id!r} twice for {query_id!r}", path=project.folder / "pool.jsonl")
                seen.add(doc_id)
                rows.append((doc_id, grade if grade >= settings.relevant_from else 0, rank, found))
        sizes.append(len(seen))
    doc_ids = IdTable(dict.fromkeys(row[0] for row in rows))
    qrels = Qrels(
        IdTable(queries),
        doc_ids,
        np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64),
        doc_ids.positions(row[0] for row in rows),
        np.array([row[1] for row in rows], dtype=np.int32),
    )
    return Judgments(qrels, np.array([row[2] for row in rows], dtype=np.int64), [row[3] for row in rows])


def _kept(qrels: Qrels, keep: Bools) -> Qrels:
    """Some of the judgments; a query without any stays, and scores 0."""
    owner = np.repeat(np.arange(len(qrels.query_ids)), np.diff(qrels.indptr))
    sizes = np.bincount(owner[keep], minlength=len(qrels.query_ids))
    indptr = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return Qrels(qrels.query_ids, qrels.doc_ids, indptr, qrels.docs[keep], qrels.grades[keep])


class Queries(NamedTuple):
    """The queries of a project by what is known of them."""

    usable: list[str]  # with a relevant passage
    without_relevant: list[str]
    open: list[str]  # with a passage that has no final grade; they may be usable, too


def sort_queries(project: Project, grades: Mapping[Slot, int]) -> Queries:
    """Which queries can be scored, and which lack something."""
    found = Queries([], [], [])
    for query_id, pool in project.pool.items():
        given = [grades.get((query_id, pooled.doc_id)) for pooled in pool]
        if not pool or None in given:
            found.open.append(query_id)
        if any(grade is not None and grade >= project.settings.relevant_from for grade in given):
            found.usable.append(query_id)
        elif any(grade is not None for grade in given):
            found.without_relevant.append(query_id)
    return found
