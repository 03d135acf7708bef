"""What a pair that is too long should lose: the document's end first, or the longer text's; a table of docs/rerank.md.

Both ways on BM25's first candidates, wherever they cut any pair differently. Scores come from the score cache where
they are there.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import DATA, first_queries

import r2med
from r2med.core import Run, Task
from r2med.models.prompts import names_of
from r2med.pipeline import Builder
from r2med.rerank.contract import Float32, reordered, top_pairs
from r2med.rerank.pointwise import Pairs, PointwiseReranker
from r2med.scoring import MAIN, score
from r2med.scoring.measures import Float64

PAGE = Path(__file__).parent.parent / "docs" / "rerank.md"
MODEL, FIRST, DEPTH, QUERIES = "msmarco-minilm", "bm25-lucene", 30, 100
SETS = ("vignettes", "liveqa-med", "scifact")
LENGTHS = (512, 128)
BEGIN, END = "<!-- table: benchmarks/rerank_truncation.py -->", "<!-- end of truncation -->"


class Row(NamedTuple):
    """One set at one length."""

    name: str
    length: int
    differ: float
    """Share of pairs that the two ways cut differently."""
    values: tuple[float, float] | None
    """nDCG@10, the document cut first and the longer text; None where no pair differs."""
    better: tuple[int, int] = (0, 0)
    """Queries for which one or the other is better."""


def reranker(builder: Builder, length: int, truncation: str) -> PointwiseReranker:
    made = builder.reranker(f"{MODEL}:max_length={length},truncation={truncation}")
    assert isinstance(made, PointwiseReranker)
    return made


def measured(builder: Builder, task: Task, first: Run, name: str, length: int) -> Row:
    """Both ways; a pair that they cut alike is scored once."""
    rows, docs, width = top_pairs(first, DEPTH)
    pairs = Pairs(task.query_texts, task.documents.contents, rows, docs)
    ways = [reranker(builder, length, truncation) for truncation in ("document-first", "longest-first")]
    tokens = [[pair.ids for pair in way.scorer.tokenize(pairs)] for way in ways]  # type: ignore[attr-defined]
    differ = np.flatnonzero([one != other for one, other in zip(*tokens, strict=True)])
    if not len(differ):
        return Row(name, length, 0.0, None)
    scores = ways[0].score(pairs, names_of(task)).scores
    again = scores.copy()
    again[differ] = ways[1].score(pairs.take(differ), names_of(task)).scores
    own, other = (_by_query(task, first, found, width) for found in (scores, again))
    better = int((own > other).sum()), int((other > own).sum())
    return Row(name, length, len(differ) / len(pairs), (float(own.mean()), float(other.mean())), better)


def _by_query(task: Task, first: Run, scores: Float32, width: int) -> Float64:
    """nDCG@10 of each query."""
    table = np.full((len(first), width), np.nan, dtype=np.float32)
    table[first.docs[:, :width] >= 0] = scores
    return score(reordered(first, table, "keep", "reranked"), task.qrels, [MAIN]).per_query[MAIN]


def table(rows: list[Row]) -> str:
    lines = [
        "| set | tokens | pairs cut differently | document first | longest first | queries better: first / second |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        shown = ["–", "–", "–"]
        if row.values:
            shown = [f"{row.values[0]:.3f}", f"{row.values[1]:.3f}", f"{row.better[0]} / {row.better[1]}"]
        lines.append(f"| {row.name} | {row.length} | {row.differ:.1%} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print", action="store_true", help="print the table instead of writing it")
    asked = parser.parse_args()
    rows = []
    with Builder() as builder:
        for name in SETS:
            task = first_queries(r2med.load(str(DATA / name)), QUERIES)
            first = builder.retriever(FIRST).retrieve(task, depth=DEPTH)
            for length in LENGTHS:
                rows.append(measured(builder, task, first, name, length))
                print(rows[-1], flush=True)
    made = table(rows)
    if asked.print:
        print(made)
        return
    page = PAGE.read_text("utf-8")
    whole = re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{made}\n{END}", page, flags=re.S)
    PAGE.write_text(whole, "utf-8")


if __name__ == "__main__":
    main()
