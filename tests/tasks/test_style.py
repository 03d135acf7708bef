from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import TextColumn
from r2med.tasks.audit.style import lengths_of, style_parts, word_weights
from tests.builders import TEXTS

PLAIN = "She has fever. No rash was seen, and she did not travel."
LISTED = "Findings in Zurich:\n- MRI (3 T): normal\n- CRP: 12\n2) no more"


def test_lengths_are_those_of_words() -> None:
    words, word_length = lengths_of(TextColumn.from_texts(["two words, 33", "", "naïve β-cells"]))
    assert words.tolist() == [2, 0, 3]
    assert word_length.tolist() == pytest.approx([4.0, 0.0, 11 / 3])


def test_each_part_sees_what_it_is_named_for() -> None:
    """Two texts: a standardised column that differs is 1 in the text that has more."""
    parts = {part.name: part.values for part in style_parts(TextColumn.from_texts([PLAIN, LISTED]))}
    assert list(parts) == ["words", "length", "word length", "negation", "names", "layout"]
    assert parts["length"][:, 0].tolist() == pytest.approx([1, -1])
    assert parts["negation"][:, 0].tolist() == pytest.approx([1, -1])
    assert parts["names"][1].tolist() == pytest.approx([1, 1, 1]), "Zurich; MRI and CRP; 3, 12 and 2"
    lines, list_marks, sentence = parts["layout"][1, :3].tolist()
    assert (lines, list_marks) == (pytest.approx(1), pytest.approx(1))
    assert sentence == pytest.approx(1), "one sentence of nine words against two of six"


def test_words_that_one_text_holds_are_left_out() -> None:
    texts = TextColumn.from_texts(["fever and rash", "fever and cough", "pain"])
    part = word_weights(texts)
    assert sorted(part.columns) == ["and", "fever"]
    assert np.linalg.norm(part.values, axis=1).tolist() == pytest.approx([1, 1, 0])
    assert sorted(word_weights(texts, least=1).columns) == ["and", "cough", "fever", "pain", "rash"]
    assert len(word_weights(texts, most=1).columns) == 1


@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_any_texts_have_a_style(texts: list[str]) -> None:
    for part in style_parts(TextColumn.from_texts(texts)):
        assert len(part.values) == len(texts)
        assert np.isfinite(part.values).all()
