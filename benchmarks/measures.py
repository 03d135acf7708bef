"""All measures at nine cut-offs for 876 queries × 1,000 documents, against pytrec_eval from the same arrays."""

from __future__ import annotations

import statistics
import sys

import numpy as np
import pytrec_eval
from common import report, seconds

from r2med.core import IdTable, Qrels, Run
from r2med.scoring import CUTOFFS, score

QUERIES, DEPTH, DOCUMENTS = 876, 1_000, 50_000


def make() -> tuple[Run, Qrels]:
    rng = np.random.default_rng(0)
    docs = np.stack([rng.choice(DOCUMENTS, DEPTH, replace=False) for _ in range(QUERIES)]).astype(np.int32)
    scores = -np.sort(-rng.random((QUERIES, DEPTH)).astype(np.float32), axis=1)
    ids, names = IdTable(f"d{i}" for i in range(DOCUMENTS)), IdTable(f"q{i}" for i in range(QUERIES))
    run = Run(names, ids, docs, scores)
    judged = ((f"q{i}", ids[int(d)], 1) for i in range(QUERIES) for d in rng.choice(docs[i], 3, replace=False))
    return run, Qrels.from_judgments(judged)


def main() -> None:
    run, qrels = make()
    cuts = ",".join(map(str, CUTOFFS))
    names = {f"{name}.{cuts}" for name in ("ndcg_cut", "map_cut", "P", "recall", "success")} | {"recip_rank"}
    rankings: dict[str, dict[str, float]] = {}
    judgments: dict[str, dict[str, int]] = {}

    def convert() -> None:
        rankings.update((query, {hit.doc_id: hit.score for hit in hits}) for query, hits in run)
        judgments.clear()
        for query, doc, grade in qrels:
            judgments.setdefault(query, {})[doc] = grade

    ours, peer, conversion = list[float](), list[float](), list[float]()
    for _ in range(5):  # in turns, so that all meet the same machine
        ours += seconds(lambda: score(run, qrels), 1)
        conversion += seconds(convert, 1)
        peer += seconds(lambda: pytrec_eval.RelevanceEvaluator(judgments, names).evaluate(rankings), 1)
    mine = statistics.median(ours)
    alone, whole = statistics.median(peer), statistics.median(a + b for a, b in zip(conversion, peer, strict=True))
    print(f"r2med {1e3 * mine:.1f} ms, pytrec_eval {1e3 * alone:.0f} ms, dictionaries {1e3 * (whole - alone):.0f} ms")
    met = report("pytrec_eval from the arrays / r2med", whole / mine, 10.0)
    met &= report("pytrec_eval alone / r2med", alone / mine, 10.0)
    sys.exit(not met)


if __name__ == "__main__":
    main()
