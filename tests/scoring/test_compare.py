from __future__ import annotations

import numpy as np
import pytest

from r2med.core import UsageError
from r2med.scoring.compare import compare, most_moved
from r2med.scoring.intervals import Settings
from r2med.scoring.significance import holm

from .examples import drawn, scores_of


def test_every_line_of_a_pair() -> None:
    scores = drawn(2, (30, 12))
    (pair,) = compare(scores).pairs
    assert (pair.first, pair.second) == ("s0", "s1")
    for task, line in zip(scores.tasks, pair.tasks.values(), strict=True):
        difference = task.scores[1] - task.scores[0]
        assert line.difference == pytest.approx(difference.mean())
        assert line.low < line.difference < line.high
        assert (line.wins, line.losses) == ((difference > 1e-12).sum(), (difference < -1e-12).sum())
        assert line.wins + line.ties + line.losses == line.n == len(difference)
    means = [line.difference for line in pair.tasks.values()]
    assert pair.macro.difference == pytest.approx(np.mean(means))
    assert pair.query_weighted.difference == pytest.approx((30 * means[0] + 12 * means[1]) / 42)
    assert pair.macro.n == 42
    assert [line.exact for line in pair.tasks.values()] == [False, True]


def test_holm_is_over_tasks_and_pairs() -> None:
    scores = drawn(3, (25, 25))
    pairs = compare(scores).pairs
    assert [(p.first, p.second) for p in pairs] == [("s0", "s1"), ("s0", "s2"), ("s1", "s2")]
    family = [line for task in ("t0", "t1") for line in (p.tasks[task] for p in pairs)]
    assert [line.p_holm for line in family] == pytest.approx(holm(np.array([line.p for line in family])).tolist())
    macros = [p.macro for p in pairs]
    assert [m.p_holm for m in macros] == pytest.approx(holm(np.array([m.p for m in macros])).tolist())


def test_a_real_difference_is_found_and_a_null_one_is_not() -> None:
    rng = np.random.default_rng(1)
    easy = rng.beta(0.6, 1.4, size=150)
    noise = rng.normal(0.0, 0.1, size=(2, 150))
    noise -= noise.mean(axis=1, keepdims=True)  # one system is better by 0.06, the other by exactly nothing
    found = compare(scores_of(np.stack((easy, easy + noise[0], easy + noise[1] + 0.06))))
    by_name = {(p.first, p.second): p.macro for p in found.pairs}
    assert by_name["s0", "s2"].different
    assert by_name["s0", "s2"].low > 0
    assert not by_name["s0", "s1"].different
    assert found.tie_groups == {"s2": 1, "s0": 2, "s1": 2}


def test_identical_systems() -> None:
    scores = np.random.default_rng(0).random((1, 20))
    (pair,) = compare(scores_of(np.concatenate((scores, scores)))).pairs
    line = pair.tasks["t0"]
    assert (line.difference, line.low, line.high, line.p, line.t_test, line.detectable) == (0, 0, 0, 1.0, None, None)
    assert (line.wins, line.ties, line.losses, line.different) == (0, 20, 0, False)
    assert pair.moved == []


def test_an_incomplete_set_says_so() -> None:
    (pair,) = compare(scores_of(*drawn(2, (20, 20)).matrices, of_tasks=8)).pairs
    assert (pair.macro.tasks, pair.macro.of_tasks, pair.macro.complete) == (2, 8, False)


def test_the_queries_that_moved_most() -> None:
    scores = scores_of(np.array([[0.0, 0.5, 0.2], [0.9, 0.5, 0.1]]), np.array([[1.0], [0.0]]))
    moved = most_moved(scores, 0, 1, 2)
    assert [(m.task, m.query_id) for m in moved] == [("t1", "t1-q0"), ("t0", "t0-q0")]
    assert (moved[0].first, moved[0].second, moved[0].difference) == (1.0, 0.0, -1.0)
    assert len(most_moved(scores, 0, 1)) == 3  # the query that did not move is not listed


def test_seeded_and_settings_are_kept() -> None:
    scores, settings = drawn(2, (40,)), Settings(seed=5, level=0.9, resamples=500)
    assert compare(scores, settings) == compare(scores, settings)
    assert compare(scores, settings).settings is settings


def test_one_system_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match="at least two"):
        compare(drawn(1, (10,)))
