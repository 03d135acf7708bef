"""What models wrote about passages: orders, choices, verdicts and grades, and how sure they were."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.llm.reading import (
    decided,
    decision_of,
    expectation,
    probability,
    read_choice,
    read_grade,
    read_grades,
    read_order,
    read_verdict,
    verdict_odds,
)

ORDERS = [
    # what a model wrote about three passages, the order, how many numbers were repeated, unknown, missing
    ("[3] > [1] > [2]", [2, 0, 1], (0, 0, 0)),
    ("[3]>[1]>[2]", [2, 0, 1], (0, 0, 0)),
    ("3 > 1 > 2", [2, 0, 1], (0, 0, 0)),
    ("**Ranking:** [ 3 ] >\n[1] >\n[2].", [2, 0, 1], (0, 0, 0)),
    ("[3] → [1] → [2]", [2, 0, 1], (0, 0, 0)),
    ("[3] &gt; [1] &gt; [2]", [2, 0, 1], (0, 0, 0)),
    ("[3, 1, 2]", [2, 0, 1], (0, 0, 0)),
    ('{"order": [3, 1, 2]}', [2, 0, 1], (0, 0, 0)),
    ("[3], [1], [2]", [2, 0, 1], (0, 0, 0)),
    ("[3] [1] [2]", [2, 0, 1], (0, 0, 0)),
    ("1. [3]\n2. [1]\n3. [2]", [2, 0, 1], (0, 0, 0)),
    ("1) Passage 3\n2) Passage 1\n3) Passage 2", [2, 0, 1], (0, 0, 0)),
    ("- [3] names the disease\n- [1] its cause\n- [2]", [2, 0, 1], (0, 0, 0)),
    ("3 1 2", [2, 0, 1], (0, 0, 0)),
    ("3, 1, 2", [2, 0, 1], (0, 0, 0)),
    ("[2] > [2] > [1] > [3]", [1, 0, 2], (1, 0, 0)),
    ("[2] > [7] > [1] > [3] > [0]", [1, 0, 2], (0, 2, 0)),
    ("[3] > [2]", [2, 1, 0], (0, 0, 1)),
    ("Passage [1] is about the liver, [2] about the lung. So: [2] > [3] > [1]", [1, 2, 0], (0, 0, 0)),
    ("First guess [1] > [2]. On reflection the order is [3] > [2] > [1]", [2, 1, 0], (0, 0, 0)),
    ("I think passage 2 helps most, then document 3.", [1, 2, 0], (0, 0, 1)),
    ("The best is [2], because it names the enzyme.", [1, 0, 2], (0, 0, 2)),
    ("Clearly [2] > [1]. The final order: [3, 2, 1]", [2, 1, 0], (0, 0, 0)),
    ("As [2] > [1], I rank:\n1. [3]\n2. [2]\n3. [1]", [2, 1, 0], (0, 0, 0)),
    ("12342 > 3", [2, 0, 1], (0, 0, 2)),
]


@pytest.mark.parametrize(("text", "places", "counts"), ORDERS, ids=[o[0][:30] for o in ORDERS])
def test_orders(text: str, places: list[int], counts: tuple[int, int, int]) -> None:
    order = read_order(text, 3)
    assert order.read
    assert order.places == places
    assert (order.repeated, order.unknown, order.missing) == counts
    assert order.mended == any(counts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "None of these passages is relevant.",
        "The patient is 45 years old with 3 days of fever.",
        "[9] > [8]",
        "I am sorry, I cannot rank medical passages.",
        ">>>",
        "2.5",
        "12342, 31111",
    ],
)
def test_what_names_no_order_changes_nothing(text: str) -> None:
    order = read_order(text, 3)
    assert not order.read
    assert order.places == [0, 1, 2]


@given(st.text(alphabet="[]>,.0123456789 \npasge→", max_size=80), st.integers(1, 25))
def test_every_answer_gives_a_permutation(text: str, count: int) -> None:
    assert sorted(read_order(text, count).places) == list(range(count))
    choice = read_choice(text, count)
    assert choice is None or 0 <= choice < count


@given(st.permutations(range(12)))
def test_whole_orders_are_read_as_they_are(places: list[int]) -> None:
    text = " > ".join(f"[{place + 1}]" for place in places)
    order = read_order(f"Thank you. {text}\n\nThis order puts the diagnosis first.", 12)
    assert order.places == places
    assert not order.mended


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("[2]", 1),
        ("2", 1),
        ("Passage 2", 1),
        ("The most helpful passage is [3], not [1].", 2),
        ("Unlike [1], passage [2] names the drug. Answer: [2]", 1),
        ("[3] > [1] > [2]", 2),
        ("Passage [3] is the best; [1] is less helpful", 2),
        ("The best evidence comes from 2 trials. The answer is [3]", 2),
        ("The best one is 2", 1),
        ("Answer: 2\nPassage 1 is about influenza.", 1),
        ("The most relevant passage is **2**. [1] discusses something else.", 1),
        ("Choose 2, not [1]", 1),
        ("The best answer to question 1 is [2]", 1),
        ("The best dose is 2.5 mg, says [3]", 2),
        ("2.5", None),
        ("[9]", None),
        ("none of them", None),
        ("", None),
    ],
)
def test_choices(text: str, choice: int | None) -> None:
    assert read_choice(text, 3) == choice


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("yes", True),
        ("**No.**", False),
        ("Yes, it does; no other passage would.", True),
        ("It is relevant: yes", True),
        ("I would say yes and no", None),
        ("Nothing points to it", None),
        ("Not at all", None),
        ("Yes or no? No.", False),
        ("Yes or no, hard to say", None),
        ("The answer is not yes", None),
        ('This isn\'t a "yes": the passage is about gout. No.', False),
        ("I am not sure. Yes", True),
        ("", None),
    ],
)
def test_verdicts(text: str, verdict: bool | None) -> None:
    assert read_verdict(text) is verdict


def test_odds() -> None:
    even = [("Yes", math.log(0.3)), (" yes", math.log(0.2)), ("no", math.log(0.4)), ("NO", math.log(0.1))]
    assert verdict_odds(even) == pytest.approx(0.0, abs=1e-9)
    assert verdict_odds([("yes", math.log(0.9)), ("maybe", math.log(0.01))]) == pytest.approx(math.log(90))
    no_only = verdict_odds([("no", math.log(0.9)), ("maybe", math.log(0.01))])
    assert no_only is not None
    assert no_only < 0
    assert verdict_odds([("maybe", -0.1)]) is None
    assert verdict_odds([]) is None
    assert verdict_odds([("yes", float("nan"))]) is None


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
    ("1: 5 / 2: 0 / 3: 10", [5, 0, 10], (0, 0, 0, 0)),
    ("[1]: 5/10\n[2]: 0 out of 10\n[3]: 10/10", [5, 0, 10], (0, 0, 0, 0)),
    ("[1]: 5/5\n[2]: 0\n[3]: 10%", [None, 0, None], (0, 0, 0, 2)),
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
    ("Score: 85%", 85),
    ("**Score: 85** / 100", 85),
    ("<score>85 (out of 100)</score>", 85),
    ("0", 0),
]


@pytest.mark.parametrize(("text", "grade"), SINGLE)
def test_one_grade(text: str, grade: float) -> None:
    assert read_grade(text, 100) == (grade, False)


@pytest.mark.parametrize(
    "text", ["", "useful", "between 3 and 5", "T12-L1", "7-8", "Score: 7–8", "<score>7-8</score>", "10/10"]
)
def test_no_one_grade(text: str) -> None:
    assert read_grade(text, 100) == (None, False)


@pytest.mark.parametrize(
    "text",
    [
        *("101", "<score>-5</score>", "Score: 1000", "Score: 8/10", "<score>9/10</score>", "Rating: 4 out of 5"),
        *("Score: 8 (out of 10)", "<score>8 (out of 10)</score>"),
    ],
)
def test_grades_off_the_scale_are_named(text: str) -> None:
    assert read_grade(text, 100) == (None, True)


@given(st.integers(0, 100))
def test_every_grade_of_the_scale(grade: int) -> None:
    assert read_grade(str(grade), 100).value == read_grade(f"<score>{grade}</score>", 100).value == grade


def token(text: str, probability: float = 1.0, **others: float) -> dict[str, Any]:
    """An entry as servers write it."""
    tops = [(text, probability), *((name.removeprefix("n"), value) for name, value in others.items())]
    return {
        "token": text,
        "logprob": math.log(probability),
        "top_logprobs": [{"token": t, "logprob": math.log(p)} for t, p in tops],
    }


def answer(*texts: str) -> list[dict[str, Any]]:
    return [token(text) for text in texts]


@pytest.mark.parametrize(
    ("tokens", "word"),
    [
        (["Yes"], "yes"),
        (["<think>", "no", " 3", "</think>", " true", "."], "true"),
        (["<answer>", "7", "</", "answer", ">"], "7"),
        (["<answer>", "1", "0", "</answer>"], "10"),
        (["Score", ": ", "85", "."], "85"),
        (["▁false"], "false"),
        (["note", "worthy"], ""),
        ([], ""),
    ],
)
def test_the_last_number_or_verdict(tokens: list[str], word: str) -> None:
    assert decided(decision_of(answer(*tokens))) == word


def test_unreadable_entries_decide_nothing() -> None:
    for content in ([3, None], [{"token": "Yes"}], [{"token": "Yes", "logprob": math.nan}], [{"token": 3}]):
        assert decision_of(content) == ()


def test_probability_is_that_of_all_tokens() -> None:
    assert probability(decision_of([token("1", 0.5), token("0", 0.4)])) == pytest.approx(0.2)


def test_expectation_over_whole_numbers() -> None:
    assert expectation(decision_of([token("7", 0.5, n8=0.25, n6=0.25)]), 10) == pytest.approx(7.0)
    assert expectation(decision_of([token("9", 0.5, n0=0.5)]), 10) == pytest.approx(4.5)
    assert expectation(decision_of([token("60", 0.5, n80=0.25, n8=0.25)]), 100) == pytest.approx(30 + 20 + 2)


def test_what_may_begin_a_longer_number_is_left_out() -> None:
    # 1 may be the beginning of 10.
    assert expectation(decision_of([token("9", 0.6, n1=0.4)]), 10) == pytest.approx(9.0)
    # Where 10 was written, the second token tells it from 1.
    ten = expectation(decision_of([token("1", 0.8, n9=0.2), token("0", 0.75)]), 10)
    assert ten == pytest.approx(10 * 0.6 + 1 * 0.2 + 9 * 0.2)
    assert expectation(decision_of([token("8", 0.9), token("5", 0.9)]), 100) is None


@given(st.integers(0, 10), st.dictionaries(st.integers(0, 12), st.floats(0.001, 1.0), max_size=8))
def test_an_expectation_is_on_the_scale(written: int, others: dict[int, float]) -> None:
    content = [token(str(written), 0.5, **{f"n{value}": p for value, p in others.items() if value != written})]
    found = expectation(decision_of(content), 10)
    assert found is not None
    assert 0 <= found <= 10


@given(st.lists(st.recursive(st.none() | st.text(max_size=4) | st.floats(), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(["token", "logprob", "top_logprobs"]), x)), max_size=6))  # fmt: skip
def test_any_entries_can_be_read(content: list[Any]) -> None:
    decision = decision_of(content)
    if decision:
        assert 0 <= probability(decision) <= 1
        expectation(decision, 10)
