"""What the expander without an LLM does to BM25: nDCG@10 with and without, on every collection that is given.

    python benchmarks/concepts.py --write docs/expand.md

Each part of the expansion is measured alone, with the default policy; `--write` puts the table between the two
`concepts-table` marks of a file. The difference carries a 95 % interval from 10,000 paired bootstrap samples.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from r2med.core import Task
from r2med.expand import expanded_task, get_policy
from r2med.expand.concepts import Concepts
from r2med.retrieve import BM25, get_retriever
from r2med.scoring import Measure, score
from r2med.tasks import load_all

NDCG = Measure.parse("nDCG@10")
RETRIEVERS = ("bm25", "bm25-lucene")
VARIANTS = {
    "names": Concepts(synonyms=0, diseases=0, abbreviations=False),
    "+ abbreviations": Concepts(synonyms=0, diseases=0),
    "+ synonyms": Concepts(diseases=0),
    "+ diseases (default)": Concepts(),
}
NAMES = ("scifact", "bioasq-snippets", "liveqa-med", "evidence", "vignettes")
REAL = [path for name in NAMES if (path := Path(__file__).parents[2] / "shared" / "data" / name).is_dir()]
BEGIN, END = "<!-- concepts-table -->", "<!-- /concepts-table -->"


class Row(NamedTuple):
    """One collection with one retriever."""

    name: str
    retriever: str
    queries: int
    expanded: int
    plain: float
    scores: list[float]
    low: float
    high: float


def per_query(retriever: BM25, task: Task) -> np.ndarray:
    scores: np.ndarray = score(retriever.retrieve(task, depth=100), task.qrels, [NDCG]).per_query[NDCG.key]
    return scores


def measure(name: str, tasks: list[Task]) -> list[Row]:
    """All variants on the tasks of one collection, taken together query by query."""
    rows = []
    for retriever_name in RETRIEVERS:
        retriever = get_retriever(retriever_name)
        assert isinstance(retriever, BM25)
        policy = get_policy("concepts", retriever.kind)
        plain, scores, expanded = [], {key: list[np.ndarray]() for key in VARIANTS}, 0
        for task in tasks:
            plain.append(per_query(retriever, task))
            for key, expander in VARIANTS.items():
                made = expander.expand(task)
                scores[key].append(per_query(retriever, expanded_task(task, made, policy)))
            expanded += sum(item.usable for item in made)
        base = np.concatenate(plain)
        joined = {key: np.concatenate(parts) for key, parts in scores.items()}
        low, high = interval(joined["+ diseases (default)"] - base)
        means = [float(values.mean()) for values in joined.values()]
        rows.append(Row(name, retriever_name, len(base), expanded, float(base.mean()), means, low, high))
    return rows


def interval(differences: np.ndarray, samples: int = 10_000) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    means = [float(rng.choice(differences, len(differences)).mean()) for _ in range(samples)]
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def markdown(rows: list[Row]) -> str:
    head = ["collection", "retriever", "queries (expanded)", "raw", *VARIANTS, "default − raw (95 %)"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * 2}{'---:|' * (len(head) - 2)}"]
    for r in rows:
        change = f"{r.scores[-1] - r.plain:+.4f} ({r.low:+.4f} to {r.high:+.4f})"
        cells = [r.name, r.retriever, f"{r.queries} ({r.expanded})", f"{r.plain:.4f}"]
        lines.append(f"| {' | '.join([*cells, *(f'{s:.4f}' for s in r.scores), change])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="nDCG@10 of BM25 with and without concepts.")
    parser.add_argument("collections", nargs="*", help="collections, tasks or folders")
    parser.add_argument("--write", type=Path, help="put the table into this file")
    arguments = parser.parse_args()
    rows, start = [], time.perf_counter()
    for spec in arguments.collections or [*map(str, REAL), "mini"]:
        rows += measure(Path(spec).name, load_all(spec))
        print(markdown(rows[-len(RETRIEVERS) :]).splitlines()[-len(RETRIEVERS) :], flush=True)
    table = markdown(rows)
    print(table)
    print(f"{time.perf_counter() - start:.0f} s")
    if arguments.write:
        text = arguments.write.read_text("utf-8")
        head, found, rest = text.partition(BEGIN)
        if not found or END not in rest:
            raise SystemExit(f"{arguments.write} has no {BEGIN} … {END}")
        arguments.write.write_text(f"{head}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
