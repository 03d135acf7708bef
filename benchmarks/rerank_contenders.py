"""One contender of `rerank.py` per process: prints what it measured as JSON.

The peer is called as its own documentation calls it, with its defaults.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def timed(work: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """The best of several times, since the machine is not ours alone, and what came out."""
    best, made = float("inf"), None
    for _ in range(repeat):
        begin = time.perf_counter()
        made = work()
        best = min(best, time.perf_counter() - begin)
    return best, made


def as_pairs(given: list[tuple[str, str]]) -> Any:
    """Pairs as our scorers take them."""
    from r2med.rerank.pairs import Pairs

    queries, documents = list(dict.fromkeys(q for q, _ in given)), list(dict.fromkeys(d for _, d in given))
    places_q, places_d = {q: i for i, q in enumerate(queries)}, {d: i for i, d in enumerate(documents)}
    rows = np.array([[places_q[q], places_d[d]] for q, d in given], dtype=np.int32)
    return Pairs(queries, documents, rows[:, 0], rows[:, 1])


def score_all(scorer: Any, pairs: Any) -> list[float]:
    """All scores in order."""
    made = np.empty(len(pairs), dtype=np.float32)
    for scored in scorer.stream(pairs):
        made[scored.rows] = scored.scores
    return [float(x) for x in made]


def ours(given: list[tuple[str, str]], folder: str, repeat: int, **options: Any) -> tuple[float, list[float]]:
    """Our cross-encoder of a folder, torch or ONNX as its files say."""
    from r2med.models import folder_card, get_card
    from r2med.rerank.specs import cross_encoder
    from r2med.retrieve.encoders.load import make_options

    card = get_card("msmarco-minilm") if Path(folder).name == "msmarco-minilm" else folder_card(folder)
    scorer = cross_encoder(card.replace(kind="cross-encoder"), make_options(**options), Path(folder))
    score_all(scorer, as_pairs(given[:8]))
    pairs = as_pairs(given)
    return timed(lambda: score_all(scorer, pairs), repeat)


def theirs(given: list[tuple[str, str]], folder: str, repeat: int, **options: Any) -> tuple[float, list[float]]:
    """sentence-transformers; scores before its sigmoid, which ours do not have."""
    import torch
    from sentence_transformers import CrossEncoder

    made = {"model_kwargs": {"dtype": options.pop("dtype")}} if "dtype" in options else {}
    model = CrossEncoder(folder, **options, **made)
    identity = torch.nn.Identity()
    model.predict(given[:8], activation_fn=identity)
    seconds, scores = timed(lambda: model.predict(given, activation_fn=identity), repeat)
    return seconds, [float(x) for x in scores]


def matrix_rate(dtype: str) -> float:
    """The card's own rate for large products, in operations a second."""
    import torch

    size = 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=getattr(torch, dtype)) for _ in range(2))
    for _ in range(5):
        a @ b
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(20):
        a @ b
    torch.cuda.synchronize()
    return 20 * 2 * size**3 / (time.perf_counter() - begin)


def rrf() -> float:
    """CPU seconds of fusing two runs of 876 queries and 1,000 documents each."""
    from r2med.core import IdTable, Run
    from r2med.fuse import reciprocal_rank

    rng = np.random.default_rng(0)
    documents, queries = IdTable(f"d{i}" for i in range(60_000)), IdTable(f"q{i}" for i in range(876))
    _ = documents.tie_rank

    def run() -> Run:
        docs = np.stack([rng.choice(60_000, 1000, replace=False) for _ in range(876)]).astype(np.int32)
        return Run(queries, documents, docs, -np.sort(-rng.random((876, 1000), dtype=np.float32), axis=1))

    runs, best = [run(), run()], float("inf")
    for _ in range(5):
        begin = time.process_time()
        reciprocal_rank(runs)
        best = min(best, time.process_time() - begin)
    return best


def main() -> None:
    what, *given = sys.argv[1:]
    if what == "rrf":
        print(json.dumps({"seconds": rrf()}))
        return
    if what == "matrix-rate":
        print(json.dumps({"rate": matrix_rate(given[0])}))
        return
    pairs = [(q, d) for q, d in json.loads(Path(given[0]).read_text("utf-8"))]
    options = json.loads(given[3]) if len(given) > 3 else {}
    seconds, scores = {"ours": ours, "theirs": theirs}[what](pairs, given[1], int(given[2]), **options)
    print(json.dumps({"seconds": seconds, "scores": scores}))


if __name__ == "__main__":
    main()
