"""Numbers that models give to passages, read from whatever they wrote."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.llm.grades import read_grade, read_grades

GROUPS = [
    # what a model wrote about three passages, the grades, and numbers repeated, unknown, missing, out of range
    ('{"[1]": 5, "[2]": 0, "[3]": 10}', [5, 0, 10], (0, 0, 0, 0)),
    ('```json\n{"[1]": 5, "[2]": 0, "[3]": 10}\n```', [5, 0, 10], (0, 0, 0, 0)),
    ('{"1": 5, "2": 0, "3": 10}', [5, 0, 10], (0, 0, 0, 0)),
    ("{1: 5, 2: 0, 3: 10}", [5, 0, 10], (0, 0, 0, 0)),
    ('{"[1]]": 5, "[2]]": 0, "[3]": 10', [5, 0, 10], (0, 0, 0, 0)),
    ('{"[1]": "5", "[2]": "0", "[3]": "7.5"}', [5, 0, 7.5], (0, 0, 0, 0)),
    ('First {"[1]": 1}, no: {"[1]": 5, "[2]": 0, "[3]": 10}', [5, 0, 10], (0, 0, 0, 0)),
    ('{"[1]": 1, "[2]": 1, "[3]": 1} or {"[1]": 5, "[2]": 0, "[3]": 10}', [5, 0, 10], (0, 0, 0, 0)),
    ("[1]: 5\n[2]: 0\n[3]: 10", [5, 0, 10], (0, 0, 0, 0)),
    ("- Passage 1: score 5\n- Passage 2: 0\n- **[3]** - 10", [5, 0, 10], (0, 0, 0, 0)),
    ("[5, 0, 10]", [5, 0, 10], (0, 0, 0, 0)),
    ("1: 5, 2: 0, 3: 10", [5, 0, 10], (0, 0, 0, 0)),
    ("[1]: 5\n[2]: 0-3\n[3]: 10", [5, None, 10], (0, 0, 1, 0)),
    ('{"[1]": 5, "[3]": 10}', [5, None, 10], (0, 0, 1, 0)),
    ('{"[1]": 5, "[1]": 2, "[2]": 0, "[3]": 10}', [5, 0, 10], (1, 0, 0, 0)),
    ('{"[1]": 5, "[2]": 0, "[3]": 10, "[4]": 9, "[0]": 1}', [5, 0, 10], (0, 2, 0, 0)),
    ('{"[1]": 5, "[2]": -3, "[3]": 11}', [5, None, None], (0, 0, 0, 2)),
]


@pytest.mark.parametrize(("text", "grades", "counts"), GROUPS, ids=[g[0][:30] for g in GROUPS])
def test_grades_of_a_group(text: str, grades: list[float | None], counts: tuple[int, ...]) -> None:
    read = read_grades(text, 3, 10)
    assert read.read
    assert read.values == grades
    assert (read.repeated, read.unknown, read.missing, read.out_of_range) == counts
    assert read.mended == any(counts)


@pytest.mark.parametrize("text", ["", "All are useful.", "[2] > [1] > [3]", "{}", '{"[7]": 3}', "[1, 2]", "5"])
def test_what_holds_no_grade(text: str) -> None:
    read = read_grades(text, 3, 10)
    assert not read.read
    assert read.values == [None] * 3


@given(st.lists(st.integers(0, 10), min_size=1, max_size=40), st.sampled_from(["[{}]", "{}"]))
def test_what_was_asked_for_is_read(grades: list[int], key: str) -> None:
    text = json.dumps({key.format(i): grade for i, grade in enumerate(grades, start=1)})
    read = read_grades(f"<reason>[1] is good: 3 of 10.</reason>\n{text}\n", len(grades), 10)
    assert read.values == grades
    assert not read.mended


@given(st.text(alphabet='[]{}":,.0123456789-\n abcP', max_size=200), st.integers(1, 30), st.integers(1, 100))
def test_no_text_gives_a_grade_off_the_scale(text: str, count: int, top: int) -> None:
    read = read_grades(text, count, top)
    assert len(read.values) == count
    assert all(value is None or 0 <= value <= top for value in read.values)
    assert read.read == any(value is not None for value in read.values)
    assert sum(value is None for value in read.values) == read.missing + read.out_of_range
    one = read_grade(text, top)
    assert one.value is None or (0 <= one.value <= top and not one.out_of_range)


@given(st.text(max_size=300), st.integers(1, 20))
def test_any_text_can_be_read(text: str, count: int) -> None:
    assert len(read_grades(text, count, 10).values) == count
    read_grade(text, 10)


SINGLE = [
    ("7", 7),
    (" 7.\n", 7),
    ("<score>85</score>", 85),
    ("First <score>10</score>, after all <score> 85 </score>", 85),
    ("<score>85", 85),
    ("**Score:** 85", 85),
    ("The relevance score is 62.5, of 3 findings 2 fit.", 62.5),
    ('{"score": 40}', 40),
    ("It names 2 of the 3 causes. 85/100", 85),
    ("I give it 85 out of 100.", 85),
    ("0", 0),
]


@pytest.mark.parametrize(("text", "grade"), SINGLE)
def test_one_grade(text: str, grade: float) -> None:
    assert read_grade(text, 100) == (grade, False)


@pytest.mark.parametrize("text", ["", "useful", "between 3 and 5", "T12-L1", "7-8", "Score: 7–8", "<score>7-8</score>"])
def test_no_one_grade(text: str) -> None:
    assert read_grade(text, 100) == (None, False)


@pytest.mark.parametrize("text", ["101", "<score>-5</score>", "Score: 1000"])
def test_grades_off_the_scale_are_named(text: str) -> None:
    assert read_grade(text, 100) == (None, True)


@given(st.integers(0, 100))
def test_every_grade_of_the_scale(grade: int) -> None:
    assert read_grade(str(grade), 100).value == read_grade(f"<score>{grade}</score>", 100).value == grade
