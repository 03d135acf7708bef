from __future__ import annotations

import numpy as np
import pytest

from r2med.core import DataError, Qrels, Run, UsageError
from r2med.scoring import Measure, score
from r2med.scoring.score_set import ScoreSet, TaskScores, Weights

from .examples import scores_of


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
