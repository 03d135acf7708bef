"""Scores of a run: by printed name, by key, as a frame, and again from a stored run; and systems side by side."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import r2med
from r2med.core import DataError, MissingExtra, Qrels, Run, UsageError
from r2med.rerank import as_reranker
from r2med.results import ResultIndex, ResultStore
from r2med.scoring import MAIN, STANDARD, Measure, rescored, score
from r2med.scoring.evaluation import ScoreSet, TaskScores, Weights, before_after, oracle
from tests.rerank import tiny

from .examples import scores_of

QRELS = Qrels.from_judgments([("a", "x", 1), ("b", "x", 1), ("b", "y", 2), ("b", "z", 1)])
RUN = Run.from_rankings({"a": [("x", 1.0)], "b": [("y", 2.0), ("w", 1.0)]})


def test_queries_without_results_score_zero_and_are_named() -> None:
    qrels = Qrels.from_judgments([("a", "x", 1), ("b", "x", 1), ("c", "x", 0)])
    scored = score(Run.from_rankings({"a": [("x", 1.0)]}), qrels)
    assert scored.mean("nDCG@10") == pytest.approx(1 / 3)
    assert scored.missing_queries == ("b", "c")
    assert scored.without_positives == 1


def test_no_judgments_are_refused() -> None:
    with pytest.raises(DataError, match="no judged queries"):
        score(RUN, Qrels.from_judgments([]))


def test_micro_recall_counts_judgments() -> None:
    scored = score(RUN, QRELS)
    assert scored.micro_recall["recall_micro_at_10"] == pytest.approx(2 / 4)
    assert scored.mean("R@10") == pytest.approx((1 + 1 / 3) / 2)


def test_a_measure_that_was_not_computed_is_named() -> None:
    with pytest.raises(UsageError, match="nDCG@7 was not computed"):
        score(RUN, QRELS).mean("nDCG@7")
    assert score(RUN, QRELS, [Measure("ndcg", 7)]).mean("nDCG@7") > 0


def test_means_are_keyed_by_the_printed_measure_and_found_by_any_spelling() -> None:
    means = score(RUN, QRELS, ["nDCG(dcg=exp)@10", "recall_at_5", MAIN]).means
    assert list(means) == ["nDCG(dcg=exp)@10", "R@5", "nDCG@10"]
    assert means["nDCG@10"] == means["ndcg_at_10"] == means["ndcg_cut_10"] == means[MAIN]
    assert means["ndcg_dcg_exp_at_10"] == means["nDCG(dcg='exp-log2')@10"] != means["nDCG@10"]
    assert "recall_at_5" in means
    assert "R@6" not in means
    assert "nonsense" not in means
    with pytest.raises(KeyError, match="R@6"):
        means["R@6"]
    assert means.by_key() == {"ndcg_dcg_exp_at_10": means["nDCG(dcg=exp)@10"], "recall_at_5": means["R@5"],
                              "ndcg_at_10": means["nDCG@10"]}  # fmt: skip
    assert repr(means).startswith("{'nDCG(dcg=exp)@10': ")


def test_per_query_values_have_the_same_names() -> None:
    scored = score(RUN, QRELS, ["R@10"])
    assert scored.per_query["R@10"].tolist() == scored.per_query["recall_at_10"].tolist() == [1.0, 1 / 3]
    assert list(scored.per_query.by_key()) == ["recall_at_10"]


def test_what_a_result_file_holds() -> None:
    scored = score(RUN, QRELS)
    assert scored.to_dict() == scored.means.by_key() | scored.micro_recall
    assert list(scored.to_dict())[:2] == ["ndcg_at_1", "ndcg_at_3"]


def test_an_evaluation_shows_scores_not_arrays() -> None:
    qrels = Qrels.from_judgments([*QRELS, ("c", "x", 1)])
    assert repr(score(RUN, qrels)) == (
        "Evaluation(3 queries, 1 without results score 0: nDCG@10 0.5463, AP@10 0.4444, R@10 0.4444, R@100 0.4444, "
        "P@10 0.0667, RR@10 0.6667, hit@10 0.6667; 47 more in .means)"
    )
    assert repr(score(RUN, QRELS, ["R@7"])) == "Evaluation(2 queries: R@7 0.6667)"


def test_a_task_stands_for_its_judgments() -> None:
    task = r2med.load("mini@1/MedQA-Diag")
    run = r2med.BM25().retrieve(task, depth=20)
    assert score(run, task, [MAIN]).mean() == score(run, task.qrels, [MAIN]).mean() > 0


def test_a_data_frame_has_a_row_per_query() -> None:
    frame = score(RUN, QRELS, ["R@10", "nDCG(dcg=exp)@10"]).to_pandas()
    assert list(frame.columns) == ["R@10", "nDCG(dcg=exp)@10"]
    assert frame.index.name == "query_id"
    assert frame["R@10"].to_dict() == {"a": 1.0, "b": 1 / 3}


def test_a_data_frame_without_pandas_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"r2med\[interop\]"):
        score(RUN, QRELS, [MAIN]).to_pandas()


def test_a_stored_run_gives_the_stored_scores_again(tmp_path: Path) -> None:
    """And any other measure, to the last digit."""
    task = r2med.load("mini@1/MedQA-Diag")
    (result,) = r2med.run("bm25", tasks="mini@1/MedQA-Diag", results=tmp_path).results
    store = ResultStore(tmp_path)
    stored = store.run(result)
    for measure in STANDARD[::5]:
        (kept,) = ResultIndex([tmp_path]).all()
        ids, columns = kept.scores([measure.key])[:2]
        assert rescored(stored, task.qrels, measure) == dict(zip(ids, columns[0].tolist(), strict=True))
    fresh = score(r2med.BM25().retrieve(task), task, ["nDCG(dcg=exp)@10", "R(rel=2)@100", "P@7"])
    for name, values in fresh.per_query.items():
        again = rescored(stored, task.qrels, name)
        assert list(again) == list(task.qrels.query_ids)
        assert np.array_equal(list(again.values()), values)


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
    found = before_after(first, swapped, qrels, 2)
    assert (found.helped, found.hurt, found.unchanged, found.queries) == (0.25, 0.25, 0.5, 4)
    second = 1 / np.log2(3)
    ideal = 2 + second  # of query b, whose z lies below the depth
    assert found.before == {"ndcg_at_10": pytest.approx((second + 2 / ideal + 1 + 0) / 4)}
    assert found.after == {"ndcg_at_10": pytest.approx((1 + (second + 1) / ideal + 1 + 0) / 4)}
    assert found.oracle == {"ndcg_at_10": pytest.approx((1 + 2 / ideal + 1 + 0) / 4)}
    assert found.share_of_possible == pytest.approx(1 - (1 - second) / ideal / (1 - second))
    assert found.as_notes()["before"] == found.before
    same = before_after(swapped, swapped, qrels, 3)
    assert same.before == same.after


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


def test_judged_at_ten_stands_beside_every_score() -> None:
    qrels = Qrels.from_judgments([("a", "x", 1), ("a", "y", 0), ("b", "z", -1), ("c", "w", 1)])
    run = Run.from_rankings({"a": [("x", 3.0), ("n", 2.0), ("y", 1.0)], "b": [("z", 1.0)]})
    found = score(run, qrels, ["nDCG@10", "judged@10"])
    assert found.judged_at_10 == pytest.approx(found.mean("judged@10")) == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert "judged@10: 56 %" in found._repr_html_()


def test_weights_of_the_two_averages() -> None:
    weights = Weights.of([np.zeros((2, 1)), np.zeros((2, 3))])
    assert weights.macro.tolist() == [0.5, 0.5]
    assert weights.by_query.tolist() == [0.25, 0.75]


def test_from_evaluations_keeps_only_shared_tasks_and_remembers_the_others() -> None:
    qrels = Qrels.from_judgments([("a", "x", 1), ("b", "y", 1)])
    good = score(Run.from_rankings({"a": [("x", 1.0)], "b": [("y", 1.0)]}), qrels)
    half = score(Run.from_rankings({"a": [("x", 1.0)]}), qrels)
    scores = ScoreSet.of_evaluations({"one": {"t": good, "u": good}, "two": {"t": half}})
    assert [t.name for t in scores.tasks] == ["t"]
    assert scores.tasks[0].scores.tolist() == [[1.0, 1.0], [1.0, 0.0]]
    assert (len(scores.tasks), scores.of_tasks, scores.complete) == (1, 2, False)
    other = score(Run.from_rankings({"a": [("x", 1.0)]}), Qrels.from_judgments([("a", "x", 1)]))
    with pytest.raises(DataError, match="'one' and 'two' were scored on other queries"):
        ScoreSet.of_evaluations({"one": {"t": good}, "two": {"t": other}}, Measure("ndcg", 10))


def test_columns_of_several_orders_are_put_side_by_side() -> None:
    run = Run.from_rankings({"a": [("x", 1.0)], "b": [("z", 1.0)]})
    one = score(run, Qrels.from_judgments([("a", "x", 1), ("b", "y", 1)]))
    two = score(run, Qrels.from_judgments([("b", "z", 1), ("a", "y", 1)]))
    scores = ScoreSet.of_evaluations({"one": {"t": one, "u": one}, "two": {"t": two}})
    assert scores.tasks[0].query_ids == ("a", "b")
    assert scores.tasks[0].scores.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert (len(scores.tasks), scores.of_tasks) == (1, 2)
    with pytest.raises(UsageError, match="no scores"):
        ScoreSet.of_evaluations({"one": {"t": one}, "two": {}})


def test_a_data_frame_has_a_row_per_query_and_a_column_per_system() -> None:
    frame = scores_of(np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([[0.5], [0.6]])).to_pandas()
    assert list(frame.columns) == ["s0", "s1"]
    assert frame.index.names == ["task", "query_id"]
    assert frame.loc[("t0", "t0-q1"), "s1"] == 0.4
    assert frame.loc["t1"]["s0"].tolist() == [0.5]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(DataError, match=r"'s1' has a score that is not a number for query 't0-q1'"):
        scores_of(np.array([[0.1, 0.2], [0.3, np.nan]]))
    with pytest.raises(UsageError, match="no scores"):
        ScoreSet((), (), 0)
    with pytest.raises(UsageError, match="cannot be part of 0"):
        scores_of(np.zeros((1, 2)), of_tasks=0)
    with pytest.raises(UsageError, match="shape"):
        ScoreSet(("a",), (TaskScores("t", ("q",), np.zeros((1, 2))),), 1)
    with pytest.raises(UsageError, match="system 'a' is given twice"):
        ScoreSet(("a", "a"), (TaskScores("t", ("q",), np.zeros((2, 1))),), 1)
