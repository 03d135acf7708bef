from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special, stats

from r2med.core import UsageError
from r2med.scoring.intervals import (
    METHODS,
    Average,
    Bootstrap,
    Method,
    Settings,
    incomplete_beta,
    score_intervals,
    share_interval,
    student_cdf,
    student_quantile,
    two_sided_p,
)

from .examples import R2MED_SIZES, drawn, scores_of

ONE = np.ones(1)


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_equal_to_scipy(method: Method) -> None:
    values = np.random.default_rng(3).beta(0.4, 1.2, size=60)  # skewed: BCa and percentile differ
    ours = Bootstrap([values[None]], Settings(method=method, resamples=40_000, expanded=False)).bounds(np.eye(1), ONE)
    name = {"bca": "BCa", "percentile": "percentile"}[method]
    theirs = stats.bootstrap((values,), np.mean, n_resamples=40_000, method=name, rng=1).confidence_interval
    width = theirs.high - theirs.low
    assert ours.value[0] == pytest.approx(values.mean(), abs=1e-15)
    assert ours.low[0] == pytest.approx(theirs.low, abs=0.02 * width)
    assert ours.high[0] == pytest.approx(theirs.high, abs=0.02 * width)


def test_bca_of_a_skewed_score_lies_higher_than_percentile() -> None:
    values = np.random.default_rng(3).exponential(0.1, size=(1, 40))
    bca, plain = (Bootstrap([values], Settings(method=m)).bounds(np.eye(1), ONE) for m in ("bca", "percentile"))
    assert bca.low[0] > plain.low[0]
    assert bca.high[0] > plain.high[0]


def test_stratified_spread_is_the_sum_of_the_tasks() -> None:
    """The macro-average's interval is as wide as the variances within tasks say; differences between tasks add none."""
    scores = drawn(1, (60, 90, 120), seed=5)
    apart = [m + 10.0 * t for t, m in enumerate(scores.matrices)]  # tasks far from each other
    error = math.sqrt(sum(m.var() / m.shape[1] for m in apart)) / 3
    bounds = Bootstrap(apart, Settings(resamples=20_000, expanded=False)).bounds(np.eye(1), np.full(3, 1 / 3))
    assert (bounds.high[0] - bounds.low[0]) == pytest.approx(2 * 1.959964 * error, rel=0.03)


def test_pairing_narrows_a_difference() -> None:
    scores = drawn(2, (200,))
    bootstrap = Bootstrap(scores.matrices)
    difference = bootstrap.bounds(np.array([[-1.0, 1.0]]), ONE)
    each = bootstrap.bounds(np.eye(2), ONE)
    assert difference.high[0] - difference.low[0] < 0.7 * (each.high - each.low).max()
    same = bootstrap.bounds(np.array([[1.0, -1.0]]), ONE)
    assert same.value[0] == -difference.value[0]


def coverage(settings: dict[str, object], n: int, trials: int) -> float:
    """How often the interval of a skewed score holds its true mean."""
    rng, held = np.random.default_rng(11), 0
    for seed in range(trials):
        values = rng.beta(0.5, 1.5, size=(1, n))
        drawn_settings = Settings(resamples=600, seed=seed, **settings)  # type: ignore[arg-type]
        bounds = Bootstrap([values], drawn_settings).bounds(np.eye(1), ONE)
        held += bool(bounds.low[0] <= 0.25 <= bounds.high[0])
    return held / trials


@pytest.mark.parametrize("method", METHODS)
def test_intervals_cover_the_truth_about_as_often_as_they_say(method: Method) -> None:
    assert 0.91 <= coverage({"method": method}, 80, 400) <= 0.98


def test_few_queries_need_wider_intervals() -> None:
    plain, expanded = (coverage({"expanded": e}, 13, 600) for e in (False, True))
    assert plain < expanded
    assert 0.90 <= expanded <= 0.98


def test_expansion_reaches_as_far_as_students_t() -> None:
    """On nearly normal resamples an expanded interval is the t interval."""
    values = np.random.default_rng(2).normal(0.5, 0.1, size=(1, 25))
    bounds = Bootstrap([values], Settings(resamples=100_000, method="percentile")).bounds(np.eye(1), ONE)
    low, high = stats.t.interval(0.95, 24, values.mean(), stats.sem(values[0]))
    assert bounds.low[0] == pytest.approx(low, abs=0.03 * (high - low))
    assert bounds.high[0] == pytest.approx(high, abs=0.03 * (high - low))


def test_seeded() -> None:
    matrices = drawn(2, (30, 40)).matrices
    first, again, other = (Bootstrap(matrices, Settings(seed=s)).bounds(np.eye(2), np.full(2, 0.5)) for s in (7, 7, 8))
    assert first.low.tolist() == again.low.tolist()
    assert first.low.tolist() != other.low.tolist()


def test_systems_with_macro_and_query_weighted_averages() -> None:
    scores = drawn(3, (10, 50))
    for i, system in enumerate(score_intervals(scores)):
        means = [m[i].mean() for m in scores.matrices]
        assert system.name == f"s{i}"
        assert [e.value for e in system.tasks.values()] == pytest.approx(means)
        assert [e.n for e in system.tasks.values()] == [10, 50]
        assert system.macro.value == pytest.approx(np.mean(means))
        assert system.query_weighted.value == pytest.approx((10 * means[0] + 50 * means[1]) / 60)
        for low, value, high in [
            *((e.low, e.value, e.high) for e in system.tasks.values()),
            *((a.low, a.value, a.high) for a in (system.macro, system.query_weighted)),
        ]:
            assert low < value < high


