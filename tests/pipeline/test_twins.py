from __future__ import annotations

import pytest

from r2med.core import Document, Documents, Qrels, Query, Task
from r2med.pipeline.artefacts import artefacts
from r2med.pipeline.twins import find_twins, quoting
from r2med.tasks import load


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
