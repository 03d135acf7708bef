"""Paired randomisation tests of many systems at once: p values, a correction for their number, and intervals.

If two systems were the same, each query's difference could as well have the other sign. One random sign a query is
drawn for all systems together, so that the signed sums of scores hold every test: of each pair, on each task and on
averages. The statistic is z, the sum of the differences over the root of the sum of their squares. It is the paired t
in other units (squares do not change with the sign), so one noisy or distant system does not hide the others.

The correction is Westfall and Young's step-down maximum: a pair is compared with the largest |z| of all pairs that are
not yet found to differ. Its smallest p is one over the number of draws, however many systems there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .measures import Float64

Float32 = npt.NDArray[np.float32]
EXACT_MOST = 16  # up to this many queries, all sign patterns are gone through
SLACK = 1e-5  # of z: sums that are equal on paper differ in their last bits
SAME = 1e-12
ENDS = 1.0  # scores lie in 0–1, so no difference is larger
_CELLS_AT_ONCE = 1 << 18
_LARGEST_BLOCK = 512  # draws that share their random signs
_INTERVAL_CELLS = 4_000_000  # draws × pairs of one line that intervals are read from
_FEWEST = 10_000

Pairs = list[tuple[int, int]]


def all_pairs(systems: int) -> Pairs:
    """Every pair of systems, as positions."""
    return list(combinations(range(systems), 2))


class Line(NamedTuple):
    """One task or one average: scores that add up to it, and their sums under random signs."""

    scores: Float64  # systems × queries, each query times its weight
    weights: Float64  # of the queries, with the sum 1
    sums: Float32  # systems × draws
    balance: Float32  # the sum of the signed weights of each draw
    exact: bool  # the draws are all sign patterns, up to a common change of sign

    def differences(self, first: int, second: int) -> Float64:
        """The second system minus the first, query by query; 0 where only rounding differs."""
        values: Float64 = self.scores[second] - self.scores[first]
        values[np.abs(values) <= SAME * self.weights] = 0.0
        return values


class SignFlips:
    """Signed sums of several systems on several tasks, drawn once and read for every task and average."""

    def __init__(self, matrices: Sequence[Float64], *, draws: int = 100_000, seed: int = 0) -> None:
        self._centred = [m - m.mean(axis=0) for m in matrices]  # differences stay, and single precision is enough
        streams = np.random.SeedSequence([seed, 1]).spawn(len(matrices))
        self._drawn = [
            _signed_sums(m, draws, np.random.Generator(np.random.PCG64(stream)))
            for m, stream in zip(self._centred, streams, strict=True)
        ]

    def line(self, weights: Float64) -> Line:
        """A weighted sum of task means, from the draws."""
        used = [
            (m, s, w / m.shape[1]) for m, s, w in zip(self._centred, self._drawn, weights.tolist(), strict=True) if w
        ]
        sums = sum(np.float32(share) * signed for _, signed, share in used)
        assert isinstance(sums, np.ndarray)
        return Line(
            np.concatenate([m * share for m, _, share in used], axis=1),
            np.concatenate([np.full(m.shape[1], share) for m, _, share in used]),
            sums[:-1],
            sums[-1],
            False,
        )

    def exact_line(self, weights: Float64) -> Line:
        """The same from all sign patterns, where the queries are few enough; from the draws otherwise."""
        line = self.line(weights)
        return line if len(line.weights) > EXACT_MOST else exact_line(line.scores, line.weights)


def exact_line(scores: Float64, weights: Float64) -> Line:
    """A line with all sign patterns; the first sign is fixed, since a pattern and its opposite say the same."""
    queries = scores.shape[1]
    patterns = np.arange(1 << (queries - 1), dtype=np.int64)
    signs = 1.0 - 2.0 * ((patterns[:, None] >> np.arange(queries)) & 1)
    signed = np.concatenate((scores, weights[None])) @ signs.T
    return Line(scores, weights, signed[:-1].astype(np.float32), signed[-1].astype(np.float32), True)


def _signed_sums(scores: Float64, draws: int, rng: np.random.Generator) -> Float32:
    """Sums of each system's scores under each draw of signs, and in the last row the sums of the signs.

    One random sign a query is drawn for a whole block of draws, which turn it by the columns of a Hadamard matrix: each
    draw is any pattern with the same chance, patterns of a block differ in about half of their signs, and all of them
    take one product of matrices. Queries get random rows of the matrix, so that this holds for any number of them.
    """
    systems, queries = scores.shape
    rows = np.concatenate((scores, np.ones((1, queries)))).astype(np.float32)
    size = min(1 << (queries - 1).bit_length(), _LARGEST_BLOCK)
    blocks = -(-draws // size)
    sums = np.zeros((systems + 1, blocks * size), dtype=np.float32)
    for begin in range(0, queries, size):
        part = rows[:, begin : begin + size]
        width = part.shape[1]
        turns = _hadamard(size)[rng.permutation(size)[:width]]
        step = max(1, _CELLS_AT_ONCE // part.size)
        for first in range(0, blocks, step):
            count = min(step, blocks - first)
            bits = rng.integers(0, 256, size=(count, -(-width // 8)), dtype=np.uint8)
            signs = 1.0 - 2.0 * np.unpackbits(bits, axis=1, count=width).astype(np.float32)
            signed = (part[:, None, :] * signs).reshape(-1, width) @ turns
            sums[:, first * size : (first + count) * size] += signed.reshape(systems + 1, -1)
    return sums[:, :draws]


@cache
def _hadamard(size: int) -> Float32:
    """Sylvester's matrix of a power of two: signs such that any two columns differ in half of the rows."""
    matrix = np.ones((1, 1), dtype=np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


class PairTests(NamedTuple):
    """The tests of one line: an entry per pair, differences being the second system minus the first."""

    difference: Float64
    low: Float64
    high: Float64
    p: Float64
    exact: tuple[bool, ...]
    most: Float64  # the largest |z| that any signs of the differences would give


def pair_tests(line: Line, pairs: Pairs, level: float) -> PairTests:
    """Every pair by itself: p, and the interval of the differences that the same test would not reject."""
    found: list[tuple[float, float, float, float, bool, float]] = []
    draws = line.sums.shape[1]
    used = draws if line.exact else min(draws, max(_FEWEST, _INTERVAL_CELLS // max(1, len(pairs))))
    for first, second in pairs:
        values = line.differences(first, second)
        signed = line.sums[second] - line.sums[first]
        total, norm = float(values.sum()), float(np.linalg.norm(values))
        few = int(np.count_nonzero(values)) <= EXACT_MOST
        p = (
            exact_p(values)
            if few
            else (1 + np.count_nonzero(np.abs(signed) >= abs(total) - SLACK * norm)) / (draws + 1)
        )
        below, above = _typical_values(total, signed[:used], line.balance[:used])
        place = _place(1.0 - level, used, exact=line.exact)
        low, high = _end(below, place), -_end(-above, place)
        if p >= 1.0 - level:
            low, high = min(low, 0.0), max(high, 0.0)
        elif low <= 0.0 <= high:  # fewer draws than p was read from, or p is exact: the nearest that excludes 0
            low, high = (_above_zero(below), high) if total > 0 else (low, -_above_zero(-above))
        most = float(np.abs(values).sum()) / norm if norm else 0.0
        found.append((total, min(low, total), max(high, total), float(p), few or line.exact, most))
    difference, low_ends, high_ends, p_values, exact, largest = zip(*found, strict=True)
    return PairTests(
        np.array(difference),
        np.array(low_ends),
        np.array(high_ends),
        np.array(p_values),
        tuple(exact),
        np.array(largest),
    )


def _typical_values(total: float, signed: Float32, balance: Float32) -> tuple[Float32, Float32]:
    """For each draw, the differences δ between which the draw is less far from δ than what was observed.

    They are the means of the queries with either sign (Hartigan's typical values), so both ends of the interval that
    the test does not reject are order statistics of them.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        minus = (np.float32(total) - signed) / (1.0 - balance)
        plus = (np.float32(total) + signed) / (1.0 + balance)
    always = np.abs(balance) > 1.0 - 1e-6  # all signs alike: as far as what was observed, whatever δ is
    below = np.where(always, np.float32(-ENDS), np.minimum(minus, plus))
    return below, np.where(always, np.float32(ENDS), np.maximum(minus, plus))


def _place(alpha: float, draws: int, *, exact: bool) -> int:
    """Which order statistic ends the interval, from 0: δ is rejected where p < alpha.

    The observed pattern counts: it is one of all patterns, or one more than was drawn.
    """
    return max(int(np.ceil(alpha * draws)) - 1 if exact else int(np.ceil(alpha * (draws + 1))) - 2, 0)


def _end(values: Float32, place: int) -> float:
    end = float(np.partition(values, place)[place])
    return max(end, -ENDS) if abs(end) > SLACK * SLACK else 0.0


def _above_zero(values: Float32) -> float:
    return float(values[values > 0].min(initial=ENDS))


def exact_p(differences: Float64) -> float:
    """Two-sided p over all sign patterns; queries that do not differ have no say."""
    sizes = np.abs(differences[differences != 0.0])
    sums = np.zeros(1)
    for size in sizes[:-1]:  # the last sign is fixed: a pattern and its opposite are equally far from zero
        sums = np.concatenate((sums + size, sums - size))
    sums = np.abs(sums + (sizes[-1] if len(sizes) else 0.0))
    return float((sums >= abs(differences.sum()) - SAME * sizes.sum()).mean())


class Family(NamedTuple):
    """Corrected p values, a row per line and a column per pair, and the |z| that all of them have to exceed."""

    p: Float64
    critical: float


def step_down(lines: Sequence[Line], pairs: Pairs, level: float) -> Family:
    """Correct for the number of pairs and lines together; the lines come from the same number of draws."""
    observed = np.zeros((len(lines), len(pairs)))
    norms = np.zeros((len(lines), len(pairs)))
    for i, line in enumerate(lines):
        for j, (first, second) in enumerate(pairs):
            values = line.scores[second] - line.scores[first]
            norms[i, j] = np.linalg.norm(values)
            observed[i, j] = abs(values.sum()) / norms[i, j] if norms[i, j] > SAME else 0.0
    draws = lines[0].sums.shape[1]
    highest = np.zeros(draws, dtype=np.float32)
    order = np.argsort(observed, axis=None, kind="stable").tolist()
    reached = np.empty(len(order))
    buffer = np.empty(draws, dtype=np.float32)
    for place in order:  # from the smallest z, so that each meets the largest of those that are not above it
        i, j = divmod(place, len(pairs))
        first, second = pairs[j]
        if norms[i, j] > SAME:
            np.subtract(lines[i].sums[second], lines[i].sums[first], out=buffer)
            np.abs(buffer, out=buffer)
            buffer *= np.float32(1.0 / norms[i, j])
            np.maximum(highest, buffer, out=highest)
        reached[place] = np.count_nonzero(highest >= observed[i, j] - SLACK)
    p = (reached + 1.0) / (draws + 1.0)
    falling = np.array(order)[::-1]
    p[falling] = np.maximum.accumulate(p[falling])
    place = max(int(np.ceil((1.0 - level) * (draws + 1))) - 2, 0)
    critical = float(np.partition(highest, draws - 1 - place)[draws - 1 - place])
    return Family(p.reshape(observed.shape), critical)
