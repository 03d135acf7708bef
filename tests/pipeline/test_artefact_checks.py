"""The classifier without the query, twins, and documents that quote their query."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import Document, Documents, Qrels, Query, Task
from r2med.pipeline.artefact_checks import (
    Examples,
    auc,
    auc_by_query,
    balanced,
    connected,
    cross_validated,
    find_twins,
    fit,
    group_values,
    make_folds,
    pooled_auc,
    quoting,
)
from r2med.pipeline.artefacts import artefacts
from r2med.tasks import load

EVERY = np.arange


@st.composite
def examples(draw: st.DrawFn) -> tuple[Examples, list[tuple[int, int]]]:
    """Queries with documents of both classes; documents are shared, and some are copies of each other."""
    queries = draw(st.integers(2, 8))
    rows = []
    for query in range(queries):
        documents = draw(st.lists(st.integers(0, 15), min_size=2, max_size=5, unique=True))
        rows += [(query, at, i == 0) for i, at in enumerate(documents)]
    query, document, relevant = np.array(rows, dtype=np.int64).T
    copy = np.array(draw(st.lists(st.integers(0, 12), min_size=16, max_size=16)), dtype=np.int64)
    judged = [(q, int(copy[at])) for q, at, good in rows if good]
    return Examples(query, document, copy[document], relevant == 1), judged


@given(examples(), st.integers(0, 5))
def test_folds_share_no_query_and_no_document(made: tuple[Examples, list[tuple[int, int]]], seed: int) -> None:
    these, judged = made
    group = connected(judged, these.queries)
    folds = make_folds(these, group, seed, most=3)
    assert sorted(np.concatenate([fold.test for fold in folds]).tolist()) == list(range(len(these.query)))
    for train, test in folds:
        assert not set(these.query[train].tolist()) & set(these.query[test].tolist())
        assert not set(group[these.query[train]].tolist()) & set(group[these.query[test]].tolist())
        assert not set(these.document[train].tolist()) & set(these.document[test].tolist())
        assert not set(these.copy[train].tolist()) & set(these.copy[test].tolist())


@given(examples())
def test_queries_that_share_a_relevant_document_are_one_group(made: tuple[Examples, list[tuple[int, int]]]) -> None:
    these, judged = made
    group = connected(judged, these.queries)
    for query, document in judged:
        for other, same in judged:
            assert document != same or group[query] == group[other]


def test_chains_of_shared_documents_are_one_group() -> None:
    assert connected([(0, 7), (1, 7), (1, 8), (2, 8), (3, 9)], 5).tolist() == [0, 0, 0, 3, 4]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_the_auc_is_the_share_of_pairs(positive: list[int], negative: list[int]) -> None:
    won = sum((p > n) + (p == n) / 2 for p in positive for n in negative) / (len(positive) * len(negative))
    found = auc(np.array(positive, dtype=np.float64), np.array(negative, dtype=np.float64))
    assert found == pytest.approx(won, abs=1e-12)


@given(examples(), st.integers(0, 99))
def test_aucs_within_queries_and_pooled(made: tuple[Examples, list[tuple[int, int]]], seed: int) -> None:
    these, _ = made
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, size=len(these.query)).astype(np.float64)
    within = auc_by_query(scores, these)
    for query in range(these.queries):
        own = these.query == query
        assert within[query] == pytest.approx(auc(scores[own & these.relevant], scores[own & ~these.relevant]))
    copies = rng.integers(0, 3, size=(3, these.queries)).astype(np.float64)
    copies[0] = 1.0
    for counts, found in zip(copies, pooled_auc(scores, these, copies), strict=True):
        times = counts[these.query].astype(np.int64)
        positive = np.repeat(scores[these.relevant], times[these.relevant])
        negative = np.repeat(scores[~these.relevant], times[~these.relevant])
        assert np.isnan(found) if not len(positive) else found == pytest.approx(auc(positive, negative))


@pytest.mark.parametrize(("rows", "columns"), [(40, 5), (12, 30)])
def test_ridge_is_the_minimum_of_its_objective(rows: int, columns: int) -> None:
    """Both ways of solving, against a general minimiser."""
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(3)
    features, labels = rng.normal(size=(rows, columns)), rng.choice([-1.0, 1.0], size=rows)
    weights = rng.uniform(0.2, 2.0, size=rows)
    some = EVERY(columns)[::2]

    def loss(point: np.ndarray, part: np.ndarray) -> float:
        left = labels - point[0] - features[:, part] @ point[1:]
        return float(weights @ left**2 + 2.5 * (point[1:] ** 2).sum())

    parts = [EVERY(columns), some]
    for part, (coefficients, intercept) in zip(parts, fit(features, labels, weights, parts, 2.5), strict=True):
        best = optimize.minimize(loss, np.zeros(len(part) + 1), args=(part,), method="BFGS", options={"gtol": 1e-9})
        found = np.concatenate(([intercept], coefficients))
        np.testing.assert_allclose(found, best.x, atol=1e-5)
        assert loss(found, part) <= best.fun + 1e-9


def test_ridge_by_hand() -> None:
    """Labels -1, 1 at 0 and 2: centred ±1, so the slope is 2 / (2 + penalty) and the line passes (1, 0)."""
    ((slope, intercept),) = fit(np.array([[0.0], [2.0]]), np.array([-1.0, 1.0]), np.ones(2), [EVERY(1)], 2.0)
    assert slope.tolist() == pytest.approx([0.5])
    assert intercept == pytest.approx(-0.5)


def test_every_query_and_either_class_counts_alike() -> None:
    query = np.array([0, 0, 0, 0, 1, 1])
    these = Examples(query, EVERY(6), EVERY(6), np.array([True, False, False, False, True, False]))
    weights = balanced(these, EVERY(6))
    sums = [weights[(query == q) & (these.relevant == good)].sum() for q in (0, 1) for good in (True, False)]
    assert sums == [pytest.approx(1.5)] * 4


def test_a_tested_document_was_not_learnt() -> None:
    """One document is relevant to one query and not to another: whoever learnt it by heart would know."""
    query, document = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 2, 3, 4])
    these = Examples(query, document, document, np.array([True, False, True, False, True, False]))
    features = np.eye(5)
    scores = cross_validated(features, [EVERY(5)], these, make_folds(these, EVERY(3), 0))[0]
    for q in range(3):
        assert len(set(scores[query == q].round(12).tolist())) == 1, "columns of unseen documents have no weight"


def test_equal_documents_tie_wherever_they_stand() -> None:
    """Sums over many columns differ in their last bits from row to row: that is no order."""
    rng, rows = np.random.default_rng(0), EVERY(403)
    kinds, kind = rng.normal(size=(3, 257)), rng.integers(0, 3, size=403)
    these = Examples(rows // 8, rows, rows, rows % 8 < 3)
    folds = make_folds(these, EVERY(51), 0)
    scores = cross_validated(kinds[kind], [EVERY(257)], these, folds)[0]
    for _, test in folds:
        assert len(set(scores[test].tolist())) <= 3


def test_groups_have_the_mean_of_queries_and_a_spread_of_their_own() -> None:
    values = np.array([0.2, 0.4, 0.9, 0.7])
    alone = group_values(values, np.array([0, 1, 2, 3]))
    np.testing.assert_allclose(alone, values)
    paired = group_values(values, np.array([0, 0, 2, 2]))
    assert paired.mean() == pytest.approx(values.mean())
    assert paired.tolist() == pytest.approx([0.3, 0.8])


def test_twins_by_words_relevant_documents_and_answers() -> None:
    def made(name: str, queries: list[Query], judgments: list[tuple[str, str, int]]) -> Task:
        documents = [Document("d1", "Ferritin is low."), Document("d2", "Folate is low."), Document("d3", "B12.")]
        return Task(name, tuple(queries), Documents.of(documents), Qrels.from_judgments(judgments))

    first = made(
        "first",
        [
            Query("a", "pale tired woman with brittle nails and a craving for ice", "Iron deficiency (sideropenia)"),
            Query("b", "a large red cell and a smooth tongue after years of gastritis", "Pernicious anaemia"),
            Query("c", "macrocytes in somebody who eats no vegetables at all", "Folate deficiency"),
        ],
        [("a", "d1", 1), ("b", "d3", 1), ("c", "d2", 1)],
    )
    second = made(
        "second",
        [
            Query("x", "tired pale woman with brittle nails and a craving for ice", "Anaemia of pregnancy"),
            Query("y", "numb feet and an unsteady walk in the dark", "Pernicious anaemia (Biermer disease), advanced"),
        ],
        [("x", "d2", 1), ("x", "d3", 1), ("y", "d3", 1)],
    )
    found = {(pair.twins.kind, pair.twins.queries) for pair in find_twins([first, second])}
    assert found == {("words", ("a", "x")), ("relevant", ("b", "y")), ("answer", ("b", "y"))}
    report = artefacts([first, second])
    assert {report.overall[-1].check, *(t.findings[-1].check for t in report.tasks)} == {"twins"}
    assert report.overall[-1].value == pytest.approx(4 / 5)
    assert [t.findings[-1].value for t in report.tasks] == [0.0, 0.0]
    assert {t.tasks for t in report.twins_across} == {("first", "second")}


def test_answers_that_are_labels_make_no_twins() -> None:
    texts = list(load("mini@1/Biology").documents.texts[:20])
    queries = tuple(Query(f"q{i}", text, "supported" if i % 2 else "refuted") for i, text in enumerate(texts))
    documents = Documents.of(Document(f"d{i}", text) for i, text in enumerate(texts))
    judged = Qrels.from_judgments((f"q{i}", f"d{i}", 1) for i in range(20))
    assert not find_twins([Task("claims", queries, documents, judged)])


def test_quoting_counts_shared_runs() -> None:
    queries = (Query("q1", "one two three four five six"), Query("q2", "nothing is shared here by anybody else"))
    texts = ["zero one two three four five", "one two three four and five", "one two three four five six seven"]
    documents = Documents.of(Document(f"d{i}", text) for i, text in enumerate(texts))
    task = Task("t", queries, documents, Qrels.from_judgments([("q1", "d0", 1)]))
    found = quoting(task, [[0, 1, 2], [0]])
    assert found.queries.tolist() == [0, 1]
    assert found.rate.tolist() == pytest.approx([2 / 3, 0.0])
    assert found.share.tolist() == pytest.approx([(0.5 + 0 + 1.0) / 3, 0.0])
