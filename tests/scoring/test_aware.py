"""Aware measures against the definition: the mean over every order of tied documents."""

from __future__ import annotations

from itertools import groupby, permutations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import Qrels, Run, UsageError
from r2med.scoring import CUTOFFS, STANDARD, Measure, score
from r2med.scoring.aware import evaluate_aware, merge_copies, merge_judgments

MEASURES = [*(Measure(f, k) for f in ("ndcg", "map", "recall", "precision", "mrr", "hit") for k in (1, 2, 3, 5))]
MEASURES += [Measure("ndcg", None), Measure("map", None), Measure("mrr", None), Measure("recall", None)]
MEASURES += [Measure("ndcg", k, (("dcg", "exp"),)) for k in (2, None)]
MEASURES += [Measure(f, 3, (("rel", 2),)) for f in ("map", "recall", "precision", "mrr", "hit")]

documents = [f"d{i}" for i in range(7)]
grades = st.dictionaries(st.sampled_from([*documents, "not retrieved"]), st.integers(-1, 3), min_size=1)
scores = st.dictionaries(st.sampled_from(documents), st.sampled_from([1.0, 2.0, 3.0]), min_size=1, max_size=6)


def every_order(ranking: dict[str, float]) -> list[dict[str, float]]:
    """Each order of tied documents, with scores of its own."""
    by_score = sorted(ranking.items(), key=lambda item: -item[1])
    groups = [[d for d, _ in tied] for _, tied in groupby(by_score, key=lambda item: item[1])]
    orders = []
    for parts in product(*(permutations(g) for g in groups)):
        order = [d for part in parts for d in part]
        orders.append({d: float(len(order) - i) for i, d in enumerate(order)})
    return orders


def qrels_of(judged: dict[str, int]) -> Qrels:
    return Qrels.from_judgments(("q", d, g) for d, g in judged.items())


def run_of(ranking: dict[str, float]) -> Run:
    return Run.from_rankings({"q": list(ranking.items())})


@given(grades, scores)
def test_ties_are_averaged_over_every_order(judged: dict[str, int], ranking: dict[str, float]) -> None:
    qrels = qrels_of(judged)
    ours = evaluate_aware(run_of(ranking), qrels, MEASURES).aware
    strict = [score(run_of(order), qrels, MEASURES) for order in every_order(ranking)]
    for measure in MEASURES:
        expected = np.mean([s.mean(measure) for s in strict])
        assert ours.mean(measure) == pytest.approx(expected, abs=1e-12), str(measure)
    for k in CUTOFFS:
        key = f"recall_micro_at_{k}"
        assert ours.micro_recall[key] == pytest.approx(np.mean([s.micro_recall[key] for s in strict]), abs=1e-12)


@given(st.dictionaries(st.sampled_from("abc"), grades, min_size=1), st.dictionaries(st.sampled_from("abcx"), scores))
def test_without_ties_strict_and_aware_are_equal(
    judged: dict[str, dict[str, int]], rankings: dict[str, dict[str, float]]
) -> None:
    qrels = Qrels.from_judgments((q, d, g) for q, of in judged.items() for d, g in of.items())
    untied = {q: [(d, s + i / 100) for i, (d, s) in enumerate(of.items())] for q, of in rankings.items()}
    found = evaluate_aware(Run.from_rankings(untied), qrels)
    assert (found.copies_dropped, found.tied_queries) == (0, 0)
    for measure in STANDARD:
        assert found.aware.per_query[measure.key] == pytest.approx(found.strict.per_query[measure.key], abs=1e-12)
    assert found.aware.missing_queries == found.strict.missing_queries


def test_copies_are_credited_once_whichever_came_first() -> None:
    copies = {"a1": "a1", "a2": "a1", "a3": "a1"}
    qrels = Qrels.from_judgments([("q", "a2", 1), ("q", "b", 1)])
    for first, second in (("a1", "a2"), ("a2", "a1")):
        run = Run.from_rankings({"q": [(first, 3.0), (second, 2.9), ("b", 1.0)]})
        found = evaluate_aware(run, qrels, [Measure("ndcg", 10), Measure("precision", 10)], copies=copies)
        assert found.aware.mean("nDCG@10") == pytest.approx(1.0)  # the passage, then b
        assert found.aware.mean("P@10") == pytest.approx(0.2)
        assert found.copies_dropped == 1
    strict = [score(run, qrels).mean("nDCG@10") for run in (run,)]
    assert strict[0] < 1.0


def test_merging_keeps_the_best_rank_and_the_best_grade() -> None:
    copies = {"a1": "a1", "a2": "a1"}
    run, dropped = merge_copies(
        Run.from_rankings({"p": [("x", 9.0), ("a2", 5.0), ("a1", 4.0)], "q": [("a1", 1.0)]}), copies
    )
    assert [(h.doc_id, h.score) for h in run.of("p")] == [("x", 9.0), ("a1", 5.0)]
    assert [h.doc_id for h in run.of("q")] == ["a1"]
    assert dropped == 1
    merged = merge_judgments(Qrels.from_judgments([("p", "a1", 0), ("p", "a2", 2), ("p", "x", 1)]), copies)
    assert merged.of("p") == {"a1": 2, "x": 1}


def test_a_tolerance_ties_what_noise_separates() -> None:
    qrels = Qrels.from_judgments([("q", "good", 1)])
    run = Run.from_rankings({"q": [("good", 0.70001), ("bad", 0.7)]})
    assert evaluate_aware(run, qrels, [Measure("mrr", None)]).aware.mean("RR") == 1.0
    assert evaluate_aware(run, qrels, [Measure("mrr", None)], tolerance=1e-3).aware.mean("RR") == pytest.approx(0.75)
    with pytest.raises(UsageError, match="tolerance"):
        evaluate_aware(run, qrels, tolerance=float("nan"))


def test_an_empty_query_and_qrels_of_zeros_score_zero() -> None:
    run = Run.from_rankings({"q": []})
    found = evaluate_aware(run, Qrels.from_judgments([("q", "x", 0), ("r", "x", 1)]))
    assert set(found.aware.means.values()) == {0.0}
    assert (found.aware.missing_queries, found.aware.without_positives) == (("r",), 1)


def test_a_published_run_has_ties(shared_runs: Path) -> None:
    from r2med.tasks import read_qrels, read_run

    run = read_run(shared_runs / "e5-mistral.Biology.run.gz")
    found = evaluate_aware(run, read_qrels(shared_runs / "Biology.qrels"))
    assert found.tied_queries == 82
    assert found.aware.mean("nDCG@10") == pytest.approx(found.strict.mean("nDCG@10"), abs=1e-4)
    assert found.aware.mean("R@5") != found.strict.mean("R@5")
