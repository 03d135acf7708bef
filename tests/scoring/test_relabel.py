from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, UsageError
from r2med.scoring.relabel import Label, agreement, agreement_cases, cohens_kappa, relabel
from r2med.tasks import load
from tests.builders import small_task


def test_kappa_of_a_textbook_table() -> None:
    """Two readers, 50 cases: 20 both yes, 15 both no, 5 and 10 apart. Observed 0.7, by chance 0.5, kappa 0.4."""
    first = [1] * 20 + [1] * 5 + [0] * 10 + [0] * 15
    second = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert cohens_kappa(first, second) == pytest.approx(0.4)
    assert cohens_kappa(second, first) == pytest.approx(0.4)


def test_weighted_kappa_forgives_near_misses() -> None:
    known, near, far = [0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 2, 2], [0, 2, 1, 1, 2, 2]
    plain = [cohens_kappa(known, given) for given in (near, far)]
    weighted = [cohens_kappa(known, given, weighting="quadratic") for given in (near, far)]
    assert plain[0] is not None
    assert plain[1] is not None
    assert weighted[0] is not None
    assert weighted[1] is not None
    assert weighted[0] > weighted[1]
    assert weighted[0] > plain[0]
    # by hand, linear: the cost seen is 1/6; by chance 2 · (7 + 3 + 5) / 36
    assert cohens_kappa(known, near, weighting="linear") == pytest.approx(1 - (1 / 6) / (30 / 36))


@given(st.lists(st.integers(0, 2), min_size=2, max_size=20).filter(lambda v: len(set(v)) > 1))
def test_a_judge_agrees_with_itself(labels: list[int]) -> None:
    for weighting in ("none", "linear", "quadratic"):
        assert cohens_kappa(labels, labels, weighting=weighting) == pytest.approx(1.0)


def test_one_grade_only_says_nothing() -> None:
    assert cohens_kappa([1, 1, 1], [1, 0, 1]) is None
    assert cohens_kappa([], []) is None
    with pytest.raises(UsageError, match="2 labels cannot be compared with 1"):
        cohens_kappa([0, 1], [1])
    with pytest.raises(UsageError, match="weighting"):
        cohens_kappa([0, 1], [0, 1], weighting="cubic")  # type: ignore[arg-type]


def test_relabelling_a_real_task() -> None:
    """A judge that goes by shared words: it answers, agrees in part, and Mini's hard negatives mislead it."""
    task = load("mini/MedQA-Diag")
    cases = agreement_cases(task, negatives=2, seed=1)
    judged = sum(len(task.qrels.of(q)) for q in task.qrels.query_ids)
    assert len(cases) == judged + 2 * task.qrels.positives
    assert all(c.doc_id not in task.qrels.of(c.query_id) for c in cases if c.assumed)
    assert cases == agreement_cases(task, negatives=2, seed=1)
    truth = {(c.query_id, c.doc_id): c.grade for c in cases}
    texts = {task.documents[i].contents: task.documents[i].id for i in range(len(task.documents))}
    queries = {q.text: q.id for q in task.queries}
    perfect = relabel(task, lambda q, p: truth[queries[q], texts[p]], cases)
    assert agreement(perfect).kappa == pytest.approx(1.0)

    def by_words(query: str, passage: str) -> int:
        return int(len(set(query.split()) & set(passage.split())) > 12)

    found = agreement(relabel(task, by_words, cases))
    assert found.kappa is not None
    assert found.kappa < 0.5
    assert sum(found.table.values()) == found.pairs == len(cases)


def test_answers_that_are_not_given_are_counted() -> None:
    cases = agreement_cases(small_task(), negatives=0)
    labels = relabel(small_task(), lambda query, passage: None if "β" in passage else 1, cases)
    found = agreement(labels)
    assert found.without_answer == 1
    assert found.pairs == len(labels)
    assert found.kappa is None  # the judge knows only one grade
    assert found.table["both"] + found.table["only_judge"] == found.pairs - 1


def test_what_a_judge_may_not_do() -> None:
    with pytest.raises(UsageError, match="whole number or None, not 'yes'"):
        relabel(small_task(), lambda query, passage: "yes", [Label("q1", "d1", 1)])  # type: ignore[arg-type,return-value]
    with pytest.raises(DataError, match="no document 'd9'"):
        relabel(small_task(), lambda query, passage: 1, [Label("q1", "d9", 1)])
    with pytest.raises(UsageError, match="cannot draw -1"):
        agreement_cases(small_task(), negatives=-1)
