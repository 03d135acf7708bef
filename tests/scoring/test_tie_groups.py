from __future__ import annotations

import numpy as np

from r2med.scoring.tie_groups import tie_groups

from .examples import R2MED_SIZES, drawn


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
