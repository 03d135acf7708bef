"""Expanders that people bring themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import r2med
from r2med.core import ModelError
from r2med.expand import as_expander
from tests import own_models as models
from tests.own_rankings import broken


@pytest.fixture(scope="module")
def task() -> r2med.Task:
    return r2med.load("mini@1/Biology")


def test_expanders_as_objects(task: r2med.Task) -> None:
    plain = r2med.evaluate("bm25", task)
    for expander in (models.shout, "tests.own_models:shout"):
        shouted = r2med.evaluate("bm25", task, expand=expander)
        assert shouted.mean("R@100") == pytest.approx(plain.mean("R@100"), abs=0.2)
    assert r2med.evaluate("bm25", task, expand=lambda text: "").mean() == plain.mean()


def raising(_: Any) -> Any:
    raise KeyError("input_ids")


def test_answers_that_cannot_be_used(task: r2med.Task) -> None:
    with pytest.raises(ModelError, match=f"returned something else than text for query '{task.queries[0].id}'"):
        r2med.evaluate("bm25", task, expand=lambda text: [1])
    with pytest.raises(ModelError, match=r"failed on query .* \(KeyError"):
        r2med.evaluate("bm25", task, expand=raising)


class Expanding:
    """An expander by our protocol."""

    name, method, warning = "theirs", "custom", ""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer

    def describe(self) -> dict[str, object]:
        return {}

    def plan(self, task: r2med.Task, *, limit: int | None = None) -> Any:
        return self.answer()

    def expand(self, task: r2med.Task, *, limit: int | None = None, on_progress: Any = None) -> Any:
        return self.answer()


def test_one_line_names_the_expander(task: r2med.Task) -> None:
    for answer, words in ((broken, r"theirs~\w+ failed on 13 queries"), (lambda: [], "returned list for 13 queries")):
        with pytest.raises(ModelError, match=words):
            as_expander(Expanding(answer)).expand(task)
    with pytest.raises(ModelError, match=r"theirs~\w+ failed on planning mini@1/Biology"):
        as_expander(Expanding(broken)).plan(task)
