from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import Hasher, fingerprint
from tests.builders import TEXTS


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
