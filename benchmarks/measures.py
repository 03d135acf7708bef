"""All measures at nine cut-offs for 876 queries × 1,000 documents, against pytrec_eval from the same arrays."""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
import pytrec_eval
from common import report

from r2med.core import IdTable, Qrels, Run
from r2med.scoring import CUTOFFS, score

QUERIES, DEPTH, DOCUMENTS = 876, 1_000, 50_000


def make() -> tuple[Run, Qrels]:
    rng = np.random.default_rng(0)
    docs = np.stack([rng.choice(DOCUMENTS, DEPTH, replace=False) for _ in range(QUERIES)]).astype(np.int32)
    scores = -np.sort(-rng.random((QUERIES, DEPTH)).astype(np.float32), axis=1)
    ids, names = IdTable(f"d{i}" for i in range(DOCUMENTS)), IdTable(f"q{i}" for i in range(QUERIES))
    run = Run(names, ids, docs, scores).sorted()
    judged = ((f"q{i}", ids[int(d)], 1) for i in range(QUERIES) for d in rng.choice(docs[i], 3, replace=False))
    return run, Qrels.from_judgments(judged)


def main() -> None:
    run, qrels = make()
    cuts = ",".join(map(str, CUTOFFS))
    names = {f"{name}.{cuts}" for name in ("ndcg_cut", "map_cut", "P", "recall", "success")} | {"recip_rank"}
    ours, peer, conversion = [], [], []
    for _ in range(5):
        start = time.process_time()
        score(run, qrels)
        ours.append(time.process_time() - start)
        start = time.process_time()
        rankings = {query: {hit.doc_id: hit.score for hit in hits} for query, hits in run}
        judgments: dict[str, dict[str, int]] = {}
        for query, doc, grade in qrels:
            judgments.setdefault(query, {})[doc] = grade
        converted = time.process_time()
        pytrec_eval.RelevanceEvaluator(judgments, names).evaluate(rankings)
        conversion.append(converted - start)
        peer.append(time.process_time() - converted)
    mine = statistics.median(ours)
    alone, whole = statistics.median(peer), statistics.median(a + b for a, b in zip(conversion, peer, strict=True))
    print(f"r2med {1e3 * mine:.1f} ms, pytrec_eval {1e3 * alone:.0f} ms, dictionaries {1e3 * (whole - alone):.0f} ms")
    met = report("pytrec_eval from the arrays / r2med", whole / mine, 10.0)
    met &= report("pytrec_eval alone / r2med", alone / mine, 10.0)
    sys.exit(not met)


if __name__ == "__main__":
    main()
