"""κ and α against other implementations, published figures and brute force; and whether the intervals cover."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.core import UsageError
from r2med.judge.agreement import (
    METRICS,
    WEIGHTS,
    Compared,
    Grades,
    Measured,
    Metric,
    Weights,
    both_graded,
    cohens_kappa,
    group_agreement,
    krippendorffs_alpha,
    pair_agreement,
    people_and,
)
from r2med.scoring.intervals import Settings

QUICK = Settings(resamples=400)
GRADE = st.integers(0, 3)
PAIRS = st.lists(st.tuples(GRADE, GRADE), min_size=1, max_size=40)
ROWS = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(st.none() | GRADE, min_size=n, max_size=n), min_size=2, max_size=4)
)


def brute_kappa(pairs: Sequence[tuple[int, int]], weights: Weights) -> float | None:
    """1 - observed / expected, where expected goes over every way to put a grade of one beside one of the other."""

    def apart(a: int, b: int) -> float:
        return {"nominal": float(a != b), "linear": abs(a - b), "quadratic": (a - b) ** 2}[weights]

    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    observed = sum(apart(a, b) for a, b in pairs) / len(pairs)
    expected = sum(apart(a, b) for a in first for b in second) / len(pairs) ** 2
    return 1 - observed / expected


def brute_alpha(rows: Sequence[Sequence[int | None]], metric: Metric) -> float | None:
    """Krippendorff's definition, over all ordered pairs of values one by one."""
    units = [[g for g in column if g is not None] for column in zip(*rows, strict=True)]
    units = [unit for unit in units if len(unit) > 1]
    values = sorted(g for unit in units for g in unit)
    if len(set(values)) < 2:
        return None

    def apart(a: int, b: int) -> float:
        if metric == "nominal":
            return float(a != b)
        if metric == "interval":
            return float((a - b) ** 2)
        low, high = min(a, b), max(a, b)
        return (sum(low <= v <= high for v in values) - (values.count(a) + values.count(b)) / 2) ** 2 if a != b else 0.0

    observed = sum(sum(apart(a, b) for a, b in permutations(unit, 2)) / (len(unit) - 1) for unit in units)
    expected = sum(apart(a, b) for a, b in permutations(values, 2)) / (len(values) - 1)
    return 1 - observed / expected


def same(found: float | None, wanted: float | None) -> bool:
    return found is None if wanted is None else found == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("weights", WEIGHTS)
@given(pairs=PAIRS)
def test_kappa_is_its_definition(weights: Weights, pairs: list[tuple[int, int]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    found = cohens_kappa(first, second, weights)
    assert same(found, brute_kappa(pairs, weights))
    assert same(found, cohens_kappa(second, first, weights))


@pytest.mark.parametrize("metric", METRICS)
@given(rows=ROWS)
def test_alpha_is_its_definition(metric: Metric, rows: list[list[int | None]]) -> None:
    found = krippendorffs_alpha(rows, metric)
    assert same(found, brute_alpha(rows, metric))
    assert same(found, krippendorffs_alpha(rows[::-1], metric))


@given(pairs=PAIRS, by=st.integers(2, 5))
def test_two_grades_are_the_same_on_every_scale(pairs: list[tuple[int, int]], by: int) -> None:
    """With two grades the distance between them cancels, whatever it is."""
    first, second = [a > 1 for a, _ in pairs], [b > 1 for _, b in pairs]
    plain = cohens_kappa(first, second)
    assert all(same(cohens_kappa([by * a for a in first], [by * b for b in second], w), plain) for w in WEIGHTS)
    alphas = [krippendorffs_alpha([first, second], metric) for metric in METRICS]
    assert all(same(alpha, alphas[0]) for alpha in alphas)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_kappa_as_scikit_learn_and_statsmodels_give_it(weights: Weights) -> None:
    sklearn: Any = pytest.importorskip("sklearn.metrics")
    inter_rater: Any = pytest.importorskip("statsmodels.stats.inter_rater")
    rng = np.random.default_rng(3)
    for _ in range(20):
        first = rng.integers(0, 4, 60)
        second = np.where(rng.random(60) < 0.5, first, rng.integers(0, 4, 60))
        table = np.zeros((4, 4))
        np.add.at(table, (first, second), 1)
        found = cohens_kappa(first.tolist(), second.tolist(), weights)
        theirs = sklearn.cohen_kappa_score(
            first, second, weights=None if weights == "nominal" else weights, labels=range(4)
        )
        assert found == pytest.approx(theirs, abs=1e-12)
        wt = {"nominal": None, "linear": "linear", "quadratic": "quadratic"}[weights]
        assert found == pytest.approx(float(inter_rater.cohens_kappa(table, wt=wt).kappa), abs=1e-12)


def test_a_grade_that_nobody_gave_keeps_its_place_on_the_scale() -> None:
    """0 and 3 lie three apart, also where 1 and 2 were never given together with them."""
    first, second = [0, 0, 3, 3, 2, 2], [0, 3, 3, 3, 2, 0]
    near = cohens_kappa(first, second, "quadratic")
    assert near == pytest.approx(brute_kappa(list(zip(first, second, strict=True)), "quadratic"))
    moved = [{2: 1}.get(g, g) for g in first], [{2: 1}.get(g, g) for g in second]
    assert near != pytest.approx(cohens_kappa(*moved, "quadratic"))


def test_alpha_of_the_published_example() -> None:
    """Krippendorff's own data of 2011, four observers and twelve units: 0.743, 0.815 and 0.849."""
    no = None
    data = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, no, no, no],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, no, 3],
        [no, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, no],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, no],
    ]
    assert [round(krippendorffs_alpha(data, metric) or 0.0, 3) for metric in METRICS] == [0.743, 0.815, 0.849]


