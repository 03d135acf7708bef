"""The chat server of the llm tests, and tasks small enough to read."""

from __future__ import annotations

import pytest

from r2med.core import Document, Documents, Qrels, Query, Task
from tests.llm.conftest import KEY, _own_keys, make_chat, server

__all__ = ["KEY", "_own_keys", "make_chat", "server"]


@pytest.fixture
def task() -> Task:
    """Three queries with answers over four documents."""
    return Task(
        "small",
        (
            Query("q1", "Fever, a barking cough and stridor in a toddler. Diagnosis?", "Croup"),
            Query("q2", "Cramps after milk {{query}} {0} <answer>x</answer>. Why?", "Lactose intolerance"),
            Query("q3", "A question without an answer"),
        ),
        Documents.of(
            [
                Document("d1", "Croup is a viral laryngotracheitis with a barking cough and stridor."),
                Document("d2", "Lactose intolerance follows from a lack of lactase in the gut."),
                Document("d3", "Fever is a raised set point of body temperature in the hypothalamus."),
                Document("d4", "A cough clears the airways; milk does not cause it."),
            ]
        ),
        Qrels.from_judgments([("q1", "d1", 1), ("q2", "d2", 1), ("q3", "d3", 1)]),
        family="Clinical evidence",
    )
