from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.expand.normalise import contains, normalised, tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Crohn's Diseases", "crohn disease"),
        ("Sjögren’s syndrome", "sjogren syndrome"),
        ("TNF-α blockers", "tnf alpha blocker"),
        ("β-blocker", "beta blocker"),
        ("diabetes mellitus", "diabete mellitus"),
        ("status asthmaticus", "status asthmaticus"),
        ("11β-HSD2", "11 beta hsd2"),
    ],
)
def test_forms_of_the_same_words_agree(text: str, expected: str) -> None:
    assert normalised(text) == expected


def test_words_are_whole() -> None:
    assert contains("He has Wilson's disease.", "wilson disease")
    assert not contains("He has Wilson's diseased liver", "wilson disease")
    assert not contains("anything", " ,. ")


@given(st.text(), st.text(alphabet="abcdefg ", min_size=1), st.text())
def test_what_is_put_in_is_found(before: str, phrase: str, after: str) -> None:
    assert contains(f"{before} {phrase} {after}", phrase) == bool(tokens(phrase))
