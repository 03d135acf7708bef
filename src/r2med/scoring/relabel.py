"""A second opinion on judgments: labels by any judge, and how far it agrees with the labels there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from ..core import DataError, Task, UsageError
from .measures import Float64

Judge = Callable[[str, str], "int | None"]
"""Takes a query and a passage, gives a grade, or None where it has no usable answer."""

Weighting = Literal["none", "linear", "quadratic"]


class Case(NamedTuple):
    """A pair to judge, with the grade it has; `assumed` marks a random passage taken to be irrelevant."""

    query_id: str
    doc_id: str
    grade: int
    assumed: bool = False


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge said beside what was known."""

    query_id: str
    doc_id: str
    grade: int
    judged: int | None
    assumed: bool


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How far a judge agrees with the judgments. `kappa` is None where one side knows only one grade."""

    pairs: int
    without_answer: int
    assumed_negatives: int
    agree: float
    kappa: float | None
    table: dict[str, int]


class Relabelling(msgspec.Struct, frozen=True, kw_only=True):
    """Labels and agreement."""

    labels: list[Label]
    agreement: Agreement


def agreement_cases(task: Task, *, negatives: int = 1, seed: int = 0) -> list[Case]:
    """Every judged pair and, for each positive, some random unjudged passages taken to be irrelevant.

    R2MED judges only positives; a judge that calls everything relevant would agree with all of them.
    """
    if negatives < 0:
        raise UsageError(f"cannot draw {negatives} passages")
    rng = np.random.Generator(np.random.PCG64(seed))
    cases = []
    for query_id in task.qrels.query_ids:
        judged = task.qrels.of(query_id)
        cases += [Case(query_id, doc_id, grade) for doc_id, grade in judged.items()]
        wanted = min(negatives * sum(g > 0 for g in judged.values()), len(task.documents))
        drawn = [task.documents.ids[int(i)] for i in rng.permutation(len(task.documents))[: wanted + len(judged)]]
        cases += [Case(query_id, doc_id, 0, True) for doc_id in [d for d in drawn if d not in judged][:wanted]]
    return cases


def relabel(task: Task, judge: Judge, cases: Iterable[Case]) -> Relabelling:
    """Ask the judge about each case; an answer it does not give is counted, never guessed."""
    labels = []
    for case in cases:
        query, document = task.query(case.query_id), task.documents.get(case.doc_id)
        if query is None or document is None:
            missing = f"query {case.query_id!r}" if query is None else f"document {case.doc_id!r}"
            raise DataError(f"{task.full_name} has no {missing}")
        answer = judge(query.text, document.contents)
        if answer is not None and (isinstance(answer, bool) or not isinstance(answer, int)):
            raise UsageError(f"a judge gives a whole number or None, not {answer!r}")
        labels.append(
            Label(query_id=case.query_id, doc_id=case.doc_id, grade=case.grade, judged=answer, assumed=case.assumed)
        )
    return Relabelling(labels=labels, agreement=agreement(labels))


def agreement(labels: Sequence[Label]) -> Agreement:
    """Agreement on relevant or not (a grade above zero), over the pairs the judge answered."""
    answered = [label for label in labels if label.judged is not None]
    known = [int(label.grade > 0) for label in answered]
    given = [int(label.judged is not None and label.judged > 0) for label in answered]
    table = {"both": 0, "only_known": 0, "only_judge": 0, "neither": 0}
    for a, b in zip(known, given, strict=True):
        table["both" if a and b else "only_known" if a else "only_judge" if b else "neither"] += 1
    return Agreement(
        pairs=len(labels),
        without_answer=len(labels) - len(answered),
        assumed_negatives=sum(label.assumed for label in labels),
        agree=(table["both"] + table["neither"]) / len(answered) if answered else 0.0,
        kappa=cohens_kappa(known, given),
        table=table,
    )


def cohens_kappa(first: Sequence[int], second: Sequence[int], *, weighting: Weighting = "none") -> float | None:
    """Agreement beyond chance: 1 is perfect, 0 what chance gives.

    None where there is nothing to tell apart: no pairs, or one side with a single grade.
    """
    if len(first) != len(second):
        raise UsageError(f"{len(first)} labels cannot be compared with {len(second)}")
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    grades = sorted({*first, *second})
    place = {grade: i for i, grade in enumerate(grades)}
    seen = np.zeros((len(grades), len(grades)))
    for a, b in zip(first, second, strict=True):
        seen[place[a], place[b]] += 1.0
    seen /= len(first)
    cost = _costs(np.array(grades, dtype=np.float64), weighting)
    by_chance = float((cost * np.outer(seen.sum(axis=1), seen.sum(axis=0))).sum())
    return 1.0 - float((cost * seen).sum()) / by_chance


def _costs(grades: Float64, weighting: Weighting) -> Float64:
    """How bad it is to give one grade for another."""
    apart = np.abs(grades[:, None] - grades)
    if weighting == "none":
        return (apart > 0).astype(np.float64)
    if weighting not in ("linear", "quadratic"):
        raise UsageError(f"unknown weighting {weighting!r}; known: none, linear, quadratic")
    return apart if weighting == "linear" else apart**2
