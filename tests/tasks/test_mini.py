"""Mini keeps its promises: the shapes, the body systems, and hardness for word matching by construction."""

from __future__ import annotations

import pytest

import r2med
from r2med.core import Task
from r2med.tasks import entries, stats
from r2med.tasks.load import resolve
from r2med.tasks.validate import validate
from r2med.text import get_analyzer

SYSTEMS = {
    "Cardiovascular", "Digestive", "Endocrine", "Integumentary", "Lymphatic", "Muscular", "Nervous", "Other / NA",
    "Reproductive", "Respiratory", "Skeletal", "Urinary",
}  # fmt: skip
NAMES = [e.full_name for e in entries("mini")]


@pytest.fixture(params=NAMES)
def task(request: pytest.FixtureRequest) -> Task:
    return r2med.load(request.param)


def test_eight_tasks() -> None:
    assert len(NAMES) == 8


def test_shape(task: Task) -> None:
    assert len(task.queries) >= 12
    assert len(task.documents) >= 80
    assert {q.body_system for q in task.queries} == SYSTEMS
    assert all(q.answer for q in task.queries)
    positives = task.qrels.positives_per_query()
    assert positives.min() >= 2
    assert positives.max() <= 4


def test_valid_and_as_catalogued(task: Task) -> None:
    (ref,) = resolve(task.full_name)
    report = validate(ref)
    assert not report.errors
    assert not report.warnings
    assert ref.entry is not None
    assert (report.queries, report.documents, report.judgments) == (
        ref.entry.queries, ref.entry.documents, ref.entry.judgments,
    )  # fmt: skip
    assert stats(task).positives_mean > 2


def overlap(query: str, document: str) -> float:
    """Share of the query's distinct terms that the document holds."""
    analyze = get_analyzer("english")
    terms = set(analyze(query))
    return len(terms & set(analyze(document))) / len(terms)


def test_words_point_the_wrong_way(task: Task) -> None:
    texts = {d.id: d.text for d in task.documents}
    means: dict[bool, list[float]] = {True: [], False: []}
    for query in task.queries:
        judged = task.qrels.of(query.id)
        for relevant in (True, False):
            ids = [d for d, grade in judged.items() if (grade > 0) is relevant]
            assert len(ids) >= 2
            means[relevant].append(sum(overlap(query.text, texts[d]) for d in ids) / len(ids))
    positives, negatives = (sum(m) / len(m) for m in (means[True], means[False]))
    assert positives < 0.8 * negatives


def test_the_answer_is_not_given_away(task: Task) -> None:
    """A query that names its answer needs no reasoning."""
    named = [q.id for q in task.queries if q.answer and q.answer.casefold() in q.text.casefold()]
    assert not named


def test_no_text_stands_in_two_tasks() -> None:
    seen: dict[str, str] = {}
    for name in NAMES:
        for document in r2med.load(name).documents:
            assert seen.setdefault(document.text, name) == name


def test_word_matching_is_neither_useless_nor_enough(task: Task) -> None:
    assert 0.05 < r2med.evaluate("bm25", task).mean() < 0.6