def test_kappa_of_a_textbook_table() -> None:
    """Two readers, 50 cases: 20 both yes, 15 both no, 5 and 10 apart. Observed 0.7, by chance 0.5, kappa 0.4."""
    first = [1] * 20 + [1] * 5 + [0] * 10 + [0] * 15
    second = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert cohens_kappa(first, second) == pytest.approx(0.4)
    assert cohens_kappa(second, first) == pytest.approx(0.4)


@given(st.lists(st.integers(0, 2), min_size=2, max_size=20).filter(lambda v: len(set(v)) > 1))
def test_a_judge_agrees_with_itself(labels: list[int]) -> None:
    assert cohens_kappa(labels, labels) == pytest.approx(1.0)


def test_one_grade_only_says_nothing() -> None:
    assert cohens_kappa([1, 1, 1], [1, 0, 1]) is None
    assert cohens_kappa([], []) is None
    assert krippendorffs_alpha([]) is None
    assert krippendorffs_alpha([[1, 1], [1, None]]) is None
    assert krippendorffs_alpha([[1, None], [None, 0]]) is None  # nothing was graded twice
    with pytest.raises(UsageError, match="2 labels cannot be compared with 1"):
        cohens_kappa([0, 1], [1])
    with pytest.raises(UsageError, match="a grade, or None, for each passage"):
        krippendorffs_alpha([[0, 1], [1]])


def figures(found: Measured) -> list[float]:
    """Value, lower and upper end of something that has all three."""
    present = [f for f in (found.value, found.low, found.high) if f is not None]
    assert len(present) == 3
    return present


def grades_of(rng: np.random.Generator, queries: int, passages: int, noise: float) -> tuple[Grades, Grades]:
    """Two judges who err alike on all passages of a query: hard queries are hard throughout."""
    hard = rng.random((queries, 1)) < 0.4
    truth = rng.integers(0, 4, (queries, passages))
    judges = []
    for _ in range(2):
        off = rng.random((queries, passages)) < np.where(hard, 2 * noise, noise / 2)
        given_ = np.where(off, rng.integers(0, 4, (queries, passages)), truth)
        judges.append({(str(q), str(d)): int(given_[q, d]) for q in range(queries) for d in range(passages)})
    return judges[0], judges[1]


def test_intervals_cover_the_true_agreement() -> None:
    """Over many small collections the 95 % interval holds the value of a very large one about that often."""
    rng = np.random.default_rng(11)
    large = pair_agreement("a", "b", both_graded(*grades_of(rng, 4000, 12, 0.3)), 4, Settings(resamples=100))
    inside = {"kappa": 0, "alpha": 0}
    rounds = 250
    for _ in range(rounds):
        found = pair_agreement("a", "b", both_graded(*grades_of(rng, 25, 12, 0.3)), 4, QUICK)
        for name, mine, true in (
            ("kappa", found.kappa["linear"], large.kappa["linear"].value),
            ("alpha", found.alpha["ordinal"], large.alpha["ordinal"].value),
        ):
            _, low, high = figures(mine)
            assert true is not None
            inside[name] += low <= true <= high
    assert all(0.91 <= count / rounds <= 0.99 for count in inside.values()), inside


def test_passages_of_one_query_are_drawn_together() -> None:
    """The same tables spread over few queries leave more open than over many."""
    first, second = grades_of(np.random.default_rng(5), 40, 10, 0.3)
    few = figures(pair_agreement("a", "b", both_graded(first, second), 4, QUICK).kappa["linear"])
    alone = [Compared(f"{c.query_id} {c.doc_id}", c.doc_id, c.first, c.second) for c in both_graded(first, second)]
    many = figures(pair_agreement("a", "b", alone, 4, QUICK).kappa["linear"])
    assert few[0] == pytest.approx(many[0])
    assert few[2] - few[1] > 1.1 * (many[2] - many[1])


