"""Audits with scores: every system with the flagged queries and without them, and all that a task page tells."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..core import DataError, IdTable, Run, Task, TextColumn, UsageError
from ..core.options import Options
from ..core.run import read_run
from ..retrieve import get_retriever
from ..retrieve.bm25 import BM25Nano
from ..scoring import Evaluation, parse_measures, score
from ..scoring.intervals import Bootstrap
from ..scoring.measures import Float64
from ..scoring.slices import thirds
from ..tasks import TaskRef, tendencies
from ..tasks.audit import AuditSettings, OutsideTexts, audit, read_outside
from ..tasks.audit.findings import AuditReport, Subset, SystemAudit, TaskAudit
from ..tasks.nano.figures import ROLES, Inspected, Outcome, Slope, Tercile
from ..tasks.nano.folder import role_of
from ..tasks.stats import clearest_traps, lexical_traps
from .artefact_report import ArtefactReport
from .artefacts import artefacts as find_artefacts
from .nano_profile import INTERVALS, contrasts, make_candidates, mean_interval, measure, read_nano, without_safeguard

DEFAULT_SYSTEM = "bm25-lucene"
MEASURES = parse_measures(["nDCG@10", "hit@10", "R@100"])
LEAST_WORDS = 8
SMALLEST = 5  # queries: an interval over fewer says nothing
TRAPS = 3
FEWEST_FOR_THIRDS = 9
CUTOFF = 10
_PART = re.compile(r"\n(?=\s*\n|\w+ = )|\"\"\"")


class ScoredAudit(NamedTuple):
    """An audit, and for each of its tasks the scores of systems."""

    report: AuditReport
    scores: list[list[SystemAudit]]
    artefacts: ArtefactReport | None = None

    def document(self) -> dict[str, Any]:
        """What `r2med data audit --json` prints."""
        document = {
            "schema": 1,
            "settings": self.report.settings,
            "tasks": {
                found.task: msgspec.to_builtins(found) | {"scores": msgspec.to_builtins(of_task)}
                for found, of_task in zip(self.report.tasks, self.scores, strict=True)
            },
            "across": msgspec.to_builtins(self.report.across),
        }
        return document if self.artefacts is None else document | {"artefacts": msgspec.to_builtins(self.artefacts)}


def audit_tasks(
    refs: Sequence[TaskRef],
    *,
    against: Iterable[Path] = (),
    few_shot: Iterable[Path] = (),
    retrievers: Sequence[str] = (),
    runs: Sequence[Path] = (),
    settings: AuditSettings | None = None,
    artefacts: bool = False,
    seed: int = 0,
    options: Options | None = None,
) -> ScoredAudit:
    """Audit tasks against each other, training data and prompts; score retrievers and stored runs on what is left.

    With `artefacts`, also whether documents can be told relevant without the query; `seed` divides its queries.
    """
    tasks = [ref.load() for ref in refs]
    if runs and len(tasks) != 1:
        raise UsageError("--run needs exactly one task")
    report = audit(
        tasks,
        against=[read_outside(path) for path in against],
        few_shot=[*map(read_outside, few_shot), *built_in_examples()],
        settings=settings,
    )
    named = dict.fromkeys(retrievers) or (() if runs else (DEFAULT_SYSTEM,))
    scores = []
    for task, found in zip(tasks, report.tasks, strict=True):
        ranked = [get_retriever(name, options).retrieve(task) for name in named]
        scores.append(score_audit(task, found, [*ranked, *_read_runs(runs, task, {run.name for run in ranked})]))
    return ScoredAudit(report, scores, find_artefacts(tasks, seed=seed, options=options) if artefacts else None)


def _read_runs(paths: Sequence[Path], task: Task, taken: Collection[str]) -> list[Run]:
    """Stored runs of a task; where several have one name, each is named with its file."""
    runs = [read_run(path) for path in paths]
    for path, run in zip(paths, runs, strict=True):
        if (run.query_ids.positions(task.qrels.query_ids) < 0).all():
            raise DataError(f"ranks no judged query of {task.full_name}", path=path)
    often = Counter([*taken, *(run.name for run in runs)])
    found = zip(paths, runs, strict=True)
    return [run if often[run.name] == 1 else run.renamed(f"{run.name} ({path})") for path, run in found]


def score_audit(task: Task, found: TaskAudit, runs: Sequence[Run]) -> list[SystemAudit]:
    """Scores of runs with and without the flagged queries."""
    flagged = {"any": found.flagged()}
    flagged |= {f"any-{level}": found.flagged(level=level) for level in dict.fromkeys(f.level for f in found.flags)}
    flagged |= {kind: found.flagged(kind=kind) for kind in found.by_kind}
    scored = []
    for run in runs:
        evaluation = score(run, task.qrels, MEASURES)
        without = {name: _subset(evaluation, queries) for name, queries in flagged.items() if queries}
        scored.append(SystemAudit(system=run.name, all=_subset(evaluation, set()), without=without))
    return scored


def _subset(evaluation: Evaluation, left_out: set[str]) -> Subset:
    keep = np.array([query_id not in left_out for query_id in evaluation.query_ids], dtype=bool)
    left, values = int(keep.sum()), evaluation.per_query.by_key()
    return Subset(
        left_out=len(keep) - left,
        queries=left,
        measures={key: float(of_query[keep].mean()) for key, of_query in values.items()} if left else None,
        ndcg_at_10_interval=mean_interval(values["ndcg_at_10"][keep]) if left >= SMALLEST else None,
    )


def built_in_examples() -> list[OutsideTexts]:
    """Texts of the prompts that r2med itself ships: an evaluation query must not stand in them as an example."""
    root = Path(str(files("r2med").joinpath("expand", "prompts")))
    texts, places = [], []
    for path in sorted(root.rglob("*")):
        if path.suffix in (".toml", ".txt", ".md", ".json", ".jsonl"):
            parts = [part for part in _PART.split(path.read_text("utf-8")) if len(part.split()) >= LEAST_WORDS]
            texts += parts
            places += [path.relative_to(root).as_posix()] * len(parts)
    return [OutsideTexts("r2med prompts", TextColumn.from_texts(texts), places)] if texts else []


def inspect(ref: TaskRef, *, against: Sequence[OutsideTexts] = (), audited: bool = True) -> Inspected:
    """Read, score and, unless it is to be quick, audit a task for its page; one without candidates gets BM25's."""
    nano = read_nano(ref)
    task, runs, safeguarded = nano.task, dict(nano.runs), nano.safeguarded
    if not task.qrels.positives:
        raise DataError(f"{task.full_name} has no positive judgment: there is nothing to write a page about")
    described = dict(nano.metadata.retrievers) if nano.metadata else {}
    if "bm25" not in runs:
        made = make_candidates(task, BM25Nano(), None)
        runs, described = runs | made.runs, described | made.retrievers
    runs = dict(sorted(runs.items(), key=lambda item: ROLES.index(role_of(item[0]))))
    measured = measure(task, runs, safeguarded, split=nano.split)
    report = audit([task], against=against, few_shot=built_in_examples()) if audited else None
    scored = [without_safeguard(r, safeguarded) if c == "reranking_hybrid" else r for c, r in runs.items()]
    shape, roles = tendencies(task), [role_of(config) for config in runs]
    first = {query_id: hits[0].doc_id for query_id, hits in runs["bm25"].top(1) if hits}
    return Inspected(
        task=task,
        split=nano.split,
        figures=measured.figures,
        contrasts=contrasts(measured.figures.best, measured.per_query),
        audit=report.tasks[0] if report else None,
        audit_settings=report.settings if report else {},
        scores=score_audit(task, report.tasks[0], scored) if report else [],
        traps=clearest_traps(task, runs["bm25"], most=TRAPS),
        tendencies=shape,
        terciles=_terciles(shape.overlap_of_query, task.qrels.query_ids, measured.per_query),
        slopes=slopes(shape.overlap_of_query, task.qrels.query_ids, measured.per_query),
        outcomes=outcomes(task, dict(zip(roles, scored, strict=True)), measured.per_query),
        trapped=len(lexical_traps(task, first)),
        empty={role: int((run.lengths() == 0).sum()) for role, run in zip(roles, scored, strict=True)},
        made_by={config: str(facts["name"]) for config, facts in described.items() if "name" in facts},
        columns=nano.columns,
        metadata=nano.metadata,
    )


