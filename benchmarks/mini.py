"""How good a benchmark Mini is, in Markdown.

Agreement of its judges, scores of its pooled systems, and whether it ranks systems as real sets do:

    python benchmarks/mini.py
    python benchmarks/mini.py --real FOLDER...              # tasks or Nano groups: the last table
    python benchmarks/mini.py --real FOLDER... --lexical    # encodes Mini alone; the rest is in docs/results.md

The judging projects and the runs behind the pool lie in `judging/mini`; artefacts are in `benchmarks/artefacts.py`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from r2med.core import Task
    from r2med.scoring.measures import Float64

PROJECTS = Path(__file__).parents[1] / "judging" / "mini"
SYSTEMS = (
    "bm25", "bm25-lucene", "bm25-nano", "bm25:k1=1.2,b=0.75", "bm25-lucene:k1=2,b=1", "bm25-nano:analyzer=english",
    "bge-small", "minilm", "bm25+bge-small.rrf", "bm25+minilm.rrf", "bm25-lucene+bge-small.rrf",
    "bm25+bge-small.weighted:w=0.3/0.7", "bm25+bge-small.weighted:w=0.7/0.3", "bm25-nano+bge-small.combmnz",
    "bge-small+minilm.rrf", "bm25+bge-small.rrf+neighbours@100",
    "bm25:b=0.9,k1=1.2+bge-small.weighted:w=0.3/0.7+neighbours@100",
)  # fmt: skip
LEXICAL = ["bm25:k1=0.4,b=0.2", "bm25-lucene:k1=0.4,b=0", "bm25:analyzer=whitespace", "bm25-lucene:analyzer=regex"]
RESAMPLES = 2_000
DEPTH = 1_000
DRAWS = 20


def agreement() -> None:
    """How far the two judges of each task agree."""
    from r2med.judge import open_project
    from r2med.judge.summary import summarise

    print("| Task | Pairs | Equal, % | Equal where one saw relevance, % | κ, linear | Adjudicated |")
    print("|:---|---:|---:|---:|---:|---:|")
    for folder in sorted(PROJECTS.iterdir()):
        project = open_project(folder)
        found = summarise(project)
        pair = found.pairs[0]
        grades = [journal.grades() for journal in project.journals("llm")]
        seen = [slot for slot in grades[0] if grades[0][slot] or grades[1][slot]]
        same = sum(grades[0][slot] == grades[1][slot] for slot in seen) / len(seen)
        kappa = pair.kappa["linear"]
        low = "–" if kappa.low is None else f"{kappa.low:.2f} to {kappa.high:.2f}"
        print(
            f"| {folder.name} | {pair.pairs:,} | {100 * (pair.agree or 0):.1f} | {100 * same:.0f} "
            f"| {kappa.value:.2f} ({low}) | {found.final.get('adjudicated', 0)} |"
        )


def per_query(results: Path, tasks: str | Sequence[str], systems: Sequence[str]) -> dict[str, list[Float64]]:
    """nDCG@10 by system: an array of queries for each task."""
    import r2med
    from r2med.results import ResultIndex

    r2med.run(*r2med.systems(*systems), tasks=tasks, results=results)
    found: dict[str, list[Float64]] = {}
    for stored in ResultIndex([results]).all():
        found.setdefault(stored.system, []).append(stored.scores(["ndcg_at_10"]).values[0])
    return found


def macro(scores: dict[str, list[Float64]], rng: np.random.Generator | None = None) -> Float64:
    """The mean of tasks for each system, over all queries or over a bootstrap sample of them."""
    sizes = [len(task) for task in next(iter(scores.values()))]
    drawn = [rng.integers(0, n, n) if rng else np.arange(n) for n in sizes]
    return np.array([np.mean([task[at].mean() for task, at in zip(of, drawn, strict=True)]) for of in scores.values()])


def ranking(real: Sequence[str], systems: Sequence[str]) -> dict[str, float]:
    """Kendall's τ between Mini's order of systems and that of real sets; their means on the real sets."""
    from r2med.pipeline.nano_build import kendall

    with tempfile.TemporaryDirectory() as folder:
        mini = per_query(Path(folder, "mini"), "mini", systems)
        other = per_query(Path(folder, "real"), real, systems)
    other = {name: other[name] for name in mini}
    one, two = macro(mini), macro(other)
    table(list(mini), one, two)
    rng = np.random.default_rng(0)
    draws = [np.stack([macro(scores, rng) for _ in range(RESAMPLES)]) for scores in (mini, other)]
    low, high = np.quantile(kendall(*draws), [0.025, 0.975])
    tau = kendall(one[None], two[None])[0]
    print(f"\nKendall's τ of {len(mini)} systems: {tau:.2f} ({low:.2f} to {high:.2f})")
    return {name: float(mean) for name, mean in zip(mini, two, strict=True)}


def table(systems: Sequence[str], mini: Float64, real: Float64) -> None:
    """Two means of each system, the best on Mini first."""
    print("\n| System | Mini | Real sets |\n|:---|---:|---:|")
    for at in np.argsort(-mini):
        print(f"| `{systems[at]}` | {100 * mini[at]:.1f} | {100 * real[at]:.1f} |")


def with_embedders(real: dict[str, float]) -> None:
    """The same with systems whose means on the real sets were measured before; the interval is over Mini's queries."""
    from r2med.pipeline.estimates import rates
    from r2med.pipeline.nano_build import kendall

    real = {name: float(np.mean(of)) / 100 for name, of in rates().measured.systems.items()} | real
    with tempfile.TemporaryDirectory() as folder:
        mini = per_query(Path(folder), "mini", list(real))
    one, two = macro(mini), np.array([real[name] for name in mini])
    table(list(mini), one, two)
    rng = np.random.default_rng(0)
    draws = np.stack([macro(mini, rng) for _ in range(RESAMPLES)])
    low, high = np.quantile(kendall(draws, np.broadcast_to(two, draws.shape)), [0.025, 0.975])
    tau = kendall(one[None], two[None])[0]
    print(f"\nKendall's τ of {len(mini)} systems: {tau:.2f} ({low:.2f} to {high:.2f}, over Mini's queries)")


