"""Candidates of a Nano task and their scores.

Candidates are BM25's, a dense retriever's, and the hybrid of both that rerankers start from: made here, or read back
from a folder. Their scores are measured with intervals, or are those that were published.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from ..core import NO_DOCUMENT, DataError, Run, Task, UsageError
from ..core.options import Options
from ..core.spec import Content, Spec
from ..core.stores import open_store
from ..fuse import ReciprocalRank
from ..results.ledger import ledger
from ..retrieve import Retriever, get_retriever, retrievers
from ..scoring import parse_measures, score
from ..scoring.compare import compare
from ..scoring.evaluation import ScoreSet, TaskScores
from ..scoring.intervals import Bootstrap, Settings
from ..scoring.measures import Float64
from ..tasks import TaskRef, entries, stats
from ..tasks.formats.parquet import candidate_configs, read_candidates, split_columns
from ..tasks.nano.figures import ROLES, Contrast, NanoProfile, ProfileFigures, TaskFigures, group, published_shapes
from ..tasks.nano.folder import HYBRID, Metadata, config_name, read_metadata, role_of
from .experiment import missing_for

DEPTH = 500
HYBRID_DEPTH = 100
HYBRID_K = 100
AUTOMATIC = ("harrier", "bge-small")
"""NanoR2MED's own dense model where it is at hand, else the embedded default."""


class Safeguard(NamedTuple):
    """Which positive a hybrid list without one gets: the first judged, or one drawn as NanoR2MED's builder does."""

    rule: Literal["first", "random"] = "first"
    seed: int = 0

    def choose(self, positives: Sequence[str], split: str, query_id: str) -> str:
        """One of a query's positives; the draw depends on the seed, the split and the query alone."""
        if self.rule == "first":
            return positives[0]
        drawn = random.Random(f"{self.seed}\0{split}\0{query_id}\0positive_safeguard")
        return drawn.choice(sorted(positives))


class Candidates(NamedTuple):
    """Ranked candidates by config, and the queries whose hybrid list got a positive appended."""

    runs: dict[str, Run]
    retrievers: dict[str, dict[str, object]]
    safeguarded: list[str]


def dense_retriever(spec: str, options: Options | None = None) -> Retriever | None:
    """The retriever behind `--dense`: a name, `none`, or `auto` for the first of the usual ones that can run here."""
    if spec == "auto":
        spec = next((name for name in AUTOMATIC if not missing_for(name)), "none")
    if spec == "none":
        return None
    retriever = get_retriever(harrier() if spec == "harrier" else spec, options)
    if retriever.kind == "lexical":
        raise UsageError(f"{spec!r} is not a dense retriever; the BM25 profile is chosen with --bm25")
    return retriever


def harrier() -> Spec:
    """Harrier as NanoR2MED asks it: with one prompt of its own for every task."""
    pack = Path(str(files("r2med.tasks.nano").joinpath("web_search_query.toml")))
    return retrievers.spec("harrier", prompts=Content.of(pack))


def make_candidates(
    task: Task, bm25: Retriever, dense: Retriever | None, safeguard: Safeguard | None = None
) -> Candidates:
    """Retrieve and fuse; without a dense retriever there is no hybrid either."""
    runs = {"bm25": bm25.retrieve(task, depth=DEPTH).renamed("bm25")}
    described: dict[str, dict[str, object]] = {"bm25": {"name": bm25.name, "top_k": DEPTH, **bm25.describe()}}
    if dense is None:
        return Candidates(runs, described, [])
    config = config_name("harrier" if dense.spec == harrier() else dense.name)
    runs[config] = dense.retrieve(task, depth=DEPTH).renamed(config)
    described[config] = {"name": dense.name, "top_k": DEPTH, **dense.describe()}
    safeguard, fusion = safeguard or Safeguard(), ReciprocalRank(HYBRID_K, "rank")
    fused = fusion.fuse(list(runs.values()), task, HYBRID_DEPTH, HYBRID)
    runs[HYBRID], safeguarded = with_safeguard(fused, task, safeguard)
    described[HYBRID] = {
        "name": "rrf", "k": HYBRID_K, "ties": fusion.ties, "top_k": HYBRID_DEPTH, "of": ["bm25", config],
        "safeguard": safeguard._asdict(),
    }  # fmt: skip
    return Candidates(runs, described, safeguarded)


