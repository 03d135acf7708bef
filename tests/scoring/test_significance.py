from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from r2med.scoring.measures import Float64
from r2med.scoring.significance import PairTests, SignFlips, all_pairs, exact_p, pair_tests, step_down

ONE = np.ones(1)


def one_pair(differences: Float64, *, draws: int = 10_000, seed: int = 0, level: float = 0.95) -> PairTests:
    """The test of one pair with these differences."""
    matrix = np.stack((np.zeros(len(differences)), differences))
    return pair_tests(SignFlips([matrix], draws=draws, seed=seed).exact_line(ONE), [(0, 1)], level)


@given(st.lists(st.sampled_from([-0.5, -0.1, 0.0, 0.1, 0.2, 0.5, 1.0]), min_size=1, max_size=9))
def test_exact_p_counts_every_sign_pattern(values: list[float]) -> None:
    sums = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in product((1, -1), repeat=len(values))
    ]
    expected = np.mean([s >= abs(sum(values)) - 1e-9 for s in sums])
    found = one_pair(np.array(values))
    assert found.exact == (True,)
    assert found.p[0] == pytest.approx(expected)


def test_drawn_p_equals_scipy() -> None:
    rng = np.random.default_rng(2)
    for row in rng.normal(0.05, 0.3, size=(3, 70)):
        found = one_pair(row, draws=40_000)
        assert found.exact == (False,)
        theirs = stats.permutation_test(
            (row,), np.mean, permutation_type="samples", n_resamples=40_000, vectorized=True, rng=4
        )
        assert found.p[0] == pytest.approx(theirs.pvalue, abs=0.012)


def test_drawn_and_exact_agree() -> None:
    values = np.random.default_rng(0).normal(0.1, 0.3, size=16)
    exact = one_pair(values)
    padded = one_pair(np.concatenate((values, np.full(4, 1e-9))), draws=60_000)
    assert (exact.exact, padded.exact) == ((True,), (False,))
    assert padded.p[0] == pytest.approx(exact.p[0], abs=0.01)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_every_draw_is_any_pattern_with_the_same_chance(n: int) -> None:
    """Draws of a block share their random signs; alone, each must still be any of all patterns."""
    draws = 40_000
    line = SignFlips([np.stack((np.zeros(n), 2.0 ** np.arange(n)))], draws=draws).line(ONE)
    patterns, counts = np.unique(np.round(n * (line.sums[1] - line.sums[0])), return_counts=True)
    assert len(patterns) == 2**n
    assert np.abs(counts - draws / 2**n).max() < 5 * np.sqrt(draws / 2**n)
    assert np.array_equal(np.unique(np.round(n * line.balance)) % 2, [n % 2] * (n + 1))


@pytest.mark.parametrize("n", [17, 65, 100, 600])
def test_drawn_p_scatters_no_more_than_that_of_independent_draws(n: int) -> None:
    """Also where the number of queries is just above a power of two, or larger than a block."""
    values = np.random.default_rng(n).normal(size=n)
    values = 2.0 / np.sqrt(n) + (values - values.mean()) / values.std(ddof=1)
    p = np.array([one_pair(values, draws=2_048, seed=seed).p[0] for seed in range(80)])
    assert 0.03 < p.mean() < 0.08
    assert p.std() < 1.1 * np.sqrt(p.mean() * (1.0 - p.mean()) / 2_048)


def test_p_is_uniform_where_nothing_differs() -> None:
    rng = np.random.default_rng(5)
    p = [one_pair(rng.normal(0.0, 0.2, size=40), draws=2_000, seed=seed).p[0] for seed in range(400)]
    assert stats.kstest(p, "uniform").pvalue > 0.001
    assert 0.02 <= (np.array(p) < 0.05).mean() <= 0.09


def test_no_difference_at_all() -> None:
    found = one_pair(np.zeros(30))
    assert (found.p[0], found.low[0], found.high[0], found.most[0]) == (1.0, 0.0, 0.0, 0.0)
    assert exact_p(np.zeros(4)) == 1.0


def test_drawn_p_is_never_zero_and_seeded() -> None:
    assert one_pair(np.full(60, 0.2), draws=1_000).p[0] == pytest.approx(1 / 1_001)
    noisy = np.random.default_rng(1).normal(0.05, 0.3, size=60)
    first, again, other = (one_pair(noisy, seed=s).p[0] for s in (1, 1, 2))
    assert first == again != other


def test_sums_that_are_equal_on_paper_count_as_equal() -> None:
    """Differences of ± 0.1 to ± 0.7 in single precision: their sums tie with the observed one very often."""
    values = np.random.default_rng(3).choice([-0.7, -0.3, -0.1, 0.1, 0.3, 0.7], size=40)
    exact = [one_pair(values * scale, draws=50_000).p[0] for scale in (1.0, 1 / 3, 1 / 7)]
    assert exact == pytest.approx([exact[0]] * 3, abs=1e-12)


