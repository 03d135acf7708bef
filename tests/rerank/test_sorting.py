from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import UsageError
from r2med.rerank.sorting import Sorter, check_sliding, heap_top, sliding


def drive(sorter: Sorter, worth: list[int], asked: list[list[int]] | None = None) -> list[int]:
    """Answer every question rightly."""
    answer: list[int] | None = None
    try:
        while True:
            places = next(sorter) if answer is None else sorter.send(answer)
            if asked is not None:
                asked.append(places)
            answer = sorted(range(len(places)), key=lambda i: -worth[places[i]])
    except StopIteration as end:
        result: list[int] = end.value
        return result


@given(st.integers(0, 60), st.integers(2, 20), st.integers(1, 20), st.integers(0, 9))
def test_sliding_windows_carry_the_best_up(count: int, window: int, step: int, seed: int) -> None:
    step = min(step, window - 1) or 1
    worth = random.Random(seed).sample(range(1000), count)
    asked: list[list[int]] = []
    order = drive(sliding(count, window, step), worth, asked)
    assert sorted(order) == list(range(count))
    assert all(len(places) <= window for places in asked)
    carried = window - step if count > window else count
    best = sorted(range(count), key=lambda i: -worth[i])[: min(carried, count)]
    assert order[: len(best)] == best


def test_rankgpts_windows() -> None:
    asked: list[list[int]] = []
    drive(sliding(100, 20, 10), list(range(100, 0, -1)), asked)
    assert [(places[0], places[-1] + 1) for places in asked] == [(s, s + 20) for s in range(80, -1, -10)]
    asked.clear()
    drive(sliding(15, 20, 10), list(range(15)), asked)
    assert len(asked) == 1
    asked.clear()
    assert drive(sliding(1, 20, 10), [1], asked) == [0]
    assert asked == []


@given(st.integers(0, 50), st.integers(1, 12), st.integers(1, 5), st.integers(0, 9))
def test_heap_sort_finds_the_top(count: int, top: int, children: int, seed: int) -> None:
    worth = random.Random(seed).sample(range(1000), count)
    asked: list[list[int]] = []
    order = drive(heap_top(count, top, children), worth, asked)
    best = sorted(range(count), key=lambda i: -worth[i])
    assert order[:top] == best[:top]
    assert order[top:] == sorted(best[top:])
    assert all(2 <= len(places) <= children + 1 for places in asked)


@given(st.integers(0, 40), st.integers(1, 5))
def test_a_model_that_says_nothing_leaves_the_head_alone(count: int, children: int) -> None:
    # Worth that falls along the list: the answer is always the list as it is.
    assert drive(heap_top(count, 5, children), list(range(count, 0, -1))) == list(range(count))


def test_refusals() -> None:
    for window, step in ((1, 1), (20, 0), (20, 21)):
        with pytest.raises(UsageError):
            check_sliding(window, step)
