from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import Document, Documents, TextColumn, UsageError
from r2med.text.duplicates import Shingles, find_copies, groups, jaccard, near_duplicates, overlaps, shingle, text_key


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


WORDS = st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]), max_size=14)


def runs(text: str, width: int) -> set[tuple[str, ...]]:
    """The definition, slowly."""
    words = re.findall(r"[0-9a-z]+|[^\x00-\x7f]+", text.lower())
    if 0 < len(words) < width:
        return {tuple(words)}
    return {tuple(words[i : i + width]) for i in range(len(words) - width + 1)}


def one(shingles: Shingles, index: int) -> set[int]:
    return set(shingles.hashes[shingles.indptr[index] : shingles.indptr[index + 1]].tolist())


@given(st.lists(WORDS, min_size=1, max_size=6), st.integers(2, 5))
def test_equal_shingles_are_equal_runs_of_words(lists: list[list[str]], width: int) -> None:
    texts = [" ".join(words) for words in lists]
    made = shingle(TextColumn.from_texts(texts), width)
    expected = [runs(text, width) for text in texts]
    assert made.sizes().tolist() == [len(e) for e in expected]
    for i, a in enumerate(expected):
        for j, b in enumerate(expected):
            assert len(one(made, i) & one(made, j)) == len(a & b)


def test_case_and_punctuation_do_not_count() -> None:
    texts = ["The heart, it seems, fails.", "the HEART it\nseems – fails", "“the heart it seems” fails\u00a0"]
    made = shingle(TextColumn.from_texts(texts), 3)
    assert one(made, 0) == one(made, 1) == one(made, 2)
    assert len(one(made, 0)) == 3


def test_texts_do_not_run_into_each_other() -> None:
    apart = shingle(TextColumn.from_texts(["heart", "failure", "", "heartfailure"]), 2)
    assert apart.sizes().tolist() == [1, 1, 0, 1]
    assert len({*one(apart, 0), *one(apart, 1), *one(apart, 3)}) == 3


def test_a_text_longer_than_a_block_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(f"word{i}" for i in range(3000))
    whole = shingle(TextColumn.from_texts(["short one here", text]), 5)
    monkeypatch.setattr("r2med.text.duplicates.BLOCK", 1 << 10)
    small = shingle(TextColumn.from_texts(["short one here", text]), 5)
    assert whole.hashes.tolist() == small.hashes.tolist()
    assert whole.sizes().tolist() == [1, 2996]


def test_no_texts() -> None:
    empty = shingle(TextColumn.from_texts([]))
    assert len(empty) == 0
    assert len(near_duplicates(empty)) == 0


def random_texts(seed: int, count: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{w}" for w in rng.integers(0, 5000, 80)) for _ in range(count)]


def test_near_duplicates_are_those_of_a_full_comparison() -> None:
    rng = np.random.default_rng(3)
    texts = random_texts(1, 120)
    for source in range(40):  # copies with more and more words changed
        words = texts[source].split()
        for place in rng.choice(80, size=source // 6, replace=False):
            words[place] = "changed"
        texts.append(" ".join(words))
    made = shingle(TextColumn.from_texts(texts))
    first, second = np.triu_indices(len(texts), k=1)
    similarity = jaccard(made, first, second)
    expected = {(int(a), int(b)) for a, b, s in zip(first, second, similarity, strict=True) if s >= 0.8}
    found = near_duplicates(made, 0.8)
    assert {(a, b) for a, b in zip(found.first.tolist(), found.second.tolist(), strict=True)} == expected
    assert 5 < len(expected) < 40
    assert (found.similarity >= 0.8).all()


def test_jaccard_is_the_definition() -> None:
    texts = ["a b c d e f g", "a b c d e f h", "x y z"]
    made = shingle(TextColumn.from_texts(texts), 3)
    got = jaccard(made, np.array([0, 0]), np.array([1, 2])).tolist()
    a, b = runs(texts[0], 3), runs(texts[1], 3)
    assert got == [len(a & b) / len(a | b), 0.0]


def test_many_copies_of_one_text_make_one_group() -> None:
    texts = random_texts(5, 3) + ["the same twelve words stand here again and again and again ok"] * 400
    made = shingle(TextColumn.from_texts(texts))
    joined = groups(near_duplicates(made), len(texts))
    assert joined == [list(range(3, 403))]


def test_a_text_inside_another_is_found_from_both_sides() -> None:
    inner = "fever chills and a new murmur after dental work last month"
    texts = ["nothing of the sort stands in this text at all today", f"before it {inner} and after it some more"]
    found = overlaps(shingle(TextColumn.from_texts([inner])), shingle(TextColumn.from_texts(texts)))
    assert found.right.tolist() == [1]
    assert found.left_inside.tolist() == [1.0]
    turned = overlaps(shingle(TextColumn.from_texts(texts)), shingle(TextColumn.from_texts([inner])))
    assert turned.left.tolist() == [1]
    assert turned.right_inside.tolist() == [1.0]


@pytest.mark.parametrize("threshold", [0.0, 0.49, 1.01])
def test_a_senseless_threshold_is_refused(threshold: float) -> None:
    with pytest.raises(UsageError, match=r"between 0\.5 and 1"):
        near_duplicates(shingle(TextColumn.from_texts(["a"])), threshold)


def test_different_widths_are_not_compared() -> None:
    text = TextColumn.from_texts(["one two three four five six"])
    with pytest.raises(UsageError, match="cannot be compared"):
        overlaps(shingle(text, 3), shingle(text, 4))
