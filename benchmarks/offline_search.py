"""The best pipeline that needs no chat model: search what runs offline, tune on half the queries, test on the others.

    python benchmarks/offline_search.py FOLDER … --dense bge-small --system bm25+bge-small.rrf+maxsim@50

BM25 variants with constants and feedback, dense models with vector feedback, fusion weights and feedback within the
candidates (`neighbours`) are chosen by nDCG@10 on one half; the other half is scored with that choice, then the halves
change places, so that every query is tested once with settings that were chosen without it. Whole systems (`--system`)
are scored as they are. Without `--dense` only terms are searched; with it, documents are encoded, once, through the
cache of vectors. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import r2med
from r2med.core import Run, Task
from r2med.core.options import Options
from r2med.fuse import Fusion, ReciprocalRank, Weighted
from r2med.pipeline import Builder, SystemSpec
from r2med.pipeline.run import rank_systems
from r2med.scoring import score
from r2med.scoring.intervals import Bootstrap, Settings

Float64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
DEPTH = 1000
CONSTANTS = ("", *(f"k1={k1},b={b}" for k1 in (1.2, 2, 3, 5) for b in (0.6, 0.75, 0.9)))
TERM_FEEDBACK = (
    *(f"rm3:documents=5,terms={t},query={q}" for t in (10, 30) for q in (0.5, 0.8)),
    *(f"rocchio:documents=5,terms={t},beta={b}" for t in (10, 30) for b in (0.25, 0.75)),
)
VECTOR_FEEDBACK = (
    *(f"vector-average:documents={d}" for d in (1, 2, 3)),
    *(f"vector-rocchio:documents={d},alpha={a},beta={b}" for d in (3, 5, 10) for a, b in ((0.9, 0.1), (0.7, 0.3))),
)
FUSIONS: tuple[Fusion, ...] = (
    ReciprocalRank(),
    *(Weighted((round(w / 10, 1), round(1 - w / 10, 1))) for w in range(1, 10)),
)
NEIGHBOURS = tuple(f"neighbours:seeds={s},weight={w}" for s in (1, 2) for w in (0.2, 0.3, 0.4, 0.5, 0.6))


class Ranking(NamedTuple):
    """A system's ranking of a task, with each query's nDCG@10."""

    name: str
    run: Run
    values: Float64


class Row(NamedTuple):
    """A line of the table."""

    name: str
    chosen: str
    values: Float64


def lexical_systems() -> list[str]:
    """BM25 as R2MED and as Lucene computes it, with other constants, and with feedback."""
    plain = [f"{name}:{c}" if c else name for name in ("bm25", "bm25-lucene") for c in CONSTANTS]
    fed = [f"{feedback}+{name}" for feedback in TERM_FEEDBACK for name in ("bm25", "bm25:k1=2,b=0.75")]
    return plain + fed


def dense_systems(models: Sequence[str]) -> list[str]:
    """Each model alone and with vector feedback."""
    return [name for model in models for name in (model, *(f"{feedback}+{model}" for feedback in VECTOR_FEEDBACK))]


def values_of(run: Run, task: Task) -> Float64:
    """nDCG@10 of every judged query, in the order of the judgments."""
    return score(run, task.qrels, ["nDCG@10"]).per_query["nDCG@10"]


def rank(names: Sequence[str], task: Task, builder: Builder) -> list[Ranking]:
    """Every system's ranking."""
    systems = [builder.build(SystemSpec.parse(name)) for name in names]
    runs = rank_systems(task, systems, depth=DEPTH)
    return [Ranking(system.name, runs[system.name], values_of(runs[system.name], task)) for system in systems]


