"""What a cluster would take, on paper: the schedule of the ray executor simulated, and checked against a measured run.

The simulation knows what the executor does: shards in the order it cuts them, each to the first worker that is free,
one more beginning of each model on each worker, a dead worker's shard done again. Its only inputs are the tokens of
each shard and the tokens a second of a worker.

    python benchmarks/schedule.py             the check: one worker measured, two predicted and measured
    python benchmarks/schedule.py table       R2MED and 50 million passages on paper, from the rates in docs/scale.md
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from cluster import MODEL, ROUNDS, encoding_seconds, passages
from common import report

from r2med.pipeline.pooled_models import shards as cut
from r2med.retrieve.encoders import WorkOrder
from r2med.retrieve.encoders.batching import WINDOW

TOKENS_PER_SECOND = {  # one H200, bfloat16, passages of 256 tokens (benchmarks/throughput_gpu.py)
    "contriever": 596_911, "medcpt": 596_911, "bge": 454_855, "inst-l": 200_422, "inst-xl": 77_737,
    "bmr-410m": 406_641, "bmr-2b": 112_756, "bmr-7b": 34_371, "e5": 34_371, "grit": 34_371, "sfr": 34_371, "nv": 34_371,
}  # fmt: skip
LONG = ("e5", "grit", "sfr", "nv")
"""These read passages whole; the others cut at 512 tokens."""
R2MED = {  # documents, characters a document on average: MTEB's descriptive statistics
    "Biology": (57_359, 329.2), "Bioinformatics": (47_473, 658.8), "Medical-Sciences": (34_810, 571.2),
    "MedXpertQA-Exam": (61_379, 726.1), "MedQA-Diag": (56_250, 785.0), "PMC-Treatment": (28_954, 696.4),
    "PMC-Clinical": (60_406, 2_093.9), "IIYi-Clinical": (10_449, 5_419.8),
}  # fmt: skip
CHARACTERS_A_TOKEN = 4.0
LOADING = {7: 60.0, 0: 10.0}
"""Seconds until a worker has a model: of 7B parameters, of less."""
DOLLARS_AN_HOUR = 4.0
LARGE_CORPUS, LARGE_TOKENS = 50_000_000, 256


class Work(NamedTuple):
    """One model over one corpus."""

    rate: float
    loading: float
    shards: Sequence[float]
    """Tokens of each."""


def makespan(works: Sequence[Work], workers: int, *, lost: Sequence[float] = ()) -> float:
    """Seconds until the last shard is done; at each moment in `lost` a worker dies and another takes its place."""
    free = [0.0] * workers
    heapq.heapify(free)
    deaths = sorted(lost)
    end = 0.0
    for work in works:
        starts = [at + work.loading for at in free]
        heapq.heapify(starts)
        for tokens in work.shards:
            begin = heapq.heappop(starts)
            done = begin + tokens / work.rate
            while deaths and deaths[0] < done:
                died = deaths.pop(0)
                if died > begin:  # this worker: its shard again, on one that has to load first
                    done = died + work.loading + tokens / work.rate
            heapq.heappush(starts, done)
            end = max(end, done)
        free = starts
    return end


def check(count: int = 1_000) -> bool:
    """Two workers as the simulation says they should be, from what one of them took."""
    texts = passages(count)
    one, measured = encoding_seconds(texts)
    tokens = np.array([len(text) / CHARACTERS_A_TOKEN for text in texts])
    rate, predicted = float(tokens.sum()) / one, 0.0
    for start in range(ROUNDS):  # as they were measured
        part = -np.sort(-tokens[start::ROUNDS])
        shards = [float(part[rows].sum()) for rows in cut(WorkOrder(np.arange(len(part)), WINDOW, free=True), 2)]
        predicted += makespan([Work(rate, 0.0, shards)], 2)
    print(f"     {len(texts)} passages with {MODEL}: one worker {one:.1f} s ({rate:,.0f} tokens/s)")
    print(f"     two workers: {predicted:.1f} s on paper, {measured:.1f} s measured")
    return report("measured / simulated", measured / predicted, 1.2, at_least=False)


def shards_of(documents: int, characters: float, *, limit: float) -> list[float]:
    """Whole windows of a corpus in tokens; lengths as if all were average, so that a limit cuts all or none."""
    tokens = min(characters / CHARACTERS_A_TOKEN, limit)
    return [tokens * min(WINDOW, documents - begin) for begin in range(0, documents, WINDOW)]


def r2med(model: str) -> list[Work]:
    limit = float("inf") if model in LONG else 512.0
    loading = LOADING[7 if TOKENS_PER_SECOND[model] < 50_000 else 0]
    corpora = [shards_of(documents, characters, limit=limit) for documents, characters in R2MED.values()]
    return [Work(TOKENS_PER_SECOND[model], loading if i == 0 else 0.0, shards) for i, shards in enumerate(corpora)]


def table() -> None:
    print("R2MED, 357,080 documents, minutes on n GPUs; dollars at one")
    counts = (1, 4, 16)
    for model in TOKENS_PER_SECOND:
        taken = [makespan(r2med(model), n) for n in counts]
        print(
            f"  {model:12}" + "".join(f"{t / 60:9.1f}" for t in taken) + f"   ${taken[0] / 3600 * DOLLARS_AN_HOUR:.2f}"
        )
    everything = [work for model in TOKENS_PER_SECOND for work in r2med(model)]
    for n in counts:
        whole = makespan(everything, n)
        broken = makespan(everything, n, lost=[whole * f for f in (0.25, 0.5, 0.75)])
        cost = whole / 3600 * n * DOLLARS_AN_HOUR
        print(f"  all twelve on {n:2}: {whole / 3600:.2f} h, ${cost:.2f}; {broken / 3600:.2f} h if three workers die")
    print(f"{LARGE_CORPUS:,} passages of {LARGE_TOKENS} tokens: GPU-hours, dollars")
    for model in ("contriever", "bge", "bmr-2b", "e5"):
        hours = LARGE_CORPUS * LARGE_TOKENS / TOKENS_PER_SECOND[model] / 3600
        print(f"  {model:12}{hours:9.1f}   ${hours * DOLLARS_AN_HOUR:,.0f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["table"]:
        table()
        sys.exit()
    sys.exit(0 if check() else 1)
