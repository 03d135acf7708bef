from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from r2med.core import Document, Documents
from r2med.text.duplicates import find_copies, text_key


def corpus(**texts: str) -> Documents:
    return Documents.of(Document(i, t) for i, t in texts.items())


def test_white_space_and_case_do_not_count() -> None:
    copies = find_copies(corpus(a="The  Heart\nbeats", b="the heart beats ", c="the heart rests", d="THE HEART BEATS"))
    assert copies == {"a": "a", "b": "a", "d": "a"}


def test_words_and_punctuation_do_count() -> None:
    assert find_copies(corpus(a="no fever", b="no, fever", c="nofever")) == {}


def test_titles_are_part_of_a_passage() -> None:
    documents = Documents.of([Document("a", "text", "One"), Document("b", "text", "Two"), Document("c", "Text", "one")])
    assert find_copies(documents) == {"a": "a", "c": "a"}


@given(st.lists(st.sampled_from(["x", "X ", "y", " y", "z\n", "Straße", "STRASSE", ""]), max_size=12))
def test_copies_against_plain_python(texts: list[str]) -> None:
    keys = [" ".join(t.casefold().split()) for t in texts]
    found = find_copies(Documents.of(Document(f"d{i}", t) for i, t in enumerate(texts)))
    assert found == {f"d{i}": f"d{keys.index(k)}" for i, k in enumerate(keys) if keys.count(k) > 1}


def test_a_key_is_stable() -> None:
    assert text_key("A  b") == text_key("a b")
    assert text_key("a b").hex() != text_key("a c").hex()
