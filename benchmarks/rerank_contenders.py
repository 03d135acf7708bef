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
from common import seconds


def timed(work: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """The best of several times, since the machine is not ours alone, and what came out."""
    made: list[Any] = []
    best = min(seconds(lambda: made.append(work()), repeat, clock=time.perf_counter))
    return best, made[-1]


def as_pairs(given: list[tuple[str, str]]) -> Any:
    """Pairs as our scorers take them."""
    from r2med.rerank.pointwise import Pairs

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
    from r2med.core.options import Options
    from r2med.models import folder_card, get_card
    from r2med.rerank.cards import CrossEncoderParameters, cross_encoder

    card = get_card("msmarco-minilm") if Path(folder).name == "msmarco-minilm" else folder_card(folder)
    scorer = cross_encoder(card.replace(kind="cross-encoder"), CrossEncoderParameters(), Options(**options))
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
    best, scores = timed(lambda: model.predict(given, activation_fn=identity), repeat)
    return best, [float(x) for x in scores]


def rrf() -> float:
    """CPU seconds of fusing two runs of 876 queries and 1,000 documents each."""
    from r2med.core import Documents, IdTable, Qrels, Run, Task, TextColumn
    from r2med.fuse import ReciprocalRank

    rng = np.random.default_rng(0)
    documents, queries = IdTable(f"d{i}" for i in range(60_000)), IdTable(f"q{i}" for i in range(876))
    _ = documents.tie_rank

    def run() -> Run:
        docs = np.stack([rng.choice(60_000, 1000, replace=False) for _ in range(876)]).astype(np.int32)
        return Run(queries, documents, docs, -np.sort(-rng.random((876, 1000), dtype=np.float32), axis=1))

    corpus = Documents(documents, TextColumn.from_texts("" for _ in documents))
    task, runs = Task("made", (), corpus, Qrels.from_judgments([])), [run(), run()]
    return min(seconds(lambda: ReciprocalRank().fuse(runs, task, 1000, "rrf")))


def main() -> None:
    what, *given = sys.argv[1:]
    if what == "rrf":
        print(json.dumps({"seconds": rrf()}))
        return
    if what == "matrix-rate":
        import gpu

        print(json.dumps({"rate": gpu.matrix_rate()}))
        return
    pairs = [(q, d) for q, d in json.loads(Path(given[0]).read_text("utf-8"))]
    options = json.loads(given[3]) if len(given) > 3 else {}
    best, scores = {"ours": ours, "theirs": theirs}[what](pairs, given[1], int(given[2]), **options)
    print(json.dumps({"seconds": best, "scores": scores}))


if __name__ == "__main__":
    main()
