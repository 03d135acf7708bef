"""How good the benchmark is that a project gives: holes of systems outside the pool, depth, queries, power, artefacts.

Everything is computed from the final grades and the rankings behind the pool, by nDCG@10, over the queries that have
a relevant passage. A system outside the pool is played by each system of the pool in turn: what only it found counts
as unjudged, together with what only systems found that are made from it: its fusions and rerankings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import Literal

import msgspec
import numpy as np

from ..core import Documents, Qrels, R2MedError, Run, Task, UsageError
from ..pipeline import SystemSpec
from ..pipeline.artefact_report import Finding, counted
from ..pipeline.artefacts import artefacts
from ..pipeline.nano_build import kendall
from ..scoring import MAIN, parse_measures, score
from ..scoring.compare import compare
from ..scoring.evaluation import ScoreSet, TaskScores
from ..scoring.measures import Float64
from ..scoring.populations import design
from . import Project
from .final import Final, Judged, Judgments, final_grades, final_judgments, read_judges, sort_queries
from .journal import Slot

HIT_10, HIT_1, JUDGED = parse_measures(["hit@10", "hit@1", "judged@10"])
FEWEST_SYSTEMS = 3  # of two, every query either agrees or disagrees wholly
MOST_LOST = 0.02
"""The loss of a system outside the pool, in nDCG@10, from which the verdict is a warning."""
EFFECT = 0.05
SHOWN = 5


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """One system in the pool, and as if it had not been."""

    system: str
    derived: list[str]  # systems made from it, left out with it
    found_alone: int  # judged pairs that the pool has from these only
    ndcg: float
    ndcg_outside: float | None  # None where no other system would be left
    judged: float  # the share of its first ten that is judged
    judged_outside: float | None
    rank: int
    rank_outside: int | None


class AtDepth(msgspec.Struct, frozen=True, kw_only=True):
    """The order of systems if the pool had been shallower."""

    depth: int
    pairs: int
    tau: float  # Kendall's, with the order by all judgments
    same_order: bool


class QueryRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one query tells about systems."""

    query_id: str
    relevant: int  # passages, copies counted once
    best: float
    mean: float
    discrimination: float | None
    """Correlation of its scores with the systems' means over all other queries; None where nothing varies."""


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """What these queries can show."""

    queries: int
    detectable: float | None
    """The smallest true difference found in four of five such sets of queries: the median pair of systems."""
    queries_for_effect: int | None  # that a difference of `effect` needs
    effect: float = EFFECT


class JudgeRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge has done."""

    name: str
    kind: str
    spec: str
    finished: bool
    graded: int
    skipped: int
    seconds: float | None  # of a judgment, the median
    forks: int

    @classmethod
    def of(cls, judged: Judged) -> JudgeRow:
        """The row of a judge."""
        return cls(
            name=judged.name,
            kind=judged.kind,
            spec=judged.spec,
            finished=judged.finished,
            graded=len(judged.grades),
            skipped=judged.skipped,
            seconds=median(judged.seconds) if judged.seconds else None,
            forks=len(judged.forks),
        )


class Remark(msgspec.Struct, frozen=True):
    """One sentence about the benchmark."""

    level: Literal["ok", "warning"]
    text: str


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """All that is said about a benchmark."""

    project: str
    queries: int
    queries_without_relevant: list[str]  # judged, and nothing is relevant
    queries_open: list[str]  # a passage of theirs has no final grade
    pairs: int
    graded: int
    copies: int  # documents that get the grade of a passage
    copy_groups: int
    judges: list[JudgeRow]
    forks: int
    systems: list[Outside]
    depths: list[AtDepth]
    stable_depth: int | None  # from which the order of systems no longer changes; None with one system
    unsolved: list[str]  # no system has a relevant passage in its first ten
    solved_by_all: list[str]  # every system has a relevant passage first
    per_query: list[QueryRow]
    power: Power | None
    artefacts: list[Finding]  # whether documents can be told relevant without the query; empty without the corpus
    verdicts: list[Remark]


def check_project(
    project: Project,
    *,
    unfinished: bool = False,
    documents: Documents | None = None,
    published: Collection[str] | None = None,
) -> Check:
    """Look at the benchmark that the final grades give; `unfinished` counts judges who have not finished, too.

    `documents` is the corpus that was pooled from; without it nothing is said about artefacts. Figures are over the
    queries that have a relevant passage: all of them, or those that are `published`.
    """
    final = final_grades(project, unfinished=unfinished)
    grades, queries = final.grades, sort_queries(project, final.grades)
    if published is not None:
        queries = queries._replace(usable=[query_id for query_id in queries.usable if query_id in published])
    if not queries.usable:
        missing = f": {', '.join(final.left_out)} have not finished" if final.left_out else ""
        raise UsageError(f"no query has a passage with a final grade that counts as relevant{missing}")
    runs, judged = project.runs(), final_judgments(project, grades, queries.usable)
    scores = _scores(runs, judged.qrels)
    pool = [pooled for of_query in project.pool.values() for pooled in of_query]
    hits = np.stack([score(run, judged.qrels, [HIT_10]).per_query[HIT_10] for run in runs.values()])
    first = np.stack([score(run, judged.qrels, [HIT_1]).per_query[HIT_1] for run in runs.values()])
    depths = _depths(runs, judged, scores) if len(runs) > 1 else []
    found = Check(
        project=project.settings.name,
        queries=len(queries.usable),
        queries_without_relevant=queries.without_relevant,
        queries_open=queries.open,
        pairs=len(pool),
        graded=len(grades),
        copies=sum(len(pooled.copies) for pooled in pool),
        copy_groups=sum(bool(pooled.copies) for pooled in pool),
        judges=[JudgeRow.of(judge) for judge in read_judges(project)],
        forks=sum(map(len, final.forks.values())),
        systems=_outside(runs, judged, scores),
        depths=depths,
        stable_depth=_stable(depths),
        unsolved=[q for q, best in zip(queries.usable, hits.max(axis=0).tolist(), strict=True) if not best],
        solved_by_all=[q for q, worst in zip(queries.usable, first.min(axis=0).tolist(), strict=True) if worst],
        per_query=_per_query(project, grades, queries.usable, scores),
        power=_power(list(runs), queries.usable, scores),
        artefacts=_artefacts(project, queries.usable, documents, judged.qrels) if documents is not None else [],
        verdicts=[],
    )
    return msgspec.structs.replace(found, verdicts=verdicts(found, final))


def _scores(runs: Mapping[str, Run], qrels: Qrels) -> Float64:
    """nDCG@10: a row per system, a column per query."""
    return np.stack([score(run, qrels, [MAIN]).per_query[MAIN] for run in runs.values()])


def _outside(runs: Mapping[str, Run], judged: Judgments, scores: Float64) -> list[Outside]:
    found = []
    for row, (name, run) in enumerate(runs.items()):
        derived = [other for other in runs if _derived(other, name)]
        fewer = judged.without(frozenset((name, *derived)))
        left = len(derived) + 1 < len(runs)
        outside = _scores(runs, fewer).mean(axis=1)
        found.append(
            Outside(
                system=name,
                derived=derived,
                found_alone=len(judged.qrels) - len(fewer),
                ndcg=float(scores[row].mean()),
                ndcg_outside=float(outside[row]) if left else None,
                judged=score(run, judged.qrels, [JUDGED]).mean(JUDGED),
                judged_outside=score(run, fewer, [JUDGED]).mean(JUDGED) if left else None,
                rank=_rank(scores.mean(axis=1), row),
                rank_outside=_rank(outside, row) if left else None,
            )
        )
    return found


def _artefacts(project: Project, queries: Sequence[str], documents: Documents, qrels: Qrels) -> list[Finding]:
    asked = tuple(project.queries[query_id] for query_id in queries)
    task = Task(name=project.settings.name, queries=asked, documents=documents, qrels=qrels)
    return artefacts([task], seed=project.settings.seed).tasks[0].findings


def _rank(means: Float64, row: int) -> int:
    return 1 + int((means > means[row] + 1e-12).sum())


def _derived(other: str, name: str) -> bool:
    """Whether a system is made from another: it has all its parts, and more retrievers or steps than it."""
    try:
        whole, part = SystemSpec.parse(other), SystemSpec.parse(name)
    except R2MedError:  # the name of a stored run, or of somebody's own system
        return False
    return _steps(part) < _steps(whole)


def _steps(spec: SystemSpec) -> set[object]:
    """The retrievers, the expander and, each with those before it, the rerankers."""
    rerankers = spec.reranker.links if spec.reranker else ()
    chains = {rerankers[: place + 1] for place in range(len(rerankers))}
    return {*spec.retrievers, spec.expander, None, *chains}


def _depths(runs: Mapping[str, Run], judged: Judgments, scores: Float64) -> list[AtDepth]:
    found, full = [], scores.mean(axis=1)
    for depth in sorted(set(judged.best_rank[judged.best_rank > 0].tolist())):
        qrels = judged.at_depth(depth)
        means = _scores(runs, qrels).mean(axis=1)
        found.append(
            AtDepth(
                depth=depth,
                pairs=len(qrels),
                tau=float(kendall(means[None], full[None])[0]),
                same_order=bool((_order(means) == _order(full)).all()),
            )
        )
    return found


def _order(means: Float64) -> Float64:
    differences = means[:, None] - means[None]
    return np.where(np.abs(differences) < 1e-12, 0.0, np.sign(differences))


def _stable(depths: Sequence[AtDepth]) -> int | None:
    """The depth from which the order stays as it is at last."""
    stable = None
    for row in reversed(depths):
        if not row.same_order:
            break
        stable = row.depth
    return stable


def _per_query(project: Project, grades: Mapping[Slot, int], queries: Sequence[str], scores: Float64) -> list[QueryRow]:
    least = project.settings.relevant_from
    rows = []
    for column, query_id in enumerate(queries):
        given = (grades.get((query_id, pooled.doc_id), 0) for pooled in project.pool[query_id])
        rows.append(
            QueryRow(
                query_id=query_id,
                relevant=sum(grade >= least for grade in given),
                best=float(scores[:, column].max()),
                mean=float(scores[:, column].mean()),
                discrimination=_discrimination(scores, column),
            )
        )
    return rows


def _discrimination(scores: Float64, column: int) -> float | None:
    systems, queries = scores.shape
    if systems < FEWEST_SYSTEMS or queries < 2:
        return None
    own = scores[:, column]
    others = (scores.sum(axis=1) - own) / (queries - 1)
    if np.ptp(own) < 1e-12 or np.ptp(others) < 1e-12:
        return None
    return float(np.corrcoef(own, others)[0, 1])


def _power(systems: Sequence[str], queries: Sequence[str], scores: Float64) -> Power | None:
    if len(systems) < 2 or len(queries) < 2:
        return None
    scored = ScoreSet(tuple(systems), (TaskScores("project", tuple(queries), scores),), 1)
    able = [pair.macro.detectable for pair in compare(scored).pairs]
    try:
        needed = design(scored, effect=EFFECT, systems=2, task_counts=(1,)).rows[0].queries_same_tasks
    except UsageError:  # these systems do not differ on any query
        needed = None
    shown = sorted(value for value in able if value is not None)
    middle = median(shown) if 2 * len(shown) > len(able) else None
    return Power(queries=len(queries), detectable=middle, queries_for_effect=needed)


def verdicts(found: Check, final: Final) -> list[Remark]:
    """What the figures mean, in plain sentences."""
    remarks = [_judging(found, final), *_pooling(found), *_queries(found), *_giveaways(found)]
    if found.forks:
        text = f"{found.forks} judgments were changed in two copies of the project at once: have them judged again."
        remarks.append(Remark("warning", text))
    return remarks


def _judging(found: Check, final: Final) -> Remark:
    left = found.pairs - found.graded
    if not left:
        return Remark("ok", f"All {found.pairs:,} pairs have a final grade.")
    waiting = f" {', '.join(final.left_out)} have not finished." if final.left_out else ""
    return Remark("warning", f"{left:,} of {found.pairs:,} pairs have no final grade yet.{waiting}")


def _pooling(found: Check) -> list[Remark]:
    lost, holes, system = max(
        ((s.ndcg - s.ndcg_outside, 1.0 - s.judged_outside, s.system) for s in found.systems
         if s.ndcg_outside is not None and s.judged_outside is not None),
        default=(0.0, 0.0, ""),
    )  # fmt: skip
    if not system:
        return [Remark("warning", "The pool comes from one system: what others would lose cannot be said.")]
    text = (
        f"Had {system} not been pooled, it would have lost {100 * lost:.1f} points of nDCG@10, "
        f"with {100 * holes:.0f} % of its first ten unjudged"
    )
    if lost > MOST_LOST:
        remarks = [Remark("warning", f"{text}: new systems are scored too low. Pool more unlike systems.")]
    else:
        remarks = [Remark("ok", f"{text}: systems outside the pool are scored about right.")]
    if found.stable_depth is None:
        return remarks
    deepest = found.depths[-1].depth
    if found.stable_depth == deepest > 1:
        text = f"The order of systems still changed at depth {deepest}, the last that was judged: judge deeper."
        return [*remarks, Remark("warning", text)]
    return [*remarks, Remark("ok", f"From depth {found.stable_depth} on the order of systems no longer changes.")]


def _queries(found: Check) -> list[Remark]:
    remarks = []
    if found.queries_without_relevant:
        named = _named(found.queries_without_relevant)
        remarks.append(Remark("warning", f"Nothing relevant was found for {named}: no system can be scored on them."))
    if found.unsolved:
        remarks.append(
            Remark("warning", f"No system has a relevant passage in its first ten for {_named(found.unsolved)}.")
        )
    if 2 * len(found.solved_by_all) > found.queries:
        text = f"Every system has a relevant passage first for {_named(found.solved_by_all)}: these are too easy."
        remarks.append(Remark("warning", text))
    against = [row.query_id for row in found.per_query if row.discrimination is not None and row.discrimination < 0]
    if against:
        text = f"The better systems do worse on {_named(against)}: look at their judgments."
        remarks.append(Remark("warning", text))
    if found.power is None:
        return remarks
    if found.power.detectable is None:
        return [*remarks, Remark("warning", f"{found.queries} queries are too few to show any difference.")]
    text = f"{found.queries} queries show differences of {100 * found.power.detectable:.1f} points of nDCG@10 or more"
    if found.power.queries_for_effect is not None and found.power.detectable > EFFECT:
        text += f"; {100 * EFFECT:.0f} points need about {found.power.queries_for_effect:,}"
    level: Literal["ok", "warning"] = "ok" if found.power.detectable <= EFFECT else "warning"
    return [*remarks, Remark(level, f"{text}.")]


def _giveaways(found: Check) -> list[Remark]:
    if not found.artefacts:
        text = "The corpus is not at hand: whether documents can be told relevant without the query is not known."
        return [Remark("warning", text)]
    failed = [finding for finding in found.artefacts if finding.verdict == "fails"]
    if failed:
        return [Remark("warning", f"Artefact: {finding.title}: {finding.why}.") for finding in failed]
    if all(finding.verdict == "cannot be told" for finding in found.artefacts):
        return [Remark("warning", "Whether documents give themselves away cannot be told yet.")]
    return [Remark("ok", f"No artefact was found: {counted(found.artefacts)}.")]


def _named(queries: Sequence[str]) -> str:
    shown = ", ".join(queries[:SHOWN]) + (" …" if len(queries) > SHOWN else "")
    return f"{len(queries)} queries ({shown})" if len(queries) > 1 else f"query {shown}"
