"""What a judge that errs costs each way of reranking with a chat model: a table and a picture for docs/rerank.md.

The judge is scripted: it knows the judgments, its grades are flipped at a given rate, or it prefers what stands first.
Everything else is what a real model would go through: prompts, parsing, windows, groups, the generation store.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import DATA
from oracle_judge import Flaw, Oracle, OracleBuilder, by_number, grades_of

import r2med
from r2med.core import Qrels, Run, Task
from r2med.report.chart import MARGIN, Chart, linear
from r2med.report.svg import write_picture

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
from marked import write_block

DOCS = Path(__file__).parent.parent / "docs"
SETS = ("scifact", "bioasq-snippets", "liveqa-med", "evidence", "vignettes")
FIRST, DEPTH = "bm25-lucene", 100
METHODS = {
    "grouprank": "group",
    "rankgpt": "order",
    "insertrank": "order",
    "grouprank,repeats=2": "group",
    "grouprank,repeats=2,blend=0.6": "group",
    "rank-r1": "choice",
    "setwise": "choice",
    "yesno,logits=no": "verdict",
    "erank,score=number": "grade",
    "grouprank,repeats=20": "group",
    "erank,samples=3,score=number": "grade",
}
"""Each method with the form of its answers, by the number of calls that it makes."""
NOISE = tuple(Flaw(noise=rate) for rate in (0.0, 0.05, 0.1, 0.2, 0.3))
BIAS = tuple(Flaw(bias=strength) for strength in (0.25, 0.5, 1.0))
FIXED = Flaw(noise=0.2, fixed=True)
DRAWN = (
    "grouprank,repeats=2",
    "rankgpt",
    "insertrank",
    "setwise",
    "yesno,logits=no",
    "grouprank,repeats=20",
    "erank,samples=3,score=number",
)


class Set(NamedTuple):
    """A task by numbers, its candidates and their grades."""

    task: Task
    first: Run
    grades: list[dict[int, float]]


class Measured(NamedTuple):
    """nDCG@10 as the mean over sets, calls and passages read per query."""

    ndcg: float
    calls: float
    passages: float


def sampled(folder: Path, queries: int, seed: int) -> Set:
    """Some queries of a set, drawn at random, with BM25's candidates."""
    task = r2med.load(str(folder))
    rows = np.sort(np.random.default_rng(seed).permutation(len(task.queries))[:queries]).tolist()
    kept = tuple(task.queries[row] for row in rows)
    ids = {query.id for query in kept}
    task = replace(task, queries=kept, qrels=Qrels.from_judgments(j for j in task.qrels if j.query_id in ids))
    first = r2med.get_retriever(FIRST).retrieve(task, depth=DEPTH)
    return Set(by_number(task), first, grades_of(task, first))


def ndcg(run: Run, task: Task) -> float:
    return float(r2med.score(run, task).mean("nDCG@10"))


def measured(method: str, flaw: Flaw, sets: list[Set], seed: int) -> Measured:
    """A method with a judge over all sets."""
    name, _, parameters = method.partition(",")
    spec = f"{name}:openai:oracle{',' if parameters else ''}{parameters}"
    scores, calls, passages = [], 0, 0
    for one in sets:
        oracle = Oracle(one.grades, flaw, METHODS[method], seed)
        run = OracleBuilder(oracle).reranker(spec).rerank(one.task, one.first, DEPTH)
        scores.append(ndcg(run, one.task))
        calls, passages = calls + oracle.usage.calls, passages + oracle.read
    queries = sum(len(one.task.queries) for one in sets)
    return Measured(float(np.mean(scores)), calls / queries, passages / queries)


@contextmanager
def own_home() -> Iterator[None]:
    """A generation store of its own that is gone afterwards; nothing is taken from an earlier run."""
    before, memory = os.environ.get("R2MED_HOME"), Path("/dev/shm")  # every answer is written before it is used
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        os.environ["R2MED_HOME"] = folder
        try:
            yield
        finally:
            os.environ.pop("R2MED_HOME")
            if before is not None:
                os.environ["R2MED_HOME"] = before


def label(flaw: Flaw) -> str:
    if flaw.bias:
        return f"bias {flaw.bias:g}"
    return f"{100 * flaw.noise:.0f} % fixed" if flaw.fixed else f"{100 * flaw.noise:.0f} %"


