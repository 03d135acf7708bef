"""Fusion by scores, and weights by cross-validation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, IdTable, Run, UsageError
from r2med.fuse import combine, tune_weights
from r2med.fuse.combine import Method, Normalisation, normalised
from r2med.fuse.folds import fold_of, weight_grid

IDS = IdTable(f"d{i}" for i in range(12))
scored = st.dictionaries(st.sampled_from(list(IDS)), st.floats(-100, 100, width=32), max_size=10)


def as_run(lists: list[dict[str, float]], name: str = "run") -> Run:
    return Run.from_rankings({f"q{i}": list(hits.items()) for i, hits in enumerate(lists)}, doc_ids=IDS, name=name)


def scaled(hits: dict[str, float], how: str) -> dict[str, float]:
    """The definitions, one number at a time."""
    values = {d: float(np.float32(s)) for d, s in hits.items()}
    if not values:
        return {}
    low, high = min(values.values()), max(values.values())
    if how == "rank":
        order = sorted(values, key=lambda d: (values[d], d), reverse=True)
        return {d: 1 - i / len(order) for i, d in enumerate(order)}
    spread = high - low if how == "min-max" else float(np.std(list(values.values())))
    return {d: (s - low) / spread if spread > 0 else 1.0 for d, s in values.items()}


@pytest.mark.parametrize("normalisation", ["min-max", "z-score", "rank"])
@pytest.mark.parametrize("method", ["weighted", "combsum", "combmnz"])
@given(st.lists(st.tuples(scored, scored), min_size=1, max_size=3), st.integers(1, 12))
def test_equals_the_definition(
    method: Method, normalisation: Normalisation, cases: list[tuple[dict[str, float], dict[str, float]]], depth: int
) -> None:
    runs = [as_run([case[i] for case in cases]) for i in range(2)]
    weights = [0.3, 0.7] if method == "weighted" else None
    fused = combine(runs, method=method, normalisation=normalisation, weights=weights, depth=depth)
    for row, case in enumerate(cases):
        sums: dict[str, float] = {}
        for hits, weight in zip(case, weights or [1.0, 1.0], strict=True):
            for doc, share in scaled(hits, normalisation).items():
                sums[doc] = sums.get(doc, 0.0) + weight * share
        if method == "combmnz":
            sums = {d: s * sum(d in hits for hits in case) for d, s in sums.items()}
        got = {h.doc_id: h.score for h in fused.of(f"q{row}")}
        assert len(got) == min(depth, len(sums))
        assert got == pytest.approx({d: sums[d] for d in got}, abs=1e-5)
        assert [h.doc_id for h in fused.row(row)] == [h.doc_id for h in fused.sorted().row(row)]
        left_out = [s for d, s in sums.items() if d not in got]
        if left_out:
            assert max(left_out) <= min(got.values()) + 1e-5


def test_a_list_of_equal_scores_says_only_that_they_were_found() -> None:
    run = as_run([{"d1": 2.0, "d2": 2.0}])
    for how in ("min-max", "z-score"):
        assert normalised(run, how).tolist() == [[1.0, 1.0]]


def test_refusals() -> None:
    run = as_run([{"d1": 1.0}])
    for wrong in ([0.5], [0.5, -0.1], [0.0, 0.0], [float("nan"), 1.0]):
        with pytest.raises(UsageError):
            combine([run, run], method="weighted", weights=wrong)
    with pytest.raises(UsageError, match="takes no weights"):
        combine([run, run], weights=[0.5, 0.5])
    with pytest.raises(UsageError, match="unknown fusion"):
        combine([run], method="magic")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unknown normalisation"):
        combine([run], normalisation="magic")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="nothing"):
        combine([])
    with pytest.raises(UsageError, match="depth"):
        combine([run], depth=0)
    endless = as_run([{"d1": float("inf"), "d2": 1.0}])
    with pytest.raises(DataError, match="not finite"):
        combine([endless, endless])
    assert [h.doc_id for h in combine([endless, endless], normalisation="rank").row(0)] == ["d1", "d2"]


def test_the_grid_is_even_first() -> None:
    assert weight_grid(2, 4)[0] == (0.5, 0.5)
    assert len(weight_grid(3, 10)) == 66
    assert all(sum(w) == pytest.approx(1) for w in weight_grid(3, 10))


def test_folds_depend_on_ids_alone() -> None:
    ids = [f"q{i}" for i in range(23)]
    dealt = dict(zip(ids, fold_of(ids, 5, 0).tolist(), strict=True))
    shuffled = ids[::-1]
    assert dict(zip(shuffled, fold_of(shuffled, 5, 0).tolist(), strict=True)) == dealt
    assert sorted(np.bincount(list(dealt.values()))) == [4, 4, 5, 5, 5]


def good_and_bad(queries: int) -> tuple[Run, Run]:
    """The first run puts the wanted document d3 on top, the second one last."""
    good = as_run([{"d3": 9.0, "d1": 5.0, "d2": 1.0} for _ in range(queries)], "good")
    bad = as_run([{"d2": 9.0, "d1": 8.5, "d3": 1.0} for _ in range(queries)], "bad")
    return good, bad


def wanted_on_top(run: Run) -> dict[str, float]:
    return {q: float(hits[0].doc_id == "d3") if hits else 0.0 for q, hits in run}


def test_weights_are_never_chosen_on_what_they_judge() -> None:
    runs = good_and_bad(20)
    tuned = tune_weights(runs, wanted_on_top, folds=4)
    assert tuned.run.name == "good+bad.weighted-cv"
    assert sum(wanted_on_top(tuned.run).values()) == 20
    held_out = [q for fold in tuned.folds for q in fold.queries]
    assert sorted(held_out) == sorted(runs[0].query_ids)
    assert all(fold.chosen_on == 15 and fold.score == 1.0 for fold in tuned.folds)
    assert all(fold.weights[0] > fold.weights[1] for fold in tuned.folds)
    assert tuned.run.notes["fusion"] == tuned.describe()

    def only_outside(run: Run, fold: int = 0) -> dict[str, float]:
        """A measure that would reward the bad run on the held-out queries."""
        inside = set(tuned.folds[fold].queries)
        return {q: 1 - v if q in inside else v for q, v in wanted_on_top(run).items()}

    other = tune_weights(runs, only_outside, folds=4)
    assert other.folds[0].weights == tuned.folds[0].weights


def test_tuning_refusals() -> None:
    runs = good_and_bad(3)
    with pytest.raises(UsageError, match="at least two rankings"):
        tune_weights(runs[:1], wanted_on_top)
    with pytest.raises(UsageError, match="cannot make 5 folds"):
        tune_weights(runs, wanted_on_top)
    with pytest.raises(UsageError, match="judged"):
        tune_weights(runs, lambda run: {}, folds=2)
    with pytest.raises(UsageError, match="two folds"):
        tune_weights(runs, wanted_on_top, folds=1)
