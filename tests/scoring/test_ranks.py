from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.scoring import compare as comparing
from r2med.scoring.compare import compare, letter, letter_groups, standings
from r2med.scoring.intervals import Settings
from r2med.scoring.measures import Bools, Float64

from .examples import R2MED_SIZES, drawn, scores_of

QUICK = Settings(resamples=500)


@st.composite
def differing(draw: st.DrawFn) -> Bools:
    size = draw(st.integers(1, 9))
    found = np.zeros((size, size), dtype=bool)
    for i in range(size):
        for j in range(i):
            found[i, j] = found[j, i] = draw(st.booleans())
    return found


@given(differing())
def test_two_systems_share_a_letter_exactly_where_they_do_not_differ(different: Bools) -> None:
    size = len(different)
    groups = letter_groups(different, range(size))
    for i in range(size):
        assert any(i in group for group in groups)
        for j in range(size):
            assert any(i in group and j in group for group in groups) == (not different[i, j])
    assert not any(one < other for one in groups for other in groups)  # no letter says less than another


def test_letters_overlap() -> None:
    """The first differs from the third, the second from neither: two letters, of which the second has both."""
    different = np.zeros((3, 3), dtype=bool)
    different[0, 2] = different[2, 0] = True
    assert letter_groups(different, [0, 1, 2]) == [{0, 1}, {1, 2}]


def test_letters_do_not_run_out() -> None:
    assert [letter(n) for n in (0, 25, 26, 51, 52)] == ["a", "z", "A", "Z", "(53)"]


def close_systems(seed: int) -> list[Float64]:
    """A few systems with small steps between them, on one to three tasks, some of few queries and with ties."""
    rng = np.random.default_rng(seed)
    systems, tasks = int(rng.integers(2, 8)), []
    for _ in range(int(rng.integers(1, 4))):
        n = int(rng.choice([5, 6, 9, 13, 30, 60]))
        steps = np.linspace(0.0, 0.12, systems)[:, None]
        matrix = np.clip(rng.beta(0.6, 1.4, n) + rng.normal(0.0, 0.15, (systems, n)) + steps, 0.0, 1.0)
        tasks.append(np.where(rng.random((systems, n)) < rng.choice([0.0, 0.5]), matrix[0], matrix))
    return tasks


@pytest.mark.parametrize("seed", [*range(8), 13])
def test_a_board_says_what_a_comparison_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board draws fewer signs at first. With 13, as few as here parted systems that the comparison did not."""
    monkeypatch.setattr(comparing, "_FIRST_DRAWS", 2_000)
    tasks, settings = close_systems(seed), Settings(resamples=5_000)
    board, compared = standings(tasks, settings), compare(scores_of(*tasks), settings)
    assert board.letters == list(compared.letters.values())
    assert board.ranks == list(compared.ranks.values())


def test_a_ladder_with_wide_steps() -> None:
    rng = np.random.default_rng(0)
    easy = rng.random(120)
    levels = [0.0, 0.2, 0.205, 0.6]
    found = standings([np.stack([easy + level + rng.normal(0.0, 0.05, 120) for level in levels])], QUICK)
    assert found.letters == ["c", "b", "b", "a"]
    assert found.groups == [3, 2, 2, 1]
    assert [(r.low, r.high) for r in found.ranks] == [(4, 4), (2, 3), (2, 3), (1, 1)]
    assert found.ranks[3].best == 1.0


def test_equal_systems_share_everything() -> None:
    matrix = np.random.default_rng(0).random((1, 30))
    found = standings([np.repeat(matrix, 4, axis=0)], QUICK)
    assert found.letters == ["a"] * 4
    assert {(r.rank, r.low, r.high, r.best) for r in found.ranks} == {(1, 1, 4, 0.25)}
    assert standings([matrix], QUICK).letters == ["a"]


def test_ranks_follow_the_macro_average_and_lie_in_their_intervals() -> None:
    scores = drawn(12, R2MED_SIZES, seed=3)
    shifted = [np.clip(m + np.linspace(0.0, 0.25, 12)[:, None], 0.0, 1.0) for m in scores.matrices]
    found = standings(shifted, QUICK)
    macro = np.mean([m.mean(axis=1) for m in shifted], axis=0)
    assert [r.rank for r in found.ranks] == (12 - np.argsort(np.argsort(macro))).tolist()
    for rank in found.ranks:
        assert rank.low <= rank.rank <= rank.high
        assert rank.bootstrap_low <= rank.rank <= rank.bootstrap_high
    assert abs(sum(r.best for r in found.ranks) - 1.0) < 1e-9
    assert max(found.groups) > 1


def test_ranks_left_open_hold_the_true_ones() -> None:
    """Six systems a point apart: in nearly all samples all six true ranks lie in the intervals at once."""
    rng, held, trials = np.random.default_rng(2), 0, 120
    for seed in range(trials):
        easy = rng.beta(0.6, 1.4, size=60)
        matrix = np.stack([easy + 0.01 * i + rng.normal(0.0, 0.15, 60) for i in range(6)])
        found = standings([matrix], Settings(resamples=100, seed=seed))
        held += all(r.low <= 6 - i <= r.high for i, r in enumerate(found.ranks))
    assert held / trials >= 0.92