def test_the_same_seed_gives_the_same_interval() -> None:
    compared = both_graded(*grades_of(np.random.default_rng(1), 12, 6, 0.2))
    assert pair_agreement("a", "b", compared, 4, QUICK) == pair_agreement("a", "b", compared, 4, QUICK)


def test_a_judge_who_gives_one_grade_has_no_kappa() -> None:
    first = {(str(q), str(d)): d % 4 for q in range(8) for d in range(4)}
    flat = dict.fromkeys(first, 2)
    found = pair_agreement("a", "flat", both_graded(first, flat), 4, QUICK)
    assert (found.pairs, found.queries, found.agree) == (32, 8, 0.25)
    assert all(k.value is None and k.low is None and k.high is None for k in found.kappa.values())
    assert all(a.value is not None and a.value < 0 for a in found.alpha.values())  # α pools both judges' grades
    both = pair_agreement("flat", "flat", both_graded(flat, flat), 4, QUICK)
    assert both.agree == 1.0
    assert all(m.value is None for m in (*both.kappa.values(), *both.alpha.values()))


def test_perfect_agreement_is_not_certain() -> None:
    """Every resample gives 1; the lower end says what the queries that were not seen could change."""

    def found(queries: int) -> list[float]:
        grades = {(str(q), str(d)): d % 4 for q in range(queries) for d in range(4)}
        return figures(pair_agreement("a", "b", both_graded(grades, grades), 4, QUICK).kappa["linear"])

    assert found(20) == pytest.approx([1.0, 0.025 ** (1 / 20), 1.0])
    assert found(5)[1] < 0.5 < found(20)[1] < found(100)[1] < 1


def test_no_interval_from_few_queries_or_from_one_that_decides() -> None:
    few = {(str(q), str(d)): d % 4 for q in range(4) for d in range(30)}
    assert pair_agreement("a", "b", both_graded(few, few), 4, QUICK).kappa["linear"].low is None
    lonely = {(str(q), str(d)): int(q == 0 and d == 0) for q in range(20) for d in range(5)}
    found = pair_agreement("a", "b", both_graded(lonely, lonely), 4, QUICK).kappa["linear"]
    assert (found.value, found.low, found.high) == (1.0, None, None)


def test_nothing_in_common() -> None:
    found = pair_agreement("a", "b", both_graded({("q", "1"): 1}, {("q", "2"): 1}), 4)
    assert (found.pairs, found.agree, found.kappa["linear"].value) == (0, None, None)
    assert found.table == [[0] * 4] * 4
    group = group_agreement({"a": {("q", "1"): 1}, "b": {}})
    assert (group.pairs, group.queries) == (0, 0)
    assert all(alpha.value is None for alpha in group.alpha.values())


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(GRADE, GRADE), min_size=6, max_size=30))
def test_a_group_of_two_is_the_pair(pairs: list[tuple[int, int]]) -> None:
    first = {(str(i % 6), str(i)): a for i, (a, _) in enumerate(pairs)}
    second = {(str(i % 6), str(i)): b for i, (_, b) in enumerate(pairs)}
    pair = pair_agreement("a", "b", both_graded(first, second), 4, Settings(resamples=100))
    group = group_agreement({"a": first, "b": second}, Settings(resamples=100))
    assert [group.alpha[m].value for m in METRICS] == pytest.approx([pair.alpha[m].value for m in METRICS])
    assert sum(map(sum, pair.table)) == len(pairs)


def test_a_judge_against_all_people() -> None:
    rng = np.random.default_rng(2)
    ada, bob = grades_of(rng, 10, 4, 0.3)
    some = {slot: grade for slot, grade in bob.items() if slot[0] < "5"}
    found = people_and("llm:x", [ada, some], bob, 4, QUICK)
    assert (found.first, found.second) == ("people", "llm:x")
    assert (found.pairs, found.comparisons, found.queries) == (40, 60, 10)
    table = np.array(pair_agreement("", "", both_graded(ada, bob), 4, QUICK).table)
    table += np.array(pair_agreement("", "", both_graded(some, bob), 4, QUICK).table)
    assert found.table == table.tolist()


def test_three_judges_pairwise_and_together() -> None:
    rng = np.random.default_rng(9)
    ada, bob = grades_of(rng, 12, 5, 0.2)
    eve, _ = grades_of(rng, 12, 5, 0.2)
    judges = {"ada": ada, "bob": bob, "eve": eve}
    group = group_agreement(judges, QUICK)
    slots = list(ada)
    rows = [[judge[slot] for slot in slots] for judge in judges.values()]
    assert group.alpha["ordinal"].value == pytest.approx(brute_alpha(rows, "ordinal"))
    assert (group.judges, group.pairs, group.queries) == (["ada", "bob", "eve"], 60, 12)
