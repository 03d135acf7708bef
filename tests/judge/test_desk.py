"""What a judge sees and may write, without a server."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from r2med.core import UnknownName, UsageError
from r2med.judge import Project, Rule, open_project
from r2med.judge.desk import FIRST_PIECE, Desk, Finished, Sent
from r2med.judge.final import final_grades
from r2med.judge.journal import Conflict
from tests.judge.conftest import GRADES, make_project
from tests.judge.projects import judges, slots, small_project


def sent(name: str, query_id: str = "q1", doc_id: str = "d1", **fields: Any) -> Sent:
    return Sent(id=f"entry-{name}", query_id=query_id, doc_id=doc_id, **fields)


def finish(desk: Desk) -> None:
    desk.save(Sent(id=f"finish-{desk.judge}", finished=True))


def test_neither_systems_nor_ranks_are_shown(project: Project) -> None:
    desk = Desk(project, "Ada")
    told = msgspec.json.encode([desk.overview(), *(desk.query(n) for n in range(3))])
    assert b"hidden-system" not in told
    assert b'"systems"' not in told
    ranks = {p.systems["hidden-system"] for of_query in project.pool.values() for p in of_query}
    assert not any(b":%d," % rank in told or b":%d}" % rank in told for rank in ranks)


def test_each_judge_has_an_order_that_stays(project: Project) -> None:
    orders = {
        judge: [[p.doc_id for p in Desk(project, judge).query(n).passages] for n in range(3)]
        for judge in ("Ada", "Bo", "Cy", "Di")
    }
    assert len({str(order) for order in orders.values()}) > 1
    again = open_project(project.folder)
    assert [[p.doc_id for p in Desk(again, "Ada").query(n).passages] for n in range(3)] == orders["Ada"]


def test_progress_and_what_was_written(project: Project) -> None:
    desk = Desk(project, "Ada")
    desk.save(sent("one", grade=2, reason="because", seconds=3.5))
    desk.save(sent("two", doc_id="d2", skipped=True))
    desk.save(sent("three", doc_id="d3", note="look again"))
    (first, *_) = Desk(project, "Ada").overview().queries
    assert (first.passages, first.graded, first.skipped) == (5, 1, 1)
    (entry,) = [p.entry for p in desk.query(0).passages if p.doc_id == "d1"]
    assert entry is not None
    assert (entry.grade, entry.reason, entry.seconds) == (2, "because", 3.5)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"grade": 4}, "between 0 and 3"),
        ({"grade": -1}, "between 0 and 3"),
        ({"doc_id": "elsewhere", "grade": 1}, "not in the pool"),
        ({"query_id": "elsewhere", "grade": 1}, "no query"),
        ({"doc_id": "", "grade": 1}, "needs a passage"),
        ({"grade": 1, "skipped": True}, "not both"),
        ({"finished": True}, "only the whole project"),
        ({"query_id": "", "doc_id": ""}, "only the whole project"),
        ({"grade": 1, "support": "not in the passage"}, "does not stand"),
    ],
)
def test_what_cannot_be_written(project: Project, fields: dict[str, Any], said: str) -> None:
    desk = Desk(project, "Ada")
    with pytest.raises(UsageError, match=said):
        desk.save(sent("wrong", **fields))
    assert not list(project.journal("Ada").entries())


def test_nothing_changes_after_finishing(project: Project) -> None:
    desk = Desk(project, "Ada")
    desk.save(sent("one", grade=2))
    finish(desk)
    with pytest.raises(Finished):
        desk.save(sent("two", grade=0, replaces="entry-one"))
    with pytest.raises(Finished):
        desk.save(Sent(id="opening-again", finished=False, replaces="finish-Ada"))
    assert desk.save(sent("one", grade=2)).grade == 2  # sent again because the answer was lost
    finish(desk)
    assert desk.overview().closing is not None


def test_a_file_that_was_replaced_is_opened_again(project: Project, tmp_path: Path) -> None:
    """A repository that is brought up to date puts a new file under the name; what went into the old one was lost."""
    desk = Desk(project, "Ada")
    desk.save(sent("one", grade=2))
    path = project.journal_path("Ada")
    shutil.copy(path, tmp_path / "pulled.jsonl")
    (tmp_path / "pulled.jsonl").replace(path)
    desk.save(sent("two", grade=0, replaces="entry-one"))
    assert project.journal("Ada").grades() == {("q1", "d1"): 0}
    path.unlink()
    with pytest.raises(Conflict):
        desk.save(sent("three", grade=1, replaces="entry-two"))
    desk.save(sent("four", grade=1))
    assert project.journal("Ada").grades() == {("q1", "d1"): 1}


def test_the_answer_comes_before_the_passages(tmp_path: Path) -> None:
    desk = Desk(make_project(tmp_path / "p", answer_first=True), "Ada")
    page = desk.query(0)
    assert page.answer_needed
    assert not page.passages
    with pytest.raises(UnknownName):
        desk.more(0, 0, 0)
    with pytest.raises(UsageError, match="own answer before"):
        desk.save(sent("early", grade=1))
    desk.save(sent("answer", doc_id="", answer="Open the artery"))
    assert len(desk.query(0).passages) == 5
    with pytest.raises(UsageError, match="stays"):
        desk.save(sent("better", doc_id="", answer="Something better", replaces="entry-answer"))
    desk.save(sent("graded", grade=1))


def test_a_long_passage_comes_in_pieces_that_make_it_whole(tmp_path: Path) -> None:
    text = "Pain is a word. " * 20_000
    desk = Desk(make_project(tmp_path / "p", {"q1": "pain"}, {"d1": text, "d2": "x" * 20_000}), "Ada")
    for place, passage in enumerate(desk.query(0).passages):
        piece, whole = passage.piece, passage.piece.text
        assert len(whole) <= FIRST_PIECE
        while piece.next is not None:
            piece = desk.more(0, place, piece.next)
            whole += piece.text
        assert whole == {"d1": text, "d2": "x" * 20_000}[passage.doc_id]
        assert piece.words == (["Pain"] if passage.doc_id == "d1" else [])
    assert desk.more(0, 0, 10**12).text == ""
    for place in (-1, 2):
        with pytest.raises(UnknownName):
            desk.more(0, place, 0)


def test_words_are_marked_as_the_app_for_results_marks_them(tmp_path: Path) -> None:
    texts = {"d1": "Infarctions and infarction; TREATMENTS, not treats. The the nothing."}
    desk = Desk(make_project(tmp_path / "p", {"q1": "the treatment of an infarction"}, texts), "Ada")
    assert desk.query(0).passages[0].piece.words == ["Infarctions", "TREATMENTS", "infarction"]


def test_an_adjudicator_sees_only_what_finished_judges_differ_on(project: Project) -> None:
    ada, bo, cy = Desk(project, "Ada"), Desk(project, "Bo"), Desk(project, "Cy", "adjudicator")
    for desk, grades in ((ada, (0, 3, 2)), (bo, (0, 1, 2))):
        for number, grade in enumerate(grades):
            desk.save(sent(f"{number}-of-{desk.judge}", doc_id=f"d{number + 1}", grade=grade, reason=f"{grade} I say"))
    assert not cy.overview().queries
    finish(ada)
    overview = cy.overview()
    assert overview.waiting == ["Bo"]
    assert not overview.queries
    with pytest.raises(UsageError, match="do not differ"):
        cy.save(sent("early", doc_id="d2", grade=3))
    finish(bo)
    overview = cy.overview()
    assert not overview.waiting
    assert [(q.query_id, q.passages) for q in overview.queries] == [("q1", 1)]
    (passage,) = cy.query(0).passages
    assert passage.doc_id == "d2"
    assert [(j.grade, j.reason) for j in passage.judgments] == [(3, "3 I say"), (1, "1 I say")]
    assert b"Ada" not in msgspec.json.encode(passage)
    with pytest.raises(UsageError, match="do not differ"):
        cy.save(sent("agreed", doc_id="d1", grade=3))
    cy.save(sent("final", doc_id="d2", grade=3))
    assert cy.overview().queries[0].graded == 1


def test_a_query_waits_for_every_judge_who_has_begun_it(project: Project) -> None:
    ada, bo, di = Desk(project, "Ada"), Desk(project, "Bo"), Desk(project, "Di")
    ada.save(sent("ada", grade=0))
    bo.save(sent("bo", grade=3))
    di.save(sent("di", query_id="q2", grade=1))
    finish(ada)
    finish(bo)
    cy = Desk(project, "Cy", "adjudicator")
    assert [q.query_id for q in cy.overview().queries] == ["q1"]
    di.save(sent("di-too", note="not sure"))
    assert not cy.overview().queries
    assert cy.overview().waiting == ["Di"]


def test_an_llm_is_no_party_to_a_dispute(project: Project) -> None:
    from r2med.judge import Entry

    ada = Desk(project, "Ada")
    ada.save(sent("ada", grade=0))
    finish(ada)
    llm = project.journal("llm:any", "llm", spec="any")
    llm.save(Entry(id="llm-1", at="2026-01-01", query_id="q1", doc_id="d1", grade=3))
    assert not Desk(project, "Cy", "adjudicator").overview().queries


@pytest.mark.parametrize("rule", ["adjudicated", "majority", "median", "lowest", "highest"])
def test_an_adjudicator_decides_what_the_rule_leaves_open_and_nothing_else(tmp_path: Path, rule: Rule) -> None:
    """Under rules that decide by themselves, decisions were asked for and then ignored."""
    project = small_project(tmp_path / "p", queries=1, passages=2, rule=rule, judges_per_pair=3)
    for judge, grades in (("Ada", (0, 1)), ("Bo", (2, 1)), ("Di", (3, 0))):  # no majority for d0, one for d1
        judges(project, judge, dict(zip(slots(project), grades, strict=True)))
    shown = {p.doc_id for q in Desk(project, "Cy", "adjudicator").overview().queries
             for p in Desk(project, "Cy", "adjudicator").query(q.number).passages}  # fmt: skip
    assert shown == {verdict.doc_id for verdict in final_grades(project).open}
    assert len(shown) == {"adjudicated": 2, "majority": 1}.get(rule, 0)


@pytest.mark.parametrize("asked", [{"llm_counts": True}, {"known_counts": True, "known": 3}])
def test_all_who_count_can_be_parties_to_a_dispute(tmp_path: Path, asked: dict[str, Any]) -> None:
    """A person against an LLM that counts, or against the data's own grade, stayed open for ever."""
    project = small_project(tmp_path / "p", queries=1, passages=1, **asked)
    judges(project, "Ada", {("q0", "q0d0"): 0})
    if "llm_counts" in asked:
        judges(project, "llm:any", {("q0", "q0d0"): 3}, kind="llm")
    cy = Desk(project, "Cy", "adjudicator")
    (passage,) = cy.query(0).passages
    assert sorted(judgment.grade for judgment in passage.judgments) == [0, 3]
    assert len({judgment.judge for judgment in passage.judgments}) == 2
    cy.save(sent("decided", query_id="q0", doc_id="q0d0", grade=2))
    assert final_grades(project).grades == {("q0", "q0d0"): 2}


def test_a_judge_is_told_what_is_asked(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", reason="required", terms=("artery",), question="Useful?")
    overview = Desk(project, "Ada").overview()
    assert (overview.reason, overview.terms, overview.question, overview.grades) == (
        "required", ("artery",), "Useful?", GRADES,
    )  # fmt: skip
    with pytest.raises(UsageError, match="asks for a reason"):
        Desk(project, "Ada").save(sent("bare", grade=1))
