from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import Hasher, IdTable, TextColumn, TextColumnBuilder, fingerprint
from tests.builders import TEXTS

LISTS = st.lists(TEXTS | st.just(""), max_size=12)


@given(LISTS)
def test_a_column_is_the_list_it_was_made_from(texts: list[str]) -> None:
    column = TextColumn.from_texts(texts)
    assert len(column) == len(texts)
    assert list(column) == texts
    assert [column[i] for i in range(len(texts))] == texts
    assert [column[-i - 1] for i in range(len(texts))] == texts[::-1]
    assert column[1::2] == texts[1::2]
    assert column == TextColumn.from_texts(texts)
    assert column.nbytes == sum(len(t.encode()) for t in texts)


@given(LISTS)
def test_lengths_are_those_of_the_texts(texts: list[str]) -> None:
    column = TextColumn.from_texts(texts)
    assert column.byte_lengths().tolist() == [len(t.encode()) for t in texts]
    assert column.char_lengths().tolist() == [len(t) for t in texts]
    assert column.word_counts().tolist() == [len(t.encode().split()) for t in texts]


@given(st.lists(st.text(st.sampled_from(" \t\n\r\f\vab"), max_size=20), max_size=20))
def test_words_are_what_split_gives(texts: list[str]) -> None:
    assert TextColumn.from_texts(texts).word_counts().tolist() == [len(t.split()) for t in texts]


def test_words_across_the_blocks_of_a_large_column() -> None:
    texts = ["ab " * 700_000, "", "x", " y " * 900_000, "tail of words"] * 2
    assert TextColumn.from_texts(texts).word_counts().tolist() == [len(t.split()) for t in texts]


@given(st.lists(TEXTS, min_size=1, max_size=8), st.data())
def test_take_picks_in_order(texts: list[str], data: st.DataObject) -> None:
    picks = data.draw(st.lists(st.integers(0, len(texts) - 1)))
    assert list(TextColumn.from_texts(texts).take(picks)) == [texts[i] for i in picks]


@given(st.lists(st.text("ab\0é", max_size=4), max_size=8))
def test_find_byte_names_the_first_text_that_holds_it(texts: list[str]) -> None:
    expected = next((i for i, t in enumerate(texts) if "\0" in t), -1)
    assert TextColumn.from_texts(texts).find_byte(0) == expected


def test_find_byte_beyond_the_first_block() -> None:
    assert TextColumn.from_texts(["x" * (5 << 20), "y\0"]).find_byte(0) == 1


def test_a_lone_surrogate_cannot_enter() -> None:
    with pytest.raises(UnicodeEncodeError):
        TextColumn.from_texts(["\ud800"])


def test_an_index_beyond_the_end_is_an_error() -> None:
    column = TextColumn.from_texts(["a"])
    for index in (1, -2):
        with pytest.raises(IndexError):
            column[index]


def test_columns_of_other_kinds_are_not_equal() -> None:
    assert TextColumn.from_texts(["ab", "c"]) != TextColumn.from_texts(["a", "bc"])
    assert TextColumn.from_texts(["a"]) != ["a"]


def test_a_builder_takes_bytes_and_views() -> None:
    builder = TextColumnBuilder()
    builder.append(b"one")
    builder.append(memoryview(b"two"))
    assert list(builder.build()) == ["one", "two"]


@given(st.lists(TEXTS, unique=True, max_size=12), TEXTS)
def test_a_table_is_a_sequence_and_its_inverse(ids: list[str], other: str) -> None:
    table = IdTable(ids)
    assert list(table) == ids
    assert table[:3] == tuple(ids[:3])
    assert [table.position(i) for i in ids] == list(range(len(ids)))
    assert (other in table) == (other in ids)
    assert table.positions([*ids, other]).tolist() == [*range(len(ids)), ids.index(other) if other in ids else -1]
    assert table.duplicates() == []
    assert table == IdTable(ids)
    assert hash(table) == hash(IdTable(ids))


@given(st.lists(TEXTS, unique=True, max_size=12))
def test_ties_are_ordered_by_bytes_descending(ids: list[str]) -> None:
    table = IdTable(ids)
    order = np.argsort(table.tie_rank).tolist()
    assert [ids[i] for i in order] == sorted(ids, key=str.encode, reverse=True)


def test_each_repeated_id_is_named_once() -> None:
    assert IdTable(["a", "b", "a", "c", "b", "a"]).duplicates() == ["a", "b"]


def of_parts(*parts: bytes) -> str:
    hasher = Hasher("test")
    for part in parts:
        hasher.data(part)
    return hasher.digest()


def test_the_value_is_the_same_on_every_machine_and_day() -> None:
    assert fingerprint("test", {"b": [1, 2.5, None], "a": "ü"}) == "77099cbdb59f3a0bee1fd7a2b3de336c"
    assert len(of_parts()) == 32


def test_keys_have_no_order_and_lists_have() -> None:
    assert fingerprint("x", {"a": 1, "b": 2}) == fingerprint("x", {"b": 2, "a": 1})
    assert fingerprint("x", [1, 2]) != fingerprint("x", [2, 1])


def test_numbers_that_are_not_finite_are_not_nothing() -> None:
    values = [None, float("inf"), float("-inf"), float("nan"), "inf", [float("inf")], (None, {"a": float("inf")})]
    assert len({fingerprint("x", {"cut": value}) for value in values}) == len(values)


def test_the_kind_is_part_of_it() -> None:
    assert fingerprint("x", 1) != fingerprint("y", 1)


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_boundaries_between_parts_count(one: list[bytes], other: list[bytes]) -> None:
    assert (of_parts(*one) == of_parts(*other)) == (one == other)


@given(st.lists(TEXTS, max_size=4), st.lists(TEXTS, max_size=4))
def test_boundaries_between_texts_count(one: list[str], other: list[str]) -> None:
    digests = []
    for texts in (one, other):
        hasher = Hasher("test")
        hasher.texts(texts)
        digests.append(hasher.digest())
    assert (digests[0] == digests[1]) == (one == other)


def test_arrays_count_by_their_bytes_whatever_their_layout() -> None:
    array = np.arange(12, dtype="<i4").reshape(3, 4)
    digests = []
    for part in (array.T.copy(), array.T, np.ascontiguousarray(array.T).tobytes()):
        hasher = Hasher("test")
        hasher.data(part)
        digests.append(hasher.digest())
    assert len(set(digests)) == 1
