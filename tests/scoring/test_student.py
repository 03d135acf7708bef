from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special, stats

from r2med.scoring import student

FREEDOMS = st.floats(0.5, 5_000)


@given(st.floats(0.05, 500), st.floats(0.05, 500), st.floats(0, 1))
def test_incomplete_beta_equals_scipy(a: float, b: float, x: float) -> None:
    assert student.incomplete_beta(a, b, x) == pytest.approx(float(special.betainc(a, b, x)), abs=1e-11)


@given(st.floats(-60, 60), FREEDOMS)
@example(6.7e-07, 4895.5)
@example(3e-9, 2.0)
def test_probabilities_equal_scipy(t: float, freedom: float) -> None:
    assert student.cdf(t, freedom) == pytest.approx(float(stats.t.cdf(t, freedom)), abs=1e-11)
    assert student.two_sided_p(t, freedom) == pytest.approx(2 * float(stats.t.sf(abs(t), freedom)), rel=1e-7, abs=1e-14)


@given(st.floats(0.001, 0.999), st.floats(1, 2_000))
def test_quantile_equals_scipy(probability: float, freedom: float) -> None:
    assert student.quantile(probability, freedom) == pytest.approx(
        float(stats.t.ppf(probability, freedom)), rel=1e-7, abs=1e-7
    )


def test_edges() -> None:
    assert student.two_sided_p(float("inf"), 3) == 0.0
    assert student.two_sided_p(0.0, 3) == 1.0
    assert student.quantile(0.5, 7) == 0.0
    assert student.incomplete_beta(2, 3, 0.0) == 0.0
    assert student.incomplete_beta(2, 3, 1.0) == 1.0
