from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import r2med
from r2med.expand.answers import answer_forms, contains, names_answer, normalised, tokens

ADDISON = "Primary adrenal insufficiency (Addison disease), autoimmune"


def test_forms_of_an_answer() -> None:
    assert answer_forms(ADDISON) == ["Primary adrenal insufficiency , autoimmune", "Primary adrenal insufficiency",
                                     "Addison disease"]  # fmt: skip
    assert answer_forms("Transthyretin (ATTR) cardiac amyloidosis") == ["Transthyretin cardiac amyloidosis"]


@pytest.mark.parametrize(
    ("text", "answer", "named"),
    [
        ("This is Addison's disease.", ADDISON, True),
        ("Autoimmune thyroiditis is common.", ADDISON, False),
        ("Cardiac amyloidosis of the transthyretin type", "Transthyretin (ATTR) cardiac amyloidosis", True),
        (
            "Transthyretin is a carrier. " + "word " * 20 + "cardiac amyloidosis",
            "Transthyretin cardiac amyloidosis",
            False,
        ),
        ("Whipple’s disease", "Whipple disease", True),
        ("whip the diseased", "Whipple disease", False),
        ("It is croup", "Croup", True),
        ("It is croupous", "Croup", False),
        ("yes", "Yes", False),  # too short to mean anything
        ("", "Croup", False),
    ],
)
def test_naming(text: str, answer: str, named: bool) -> None:
    assert names_answer([text], answer) is named


@given(st.lists(st.sampled_from(["fever", "rash", "of", "the", "liver", "in", "a"]), max_size=12), st.data())
def test_an_answer_is_found_wherever_it_stands(words: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(words)))
    text = " ".join([*words[:at], "lactose", "intolerance", *words[at:]])
    assert names_answer([text], "Lactose intolerance")
    assert not names_answer([" ".join(words)], "Lactose intolerance")


@pytest.mark.parametrize("name", ["MedQA-Diag", "PMC-Clinical", "Biology"])
def test_every_answer_of_mini_names_itself_and_no_query_gives_it_away(name: str) -> None:
    task = r2med.load(f"mini@1/{name}")
    for query in task.queries:
        assert query.answer
        assert names_answer([f"We think of {query.answer}."], query.answer)
        assert not names_answer([query.text], query.answer)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Crohn's Diseases", "crohn disease"),
        ("Sjögren’s syndrome", "sjogren syndrome"),
        ("TNF-α blockers", "tnf alpha blocker"),
        ("β-blocker", "beta blocker"),
        ("diabetes mellitus", "diabete mellitus"),
        ("status asthmaticus", "status asthmaticus"),
        ("11β-HSD2", "11 beta hsd2"),
    ],
)
def test_forms_of_the_same_words_agree(text: str, expected: str) -> None:
    assert normalised(text) == expected


def test_words_are_whole() -> None:
    assert contains("He has Wilson's disease.", "wilson disease")
    assert not contains("He has Wilson's diseased liver", "wilson disease")
    assert not contains("anything", " ,. ")


@given(st.text(), st.text(alphabet="abcdefg ", min_size=1), st.text())
def test_what_is_put_in_is_found(before: str, phrase: str, after: str) -> None:
    assert contains(f"{before} {phrase} {after}", phrase) == bool(tokens(phrase))
