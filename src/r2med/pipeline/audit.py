"""Audits with consequences: every score with the flagged queries and without them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..core import Run, Task, TextColumn
from ..scoring import parse_measures, score
from ..scoring.hits import Float64
from ..tasks.audit import AuditReport, OutsideTexts, Subset, SystemAudit, TaskAudit
from .nano_figures import mean_interval

_PART = re.compile(r"\n(?=\s*\n|\w+ = )|\"\"\"")
LEAST_WORDS = 8
MEASURES = parse_measures(["nDCG@10", "hit@10", "R@100"])
SMALLEST = 5  # an interval over fewer queries says nothing


def score_audit(task: Task, found: TaskAudit, runs: Sequence[Run]) -> list[SystemAudit]:
    """Scores of runs with and without the flagged queries."""
    groups = {"any": found.flagged()}
    groups |= {f"any-{level}": found.flagged(level=level) for level in dict.fromkeys(f.level for f in found.flags)}
    groups |= {kind: found.flagged(kind=kind) for kind in found.by_kind}
    scored = []
    for run in runs:
        evaluation = score(run, task.qrels, MEASURES)
        ids, per_query = list(evaluation.query_ids), evaluation.per_query.by_key()
        everything = np.ones(len(ids), dtype=bool)
        scored.append(
            SystemAudit(
                system=run.name,
                all=_subset(per_query, everything),
                without={
                    name: _subset(per_query, np.array([i not in flagged for i in ids], dtype=bool))
                    for name, flagged in groups.items()
                    if flagged
                },
            )
        )
    return scored


def _subset(per_query: dict[str, Float64], keep: np.ndarray) -> Subset:
    left = int(keep.sum())
    return Subset(
        left_out=len(keep) - left,
        queries=left,
        measures={key: float(values[keep].mean()) for key, values in per_query.items()} if left else None,
        ndcg_at_10_interval=mean_interval(per_query["ndcg_at_10"][keep]) if left >= SMALLEST else None,
    )


def audit_document(report: AuditReport, scores: Sequence[list[SystemAudit]]) -> dict[str, Any]:
    """What `r2med data audit --json` prints."""
    return {
        "schema": 1,
        "settings": report.settings,
        "tasks": {
            found.task: msgspec.to_builtins(found) | {"scores": msgspec.to_builtins(of_task)}
            for found, of_task in zip(report.tasks, scores, strict=True)
        },
        "across": msgspec.to_builtins(report.across.pairs),
    }


def built_in_examples() -> OutsideTexts | None:
    """Texts of the prompts that r2med itself ships: an evaluation query must not stand in them as an example."""
    root = Path(str(files("r2med").joinpath("expand", "prompts")))
    texts, places = [], []
    for path in sorted(root.rglob("*")):
        if path.suffix in (".toml", ".txt", ".md", ".json", ".jsonl"):
            parts = [part for part in _PART.split(path.read_text("utf-8")) if len(part.split()) >= LEAST_WORDS]
            texts += parts
            places += [path.relative_to(root).as_posix()] * len(parts)
    return OutsideTexts("r2med prompts", TextColumn.from_texts(texts), places) if texts else None
