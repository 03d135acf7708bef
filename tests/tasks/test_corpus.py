from __future__ import annotations

import json
from pathlib import Path

import pytest

import r2med
from r2med.core import DataError, UsageError
from r2med.tasks.corpus import load_corpus


def test_a_task_is_a_corpus() -> None:
    assert load_corpus("mini@1/Biology").fingerprint == r2med.load("mini@1/Biology").fingerprint


@pytest.mark.parametrize(("layout", "queries"), [("r2med", "query.jsonl"), ("beir", "queries.jsonl")])
def test_parts_of_a_task(tmp_path: Path, layout: str, queries: str) -> None:
    whole = r2med.load("mini@1/Biology")
    r2med.convert("mini@1/Biology", tmp_path / "own", to=layout)
    for path in (*(tmp_path / "own").rglob("*qrels*.jsonl"), *(tmp_path / "own").rglob("*.tsv")):
        path.unlink()
    unjudged = load_corpus(str(tmp_path / "own"))
    assert unjudged.queries == whole.queries
    assert not len(unjudged.qrels)
    (tmp_path / "own" / queries).unlink()
    alone = load_corpus(str(tmp_path / "own"))
    assert alone.queries == ()
    assert (alone.name, alone.documents.fingerprint) == ("own", whole.documents.fingerprint)
    file = load_corpus(str(tmp_path / "own" / "corpus.jsonl"))
    assert (file.name, file.documents.fingerprint) == ("corpus", whole.documents.fingerprint)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], r"corpus\.jsonl:2: document id 'a' stands 2 times"),
        ([{"id": "a", "text": "x\0"}], r"corpus\.jsonl:1: document 'a' holds a NUL"),
        ([], "there are no documents"),
        ([{"id": "a"}], "field 'text' is missing"),
    ],
)
def test_documents_that_cannot_be_searched(tmp_path: Path, lines: list[dict[str, str]], message: str) -> None:
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for place in (tmp_path, tmp_path / "corpus.jsonl"):
        with pytest.raises(DataError, match=message):
            load_corpus(str(place))


def test_what_is_no_corpus(tmp_path: Path) -> None:
    for place in (str(tmp_path), str(tmp_path / "nowhere"), "mini@1", "a" * 300):
        with pytest.raises((DataError, UsageError)):
            load_corpus(place)
