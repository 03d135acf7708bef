from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from r2med.core import UsageError
from r2med.scoring.effects import Equivalence, detectable_difference, effect_size, equivalence, spread, t_test, widened
from r2med.scoring.measures import Float64
from r2med.scoring.significance import SignFlips, all_pairs, exact_p, pair_tests, step_down

ONE = np.ones(1)


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


def test_nothing_varies() -> None:
    assert spread([np.zeros(5)], [1.0]) is None
    assert spread([np.full(5, 0.25)], [1.0]) is None
    assert spread([np.array([0.4])], [1.0]) is None


def test_a_task_of_one_query_adds_variance() -> None:
    values = np.random.default_rng(1).normal(0.0, 0.2, 30)
    alone = spread([values, np.zeros(1)], [0.5, 0.5])
    known = spread([values, values[:1]], [0.5, 0.5])
    assert alone is not None
    assert known is not None
    assert alone.error == pytest.approx(0.5 * np.sqrt(values.var(ddof=1) * (1 / 30 + 1)))
    only = spread([np.array([0.1]), np.array([0.3]), np.array([0.2])], [1 / 3] * 3)
    assert only is not None
    assert only.error == pytest.approx(0.1 / np.sqrt(3))


def test_the_effect_is_hedges_g_of_paired_differences() -> None:
    values = np.random.default_rng(2).normal(0.1, 0.2, 20)
    of = spread([values], [1.0])
    assert of is not None
    assert effect_size(of, 20) == pytest.approx((1 - 3 / 75) * values.mean() / values.std(ddof=1))


def star(differences: Float64, critical: float) -> bool:
    norm = np.linalg.norm(differences)
    return bool(norm and abs(differences.sum()) / norm > critical)


@pytest.mark.parametrize(("n", "ties"), [(50, 0.0), (50, 0.7), (100, 0.7), (13, 0.0)])
def test_the_detectable_difference_is_starred_four_times_in_five(n: int, ties: float) -> None:
    """By the starred test at its corrected level, which single t-tests at 5 % overstated: here 28 pairs."""
    rng = np.random.default_rng(10)
    family = np.clip(rng.normal(0.4, 0.2, size=(8, n)), 0.0, 1.0)
    critical = step_down([SignFlips([family], draws=4_000).line(ONE)], all_pairs(8), 0.95).critical
    assert critical > 2.5
    found = []
    for _ in range(60):
        differences = rng.normal(0.0, 0.2, n) * (rng.random(n) >= ties)
        found.append(detectable_difference(differences / n, np.full(n, 1 / n), critical, n - 1))
    true = float(np.mean([f for f in found if f is not None]))
    samples = rng.normal(true / (1.0 - ties), 0.2, size=(1_500, n)) * (rng.random((1_500, n)) >= ties)
    assert 0.72 <= np.mean([star(row, critical) for row in samples]) <= (0.97 if n == 13 else 0.90)


@pytest.mark.parametrize(("n", "ties"), [(20, 0.5), (30, 0.7)])
def test_the_detectable_difference_counts_how_many_queries_may_differ(n: int, ties: float) -> None:
    """Five queries that differ get no star whatever they say, and other queries may hold fewer than these."""
    rng, starred = np.random.default_rng(n), []
    for _ in range(200):
        differences = rng.normal(0.0, 0.2, n) * (rng.random(n) >= ties)
        said = detectable_difference(differences / n, np.full(n, 1 / n), 1.96, n - 1)
        if said is not None:
            share = np.count_nonzero(differences) / n
            others = rng.normal(said / share, 0.2, n) * (rng.random(n) < share)
            starred.append(exact_p(others) < 0.05)
    assert 30 < len(starred) < 200
    assert 0.72 <= np.mean(starred) <= 0.92


def test_too_few_queries_detect_nothing() -> None:
    six = np.array([0.1, 0.2, -0.1, 0.3, 0.2, 0.2])
    assert detectable_difference(six / 6, np.full(6, 1 / 6), 1.6, 5.0) is not None
    half = np.concatenate((six, np.zeros(6)))  # of twelve others, six or more differ in 61 % of samples
    assert detectable_difference(half / 12, np.full(12, 1 / 12), 1.6, 11.0) is None
    values = np.array([0.1, 0.2, -0.1, 0.3, 0.2])
    assert detectable_difference(values / 5, np.full(5, 0.2), 2.4, 4.0) is None
    assert detectable_difference(np.zeros(5), np.full(5, 0.2), 1.0, 4.0) is None