def pooled() -> None:
    """Scores of the systems whose rankings ship, and which of them Mini tells apart."""
    from r2med.pipeline.calibration import calibrate
    from r2med.tasks import load_all

    found = calibrate(load_all("mini"))
    assert found is not None
    tasks = list(found.systems[0].tasks)
    names = [name.partition("/")[2] for name in tasks]
    print(f"\n| System | {' | '.join(names)} | Macro | Unjudged, at most, % |\n|:---|{'---:|' * (len(tasks) + 2)}")
    for of in found.systems:
        cells = " | ".join(f"{100 * of.tasks[task]:.1f}" for task in tasks)
        print(f"| `{of.system}` | {cells} | {100 * of.ndcg_at_10:.1f} | {100 * of.unjudged_at_10:.1f} |")
    print("\n| Pair | Difference | 95 % interval | Detectable, macro | Detectable, by query |")
    print("|:---|---:|---:|---:|---:|")
    for pair in found.pairs:
        one, two = pair.systems
        able = [100 * (value or float("nan")) for value in (pair.detectable, pair.detectable_by_query)]
        print(
            f"| `{one}` – `{two}` | {100 * pair.difference:+.1f} | {100 * pair.low:+.1f} to {100 * pair.high:+.1f} "
            f"| {able[0]:.1f} | {able[1]:.1f} |"
        )


def between_queries(tasks: Sequence[str]) -> None:
    """What BM25 gains by looking at the other queries: what a document scores for them is taken off.

    The gain with a quarter of the queries says how much comes from documents that are relevant to another query.
    """
    import r2med

    print("\n| Task | Documents relevant to some query, % | BM25 | Less other queries | Gain | With a quarter |")
    print("|:---|---:|---:|---:|---:|---:|")
    rng = np.random.default_rng(0)
    for task in (task for name in tasks for task in r2med.load_all(name)):
        run = r2med.BM25().retrieve(task, depth=DEPTH)
        scores = np.zeros((len(task.queries), len(task.documents)))
        for row, query_id in enumerate(task.query_ids):
            hits = run.of(query_id)
            scores[row, [task.documents.ids.position(hit.doc_id) for hit in hits]] = [hit.score for hit in hits]
        scores = (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)
        every = np.flatnonzero([bool(task.qrels.of(query_id)) for query_id in task.query_ids])  # that are judged
        alone, gain = ndcg(task, scores[every], every), less_others(task, scores, every)
        low, high = np.quantile(rng.choice(gain, (RESAMPLES, len(gain))).mean(axis=1), [0.025, 0.975])
        fewer = [less_others(task, scores, rng.permutation(every)[: len(every) // 4]).mean() for _ in range(DRAWS)]
        relevant = len({at for query in task.queries for at in task.positives(query.id)}) / len(task.documents)
        print(
            f"| {task.full_name} | {100 * relevant:.0f} | {100 * alone.mean():.1f} | {100 * (alone + gain).mean():.1f} "
            f"| {100 * gain.mean():+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) | {100 * np.mean(fewer):+.1f} |"
        )


def less_others(task: Task, scores: Float64, rows: npt.NDArray[np.intp]) -> Float64:
    """What some queries gain when each document loses what it scores for the others of them."""
    powers, columns = np.exp(scores[rows]), np.arange(scores.shape[1])
    others, most = powers.sum(axis=0) - powers, powers.argmax(axis=0)
    powers[most, columns] = 0
    others[most, columns] = powers.sum(axis=0)  # taken off the sum, a large one would leave nothing of it
    changed = scores[rows] - np.log(others / (len(rows) - 1))
    return ndcg(task, changed, rows) - ndcg(task, scores[rows], rows)


def ndcg(task: Task, scores: Float64, rows: npt.NDArray[np.intp]) -> Float64:
    """nDCG@10 of some queries, by the scores of all documents."""
    from r2med.core import Run
    from r2med.scoring import MAIN, rescored

    asked = [task.query_ids[row] for row in rows]
    best = np.argsort(-scores, axis=1)[:, :10]
    ranked = Run.from_rankings({
        query_id: [(task.documents.ids[at], float(of[at])) for at in places]
        for query_id, places, of in zip(asked, best.tolist(), scores, strict=True)
    }).on(task.documents.ids, query_ids=asked)  # fmt: skip
    values = rescored(ranked, task.qrels, MAIN)
    return np.array([values[query_id] for query_id in asked])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--real", nargs="+", metavar="FOLDER", help="Real sets, or a Nano group of them.")
    arguments.add_argument("--lexical", action="store_true", help="Encode Mini only.")
    given = arguments.parse_args()
    agreement()
    pooled()
    between_queries(["mini", *(given.real or [])])
    if given.real:
        words = [name for name in SYSTEMS if "bge" not in name and "minilm" not in name]
        means = ranking(given.real, [*words, *LEXICAL] if given.lexical else SYSTEMS)
        if given.lexical:
            with_embedders(means)


if __name__ == "__main__":
    main()
