from __future__ import annotations

from pathlib import Path

import pytest

from r2med.core import Document, Documents, Qrels, Query, Task
from r2med.expand import Expander, apply
from r2med.expand.concepts import Concepts, new_phrases
from r2med.expand.vocabulary.fetch import build_from_files
from r2med.retrieve import BM25
from tests.expand.vocabulary_files import write_files


@pytest.fixture
def expander(tmp_path: Path) -> Concepts:
    return Concepts(vocabulary=build_from_files(write_files(tmp_path)))


def query(text: str) -> Query:
    return Query("q", text)


def test_names_synonyms_abbreviations_and_diseases(expander: Concepts) -> None:
    made = expander.expand_query(query("HTN, breathing difficulty, oedema and pyrexia, no cardiac failure"))
    (text,) = made.texts
    assert text == "Hypertension Dyspnea Edema Swelling Fever Hyperthermia Madeup cardiomyopathy"
    assert made.notes["denied"] == ["Heart Failure"]
    assert made.notes["diseases"] == ["Madeup cardiomyopathy"]
    assert isinstance(expander, Expander)


def test_parts_can_be_left_out(tmp_path: Path) -> None:
    vocabulary = build_from_files(write_files(tmp_path))
    bare = Concepts(synonyms=0, diseases=0, abbreviations=False, vocabulary=vocabulary)
    assert bare.expand_query(query("HTN, breathing difficulty, oedema")).texts == ("Dyspnea Edema",)
    assert bare.describe() != Concepts(vocabulary=vocabulary).describe()
    assert bare.name != "concepts"


def test_a_query_without_concepts_stays_what_it_is(expander: Concepts) -> None:
    made = expander.expand_query(query("Why is the sky blue?"))
    assert (made.texts, made.status) == ((), "empty")


def test_only_new_words_are_added() -> None:
    assert new_phrases(["Heart failure", "failures of the heart", "Cardiac failure"], "a failing heart") == [
        "Heart failure", "failures of the heart", "Cardiac failure",
    ]  # fmt: skip
    assert new_phrases(["Heart failure", "Failure, Heart"], "heart failures") == []


def test_it_finds_what_the_words_alone_do_not(expander: Concepts) -> None:
    documents = Documents.of([Document("d1", "Dyspnea in lung disease"), Document("d2", "Difficulty of examinations")])
    task = Task("t", (Query("q", "breathing difficulty"),), documents, Qrels.from_judgments([("q", "d1", 1)]))
    seen: list[tuple[int, int]] = []
    made = expander.expand(task, on_progress=lambda *step: seen.append(step))
    assert seen == [(1, 1)]
    assert made.notes == {"queries_with_new_words": 1}
    assert [h.doc_id for h in BM25().retrieve(task).row(0)] == ["d2"]
    searched = apply(made, task, "lexical")
    assert isinstance(searched, Task)
    assert "d1" in [h.doc_id for h in BM25().retrieve(searched).row(0)]
    assert expander.plan(task).calls == 0
