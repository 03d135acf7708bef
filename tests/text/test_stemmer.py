"""The stemmer against Lucene's, and what must hold of any stem."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.text.porter import stem

STEMS: list[tuple[str, str]] = json.loads((Path(__file__).parent / "fixtures/lucene_stems.json").read_text())


def test_stems_are_lucenes() -> None:
    assert [(word, stem(word)) for word, _ in STEMS] == [(word, expected) for word, expected in STEMS]


@pytest.mark.parametrize("word", ["", "a", "is", "by", "é", "𐐨"])
def test_short_words_are_left_alone(word: str) -> None:
    assert stem(word) == word


def test_characters_beyond_the_basic_plane_count_twice() -> None:
    assert stem("𐐨s") == "𐐨"
    assert stem("és") == "és"
    assert stem("x𐐨ated") == "x𐐨ate"


@given(st.text(st.sampled_from("aeiouylstzgnrbmdcfv" + "é𐐨ß"), max_size=14))
def test_a_stem_keeps_the_start_and_is_no_longer(word: str) -> None:
    result = stem(word)
    assert len(result) <= len(word)
    assert result[:-2] == word[: max(len(result) - 2, 0)]


@given(st.text())
def test_any_text_has_a_stem(word: str) -> None:
    assert bool(stem(word)) == bool(word)
