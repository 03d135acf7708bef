"""Which reranker wins on real sets: writes the table of docs/rerank.md.

Scores come from the score cache where they are there, so that writing the table again takes seconds.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import NamedTuple

from common import DATA, first_queries

import r2med
from r2med.pipeline import Builder
from r2med.scoring.evaluation import BeforeAfter, before_after

PAGE = Path(__file__).parent.parent / "docs" / "rerank.md"
FIRST, DEPTH = "bm25-lucene", 30
SETS = {"scifact": 100, "bioasq-snippets": 100, "vignettes": 50}
RERANKERS = ("maxsim", "bge-small", "maxsim:model=colbert-small-backbone", "msmarco-minilm")
BEGIN, END = "<!-- table: benchmarks/rerank_quality.py -->", "<!-- end of table -->"


class Column(NamedTuple):
    """One set."""

    name: str
    queries: int
    before: float
    oracle: float
    after: dict[str, BeforeAfter]


def measured(name: str, queries: int, rerankers: tuple[str, ...]) -> Column:
    task, builder = first_queries(r2med.load(str(DATA / name)), queries), Builder()
    first = builder.retriever(FIRST).retrieve(task, depth=100)
    after = {}
    for spec in rerankers:
        run = builder.reranker(spec).rerank(task, first, DEPTH)
        after[spec] = before_after(first, run, task.qrels, DEPTH)
        print(f"{name} {spec}: {after[spec].after['ndcg_at_10']:.4f} {run.notes['rerank']}", flush=True)
    any_one = next(iter(after.values()))
    return Column(name, len(task.queries), any_one.before["ndcg_at_10"], any_one.oracle["ndcg_at_10"], after)


def table(columns: list[Column], rerankers: tuple[str, ...]) -> str:
    lines = [
        "| nDCG@10 | " + " | ".join(f"{c.name} ({c.queries} queries)" for c in columns) + " | mean |",
        "|---|" + "---|" * (len(columns) + 1),
    ]

    def row(label: str, values: list[float], notes: list[str]) -> str:
        cells = [f"{v:.3f}{n}" for v, n in zip(values, notes, strict=True)]
        return f"| {label} | {' | '.join(cells)} | {sum(values) / len(values):.3f} |"

    none = [""] * len(columns)
    lines.append(row(f"BM25 (`{FIRST}`)", [c.before for c in columns], none))
    ranked = sorted(rerankers, key=lambda s: -sum(c.after[s].after["ndcg_at_10"] for c in columns))
    for spec in ranked:
        found = [c.after[spec] for c in columns]
        shares = [f" ({f.helped:.0%} / {f.hurt:.0%})" for f in found]
        lines.append(row(f"`{spec}`", [f.after["ndcg_at_10"] for f in found], shares))
    lines.append(row("best order of the same candidates", [c.oracle for c in columns], none))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reranker", action="append", help=f"instead of {', '.join(RERANKERS)}")
    parser.add_argument("--print", action="store_true", help="print the table instead of writing it")
    asked = parser.parse_args()
    rerankers = tuple(asked.reranker or RERANKERS)
    columns = [measured(name, queries, rerankers) for name, queries in SETS.items()]
    made = table(columns, rerankers)
    if asked.print:
        print(made)
        return
    page = PAGE.read_text("utf-8")
    whole = re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{made}\n{END}", page, flags=re.S)
    PAGE.write_text(whole, "utf-8")


if __name__ == "__main__":
    main()
