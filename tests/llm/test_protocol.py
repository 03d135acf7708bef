"""How sure a model was of what it ended on."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.llm.protocol import decided, decision_of, expectation, probability


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
