"""What there is to say about the judges of a project: how far each is, how far they agree, what is still open.

Grades of a judge who has not finished are no part of it unless asked for. Adjudicators see what others gave, so they
are in no figure of agreement. Agreement among people stands apart from that of LLM judges with people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import mean, median

import msgspec

from ..scoring.intervals import Settings as IntervalSettings
from . import Project
from .agreement import GroupAgreement, PairAgreement, both_graded, group_agreement, pair_agreement
from .final import Final, Judged, Kind, against_people, counting, final_grades, read_judges, refusal_to_fill
from .journal import Slot

DISPUTED = 10
"""Queries that are named, those with most disagreement first."""


class JudgeProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a judge is."""

    judge: str
    kind: Kind
    spec: str  # the chat model's, of an LLM
    finished: bool
    graded: int
    skipped: int
    of: int
    seconds: float | None  # of a judgment, the median
    forks: int


class LlmAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """An LLM judge: with all people together, with each of them, with the other LLM judges."""

    judge: str
    people: PairAgreement
    each: list[PairAgreement]
    may_fill: bool
    why_not: str  # it may not fill what no person judged


class DisputedPassage(msgspec.Struct, frozen=True):
    """A passage on which judges differ, with the grades by judge."""

    doc_id: str
    grades: dict[str, int]


class DisputedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query whose passages got unlike grades from people."""

    query_id: str
    text: str
    pairs: int  # passages that two or more people graded
    differing: int
    distance: float  # mean distance of two people's grades
    passages: list[DisputedPassage]  # the widest apart first


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The queries of one body system."""

    queries: int
    people: GroupAgreement
    pairs: list[PairAgreement]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """All that is said about the judges of a project."""

    project: str
    grades: tuple[str, ...]
    intervals: IntervalSettings
    judges: list[JudgeProgress]
    left_out: list[str]  # judges whose grades are not shown, because they have not finished
    people: GroupAgreement
    pairs: list[PairAgreement]  # of people
    slices: dict[str, Slice]
    llms: list[LlmAgreement]
    disputed: list[DisputedQuery]
    pooled: int
    final: dict[str, int]  # how many grades came about in each way
    open_because: dict[str, int]
    forks: dict[str, list[Slot]]


def summarise(
    project: Project,
    *,
    unfinished: bool = False,
    intervals: IntervalSettings = IntervalSettings(),  # noqa: B008 (frozen)
) -> Summary:
    """Agreement, progress and what is open, over judges who have finished or over all of them."""
    everybody = read_judges(project)
    shown = [j for j in everybody if j.finished or unfinished]
    people = {j.name: j for j in shown if j.kind in counting(project)}
    llms = [j for j in shown if j.kind == "llm" and j.name not in people]
    grades = {name: judged.grades for name, judged in people.items()}
    final = final_grades(project, unfinished=unfinished, fill="", intervals=intervals)
    pooled = sum(map(len, project.pool.values()))
    return Summary(
        project=project.settings.name,
        grades=project.settings.grades,
        intervals=intervals,
        judges=[_progress(judged, pooled) for judged in everybody],
        left_out=[j.name for j in everybody if j not in shown and j.kind != "adjudicator"],
        people=group_agreement(grades, intervals),
        pairs=agreement_of_pairs(project, grades, intervals),
        slices=_slices(project, grades, intervals),
        llms=[_llm(project, llm, list(people.values()), llms, intervals) for llm in llms],
        disputed=disputed_queries(project, grades),
        pooled=pooled,
        final=final.counts(),
        open_because=_reasons(final),
        forks=final.forks,
    )


def _progress(judged: Judged, pooled: int) -> JudgeProgress:
    return JudgeProgress(
        judge=judged.name,
        kind=judged.kind,
        spec=judged.spec,
        finished=judged.finished,
        graded=len(judged.grades),
        skipped=judged.skipped,
        of=pooled,
        seconds=median(judged.seconds) if judged.seconds else None,
        forks=len(judged.forks),
    )


def agreement_of_pairs(
    project: Project,
    grades: Mapping[str, Mapping[Slot, int]],
    intervals: IntervalSettings = IntervalSettings(),  # noqa: B008 (frozen)
) -> list[PairAgreement]:
    """How far each two judges agree."""
    scale = len(project.settings.grades)
    return [
        pair_agreement(first, second, both_graded(grades[first], grades[second]), scale, intervals)
        for first, second in combinations(grades, 2)
    ]


def _slices(
    project: Project, grades: Mapping[str, Mapping[Slot, int]], intervals: IntervalSettings
) -> dict[str, Slice]:
    """Agreement of people on the queries of each body system, where queries have one."""
    queries: dict[str, set[str]] = {}
    for query in project.queries.values():
        if query.body_system:
            queries.setdefault(query.body_system, set()).add(query.id)
    found = {}
    for name, ids in sorted(queries.items()):
        some = {judge: {slot: g for slot, g in held.items() if slot[0] in ids} for judge, held in grades.items()}
        pairs = agreement_of_pairs(project, some, intervals)
        found[name] = Slice(queries=len(ids), people=group_agreement(some, intervals), pairs=pairs)
    return found


def _llm(
    project: Project, llm: Judged, people: Sequence[Judged], llms: Sequence[Judged], intervals: IntervalSettings
) -> LlmAgreement:
    scale = len(project.settings.grades)
    together = against_people(project, llm, people, intervals)
    others = [*people, *(other for other in llms if other.name != llm.name)]
    why_not = refusal_to_fill(together)
    return LlmAgreement(
        judge=llm.name,
        people=together,
        each=[pair_agreement(j.name, llm.name, both_graded(j.grades, llm.grades), scale, intervals) for j in others],
        may_fill=not why_not,
        why_not=why_not,
    )


def disputed_queries(
    project: Project, grades: Mapping[str, Mapping[Slot, int]], most: int = DISPUTED
) -> list[DisputedQuery]:
    """The queries on which people differ most: by the mean distance of two people's grades, then by how many differ."""
    found = []
    for query_id, pool in project.pool.items():
        given = {
            pooled.doc_id: {judge: held[query_id, pooled.doc_id] for judge, held in grades.items()
                            if (query_id, pooled.doc_id) in held}
            for pooled in pool
        }  # fmt: skip
        twice = {doc_id: by_judge for doc_id, by_judge in given.items() if len(by_judge) > 1}
        apart = {
            doc_id: mean(abs(a - b) for a, b in combinations(by_judge.values(), 2))
            for doc_id, by_judge in twice.items()
        }
        differing = sorted((d for d in apart if apart[d]), key=lambda doc_id: (-apart[doc_id], doc_id))
        if differing:
            found.append(
                DisputedQuery(
                    query_id=query_id,
                    text=project.queries[query_id].text,
                    pairs=len(twice),
                    differing=len(differing),
                    distance=mean(apart.values()),
                    passages=[DisputedPassage(doc_id, twice[doc_id]) for doc_id in differing[:most]],
                )
            )
    return sorted(found, key=lambda q: (-q.distance, -q.differing, q.query_id))[:most]


def _reasons(final: Final) -> dict[str, int]:
    found: dict[str, int] = {}
    for verdict in final.open:
        found[verdict.why] = found.get(verdict.why, 0) + 1
    return dict(sorted(found.items()))