def judged(differences: Float64, margin: float, *, draws: int = 5_000) -> Equivalence:
    matrix = np.stack((np.zeros(len(differences)), differences))
    line = SignFlips([matrix], draws=draws).exact_line(ONE)
    tested = pair_tests(line, [(0, 1)], 0.95)
    return equivalence(
        line,
        (0, 1),
        margin,
        0.05,
        of=spread([differences], [1.0]),
        difference=float(tested.difference[0]),
        p_adjusted=float(tested.p[0]),
    )


def test_the_four_verdicts() -> None:
    noise = np.random.default_rng(5).normal(0.0, 0.1, 200)
    noise -= noise.mean()
    assert judged(noise, 0.03).verdict == "equivalent"
    assert judged(noise + 0.05, 0.03).verdict == "better"
    assert judged(noise - 0.05, 0.03).verdict == "worse"
    assert judged(4 * noise, 0.03).verdict == "undecided"
    assert judged(noise + 0.017, 0.05).equivalent
    up = judged(noise + 0.012, 0.02)
    assert (up.verdict, up.not_worse, up.equivalent) == ("undecided", True, False)
    with pytest.raises(UsageError, match="margin"):
        judged(noise, 0.0)


def test_one_sided_tests_agree_with_students() -> None:
    values = np.random.default_rng(6).normal(0.01, 0.15, 90)
    found = judged(values, 0.04, draws=60_000)
    lower = stats.ttest_1samp(values, -0.04, alternative="greater").pvalue
    upper = stats.ttest_1samp(values, 0.04, alternative="less").pvalue
    assert found.p_not_worse == pytest.approx(lower, abs=0.01)
    assert found.p_not_better == pytest.approx(upper, abs=0.01)
    assert found.p == max(found.p_not_worse, found.p_not_better)


def test_exact_one_sided_p_counts_all_patterns() -> None:
    values = np.array([0.2, 0.1, -0.05, 0.3, 0.15])
    shifted = values + 0.1
    signs = np.array(np.meshgrid(*[[1, -1]] * 5)).reshape(5, -1)
    expected = np.mean(shifted @ signs >= shifted.sum() - 1e-9)
    student = stats.ttest_1samp(values, -0.1, alternative="greater").pvalue
    assert judged(values, 0.1).p_not_worse == pytest.approx(max(expected, student))


def test_equivalence_is_rarely_claimed_at_the_margin() -> None:
    rng = np.random.default_rng(7)
    claimed = [judged(rng.normal(0.05, 0.15, 60), 0.05, draws=1_000).equivalent for _ in range(300)]
    assert np.mean(claimed) <= 0.09
    tied = [judged(rng.normal(0.1, 0.2, 40) * (rng.random(40) < 0.3), 0.03, draws=1_000).equivalent for _ in range(300)]
    assert np.mean(tied) <= 0.09


def test_equal_systems_are_equivalent_once_there_are_enough_queries() -> None:
    few, many = judged(np.zeros(13), 0.01), judged(np.zeros(400), 0.01)
    assert (few.verdict, many.verdict) == ("undecided", "equivalent")
    assert few.p == pytest.approx(0.99**13)


def test_queries_that_all_differ_alike_do_not_make_a_difference_certain() -> None:
    line = SignFlips([np.stack((np.zeros(30), np.ones(30)))], draws=2_000).exact_line(ONE)
    (low,), (high,) = widened(pair_tests(line, [(0, 1)], 0.95), [None], line.weights, 0.95)[1:3]
    assert low == pytest.approx(1.0 - 2.0 * (1.0 - 0.025 ** (1 / 30)))
    assert high == 1.0


def coverage(n: int, ties: float, shift: float, trials: int) -> float:
    """How often the interval of differences with many ties holds their true mean."""
    rng, held = np.random.default_rng(12), 0
    for seed in range(trials):
        differences = rng.normal(shift, 0.3, n) * (rng.random(n) >= ties)
        line = SignFlips([np.stack((np.zeros(n), differences))], draws=2_000, seed=seed).exact_line(ONE)
        of = spread([differences], [1.0])
        found = widened(pair_tests(line, [(0, 1)], 0.95), [of], line.weights, 0.95)
        held += bool(found.low[0] <= shift * (1.0 - ties) <= found.high[0])
    return held / trials


def test_small_tasks_with_ties_are_covered() -> None:
    """The percentile bootstrap that stood here covered 0.833 at n = 13 with 70 % ties."""
    assert coverage(13, 0.7, 0.05, 400) >= 0.93
    assert coverage(13, 0.0, 0.1, 400) >= 0.92


@pytest.mark.slow
@pytest.mark.parametrize("n", [12, 50, 100])
@pytest.mark.parametrize("ties", [0.0, 0.7])
def test_coverage_over_sizes_and_ties(n: int, ties: float) -> None:
    assert coverage(n, ties, 0.0, 2_000) >= 0.935
    assert coverage(n, ties, 0.05, 2_000) >= 0.93
