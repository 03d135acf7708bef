"""What notebooks show: well-formed, escaped, without script, and with the numbers in it."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

import r2med
from r2med.core import Document, Documents, IdTable, Qrels, Query, Task
from r2med.scoring.score_set import ScoreSet

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Shown(HTMLParser):
    """Tags that are closed in order, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(html)
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"style"}
        for _, value in attrs:
            assert "#" not in str(value), "a colour of its own would not fit a dark page"
            assert "url(" not in str(value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


@pytest.fixture
def task() -> r2med.Task:
    return r2med.load("mini/MedQA-Diag")


def test_each_value_shows_its_numbers(task: r2med.Task) -> None:
    run = r2med.BM25().retrieve(task)
    evaluation = r2med.evaluate(run, task)
    scores = ScoreSet.of_evaluations({"bm25": {task.full_name: evaluation}})
    of_task = Shown(task._repr_html_()).text
    assert "13 queries" in of_task
    assert task.queries[0].id in of_task
    assert run.of(task.queries[0].id)[0].doc_id in Shown(run._repr_html_()).text
    expected = f"{100 * evaluation.mean():.2f}"
    assert expected in Shown(scores._repr_html_()).text
    assert expected in Shown(evaluation._repr_html_()).text
    assert "R@5" in Shown(r2med.evaluate(run, task, measures=["R@5"])._repr_html_()).text


def test_a_comparison_shows_intervals(task: r2med.Task) -> None:
    both = {name: r2med.evaluate(name, task) for name in ("bm25", "bm25-lucene")}
    text = Shown(r2med.compare(both, resamples=500)._repr_html_()).text
    assert "bm25-lucene minus bm25" in text
    assert "95 % interval" in text


def test_hostile_text_stays_text() -> None:
    documents = Documents.of([Document(HOSTILE, HOSTILE), Document("d", "nothing")])
    task = Task(HOSTILE, (Query(HOSTILE, HOSTILE),), documents, Qrels.from_judgments([(HOSTILE, HOSTILE, 1)]))
    for html in (task._repr_html_(), r2med.BM25().retrieve(task).renamed(HOSTILE)._repr_html_()):
        page = Shown(html)
        assert not page.tags & {"script", "img"}
        assert "<script>alert(1)" in page.text


def test_an_empty_run_has_a_table() -> None:
    empty = r2med.Run(IdTable([]), IdTable([]), np.empty((0, 0), dtype=np.int32), np.empty((0, 0), dtype=np.float32))
    assert "0 queries" in Shown(empty._repr_html_()).text
