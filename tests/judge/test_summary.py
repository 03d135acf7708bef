"""What is said about the judges of a project."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from r2med.judge.summary import Summary, summarise
from r2med.scoring.intervals import Settings as Intervals
from tests.judge.projects import judges, slots, small_project

QUICK = Intervals(resamples=200)


def test_agreement_progress_and_what_is_open(tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", queries=8, passages=4)
    everything = slots(project)
    truth = {slot: i % 4 for i, slot in enumerate(everything)}
    wrong = dict(truth) | {everything[0]: 3, everything[1]: 3}  # both in q0: instead of 0 and 1
    judges(project, "Ada", truth)
    judges(project, "Bob", wrong)
    judges(project, "Eve", {everything[0]: 1}, kind="adjudicator")
    judges(project, "llm:x", truth | {everything[-1]: None}, kind="llm")
    found = summarise(project, intervals=QUICK)
    (pair,) = found.pairs
    assert (pair.first, pair.second, pair.pairs, pair.queries) == ("Ada", "Bob", 32, 8)
    assert pair.agree == pytest.approx(30 / 32)
    assert sum(map(sum, pair.table)) == 32
    assert pair.table[0][3] == pair.table[1][3] == 1
    assert found.people.judges == ["Ada", "Bob"]
    assert found.people.alpha["ordinal"].value == pair.alpha["ordinal"].value
    assert [(q.query_id, q.differing, q.pairs, q.distance) for q in found.disputed] == [("q0", 2, 4, 1.25)]
    assert found.disputed[0].passages[0].grades == {"Ada": 0, "Bob": 3}
    (llm,) = found.llms
    assert (llm.people.pairs, llm.people.comparisons) == (31, 62)
    assert [(p.first, p.second) for p in llm.each] == [("Ada", "llm:x"), ("Bob", "llm:x")]
    assert not llm.may_fill
    assert "31 pairs" in llm.why_not
    assert found.final == {"adjudicated": 1, "open": 1, "agreed": 30}
    assert found.open_because == {"no adjudicator has decided": 1}
    assert {j.judge: (j.kind, j.graded, j.skipped, j.of) for j in found.judges} == {
        "Ada": ("person", 32, 0, 32),
        "Bob": ("person", 32, 0, 32),
        "Eve": ("adjudicator", 1, 0, 32),
        "llm:x": ("llm", 31, 1, 32),
    }
    assert found.judges[0].seconds == 15.5
    assert set(found.slices) == {"Nervous", "Skin"}
    assert [s.queries for s in found.slices.values()] == [4, 4]
    assert found.slices["Skin"].pairs[0].agree == 1.0
    assert msgspec.json.decode(msgspec.json.encode(found), type=Summary) == found


def test_nothing_of_an_unfinished_judge_is_said(tmp_path: Path) -> None:
    project = small_project(tmp_path / "p")
    grades = {slot: i % 4 for i, slot in enumerate(slots(project))}
    judges(project, "Ada", grades)
    judges(project, "Bob", grades, finished=False)
    judges(project, "llm:x", grades, kind="llm", finished=False)
    found = summarise(project, intervals=QUICK)
    assert (found.pairs, found.llms, found.disputed) == ([], [], [])
    assert found.left_out == ["Bob", "llm:x"]
    assert found.people.judges == ["Ada"]
    assert [(j.judge, j.graded, j.finished) for j in found.judges] == [
        ("Ada", 24, True), ("Bob", 24, False), ("llm:x", 24, False),
    ]  # fmt: skip
    everybody = summarise(project, unfinished=True, intervals=QUICK)
    assert everybody.pairs[0].agree == 1.0
    assert everybody.llms[0].judge == "llm:x"
    assert everybody.left_out == []


def test_a_project_nobody_has_judged(tmp_path: Path) -> None:
    found = summarise(small_project(tmp_path / "p"), intervals=QUICK)
    assert (found.judges, found.pairs, found.llms, found.disputed) == ([], [], [], [])
    assert found.open_because == {"0 of 2 grades": 24}
    assert found.people.alpha["ordinal"].value is None
