from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from r2med.core import UsageError
from r2med.scoring.compare import (
    compare,
    detectable_difference,
    holm,
    most_moved,
    randomisation_test,
    spread,
    t_test,
    tie_groups,
)
from r2med.scoring.intervals import Settings

from .examples import R2MED_SIZES, drawn, scores_of


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


@given(st.lists(st.sampled_from([-0.5, -0.1, 0.0, 0.1, 0.2, 0.5, 1.0]), min_size=1, max_size=9))
def test_exact_p_counts_every_sign_pattern(values: list[float]) -> None:
    sums = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in product((1, -1), repeat=len(values))
    ]
    expected = np.mean([s >= abs(sum(values)) - 1e-9 for s in sums])
    found = randomisation_test(np.array([values]))
    assert found.exact == (True,)
    assert found.p[0] == pytest.approx(expected)


def test_drawn_p_equals_scipy() -> None:
    rng = np.random.default_rng(2)
    differences = rng.normal(0.05, 0.3, size=(3, 70))
    found = randomisation_test(differences, resamples=40_000)
    assert found.exact == (False, False, False)
    for row, p in zip(differences, found.p.tolist(), strict=True):
        theirs = stats.permutation_test(
            (row,), np.mean, permutation_type="samples", n_resamples=40_000, vectorized=True, rng=4
        )
        assert p == pytest.approx(theirs.pvalue, abs=0.012)


def test_drawn_and_exact_agree() -> None:
    values = np.random.default_rng(0).normal(0.1, 0.3, size=16)
    exact = randomisation_test(values[None])
    padded = randomisation_test(np.concatenate((values, np.full(4, 1e-9)))[None], resamples=60_000)
    assert (exact.exact, padded.exact) == ((True,), (False,))
    assert padded.p[0] == pytest.approx(exact.p[0], abs=0.01)


def test_p_is_uniform_where_nothing_differs() -> None:
    differences = np.random.default_rng(5).normal(0.0, 1.0, size=(400, 40))
    p = randomisation_test(differences, resamples=2_000).p
    assert stats.kstest(p, "uniform").pvalue > 0.001
    assert 0.02 <= (p < 0.05).mean() <= 0.09


def test_no_difference_at_all() -> None:
    assert randomisation_test(np.zeros((1, 30))).p[0] == 1.0
    assert spread([np.zeros(5)], [1.0]) is None
    assert spread([np.full(5, 0.25)], [1.0]) is None
    assert spread([np.array([0.4])], [1.0]) is None


def test_drawn_p_is_never_zero_and_seeded() -> None:
    differences = np.full((1, 60), 0.2)
    assert randomisation_test(differences, resamples=1_000).p[0] == pytest.approx(1 / 1_001)
    noisy = np.random.default_rng(1).normal(0.05, 0.3, size=(1, 60))
    first, again, other = (randomisation_test(noisy, seed=s).p[0] for s in (1, 1, 2))
    assert first == again != other


def test_t_test_of_one_task_equals_scipy() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.random(25), rng.random(25)
    of = spread([b - a], [1.0])
    assert of is not None
    theirs = stats.ttest_rel(b, a)
    assert t_test(of).t == pytest.approx(theirs.statistic)
    assert t_test(of).p == pytest.approx(theirs.pvalue)
    assert of.freedom == pytest.approx(24)


def test_t_test_over_tasks_has_welchs_degrees_of_freedom() -> None:
    """Two tasks with the weights 1 and -1 are Welch's test of two samples, which scipy has."""
    rng = np.random.default_rng(9)
    x, y = rng.normal(0.3, 1.0, 12), rng.normal(0.0, 3.0, 40)
    of = spread([x, y], [1.0, -1.0])
    assert of is not None
    theirs = stats.ttest_ind(x, y, equal_var=False)
    assert of.freedom == pytest.approx(theirs.df)
    assert t_test(of).p == pytest.approx(theirs.pvalue)


def test_the_detectable_difference_is_detected_four_times_in_five() -> None:
    rng = np.random.default_rng(10)
    base = spread([rng.normal(0.0, 0.2, 50)], [1.0])
    assert base is not None
    exact = base._replace(error=0.2 / np.sqrt(50))
    true = detectable_difference(exact)
    samples = rng.normal(true, 0.2, size=(4_000, 50))
    assert (stats.ttest_1samp(samples, 0.0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.8, abs=0.025)
    assert detectable_difference(exact, power=0.95) > true
    with pytest.raises(UsageError, match="between 0 and 1"):
        detectable_difference(exact, power=1.0)


def test_holm_by_hand() -> None:
    """Holm (1979): steps 4, 3, 2, 1, never falling, never above 1."""
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.6, 0.7])).tolist() == [1.0, 1.0]
    assert holm(np.array([0.02])).tolist() == [0.02]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_keeps_order_and_lies_between_raw_and_bonferroni(p: list[float]) -> None:
    raw = np.array(p)
    corrected = holm(raw)
    assert (corrected >= raw).all()
    assert (corrected <= np.minimum(1.0, raw * len(p)) + 1e-12).all()
    assert (np.diff(corrected[np.argsort(raw, kind="stable")]) >= 0).all()


def test_a_ladder_with_wide_steps() -> None:
    rng = np.random.default_rng(0)
    easy = rng.random(120)
    levels = [0.0, 0.2, 0.205, 0.6]
    matrix = np.stack([easy + level + rng.normal(0.0, 0.05, 120) for level in levels])
    assert tie_groups([matrix]) == [3, 2, 2, 1]


def test_equal_systems_share_the_first_group() -> None:
    matrix = np.random.default_rng(0).random((1, 30))
    assert tie_groups([np.repeat(matrix, 4, axis=0)]) == [1, 1, 1, 1]
    assert tie_groups([matrix]) == [1]


def test_groups_follow_the_order_of_macro_averages() -> None:
    scores = drawn(12, R2MED_SIZES, seed=3)
    shifted = [np.clip(m + np.linspace(0.0, 0.25, 12)[:, None], 0.0, 1.0) for m in scores.matrices]
    groups = tie_groups(shifted)
    macro = np.mean([m.mean(axis=1) for m in shifted], axis=0)
    in_order = [groups[i] for i in np.argsort(-macro)]
    assert in_order == sorted(in_order)
    assert in_order[0] == 1
    assert set(in_order) == set(range(1, max(in_order) + 1))
    assert max(in_order) > 1