def _terciles(overlap: Mapping[str, float], judged: IdTable, per_query: Mapping[str, Float64]) -> list[Tercile]:
    """Queries in three parts, from few shared words to many; equal shares stay together."""
    have = sorted((value, query_id) for query_id, value in overlap.items() if query_id in judged)
    if len(have) < FEWEST_FOR_THIRDS:
        return []
    labelled = zip(thirds([value for value, _ in have]), have, strict=True)
    found = []
    for third, members in groupby(labelled, key=itemgetter(0)):
        part = [member for _, member in members]
        rows = judged.positions(query_id for _, query_id in part)
        means = {role: float(values[rows].mean()) for role, values in per_query.items()}
        found.append(Tercile(("fewest", "middle", "most")[third], len(part), part[0][0], part[-1][0], means))
    return found


def outcomes(task: Task, runs: Mapping[str, Run], per_query: Mapping[str, Float64]) -> list[Outcome]:
    """Every judged query; `runs` are by role, without appended positives."""
    found = []
    for row, query_id in enumerate(task.qrels.query_ids):
        grades = {d: g for d, g in task.qrels.of(query_id).items() if g > 0}
        ranks, best = dict[str, int | None](), dict[str, float]()
        for role, run in runs.items():
            listed = [hit.doc_id for hit in run.of(query_id)] if query_id in run.query_ids else []
            ranks[role] = next((rank for rank, doc in enumerate(listed, 1) if doc in grades), None)
            best[role] = _dcg([grades[d] for d in listed if d in grades]) / (_dcg(list(grades.values())) or 1.0)
        found.append(Outcome(query_id, {role: float(values[row]) for role, values in per_query.items()}, ranks, best))
    return found


def _dcg(grades: list[int]) -> float:
    """Discounted gain of documents in the best order."""
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(sorted(grades, reverse=True)[:CUTOFF], 1))


def slopes(overlap: Mapping[str, float], judged: IdTable, per_query: Mapping[str, Float64]) -> list[Slope]:
    """Each profile on the third of queries with the fewest shared terms against the third with the most."""
    have = [query_id for query_id in judged if query_id in overlap]
    if len(have) < FEWEST_FOR_THIRDS:
        return []
    parts, rows = thirds([overlap[query_id] for query_id in have]), judged.positions(have)
    fewest, most = rows[parts == 0], rows[parts == 2]
    if not len(fewest) or not len(most):
        return []
    found = []
    for role, values in per_query.items():
        drawn = Bootstrap([values[None, fewest], values[None, most]], INTERVALS)
        bounds = drawn.bounds(np.ones((1, 1)), np.array([-1.0, 1.0]))
        means = float(values[fewest].mean()), float(values[most].mean())
        found.append(Slope(role, *means, float(bounds.low[0]), float(bounds.high[0])))
    return found