def test_an_incomplete_average_never_passes_for_a_complete_one() -> None:
    whole = score_intervals(drawn(1, (20, 20)))[0].macro
    part = score_intervals(scores_of(*drawn(1, (20, 20)).matrices, of_tasks=8))[0].macro
    assert (whole.complete, part.complete) == (True, False)
    assert "of" not in str(whole)
    assert str(part).endswith("(only 2 of 8 tasks)")
    assert msgspec.to_builtins(part)["complete"] is False
    assert Average(0.5, 0.4, 0.6, 10, tasks=2, of_tasks=8, complete=True).complete is False


def test_constant_scores_have_intervals_of_no_width() -> None:
    for method in METHODS:
        bounds = Bootstrap([np.full((1, 9), 0.1)], Settings(method=method)).bounds(np.eye(1), ONE)
        assert bounds.low[0] == pytest.approx(0.1, abs=1e-12)
        assert bounds.high[0] == pytest.approx(0.1, abs=1e-12)
    single = Bootstrap([np.array([[0.4]])]).bounds(np.eye(1), ONE)
    assert (single.low[0], single.high[0]) == (0.4, 0.4)


def test_a_task_larger_than_one_block() -> None:
    values = np.random.default_rng(0).random((1, 30_000))
    bounds = Bootstrap([values], Settings(resamples=200)).bounds(np.eye(1), ONE)
    assert bounds.high[0] - bounds.low[0] == pytest.approx(2 * 1.96 * values.std() / math.sqrt(30_000), rel=0.25)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"level": 1.0}, "level"),
        ({"level": 0.0}, "level"),
        ({"resamples": 10}, "too few"),
        ({"method": "magic"}, "unknown interval method"),
        ({"seed": -1}, "seed"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Settings(**settings)  # type: ignore[arg-type]


def test_the_sizes_of_r2med() -> None:
    assert sum(R2MED_SIZES) == 876


FREEDOMS = st.floats(0.5, 5_000)


@given(st.floats(0.05, 500), st.floats(0.05, 500), st.floats(0, 1))
def test_incomplete_beta_equals_scipy(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(float(special.betainc(a, b, x)), abs=1e-11)


@given(st.floats(-60, 60), FREEDOMS)
@example(6.7e-07, 4895.5)
@example(3e-9, 2.0)
def test_probabilities_equal_scipy(t: float, freedom: float) -> None:
    assert student_cdf(t, freedom) == pytest.approx(float(stats.t.cdf(t, freedom)), abs=1e-11)
    assert two_sided_p(t, freedom) == pytest.approx(2 * float(stats.t.sf(abs(t), freedom)), rel=1e-7, abs=1e-14)


@given(st.floats(0.001, 0.999), st.floats(1, 2_000))
def test_quantile_equals_scipy(probability: float, freedom: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(
        float(stats.t.ppf(probability, freedom)), rel=1e-7, abs=1e-7
    )


def test_edges() -> None:
    assert two_sided_p(float("inf"), 3) == 0.0
    assert two_sided_p(0.0, 3) == 1.0
    assert student_quantile(0.5, 7) == 0.0
    assert incomplete_beta(2, 3, 0.0) == 0.0
    assert incomplete_beta(2, 3, 1.0) == 1.0


@pytest.mark.parametrize(("hits", "n"), [(0, 13), (13, 13), (7, 13), (1, 876), (45, 50)])
def test_shares_have_the_exact_interval(hits: int, n: int) -> None:
    theirs = stats.binomtest(hits, n).proportion_ci(0.95, method="exact")
    assert share_interval(hits, n, 0.025) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    scores = np.array([[1.0] * hits + [0.0] * (n - hits)])
    found = Bootstrap([scores], Settings(resamples=200)).scores(ONE)
    assert (found.low[0], found.high[0]) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_no_interval_of_a_score_is_a_point() -> None:
    """13 of 13 printed [100, 100], and one query had no doubt at all."""
    (system,) = score_intervals(scores_of(np.ones((1, 13)), np.full((1, 9), 0.4), np.array([[0.7]])))
    perfect, same, single = system.tasks.values()
    assert (perfect.low, perfect.high) == pytest.approx((0.753, 1.0), abs=5e-4)
    assert same.low < 0.4 < same.high
    assert single.high - single.low > 0.9
    flat = score_intervals(scores_of(np.ones((1, 13)), np.ones((1, 13))))[0].macro
    assert (flat.low, flat.high) == pytest.approx((0.025 ** (1 / 26), 1.0))


def test_shares_of_a_dozen_queries_are_covered() -> None:
    """The bootstrap covered 0.71 at n = 12."""
    rng, held = np.random.default_rng(5), 0
    for seed in range(300):
        values = (rng.random((1, 12)) < 0.9).astype(np.float64)
        found = Bootstrap([values], Settings(resamples=100, seed=seed)).scores(ONE)
        held += bool(found.low[0] <= 0.9 <= found.high[0])
    assert held / 300 >= 0.93


def test_a_task_of_one_query_adds_variance_to_the_macro() -> None:
    values = np.random.default_rng(6).normal(0.5, 0.1, size=(1, 40))
    alone = score_intervals(scores_of(values, np.full((1, 40), 0.5)))[0].macro
    single = score_intervals(scores_of(values, np.array([[0.5]])))[0].macro
    assert single.high - single.low > 3 * (alone.high - alone.low)
    only = score_intervals(scores_of(*[np.array([[v]]) for v in (0.2, 0.5, 0.6, 0.4)]))[0].macro
    assert only.high - only.low > 0.1
