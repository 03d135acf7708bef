"""Each kind of failure, made on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.core import Document, Documents, Qrels, Query, Run, Task
from r2med.report.web.data.failures import _limit, failures
from r2med.report.web.data.rankings import Ranking
from r2med.tasks import write_run

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
def ranking(tmp_path: Path) -> Ranking:
    fill = list(FILLER)
    lists = {
        "fine": ["p1", *fill[:9]],
        "missed": fill[:12],
        "below": [*fill[:11], "p1"],
        "trap": ["lure", "p1", *fill[:8]],
        "copies": ["p1", "copy1", "copy2", *fill[:7]],
        "cut": ["long", *fill[:9]],
    }
    run = Run.from_rankings({q: [(d, 100.0 - i) for i, d in enumerate(docs)] for q, docs in lists.items()})
    write_run(run, tmp_path / "x.run.gz")
    return Ranking(tmp_path / "x.run.gz", 12)


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


def test_every_kind_is_found_and_nothing_else(ranking: Ranking, task: Task) -> None:
    found = failures(ranking, task, 512)
    assert found == {
        "fine": frozenset(),
        "missed": {"missed"},
        "below": {"below"},
        "trap": {"trap"},
        "copies": {"copies"},
        "cut": {"cut"},
        "empty": {"missed"},
    }
    assert failures(ranking, task, None)["cut"] == frozenset()
    assert failures(ranking, task, 512, only=["trap", "cut"]) == {"trap": {"trap"}, "cut": {"cut"}}


def test_limits_come_from_notes_that_say_something_was_cut() -> None:
    cut: dict[str, object] = {"truncation": {"document": {"limit": 512, "texts_cut": 3}}}
    assert _limit(cut) == 512
    assert _limit({"a": {"truncation": {"document": {"limit": 256, "texts_cut": 1}}}, "b": cut}) == 256
    assert _limit({"truncation": {"document": {"limit": 512, "texts_cut": 0}}}) is None
    assert _limit({"truncation": "odd"}) is None
    assert _limit({}) is None