def halves(task: Task, seed: int) -> tuple[Mask, Mask]:
    """The judged queries in two parts, as masks; a seeded shuffle of their sorted ids."""
    ids = list(task.qrels.query_ids)
    order = sorted(ids)
    random.Random(seed).shuffle(order)
    first = set(order[: len(order) // 2])
    mask = np.array([query_id in first for query_id in ids])
    return mask, ~mask


def best(candidates: Sequence[Ranking], tuning: Mask) -> Ranking:
    """The candidate with the highest mean over the tuning queries; the first of equals."""
    return max(candidates, key=lambda ranking: float(ranking.values[tuning].mean()))


def cross_fitted(name: str, choices: Sequence[tuple[Ranking, Mask]]) -> Row:
    """Every query with the system that was chosen without it."""
    values = np.zeros(len(choices[0][1]))
    for ranking, tested in choices:
        values[tested] = ranking.values[tested]
    return Row(name, " / ".join(dict.fromkeys(ranking.name for ranking, _ in choices)), values)


def fused(lexical: Ranking, dense: Ranking, task: Task) -> list[Ranking]:
    """Two rankings under every fusion."""
    made = []
    for fusion in FUSIONS:
        name = f"[{lexical.name}] + [{dense.name}] {fusion.spec}"
        run = fusion.fuse([lexical.run, dense.run], task, DEPTH, name)
        made.append(Ranking(name, run, values_of(run, task)))
    return made


def moved(ranking: Ranking, task: Task, builder: Builder) -> list[Ranking]:
    """A ranking as it is, and with every feedback within its first hundred."""
    made = [ranking]
    for spec in NEIGHBOURS:
        run = builder.reranker(spec).rerank(task, ranking.run, 100)
        made.append(Ranking(f"{ranking.name} {spec}", run, values_of(run, task)))
    return made


def search(task: Task, dense: Sequence[str], whole: Sequence[str], seed: int, builder: Builder) -> list[Row]:
    """The table of one task."""
    terms = rank(lexical_systems(), task, builder)
    vectors = rank(dense_systems(dense), task, builder)
    fixed = rank(whole, task, builder)
    parts = halves(task, seed)
    plain = {ranking.name: ranking for ranking in (*terms, *vectors)}
    rows = [Row(name, "", plain[name].values) for name in ("bm25", "bm25-lucene", *dense)]
    rows += [Row(ranking.name, "", ranking.values) for ranking in fixed]
    chosen: dict[str, list[tuple[Ranking, Mask]]] = {}
    for tuning, tested in (parts, parts[::-1]):
        constants = [ranking for ranking in terms if "rm3" not in ranking.name and "rocchio" not in ranking.name]
        picks = {
            "BM25, tuned constants": best(constants, tuning),
            "BM25, tuned constants and feedback": best(terms, tuning),
        }
        if vectors:
            picks["dense, tuned feedback"] = best(vectors, tuning)
            plain_fusion = fused(picks["BM25, tuned constants"], best(vectors[:1], tuning), task)
            fed_fusion = fused(picks["BM25, tuned constants and feedback"], picks["dense, tuned feedback"], task)
            picks["both, tuned weights"] = best(plain_fusion, tuning)
            picks["both, tuned weights and feedback"] = best([*plain_fusion, *fed_fusion], tuning)
            near = moved(picks["both, tuned weights"], task, builder)
            picks["both, tuned weights and neighbours"] = best(near, tuning)
        for name, ranking in picks.items():
            chosen.setdefault(name, []).append((ranking, tested))
    return rows + [cross_fitted(name, choices) for name, choices in chosen.items()]


def table(task: Task, rows: Sequence[Row], against: str) -> str:
    """Means with 95 % intervals, and differences from one system with theirs; both by bootstrap over queries.

    The intervals are those of the choice that was made: another split of the queries may lead to another.
    """
    base = [row.name for row in rows].index(against)
    matrix = np.array([row.values for row in rows])
    bootstrap = Bootstrap([matrix], Settings())
    scores = bootstrap.scores(np.ones(1))
    contrasts = np.array([np.eye(len(rows))[i] - np.eye(len(rows))[base] for i in range(len(rows))])
    gains = bootstrap.bounds(contrasts, np.ones(1))
    lines = [f"### {task.name}: {matrix.shape[1]} queries, {len(task.documents):,} documents", ""]
    lines += [f"| system | nDCG@10 | 95 % | against {against} | chosen |", "|---|---|---|---|---|"]
    for i, row in enumerate(rows):
        mean, low, high = (100 * float(v[i]) for v in (scores.value, scores.low, scores.high))
        gain, least, most = (100 * float(v[i]) for v in (gains.value, gains.low, gains.high))
        against = f"{gain:+.1f} ({least:+.1f} to {most:+.1f})" if i != base else ""
        lines.append(f"| {row.name} | {mean:.1f} | {low:.1f}–{high:.1f} | {against} | {row.chosen} |")
    return "\n".join(lines)


def main() -> None:
    """Search each folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--dense", action="append", default=[], help="a dense retriever; repeatable")
    parser.add_argument("--system", action="append", default=[], help="a whole system, scored as it is; repeatable")
    parser.add_argument("--against", default="bm25", help="the system that the others are compared with")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with Builder(Options()) as builder:
        for folder in given.folders:
            task = r2med.load(str(folder))
            rows = search(task, given.dense, given.system, given.seed, builder)
            print(table(task, rows, given.against), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
