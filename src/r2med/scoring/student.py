"""Student's t distribution from the standard library alone, so that the core needs no scipy."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_TINY = 1e-300
_PRECISION = 1e-15
_MOST_STEPS = 500


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    front = math.exp(log_front)
    if x < (a + 1.0) / (a + b + 2.0):  # where the continued fraction converges fast
        return front * _continued_fraction(a, b, x) / a
    return 1.0 - front * _continued_fraction(b, a, 1.0 - x) / b


def _continued_fraction(a: float, b: float, x: float) -> float:
    """The fraction behind the incomplete beta function, by Lentz's method."""
    numerator, denominator = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    value = denominator
    for m in range(1, _MOST_STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for coefficient in (even, odd):
            denominator = 1.0 / _away_from_zero(1.0 + coefficient * denominator)
            numerator = _away_from_zero(1.0 + coefficient / numerator)
            step = numerator * denominator
            value *= step
        if abs(step - 1.0) < _PRECISION:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def two_sided_p(t: float, freedom: float) -> float:
    """Probability of a value at least as far from zero as `t`."""
    if math.isinf(t):
        return 0.0
    if t * t < 1.0:  # near zero the other form would lose t in 1 - t²; far out this one loses the tail
        return 1.0 - incomplete_beta(0.5, freedom / 2.0, t * t / (freedom + t * t))
    return incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))


def cdf(t: float, freedom: float) -> float:
    """Probability of a value up to `t`."""
    tail = two_sided_p(t, freedom) / 2.0
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=4096)
def quantile(probability: float, freedom: float) -> float:
    """The value that is not exceeded with `probability`: Newton's method, halving where it would leave the bracket."""
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -quantile(1.0 - probability, freedom)
    low, high = 0.0, 2.0
    while cdf(high, freedom) < probability:
        low, high = high, high * 2.0
    value = min(max(NormalDist().inv_cdf(probability), low), high)
    for _ in range(200):
        excess = cdf(value, freedom) - probability
        low, high = (low, value) if excess > 0 else (value, high)
        step = value - excess / _density(value, freedom)
        following = step if low < step < high else (low + high) / 2.0
        if abs(following - value) <= 1e-14 * abs(value) or high - low <= 1e-14 * high:
            return following
        value = following
    return value


def _density(t: float, freedom: float) -> float:
    log_front = math.lgamma((freedom + 1.0) / 2.0) - math.lgamma(freedom / 2.0) - math.log(freedom * math.pi) / 2.0
    return math.exp(log_front - (freedom + 1.0) / 2.0 * math.log1p(t * t / freedom))
