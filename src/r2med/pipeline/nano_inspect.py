"""Looking at a task from all sides, for its page."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..core import IdTable
from ..retrieve import BM25
from ..scoring.hits import Float64
from ..tasks import TaskRef
from ..tasks.audit import OutsideTexts, audit, find_lures, tendencies
from ..tasks.nano.inspected import Inspected, Tercile
from .audit import built_in_examples, score_audit
from .nano_figures import measure
from .nano_profiles import make_profiles, without_safeguard
from .nano_read import read_nano

LURES = 3


def inspect(ref: TaskRef, *, against: list[OutsideTexts] | None = None) -> Inspected:
    """Read, score and audit a task; one without candidates of its own gets BM25's."""
    found = read_nano(ref) if _may_have_candidates(ref) else None
    task = found.task if found else ref.load()
    safeguarded = found.safeguarded if found else set[str]()
    runs = dict(found.runs) if found else {}
    if "bm25" not in runs:
        runs |= make_profiles(task, BM25(query="count"), None).runs
    split = ref.split or ref.name
    measured = measure(task, runs, safeguarded, split=split)
    few_shot = built_in_examples()
    report = audit([task], against=against or [], few_shot=[few_shot] if few_shot else [])
    scored = [without_safeguard(r, safeguarded) if c == "reranking_hybrid" else r for c, r in runs.items()]
    shape = tendencies(task)
    judged = task.qrels.query_ids
    bm25 = measured.per_query["bm25"]
    return Inspected(
        task=task,
        split=split,
        figures=measured.figures,
        contrasts=measured.contrasts,
        audit=report.tasks[0],
        audit_settings=report.settings,
        scores=score_audit(task, report.tasks[0], scored),
        lures=find_lures(task, runs["bm25"], most=LURES),
        tendencies=shape,
        terciles=_terciles(shape.overlap_of_query, judged, measured.per_query),
        unsolved=int((bm25 == 0).sum()),
        metadata=found.metadata if found else None,
    )


def _may_have_candidates(ref: TaskRef) -> bool:
    return ref.path is not None and bool(ref.split)


def _terciles(overlap: Mapping[str, float], judged: IdTable, per_query: Mapping[str, Float64]) -> list[Tercile]:
    """Queries in three equal parts, from few shared words to many."""
    have = sorted((value, query_id) for query_id, value in overlap.items() if query_id in judged)
    if len(have) < 9:
        return []
    parts = np.array_split(np.arange(len(have)), 3)
    found = []
    for name, part in zip(("fewest", "middle", "most"), parts, strict=True):
        rows = judged.positions(have[i][1] for i in part)
        means = {role: float(values[rows].mean()) for role, values in per_query.items()}
        found.append(Tercile(name, len(part), have[int(part[0])][0], have[int(part[-1])][0], means))
    return found
