from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, Qrels, Run
from r2med.rerank import as_reranker
from r2med.scoring import MAIN, Measure, score
from r2med.scoring.before_after import before_after, oracle
from tests.rerank import tiny


@given(st.integers(0, 50), st.integers(1, 14), st.sampled_from(["keep", "drop"]))
def test_nothing_beats_the_oracle(seed: int, depth: int, rest: str) -> None:
    task = tiny.a_task(seed=seed)
    first = tiny.first_stage(task, 12, seed=seed)
    run = as_reranker(tiny.by_length).rerank(task, first, depth, rest="keep" if rest == "keep" else "drop")
    found = before_after(first, run, task.qrels, depth, rest=rest)
    assert found.oracle["ndcg_at_10"] >= found.after["ndcg_at_10"] - 1e-12
    if rest == "keep":
        assert found.oracle["ndcg_at_10"] >= found.before["ndcg_at_10"] - 1e-12
    assert found.helped + found.hurt + found.unchanged == pytest.approx(1.0)
    best = oracle(first, task.qrels, depth, rest=rest)
    assert [hits for _, hits in best] == [sorted(hits, key=lambda h: (-h.score, h.doc_id)) for _, hits in best]
    for row in range(len(first)):
        assert sorted(best.docs[row, :depth]) == sorted(first.docs[row, :depth])


def test_a_case_by_hand() -> None:
    rankings = {"a": [("x", 3.0), ("y", 2.0), ("z", 1.0)], "b": [("x", 3.0), ("y", 2.0), ("z", 1.0)], "c": [("x", 1.0)]}
    first = Run.from_rankings(rankings)
    swapped = Run.from_rankings(
        {"a": [("y", 3.0), ("x", 2.0), ("z", 1.0)], "b": [("y", 3.0), ("x", 2.0), ("z", 1.0)], "c": [("x", 1.0)]},
        doc_ids=first.doc_ids,
    )
    qrels = Qrels.from_judgments([("a", "y", 1), ("b", "x", 1), ("b", "z", 2), ("c", "x", 1), ("nobody", "x", 1)])
    found = before_after(first, swapped, qrels, 2, measure=Measure.parse("RR@10"))
    assert (found.helped, found.hurt, found.unchanged, found.queries) == (0.25, 0.25, 0.5, 4)
    assert found.before["mrr_at_10"] == pytest.approx((0.5 + 1 + 1 + 0) / 4)
    assert found.oracle["mrr_at_10"] == pytest.approx(3 / 4)  # z of query b lies below the depth
    assert found.share_of_possible == pytest.approx(0.0)
    kept = found.as_notes([MAIN])
    assert kept["before"] == {"mrr_at_10": found.before["mrr_at_10"], "ndcg_at_10": found.before["ndcg_at_10"]}
    assert before_after(swapped, swapped, qrels, 3).gain == 0


def test_nothing_to_gain() -> None:
    run = Run.from_rankings({"a": [("x", 1.0)]})
    assert before_after(run, run, Qrels.from_judgments([("a", "x", 1)]), 1).share_of_possible is None


def test_an_oracle_scores_what_a_perfect_reranker_would() -> None:
    task = tiny.a_task()
    first = tiny.first_stage(task, 20)
    grades = {(q, d): g for q, d, g in task.qrels}
    texts = {text: doc_id for doc_id, text in zip(task.documents.ids, task.documents.contents, strict=True)}
    asked = {query.text: query.id for query in task.queries}

    def perfect(pairs: list[tuple[str, str]]) -> list[float]:
        return [float(grades.get((asked[q], texts[d]), 0)) for q, d in pairs]

    run = as_reranker(perfect).rerank(task, first, 20)
    best = oracle(first, task.qrels, 20)
    assert np.allclose(score(run, task.qrels).mean(), score(best, task.qrels).mean())


def test_runs_that_do_not_belong_together() -> None:
    one, other = Run.from_rankings({"a": [("x", 1.0)]}), Run.from_rankings({"b": [("x", 1.0)]})
    with pytest.raises(DataError, match="not over the same"):
        before_after(one, other, Qrels.from_judgments([("a", "x", 1)]), 1)
