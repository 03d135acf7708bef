"""The final grade by every rule, and who counts towards it."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, UsageError
from r2med.judge import Entry, Project, Rule, open_project
from r2med.judge.final import Final, by_rule, final_grades, read_judges
from r2med.judge.journal import now
from r2med.scoring.intervals import Settings as Intervals
from tests.judge.projects import judges, slots, small_project

QUICK = Intervals(resamples=200)
GIVEN = st.lists(st.integers(0, 3), min_size=2, max_size=5).filter(lambda grades: len(set(grades)) > 1)


@given(GIVEN)
def test_rules_for_grades_that_differ(grades: list[int]) -> None:
    assert by_rule(grades, "adjudicated") is None
    assert by_rule(grades, "lowest") == min(grades)
    assert by_rule(grades, "highest") == max(grades)
    middle = by_rule(grades, "median")
    assert middle in grades
    assert sum(g < middle for g in grades) <= len(grades) / 2
    assert sum(g > middle for g in grades) <= len(grades) / 2
    most = by_rule(grades, "majority")
    assert (most is None) == all(2 * grades.count(g) <= len(grades) for g in grades)
    assert most is None or 2 * grades.count(most) > len(grades)


def test_the_median_of_an_even_number_is_the_lower_one() -> None:
    assert by_rule([0, 3], "median") == 0
    assert by_rule([3, 1, 0, 2], "median") == 1


def one_query(tmp_path: Path, rule: Rule, judges_per_pair: int = 2) -> Project:
    return small_project(tmp_path / rule, queries=1, passages=3, rule=rule, judges_per_pair=judges_per_pair)


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("adjudicated", [2, 3, None]),
        ("majority", [2, 3, None]),
        ("median", [2, 1, 0]),
        ("lowest", [2, 1, 0]),
        ("highest", [2, 2, 3]),
    ],
)
def test_every_rule_in_a_project(rule: Rule, wanted: list[int | None], tmp_path: Path) -> None:
    """The first passage has equal grades, the second an adjudicator, the third neither."""
    project = one_query(tmp_path, rule)
    first, second, third = slots(project)
    judges(project, "Ada", {first: 2, second: 1, third: 0})
    judges(project, "Bob", {first: 2, second: 2, third: 3})
    judges(project, "Eve", {first: 0, second: 3}, kind="adjudicator", finished=False)
    final = final_grades(project)
    assert [v.grade for v in final.verdicts] == wanted
    assert final.verdicts[0].how == "agreed"  # what Eve says of it changes nothing
    assert final.verdicts[0].judges == {"Ada": 2, "Bob": 2}
    assert final.judges == ["Ada", "Bob"]
    assert final.adjudicators == ["Eve"]
    if rule in ("adjudicated", "majority"):
        assert final.verdicts[1].how == "adjudicated"
        assert final.verdicts[1].judges == {"Ada": 1, "Bob": 2, "Eve": 3}
        assert [(v.doc_id, v.why) for v in final.open] == [(third[1], "no adjudicator has decided")]
        assert final.slots("agreed", "adjudicated") == [first, second]
    else:
        assert final.slots("rule") == [second, third]
    assert final.grades == {
        slot: grade for slot, grade in zip(slots(project), wanted, strict=True) if grade is not None
    }
    assert msgspec.json.decode(msgspec.json.encode(final), type=Final) == final


def test_a_majority_of_three_needs_no_adjudicator(tmp_path: Path) -> None:
    project = one_query(tmp_path, "majority", judges_per_pair=3)
    first, second, third = slots(project)
    for name, grades in (("Ada", (1, 0, 3)), ("Bob", (1, 2, 3)), ("Eve", (2, 3, 3))):
        judges(project, name, dict(zip((first, second, third), grades, strict=True)))
    assert final_grades(project).grades == {first: 1, third: 3}


def test_too_few_judges_leave_a_passage_open(tmp_path: Path) -> None:
    project = one_query(tmp_path, "highest")
    first, second, third = slots(project)
    judges(project, "Ada", {first: 2, second: 1, third: None})
    judges(project, "Bob", {first: 2, second: None})
    final = final_grades(project)
    assert final.grades == {first: 2}
    assert [v.why for v in final.open] == ["1 of 2 grades", "0 of 2 grades"]  # what is skipped does not count


def test_one_judge_where_the_project_asks_for_one(tmp_path: Path) -> None:
    project = one_query(tmp_path, "adjudicated", judges_per_pair=1)
    judges(project, "Ada", dict.fromkeys(slots(project), 1))
    final = final_grades(project)
    assert final.counts() == {"single": 3}
    judges(project, "Bob", {slots(project)[0]: 0})
    assert final_grades(project).verdicts[0].how == "open"


def test_who_has_not_finished_does_not_count(tmp_path: Path) -> None:
    project = one_query(tmp_path, "adjudicated")
    judges(project, "Ada", dict.fromkeys(slots(project), 1))
    judges(project, "Bob", dict.fromkeys(slots(project), 1), finished=False)
    final = final_grades(project)
    assert (final.grades, final.left_out, final.judges) == ({}, ["Bob"], ["Ada"])
    assert len(final_grades(project, unfinished=True).grades) == 3


def test_adjudicators_who_differ_settle_nothing(tmp_path: Path) -> None:
    project = one_query(tmp_path, "adjudicated")
    first = slots(project)[0]
    for name, grade in (("Ada", 1), ("Bob", 2)):
        judges(project, name, {first: grade})
        judges(project, f"{name} again", {first: grade}, kind="adjudicator")
    assert final_grades(project).verdicts[0].why == "adjudicators differ"


def test_grades_that_came_with_the_data(tmp_path: Path) -> None:
    plain = small_project(tmp_path / "plain", known=1)
    judges(plain, "Ada", dict.fromkeys(slots(plain), 1))
    assert final_grades(plain).grades == {}
    judges(plain, "known", dict.fromkeys(slots(plain), 1))  # a person's name, where the data does not count
    assert final_grades(plain).counts() == {"agreed": 24}
    counting = small_project(tmp_path / "counting", known=1, known_counts=True)
    judges(counting, "Ada", dict.fromkeys(slots(counting), 1))
    final = final_grades(counting)
    assert final.counts() == {"agreed": 24}
    assert final.verdicts[0].judges == {"Ada": 1, "known": 1}
    judges(counting, "known", {})
    with pytest.raises(DataError, match="a judge called known, which stands for the data"):
        final_grades(counting)
    strange = small_project(tmp_path / "strange", known=7, known_counts=True)
    with pytest.raises(DataError, match="holds the grade 7; this project has 0 to 3"):
        final_grades(strange)


def test_forks_are_reported(tmp_path: Path) -> None:
    project = one_query(tmp_path, "adjudicated", judges_per_pair=1)
    first = slots(project)[0]
    judges(project, "Ada", {first: 1})
    clone = tmp_path / "clone"
    shutil.copytree(project.folder, clone)
    for folder, grade in ((project.folder, 2), (clone, 3)):
        journal = Project(folder, project.settings).journal("Ada")
        replaced = Entry(id=f"new {grade}", at=now(), query_id=first[0], doc_id=first[1], grade=grade, replaces="Ada 0")
        journal.save(replaced)
        journal.close()
    mine, theirs = (Project(path, project.settings).journal_path("Ada") for path in (project.folder, clone))
    mine.write_bytes(mine.read_bytes() + theirs.read_bytes().splitlines(keepends=True)[-1])
    assert final_grades(project).forks == {"Ada": [first]}


@pytest.mark.parametrize("damage", ["changed", "without its end"])
def test_a_line_that_cannot_be_read_is_told(tmp_path: Path, damage: str) -> None:
    """The grade it replaced stands again, which nobody would know."""
    project = one_query(tmp_path, "adjudicated", judges_per_pair=1)
    first = slots(project)[0]
    judges(project, "Ada", {first: 1})
    path = project.journal_path("Ada")
    whole = path.read_bytes()
    changed = {"changed": whole.replace(b'"grade":1', b'"grade":2'), "without its end": whole.rstrip(b"\n")}
    path.write_bytes(changed[damage])
    with pytest.warns(UserWarning, match=r"jsonl: 1 line cannot be read; what stood there does not count"):
        read_judges(project)


def test_two_projects_never_mix(tmp_path: Path) -> None:
    here, there = (small_project(tmp_path / name, passages=n) for name, n in (("here", 3), ("there", 4)))
    judges(there, "Ada", dict.fromkeys(slots(there), 1))
    shutil.copy(there.journal_path("Ada"), here.folder / "judgments")
    with pytest.raises(DataError, match="belongs to another project"):
        final_grades(here)
    with pytest.raises(DataError, match="is not the journal of Ada"):
        here.journal("Ada")


def test_a_judge_counts_once(tmp_path: Path) -> None:
    project = one_query(tmp_path, "adjudicated")
    judges(project, "Ada", dict.fromkeys(slots(project), 1))
    shutil.copy(project.journal_path("Ada"), project.folder / "judgments" / "copy.jsonl")
    with pytest.raises(DataError, match="is a second journal of Ada"):
        final_grades(project)


def test_a_journal_written_by_hand(tmp_path: Path) -> None:
    project = one_query(tmp_path, "adjudicated")
    judges(project, "Ada", {slots(project)[0]: 9})
    with pytest.raises(DataError, match="holds the grade 9; this project has 0 to 3"):
        final_grades(project)
    other = one_query(tmp_path / "other", "adjudicated")
    judges(other, "Ada", {("q0", "nowhere"): 1})
    with pytest.raises(DataError, match="not in the pool"):
        read_judges(other)


def test_an_llm_fills_only_what_no_person_judged(tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", queries=15, passages=6, judges_per_pair=1)
    all_slots = slots(project)
    truth = {slot: i % 4 for i, slot in enumerate(all_slots)}
    by_people = {slot: truth[slot] for slot in all_slots if not slot[1].endswith("d5")}
    judges(project, "Ada", by_people)
    judges(project, "Bob", {all_slots[5]: 3}, finished=False)
    judges(project, "llm:x", truth, kind="llm", finished=False)
    plain = final_grades(project, intervals=QUICK)
    assert set(plain.grades) == set(by_people)  # nobody asked for the LLM
    filled = final_grades(project, fill="llm:x", intervals=QUICK)
    holes = set(all_slots) - set(by_people)
    assert set(filled.slots("filled")) == holes - {all_slots[5]}  # Bob has judged that one, though not finished
    assert all(filled.grades[slot] == truth[slot] for slot in filled.slots("filled"))
    assert {tuple(v.judges) for v in filled.verdicts if v.how == "filled"} == {("llm:x",)}
    assert filled.fill == "llm:x"
    by_setting = Project(project.folder, msgspec.structs.replace(project.settings, fill="llm:x"))
    assert final_grades(by_setting, intervals=QUICK) == filled
    assert final_grades(by_setting, fill="", intervals=QUICK) == plain


def test_an_llm_that_was_not_measured_fills_nothing(tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", queries=15, passages=6, judges_per_pair=1)
    truth = {slot: i % 4 for i, slot in enumerate(slots(project))}
    some = dict(list(truth.items())[:48])
    judges(project, "Ada", some)
    judges(project, "llm:x", truth, kind="llm")
    judges(project, "llm:off", {slot: 3 - grade for slot, grade in truth.items()}, kind="llm")
    judges(project, "llm:flat", dict.fromkeys(truth, 1), kind="llm")
    with pytest.raises(UsageError, match="compared with people on 48 pairs, and 50 are needed"):
        final_grades(project, fill="llm:x", intervals=QUICK)
    assert final_grades(project, fill="llm:x", fill_pairs=48, intervals=QUICK).slots("filled")
    with pytest.raises(UsageError, match=r"may be as low as -\d\.\d\d, and 0.4 is needed"):
        final_grades(project, fill="llm:off", fill_pairs=40, intervals=QUICK)
    with pytest.raises(UsageError, match="has no interval"):
        final_grades(project, fill="llm:flat", fill_pairs=40, intervals=QUICK)
    with pytest.raises(UsageError, match="is no LLM judge of this project; there are: llm:flat, llm:off, llm:x"):
        final_grades(project, fill="Ada", intervals=QUICK)


@pytest.mark.parametrize("file", ["queries.jsonl", "passages.jsonl", "pool.jsonl"])
def test_a_line_that_stands_twice_is_refused(tmp_path: Path, file: str) -> None:
    """Of two texts under one id the first was lost, and a pair that was pooled twice counted twice."""
    path = small_project(tmp_path / "p", queries=2, passages=2).folder / file
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join([*lines, lines[0].replace("number 0", "something else")]), "utf-8")
    with pytest.raises(DataError, match=rf"{file}:{len(lines) + 1}: has .*q0.* a second time"):
        final_grades(open_project(tmp_path / "p"))