def with_safeguard(run: Run, task: Task, safeguard: Safeguard) -> tuple[Run, list[str]]:
    """Append one positive, at rank 101 of a full list, where a list holds none: a reranker needs something to find.

    It is never part of recall.
    """
    docs = np.concatenate((run.docs, np.full((len(run), 1), NO_DOCUMENT, dtype=np.int32)), axis=1)
    scores = np.concatenate((run.scores, np.full((len(run), 1), -np.inf, dtype=np.float32)), axis=1)
    lengths, safeguarded = run.lengths(), []
    for row, query_id in enumerate(run.query_ids):
        judged = [d for d, grade in task.qrels.of(query_id).items() if grade > 0 and d in run.doc_ids]
        if judged and not np.isin(run.docs[row], run.doc_ids.positions(judged)).any():
            at = int(lengths[row])
            docs[row, at] = run.doc_ids.position(safeguard.choose(judged, task.name, query_id))
            scores[row, at] = np.nextafter(scores[row, at - 1], np.float32(-np.inf)) if at else np.float32(0)
            safeguarded.append(query_id)
    return Run(run.query_ids, run.doc_ids, docs, scores, name=run.name), safeguarded


def without_safeguard(run: Run, safeguarded: set[str]) -> Run:
    """The hybrid lists as they were retrieved: nothing behind rank 100, nor the last of a shorter safeguarded list."""
    docs, scores = run.docs[:, :HYBRID_DEPTH].copy(), run.scores[:, :HYBRID_DEPTH].copy()
    lengths = run.lengths()
    for row, query_id in enumerate(run.query_ids):
        if query_id in safeguarded and lengths[row] <= HYBRID_DEPTH:
            docs[row, lengths[row] - 1], scores[row, lengths[row] - 1] = NO_DOCUMENT, -np.inf
    return Run(run.query_ids, run.doc_ids, docs, scores, name=run.name)


MEASURES = parse_measures(["nDCG@10", "hit@10", "R@100", "R@1000", "hit@1000"])
INTERVALS = Settings()
"""Those of scores everywhere else, so that a page and a table of the same lists agree."""
PUBLISHED_PROTOCOL = "nano-profile"
PUBLISHED = {"bm25": ("bm25", "bm25"), "dense": ("harrier", config_name("harrier")), "hybrid": ("hybrid", HYBRID)}
"""The system of the ledger and the config of each profile."""


class Measured(NamedTuple):
    """The figures of a task with what they were made of."""

    figures: TaskFigures
    per_query: dict[str, Float64]  # nDCG@10 by role


class NanoTask(NamedTuple):
    """A task with the candidates that lie beside it."""

    task: Task
    split: str
    runs: dict[str, Run]
    metadata: Metadata | None
    columns: dict[str, list[str]]
    """Of its files, by config; empty where it is not a Nano folder."""

    @property
    def safeguarded(self) -> set[str]:
        """Queries whose hybrid list ends in an appended positive, as far as the folder says."""
        return set(self.metadata.safeguarded_queries) if self.metadata else set()

    def measure(self, *, intervals: bool = True) -> Measured:
        """The figures of its profiles."""
        return measure(self.task, self.runs, self.safeguarded, split=self.split, intervals=intervals)


def read_nano(ref: TaskRef) -> NanoTask:
    """Read a task and its candidates; the metadata must belong to the data."""
    path = ref.present()
    task, store = ref.load(), open_store(path)
    configs = candidate_configs(store, ref.split) if ref.split else []
    ids = task.query_ids, task.documents.ids
    runs = {config: read_candidates(store, config, ref.split, *ids) for config in configs}
    dense = [config for config in runs if role_of(config) == "dense"]
    if len(dense) > 1:
        raise DataError(f"{ref.split} has several dense profiles ({', '.join(dense)}); keep one", path=path)
    metadata = read_metadata(path, ref.split) if ref.split else None
    if metadata is not None and metadata.fingerprint != task.fingerprint:
        raise DataError(f"metadata/{ref.split}.json was made for other data; build the task again", path=path)
    columns = split_columns(store, ref.split) if configs else {}
    return NanoTask(task, ref.split or ref.name, runs, metadata, columns)


