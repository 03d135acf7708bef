"""Measures equal to trec_eval's, to the last bits, ties and grades included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import Qrels, Run, UnknownName, UsageError
from r2med.scoring import CUTOFFS, STANDARD, Measure, parse_measures, score

PEER = {"ndcg": "ndcg_cut", "map": "map_cut", "precision": "P", "recall": "recall", "hit": "success"}

Judgments = dict[str, dict[str, int]]
Rankings = dict[str, dict[str, float]]


def trec_eval(judgments: Judgments, rankings: Rankings) -> dict[str, dict[str, float]]:
    import pytrec_eval

    cuts = ",".join(map(str, CUTOFFS))
    names = {f"{name}.{cuts}" for name in PEER.values()} | {"recip_rank", "map"}
    return pytrec_eval.RelevanceEvaluator(judgments, names).evaluate(rankings)  # type: ignore[no-any-return]


def compare(judgments: Judgments, rankings: Rankings) -> None:
    run = Run.from_rankings({q: list(docs.items()) for q, docs in rankings.items()})
    qrels = Qrels.from_judgments((q, d, g) for q, docs in judgments.items() for d, g in docs.items())
    ours = score(run, qrels, [*STANDARD, Measure("map", None), Measure("mrr", None)])
    theirs = trec_eval(judgments, {q: r for q, r in rankings.items() if r})
    for i, query_id in enumerate(ours.query_ids):
        expected = theirs.get(query_id, {})
        for family, peer in PEER.items():
            for k in CUTOFFS:
                assert ours.per_query[f"{family}_at_{k}"][i] == pytest.approx(
                    expected.get(f"{peer}_{k}", 0.0), abs=1e-12
                )
        assert ours.per_query["mrr"][i] == pytest.approx(expected.get("recip_rank", 0.0), abs=1e-12)
        assert ours.per_query["map"][i] == pytest.approx(expected.get("map", 0.0), abs=1e-12)


documents = st.sampled_from([f"d{i}" for i in range(12)] + ["é", "漢", "D", "d10x"])
judged = st.dictionaries(documents, st.integers(-1, 3), min_size=1, max_size=10)
# Few distinct scores make ties; 0.1 + 1e-9 ties with 0.1 in single precision only.
ranked = st.dictionaries(documents, st.sampled_from([0.1, 0.1 + 1e-9, 0.5, 2.0, -3.0]), max_size=14)
queries = st.sampled_from(["1", "2", "10", "q"])


@given(st.dictionaries(queries, judged, min_size=1), st.dictionaries(queries, ranked, min_size=1))
def test_equal_to_trec_eval(judgments: Judgments, rankings: Rankings) -> None:
    compare(judgments, rankings)


@pytest.mark.parametrize("task", ["Biology", "IIYi-Clinical"])
def test_real_runs(task: str, shared_runs: object) -> None:
    from r2med.tasks import read_qrels, read_run

    run = read_run(shared_runs / f"e5-mistral.{task}.run.gz")  # type: ignore[operator]
    qrels = read_qrels(shared_runs / f"{task}.qrels")  # type: ignore[operator]
    judgments: Judgments = {}
    for query_id, doc_id, grade in qrels:
        judgments.setdefault(query_id, {})[doc_id] = grade
    compare(judgments, {q: {h.doc_id: h.score for h in hits} for q, hits in run})
    published = {"Biology": 0.181, "IIYi-Clinical": 0.214}
    assert score(run, qrels).mean("nDCG@10") == pytest.approx(published[task], abs=5e-4)


def test_queries_without_results_score_zero_and_are_named() -> None:
    qrels = Qrels.from_judgments([("a", "x", 1), ("b", "x", 1), ("c", "x", 0)])
    scored = score(Run.from_rankings({"a": [("x", 1.0)]}), qrels)
    assert scored.mean("nDCG@10") == pytest.approx(1 / 3)
    assert scored.missing_queries == ("b", "c")
    assert scored.without_positives == 1


def test_micro_recall_counts_judgments() -> None:
    qrels = Qrels.from_judgments([("a", "x", 1), ("b", "x", 1), ("b", "y", 2), ("b", "z", 1)])
    scored = score(Run.from_rankings({"a": [("x", 1.0)], "b": [("y", 2.0), ("w", 1.0)]}), qrels)
    assert scored.micro_recall["recall_micro_at_10"] == pytest.approx(2 / 4)
    assert scored.mean("R@10") == pytest.approx((1 + 1 / 3) / 2)


@pytest.mark.parametrize(
    ("text", "shown", "key"),
    [
        ("nDCG@10", "nDCG@10", "ndcg_at_10"),
        ("ndcg_at_10", "nDCG@10", "ndcg_at_10"),
        ("ndcg_cut_5", "nDCG@5", "ndcg_at_5"),
        ("MAP@100", "AP@100", "map_at_100"),
        ("r@100", "R@100", "recall_at_100"),
        ("Recall@7", "R@7", "recall_at_7"),
        ("P@5", "P@5", "precision_at_5"),
        ("MRR@10", "RR@10", "mrr_at_10"),
        ("recip_rank", "RR", "mrr"),
        ("success_1", "hit@1", "hit_at_1"),
    ],
)
def test_measures_parse_and_print(text: str, shown: str, key: str) -> None:
    measure = Measure.parse(text)
    assert (str(measure), measure.key) == (shown, key)
    assert Measure.parse(shown) == Measure.parse(key) == measure


def test_measures_that_do_not_exist() -> None:
    with pytest.raises(UnknownName, match="did you mean nDCG@10"):
        Measure.parse("nDGC@10")
    with pytest.raises(UsageError, match="cut-off"):
        Measure.parse("P")
    with pytest.raises(UsageError, match="cut-off"):
        Measure.parse("nDCG@0")
    assert parse_measures(["nDCG@10", "ndcg_at_10"]) == (Measure("ndcg", 10),)


def test_standard_measures_are_distinct() -> None:
    assert len({m.key for m in STANDARD}) == len(STANDARD) == 6 * len(CUTOFFS)
    assert np.all(np.diff(CUTOFFS) > 0)


def test_a_measure_that_was_not_computed_is_named() -> None:
    run, qrels = Run.from_rankings({"q": [("d", 1.0)]}), Qrels.from_judgments([("q", "d", 1)])
    with pytest.raises(UsageError, match="nDCG@7 was not computed"):
        score(run, qrels).mean("nDCG@7")
    assert score(run, qrels, [Measure("ndcg", 7)]).mean("nDCG@7") == 1.0
