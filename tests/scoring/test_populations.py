from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from r2med.core import UsageError
from r2med.scoring.measures import Float64
from r2med.scoring.populations import components, design, populations
from r2med.scoring.significance import SignFlips, pair_tests
from r2med.scoring.tables import design_table

from .examples import R2MED_SIZES, drawn, scores_of


def nested(tasks: int, queries: int, of_tasks: float, of_queries: float, mean: float, seed: int) -> list[Float64]:
    rng = np.random.default_rng(seed)
    return [rng.normal(mean + rng.normal(0.0, of_tasks), of_queries, size=queries) for _ in range(tasks)]


@pytest.mark.parametrize(
    ("seed", "tasks", "queries"),
    [
        (7, 0.05989758, 0.18087365),
        (1, 0.04415288, 0.18326351),
        (2, 0.05843125, 0.20491761),
        (3, 0.03114678, 0.19875636),
    ],
)
def test_components_are_those_of_a_mixed_model(seed: int, tasks: float, queries: float) -> None:
    """The figures are statsmodels 0.15.0's: `mixedlm("d ~ 1", groups=task).fit(reml=True, method="bfgs")`.

    Its optimisers cg, powell and nm agree to 2e-4; lbfgs ends at a singular point with an infinite likelihood.
    """
    found = components(nested(8, 40, 0.05, 0.2, 0.02, seed))
    assert (found.tasks, found.queries) == pytest.approx((tasks, queries), rel=1e-4)


@pytest.mark.parametrize(
    ("seed", "tasks", "queries"),
    [(1, 0.04490, 0.19690), (2, 0.04222, 0.20164), (3, 0.03407, 0.19932), (4, 0.04160, 0.20145), (5, 0.07262, 0.19728)],
)
def test_components_of_unequal_tasks_are_near_those_of_a_mixed_model(seed: int, tasks: float, queries: float) -> None:
    """R2MED's eight sizes; restricted maximum likelihood weights tasks by their queries, moments weight them alike.

    statsmodels 0.15.0, as above; its optimisers bfgs, powell and cg agree on these five.
    """
    rng = np.random.default_rng(seed)
    differences = [rng.normal(0.02 + rng.normal(0.0, 0.05), 0.2, size=n) for n in R2MED_SIZES]
    found = components(differences)
    assert found.tasks == pytest.approx(tasks, rel=0.015)
    assert found.queries == pytest.approx(queries, rel=1e-4)


def test_components_of_unequal_tasks_find_the_truth() -> None:
    rng = np.random.default_rng(3)
    found = []
    for _ in range(300):
        sizes = rng.integers(20, 80, size=8)
        found.append(components([rng.normal(rng.normal(0.0, 0.06), 0.2, size=n) for n in sizes]))
    assert np.mean([(c.tasks or 0.0) ** 2 for c in found]) == pytest.approx(0.06**2, rel=0.15)
    assert np.mean([c.queries**2 for c in found]) == pytest.approx(0.2**2, rel=0.03)


def test_one_task_says_nothing_about_others() -> None:
    values = np.random.default_rng(0).normal(size=20)
    assert components([values]).tasks is None
    assert populations([values], (-0.1, 0.1), 0.5, 0.95) is None


def test_other_tasks_are_known_less_well() -> None:
    tasks = nested(8, 100, 0.06, 0.2, 0.02, 1)
    found = populations(tasks, (0.001, 0.04), 0.04, 0.95)
    assert found is not None
    means = [t.mean() for t in tasks]
    theirs = stats.ttest_1samp(means, 0.0)
    low, high = theirs.confidence_interval(0.95)
    assert found.these_queries == pytest.approx(np.mean(means))
    assert (found.other_tasks.low, found.other_tasks.high) == pytest.approx((min(low, 0.001), max(high, 0.04)))
    assert found.p_other_tasks == pytest.approx(max(0.04, theirs.pvalue))
    alike = populations(nested(8, 30, 0.0, 0.2, 0.0, 2), (-0.1, 0.1), 0.9, 0.95)
    assert alike is not None
    assert (alike.other_tasks.low, alike.other_tasks.high) == (-0.1, 0.1)  # never narrower than for other queries


def test_intervals_for_other_tasks_cover() -> None:
    held = {"queries": 0, "tasks": 0}
    for seed in range(300):
        tasks = nested(8, 60, 0.06, 0.2, 0.03, seed)
        flips = SignFlips([np.stack((np.zeros(60), t)) for t in tasks], draws=1_000, seed=seed)
        tested = pair_tests(flips.line(np.full(8, 1 / 8)), [(0, 1)], 0.95)
        ends = (float(tested.low[0]), float(tested.high[0]))
        found = populations(tasks, ends, float(tested.p[0]), 0.95)
        assert found is not None
        held["queries"] += ends[0] <= 0.03 <= ends[1]
        held["tasks"] += found.other_tasks.low <= 0.03 <= found.other_tasks.high
    assert held["tasks"] / 300 >= 0.93
    assert held["queries"] / 300 <= 0.85  # the interval of other queries is no answer about other tasks


def test_a_design_has_the_power_that_was_asked_for() -> None:
    rng = np.random.default_rng(4)
    base = [rng.normal(0.4, 0.2, size=60) for _ in range(6)]
    scores = scores_of(*[np.stack((b, b + rng.normal(0.0, 0.2, size=60))) for b in base])
    found = design(scores, effect=0.03, power=0.8)
    row = next(r for r in found.rows if r.tasks == 4)
    starred, trials = 0, 250
    for seed in range(trials):
        tasks = nested(4, row.queries_same_tasks, 0.0, found.deviation_of_queries, 0.03, seed)
        flips = SignFlips([np.stack((np.zeros(len(t)), t)) for t in tasks], draws=1_000, seed=seed)
        starred += bool(pair_tests(flips.line(np.full(4, 0.25)), [(0, 1)], 0.95).p[0] < 0.05)
    assert starred / trials == pytest.approx(0.8, abs=0.08)


def test_more_tasks_need_fewer_queries_and_some_are_too_few() -> None:
    rng = np.random.default_rng(5)
    tasks = [rng.normal(0.4, 0.2, size=(1, 50)) for _ in range(8)]
    scores = scores_of(*[np.concatenate((t, t + rng.normal(rng.normal(0.0, 0.05), 0.15, size=(1, 50)))) for t in tasks])
    found = design(scores, effect=0.02)
    same = [row.queries_same_tasks for row in found.rows]
    assert same == sorted(same, reverse=True)
    assert found.least_tasks is not None
    for row in found.rows:
        assert (row.queries_other_tasks is None) == (row.tasks < found.least_tasks)
        if row.queries_other_tasks is not None:
            assert row.queries_other_tasks >= 2
    assert design(scores, effect=0.02, systems=20).rows[3].queries_same_tasks > found.rows[3].queries_same_tasks
    assert "From 1 pair of real systems" in design_table(found).caption
    one = design(scores_of(scores.matrices[0]), effect=0.02)
    assert (one.deviation_of_tasks, one.least_tasks) == (None, None)


def test_what_cannot_be_designed() -> None:
    scores = drawn(2, (30,))
    with pytest.raises(UsageError, match="effect"):
        design(scores, effect=0.0)
    with pytest.raises(UsageError, match="power"):
        design(scores, effect=0.1, power=1.0)
    with pytest.raises(UsageError, match="two systems"):
        design(drawn(1, (30,)), effect=0.1)
    with pytest.raises(UsageError, match="do not differ"):
        design(scores_of(np.full((2, 9), 0.5)), effect=0.1)
