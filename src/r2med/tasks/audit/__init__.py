"""Auditing tasks for leaks and copies: what a score may owe to something else than retrieval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ...core import DataError, Task
from ...core.columns import Int64
from ...text.duplicates import THRESHOLD, WIDTH, Pairs, concatenate, groups, near_duplicates, overlaps
from .findings import EXAMPLES, AuditReport, FlagList, SharedTexts, TaskAudit
from .leaks import (
    BRIGHT_NOTE,
    INSIDE,
    LEAST_WORDS,
    OutsideTexts,
    ShingledTask,
    count_copies,
    exact_groups,
    flag_documents_of_queries,
    flag_duplicate_queries,
    flag_ids,
    flag_outside,
    flag_unjudged_copies,
    is_bright,
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
    shingled = [ShingledTask.of(task, settings.width) for task in tasks]
    # The documents of all tasks are compared at once; a pair belongs to the two tasks it comes from.
    pairs = near_duplicates(concatenate([m.documents for m in shingled]), settings.threshold)
    starts = np.concatenate(([0], np.cumsum([len(t.documents) for t in tasks])))
    owner = np.searchsorted(starts, pairs.first, side="right") - 1
    other = np.searchsorted(starts, pairs.second, side="right") - 1

    def between(a: int, b: int) -> Pairs:
        rows = (owner == a) & (other == b)
        return Pairs(pairs.first[rows] - starts[a], pairs.second[rows] - starts[b], pairs.similarity[rows])

    numbers = range(len(tasks))
    shared = [_shared(shingled[a], shingled[b], between(a, b), settings) for a in numbers for b in numbers[a + 1 :]]
    shown: dict[str, float | int | str] = {
        **asdict(settings),
        "inside": INSIDE,
        "least_words": LEAST_WORDS,
        "against": ", ".join(o.name for o in against),
        "few_shot": ", ".join(o.name for o in few_shot),
    }
    audits = [_audit_one(m, between(i, i), against, few_shot, settings) for i, m in enumerate(shingled)]
    return AuditReport(shown, audits, [one for one in shared if one is not None])


def _audit_one(
    shingled: ShingledTask,
    near: Pairs,
    against: Sequence[OutsideTexts],
    few_shot: Sequence[OutsideTexts],
    settings: AuditSettings,
) -> TaskAudit:
    task, flags = shingled.task, FlagList()
    flag_documents_of_queries(shingled, flags)
    flag_duplicate_queries(shingled, flags, settings.threshold)
    flag_unjudged_copies(shingled, near, flags)
    flag_ids(task, flags)
    for outside in against:
        flag_outside(shingled, outside, flags, queries_as="query-in-training", positives_as="positive-in-training")
    for outside in few_shot:
        flag_outside(shingled, outside, flags, queries_as="few-shot")
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
        exact_copies=count_copies(task, exact_groups(task.documents.contents)),
        near_copies=count_copies(task, groups(near, len(task.documents))),
        notes=[BRIGHT_NOTE] if is_bright(task) else [],
    )


def _shared(left: ShingledTask, right: ShingledTask, near: Pairs, settings: AuditSettings) -> SharedTexts | None:
    """Texts that two tasks share; exact are pairs with the same word runs."""
    found = overlaps(left.queries, right.queries)
    same: Int64 = np.flatnonzero(found.similarity >= settings.threshold) if len(found.left) else np.empty(0, np.int64)
    if not len(near) and not len(same):
        return None
    examples = [
        f"query {left.task.queries[int(found.left[i])].id} = {right.task.queries[int(found.right[i])].id}"
        for i in same[:EXAMPLES]
    ]
    examples += [
        f"document {left.task.documents.ids[int(near.first[i])]} = {right.task.documents.ids[int(near.second[i])]}"
        for i in range(min(len(near), EXAMPLES))
    ]
    exact = int((near.similarity == 1.0).sum())
    names = (left.task.full_name, right.task.full_name)
    return SharedTexts(names, exact, len(near) - exact, len(same), examples)
