"""One audit over one or several tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ...core import DataError, Task
from ...text.minhash import THRESHOLD, Pairs, near_duplicates, overlaps
from ...text.shingles import WIDTH, concatenate
from .findings import EXAMPLES, Across, AuditReport, CrossPair, FlagList, TaskAudit
from .ids import BRIGHT_NOTE, flag_ids, is_bright
from .outside import OutsideTexts, flag_outside
from .texts import (
    INSIDE,
    LEAST_WORDS,
    Material,
    count_copies,
    exact_groups,
    flag_documents_of_queries,
    flag_duplicate_queries,
    flag_unjudged_copies,
    near_groups,
)


@dataclass(frozen=True)
class AuditSettings:
    """What counts as a copy."""

    threshold: float = THRESHOLD
    width: int = WIDTH


def audit(
    tasks: Sequence[Task],
    *,
    against: Sequence[OutsideTexts] = (),
    few_shot: Sequence[OutsideTexts] = (),
    settings: AuditSettings | None = None,
) -> AuditReport:
    """Look for leakage within tasks, between them, and from texts outside."""
    if not tasks:
        raise DataError("there is no task to audit")
    settings = settings or AuditSettings()
    materials = [Material.of(task, settings.width) for task in tasks]
    pairs = near_duplicates(concatenate([m.documents for m in materials]), settings.threshold)
    starts = np.concatenate(([0], np.cumsum([len(t.documents) for t in tasks])))
    side_a = np.searchsorted(starts, pairs.first, side="right") - 1
    side_b = np.searchsorted(starts, pairs.second, side="right") - 1
    exact = [exact_groups(task.documents.contents) for task in tasks]
    audits = []
    for number, material in enumerate(materials):
        own = (side_a == number) & (side_b == number)
        within = Pairs(pairs.first[own] - starts[number], pairs.second[own] - starts[number], pairs.similarity[own])
        audits.append(_audit_one(material, within, exact[number], against, few_shot, settings))
    shown: dict[str, float | int | str] = {
        **asdict(settings), "inside": INSIDE, "least_words": LEAST_WORDS,
        "against": ", ".join(o.name for o in against), "few_shot": ", ".join(o.name for o in few_shot),
    }  # fmt: skip
    return AuditReport(shown, audits, _across(materials, pairs, side_a, side_b, settings.threshold))


def _audit_one(
    material: Material,
    within: Pairs,
    exact: list[list[int]],
    against: Sequence[OutsideTexts],
    few_shot: Sequence[OutsideTexts],
    settings: AuditSettings,
) -> TaskAudit:
    task, flags = material.task, FlagList()
    flag_documents_of_queries(material, flags)
    flag_duplicate_queries(material, flags, settings.threshold)
    flag_unjudged_copies(material, within, flags)
    flag_ids(task, flags)
    for outside in against:
        flag_outside(material, outside, ("query-in-training", "positive-in-training"), flags)
    for outside in few_shot:
        flag_outside(material, outside, ("few-shot", None), flags)
    found = flags.all({q.id: i for i, q in enumerate(task.queries)})
    return TaskAudit(
        task=task.full_name,
        fingerprint=task.fingerprint,
        queries=len(task.queries),
        documents=len(task.documents),
        positives=task.qrels.positives,
        flagged_queries=len({f.query for f in found}),
        by_kind=dict(Counter(f.kind for f in found)),
        flags=found,
        exact_copies=count_copies(task, exact),
        near_copies=near_groups(task, within),
        notes=[BRIGHT_NOTE] if is_bright(task) else [],
    )


def _across(
    materials: list[Material], pairs: Pairs, side_a: np.ndarray, side_b: np.ndarray, threshold: float
) -> Across:
    """Texts that two tasks share; `exact` counts pairs with the same word runs."""
    found = []
    starts = np.concatenate(([0], np.cumsum([len(m.documents) for m in materials])))
    for a, left in enumerate(materials):
        for b in range(a + 1, len(materials)):
            right = materials[b]
            rows = np.flatnonzero((side_a == a) & (side_b == b))
            asked = overlaps(left.queries, right.queries)
            same = np.flatnonzero(asked.similarity >= threshold) if len(asked.left) else np.empty(0, dtype=np.int64)
            if not len(rows) and not len(same):
                continue
            examples = [
                f"query {left.task.queries[int(asked.left[i])].id} = {right.task.queries[int(asked.right[i])].id}"
                for i in same[:EXAMPLES]
            ]
            examples += [
                f"document {left.task.documents.ids[int(pairs.first[i] - starts[a])]} = "
                f"{right.task.documents.ids[int(pairs.second[i] - starts[b])]}"
                for i in rows[:EXAMPLES]
            ]
            exact = int((pairs.similarity[rows] == 1.0).sum())
            names = (left.task.full_name, right.task.full_name)
            found.append(CrossPair(names, exact, len(rows) - exact, len(same), examples))
    return Across(found)