def all_figures(sets: list[Set], seeds: int) -> dict[tuple[str, Flaw], Measured]:
    """Every method with every judge, as means over seeds; a judge without noise has nothing to draw."""
    found = {}
    for flaw in (*NOISE, FIXED, *BIAS):
        drawn = range(seeds if flaw.noise else 1)
        for method in METHODS:
            with own_home():
                runs = [measured(method, flaw, sets, seed) for seed in drawn]
            found[method, flaw] = Measured(*(float(np.mean(values)) for values in zip(*runs, strict=True)))
        best = max(METHODS, key=lambda method: found[method, flaw].ndcg)
        print(f"{label(flaw)}: {best} {found[best, flaw].ndcg:.3f}", file=sys.stderr, flush=True)
    return found


def table(found: dict[tuple[str, Flaw], Measured], before: float) -> str:
    """nDCG@10 × 100 of each method: calls and passages, then noise, then bias."""
    flaws = (*NOISE, FIXED, *BIAS)
    lines = [
        f"| nDCG@10 × 100 | calls | passages | {' | '.join(label(flaw) for flaw in flaws)} |",
        "|---|---:|---:|" + "---:|" * len(flaws),
        f"| BM25 alone | 0 | 0 | {' | '.join([f'{100 * before:.1f}'] * len(flaws))} |",
    ]
    for method in METHODS:
        cost = found[method, NOISE[0]]
        cells = [f"{100 * found[method, flaw].ndcg:.1f}" for flaw in flaws]
        lines.append(f"| `{method}` | {cost.calls:.0f} | {cost.passages:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(found: dict[tuple[str, Flaw], Measured], before: float, queries: int) -> Chart:
    """Two panels: nDCG@10 against noise, and against position bias."""
    width = 900.0
    chart = Chart(
        width,
        "What a judge's errors cost, by way of reranking",
        f"Mean over five sets, {queries} queries each, BM25's first {DEPTH} candidates; the dashed line is BM25 alone.",
        series=DRAWN,
    )
    top, height = chart.top + 6, 330.0
    bottom, middle = top + height, width / 2
    chart.height = round(bottom) + 62
    scores = [100 * found[method, flaw].ndcg for method in DRAWN for flaw in (*NOISE, *BIAS)]
    y = linear(min(*scores, 100 * before) - 2, max(scores), bottom, top)
    noise = [(100 * flaw.noise, flaw) for flaw in NOISE]
    bias = [(0.0, NOISE[0]), *((flaw.bias, flaw) for flaw in BIAS)]
    for panel, points, title in ((0, noise, "grades flipped, %"), (1, bias, "added to the first passage's grade")):
        left, right = MARGIN + 66 + panel * middle, middle * (panel + 1) - MARGIN
        x = linear(0, points[-1][0], left, right)
        chart.x_axis(x, top, bottom, title)
        chart.y_axis(y, left, right, "nDCG@10 × 100")
        chart.polyline([(left, y(100 * before)), (right, y(100 * before))], "axis", width=1.4, dash="6 4")
        for number, method in enumerate(DRAWN):
            places = [(x(at), y(100 * found[method, flaw].ndcg)) for at, flaw in points]
            for (x1, y1), (x2, y2) in pairwise(places):
                chart.bar(x1, y1, x2, y2, number, width=1.6)
            for px, py in places:
                chart.marker(px, py, number)
    return chart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=30, help="of each set")
    parser.add_argument("--seeds", type=int, default=1, help="draws of the noise that are averaged")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the five sets")
    parser.add_argument("--print", action="store_true", help="print the table instead of writing it and the picture")
    asked = parser.parse_args()
    begin = time.perf_counter()
    sets = [sampled(asked.data / name, asked.queries, seed=0) for name in SETS]
    before = float(np.mean([ndcg(one.first, one.task) for one in sets]))
    found = all_figures(sets, asked.seeds)
    made = table(found, before)
    print(f"{time.perf_counter() - begin:.0f} s", file=sys.stderr)
    if asked.print:
        print(made)
        return
    write_block(DOCS / "rerank.md", "noise", f"\n{made}")
    write_picture(picture(found, before, asked.queries), DOCS / "rerank-noise.svg")


if __name__ == "__main__":
    main()
