"""Each kind of failure, made on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.core import Document, Documents, Qrels, Query, Run, Task
from r2med.report.web.failures import failures, reading_limit
from r2med.results.beside import StoredRun, open_run, write_blocks

FILLER = {f"n{i:02d}": f"unrelated passage number {i} about weather" for i in range(30)}
TEXTS = {
    "p1": "transthyretin amyloid deposits stiffen the ventricle",
    "p2": "a second relevant text",
    "lure": "an old driver with swollen ankles and breathlessness on climbing stairs",
    "copy1": "The same words.",
    "copy2": "the  SAME words.",
    "long": "word " * 900,
    **FILLER,
}
QUESTION = "Why does an old driver have swollen ankles and breathlessness?"


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    fill = list(FILLER)
    lists = {
        "fine": ["p1", *fill[:9]],
        "missed": fill[:12],
        "below": [*fill[:11], "p1"],
        "trap": ["lure", "p1", *fill[:8]],
        "copies": ["p1", "copy1", "copy2", *fill[:7]],
        "cut": ["long", *fill[:9]],
    }
    made = Run.from_rankings({q: [(d, 100.0 - i) for i, d in enumerate(docs)] for q, docs in lists.items()})
    write_blocks(made, tmp_path / "x.run.gz")
    return open_run(tmp_path / "x.run.gz")


@pytest.fixture
def task() -> Task:
    names = ("fine", "missed", "below", "trap", "copies", "cut", "empty")
    judgments = [(q, "p1", 1) for q in names[:5]] + [("cut", "long", 2), ("empty", "p2", 1), ("trap", "lure", 0)]
    return Task(
        "made",
        tuple(Query(q, QUESTION) for q in names),
        Documents.of(Document(i, t) for i, t in TEXTS.items()),
        Qrels.from_judgments(judgments),
    )


def test_every_kind_is_found_and_nothing_else(run: StoredRun, task: Task) -> None:
    found = failures(run, task, 512, list(task.qrels.query_ids))
    assert found == {
        "fine": frozenset(),
        "missed": {"missed"},
        "below": {"below"},
        "trap": {"trap"},
        "copies": {"copies"},
        "cut": {"cut"},
        "empty": {"missed"},
    }
    assert failures(run, task, None, ["cut"])["cut"] == frozenset()
    assert failures(run, task, 512, ["trap", "cut"]) == {"trap": {"trap"}, "cut": {"cut"}}


def test_limits_come_from_notes_that_say_something_was_cut() -> None:
    cut = {"document": {"limit": 512, "texts_cut": 3}}
    assert reading_limit({"truncation": cut}) == 512
    shorter = {"truncation": {"document": {"limit": 256, "texts_cut": 1}}}
    assert reading_limit({"a": shorter, "b": {"truncation": cut}}) == 256
    assert reading_limit({"truncation": {"document": {"limit": 512, "texts_cut": 0}}}) is None
    assert reading_limit({"truncation": "odd"}) is None
    assert reading_limit({}) is None