def test_an_interval_is_what_the_test_does_not_reject() -> None:
    """Exact: shifting the differences to just inside an end is not rejected, just outside it is."""
    values = np.random.default_rng(7).normal(0.1, 0.2, size=12)
    found = one_pair(values)
    for end, inside in ((found.low[0], 1e-5), (found.high[0], -1e-5)):
        assert exact_p(values - (end + inside)) >= 0.05
        assert exact_p(values - (end - inside)) < 0.05


def test_an_interval_is_close_to_students_where_queries_are_many() -> None:
    values = np.random.default_rng(8).normal(0.03, 0.2, size=120)
    found = one_pair(values, draws=100_000)
    low, high = stats.t.interval(0.95, 119, values.mean(), stats.sem(values))
    assert found.low[0] == pytest.approx(low, abs=0.03 * (high - low))
    assert found.high[0] == pytest.approx(high, abs=0.03 * (high - low))


def test_few_queries_cannot_exclude_anything() -> None:
    found = one_pair(np.full(4, 0.5))
    assert (found.p[0], found.low[0], found.high[0]) == (0.125, -1.0, 1.0)


def exchangeable(rng: np.random.Generator, systems: int, queries: int) -> Float64:
    return np.clip(rng.beta(0.6, 1.4, size=queries) + rng.normal(0.0, 0.15, size=(systems, queries)), 0.0, 1.0)


def any_star(matrix: Float64, seed: int) -> bool:
    line = SignFlips([matrix], draws=1_000, seed=seed).line(ONE)
    return bool((step_down([line], all_pairs(len(matrix)), 0.95).p < 0.05).any())


def test_the_family_keeps_its_level_among_equal_systems() -> None:
    """The groups that stood here parted 16 % of boards of ten equal systems."""
    rng = np.random.default_rng(4)
    wrong = np.mean([any_star(exchangeable(rng, 10, 50), seed) for seed in range(300)])
    assert wrong <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


@pytest.mark.slow
@pytest.mark.parametrize("systems", [2, 5, 10, 20, 40])
def test_the_family_keeps_its_level_over_many_sizes(systems: int) -> None:
    rng = np.random.default_rng(systems)
    wrong = np.mean([any_star(exchangeable(rng, systems, 50), seed) for seed in range(2_500)])
    assert 0.02 <= wrong <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2_500)


def test_the_family_keeps_its_level_beside_a_system_that_differs() -> None:
    """Strong control: one system lies far above nine equal ones, among which no pair may be starred."""
    rng, wrong, pairs = np.random.default_rng(6), 0, all_pairs(10)
    for seed in range(250):
        matrix = exchangeable(rng, 10, 40)
        matrix[9] += 0.5
        p = step_down([SignFlips([matrix], draws=1_000, seed=seed).line(ONE)], pairs, 0.95).p[0]
        wrong += any(p[i] < 0.05 for i, (_, second) in enumerate(pairs) if second != 9)
        assert all(p[i] < 0.05 for i, (_, second) in enumerate(pairs) if second == 9)
    assert wrong / 250 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 250)


def test_stars_do_not_vanish_as_systems_are_added() -> None:
    """12 systems × 8 tasks × 50 queries, one of them 50 points better: it had no star on any of 88 lines."""
    rng = np.random.default_rng(0)
    tasks = [rng.normal(0.3, 0.1, size=(12, 50)) for _ in range(8)]
    for matrix in tasks:
        matrix[0] += 0.5
    flips, pairs = SignFlips(tasks, draws=10_000), all_pairs(12)
    family = step_down([flips.line(row) for row in np.eye(8)], pairs, 0.99)
    real = [i for i, (first, _) in enumerate(pairs) if first == 0]
    assert (family.p[:, real] < 0.01).all()
    assert (np.delete(family.p, real, axis=1) < 0.01).sum() == 0


def test_corrected_p_is_no_smaller_and_follows_the_statistic() -> None:
    rng = np.random.default_rng(9)
    matrix = exchangeable(rng, 6, 80)
    matrix[5] += 0.08
    line, pairs = SignFlips([matrix], draws=5_000).line(ONE), all_pairs(6)
    found, alone = step_down([line], pairs, 0.95), pair_tests(line, pairs, 0.95)
    assert (found.p[0] >= alone.p - 0.01).all()
    values = [line.scores[b] - line.scores[a] for a, b in pairs]
    z = np.array([abs(v.sum()) / np.linalg.norm(v) for v in values])
    assert (np.diff(found.p[0][np.argsort(-z)]) >= 0).all()
    assert (found.p[0][z > found.critical] < 0.05).all()


def test_one_pair_needs_no_correction() -> None:
    matrix = np.stack((np.zeros(50), np.random.default_rng(3).normal(0.06, 0.2, size=50)))
    line = SignFlips([matrix], draws=5_000).line(ONE)
    assert step_down([line], [(0, 1)], 0.95).p[0, 0] == pair_tests(line, [(0, 1)], 0.95).p[0]
