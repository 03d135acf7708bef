"""The analyzer of NanoR2MED's builder, in Python and in C, and its stems against NLTK's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import TextColumn
from r2med.text import english, get_analyzer
from r2med.text.analyzers import ANALYZERS, PYTHON, Analyzer
from r2med.text.porter import stem_nltk

STEMS: list[tuple[str, str]] = json.loads((Path(__file__).parent / "fixtures/nltk_stems.json").read_text())
NATIVE = ANALYZERS["nano-english"] is not PYTHON["nano-english"]
needs_c = pytest.mark.skipif(not NATIVE, reason="the C extension is not built")


def test_stems_are_nltks() -> None:
    assert [(word, stem_nltk(word)) for word, _ in STEMS] == [(word, expected) for word, expected in STEMS]


@pytest.mark.parametrize("analyzer", [PYTHON["nano-english"], get_analyzer("nano-english")])
def test_terms(analyzer: Analyzer) -> None:
    terms = [stem for word, stem in STEMS if word not in english.NANO_STOP_WORDS]
    assert analyzer(" ".join(word.upper() for word, _ in STEMS)) == terms
    assert analyzer("") == analyzer("ñ 漢字 — the THE was") == []
    assert analyzer("Naïve β-blocker, HbA1c 7.5% (patient's)") == [
        "na", "ve", "blocker", "hba1c", "7", "5", "patient", "s",
    ]  # fmt: skip


def test_the_stop_list_has_seventy_four_words() -> None:
    assert len(english.NANO_STOP_WORDS) == 74
    assert {"themselves", "yourselves", "i"} <= english.NANO_STOP_WORDS
    assert not {"not", "no", "do", "can"} & english.NANO_STOP_WORDS


@needs_c
def test_a_token_of_any_length_is_one_token() -> None:
    long = "ab" * 2500 + "s"
    assert get_analyzer("nano-english")(long) == PYTHON["nano-english"](long) == [long[:-1]]
    counted = get_analyzer("nano-english").count(TextColumn.from_texts([long, "a " + long]))
    assert list(counted.vocabulary.terms) == [long[:-1]]


@needs_c
@given(st.lists(st.text(st.one_of(st.sampled_from("aeiouylsdingrtAE 09-'é漢\ud800"), st.characters())), max_size=4))
def test_c_and_python_agree(texts: list[str]) -> None:
    native, python = get_analyzer("nano-english"), PYTHON["nano-english"]
    assert [native(text) for text in texts] == [python(text) for text in texts]
    clean = [text.encode(errors="replace").decode() for text in texts]
    one, other = (analyzer.count(TextColumn.from_texts(clean)) for analyzer in (native, python))
    assert list(one.vocabulary.terms) == list(other.vocabulary.terms)
    assert [a.tolist() for a in one[1:]] == [a.tolist() for a in other[1:]]