def profile(refs: Sequence[TaskRef], *, source: str, bm25: Retriever | None = None) -> NanoProfile:
    """The table of a Nano group; with `bm25`, lists of that retriever take the place of the BM25 lists found."""
    read = [read_nano(ref) for ref in refs]
    if bm25 is not None:
        read = [r._replace(runs=r.runs | make_candidates(r.task, bm25, None).runs) for r in read]
    if bare := next((r for r in read if not r.runs), None):
        raise DataError(f"{bare.task.full_name} has no candidates: it is not a Nano task (r2med nano build makes one)")
    return group([r.measure().figures for r in read], source=source)


def measure(
    task: Task, runs: Mapping[str, Run], safeguarded: set[str], *, split: str = "", intervals: bool = True
) -> Measured:
    """Score every profile of a task."""
    profiles: dict[str, ProfileFigures] = {}
    per_query: dict[str, Float64] = {}
    for config, run in sorted(runs.items(), key=lambda item: ROLES.index(role_of(item[0]))):
        role = role_of(config)
        scored = without_safeguard(run, safeguarded) if role == "hybrid" else run
        evaluation = score(scored, task.qrels, MEASURES)
        means = evaluation.means
        per_query[role] = evaluation.per_query["ndcg_at_10"]
        profiles[role] = ProfileFigures(
            profile=config,
            top_k=int(scored.lengths().max(initial=0)),
            ndcg_at_10=means["ndcg_at_10"],
            hit_at_10=means["hit_at_10"],
            recall_at_100=evaluation.micro_recall["recall_micro_at_100"],
            recall_macro_at_100=means["recall_at_100"],
            ndcg_at_10_interval=mean_interval(per_query[role]) if intervals else None,
            positives_covered=evaluation.micro_recall["recall_micro_at_1000"],
            queries_covered=means["hit_at_1000"],
            safeguard_rows=int((run.lengths() > scored.lengths()).sum()),
        )
    facts = msgspec.structs.asdict(stats(task))
    shared = {name: facts[name] for name in TaskFigures.__struct_fields__ if name in facts and name != "task"}
    figures = TaskFigures(
        task=task.name,
        split=split or task.name,
        positives_per_query=facts["positives_mean"],
        profiles=profiles,
        **shared,
    )
    return Measured(figures, per_query)


def mean_interval(values: Float64) -> tuple[float, float]:
    """A 95 % interval of the mean over queries."""
    bounds = Bootstrap([values[None, :]], INTERVALS).scores(np.ones(1))
    return float(bounds.low[0]), float(bounds.high[0])


def contrasts(best: str, per_query: Mapping[str, Float64]) -> list[Contrast]:
    """The best profile against each of the others on the same queries, as `r2med compare` of all of them has it."""
    names = (*(name for name in per_query if name != best), best)
    if len(names) < 2:
        return []
    scores = np.stack([per_query[name] for name in names])
    queries = tuple(map(str, range(scores.shape[1])))
    pairs = compare(ScoreSet(names, (TaskScores("task", queries, scores),), 1), INTERVALS).pairs
    of_best = [(pair.first, pair.macro) for pair in pairs if pair.second == best]
    return [Contrast(best, name, d.difference, d.low, d.high, d.different) for name, d in of_best]


def published_profile() -> NanoProfile:
    """NanoR2MED's own figures, from the ledger: facts we did not compute, and marked so."""
    found = {role: ledger().find(system, "nano", PUBLISHED_PROTOCOL) for role, (system, _) in PUBLISHED.items()}
    source, shapes = found["bm25"].source, published_shapes()
    positives = dict(zip(source.tasks, source.positives, strict=True))
    queries = dict(zip(source.tasks, source.queries, strict=True))
    tasks = []
    for entry in entries("nano"):
        shape = shapes[entry.name]
        safeguards = shape.pop("safeguards")
        profiles = {
            role: ProfileFigures(
                profile=PUBLISHED[role][1],
                top_k=HYBRID_DEPTH if role == "hybrid" else DEPTH,
                ndcg_at_10=figure.tasks("ndcg_at_10")[entry.name],
                hit_at_10=figure.tasks("hit_at_10")[entry.name],
                recall_at_100=figure.tasks("recall_micro_at_100")[entry.name],
                safeguard_rows=safeguards if role == "hybrid" else 0,
                measured=False,
            )
            for role, figure in found.items()
        }
        tasks.append(
            TaskFigures(
                task=entry.name,
                split=entry.split,
                queries=queries[entry.name],
                documents=entry.documents,
                positives=positives[entry.name],
                positives_per_query=positives[entry.name] / queries[entry.name],
                profiles=profiles,
                **shape,
            )
        )
    return group(tasks, source=source.title)
