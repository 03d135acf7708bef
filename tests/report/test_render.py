"""What strangers write is shown, never run."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from r2med.core.table import shortened
from r2med.report.web.render import _ODD, marked, plain, shared_words, terms_of, visible

HOSTILE = "<script>alert(1)</script> \"'&\x00\u202eevil\u2066 \ud800 \ufeff"


def test_markup_is_text_and_odd_characters_are_numbers() -> None:
    shown = str(visible(HOSTILE))
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert {"U+0000", "U+202E", "U+2066", "U+D800", "U+FEFF"} <= set(re.findall(r"U\+[0-9A-F]{4}", shown))
    assert not _ODD.search(shown)
    shown.encode()


def test_line_ends_and_tabs_stay_and_carriage_returns_go() -> None:
    assert str(visible("a\r\n\tb")) == "a\n\tb"


@given(st.text() | st.text(st.sampled_from("<>&\"'\x00\u202e\u2028ab \ud800")))
def test_any_text_comes_out_escaped_and_complete(text: str) -> None:
    shown = str(visible(text))
    assert not _ODD.search(shown)
    bare = re.sub(r'<span class="odd" title="[^"<>]*">(U\+[0-9A-F]+)</span>', lambda m: chr(int(m[1][2:], 16)), shown)
    assert "<" not in bare
    assert html.unescape(bare) == text.replace("\r", "")
    assert not _ODD.search(plain(text))


@given(st.lists(st.sampled_from(["pain", "painting", "chest", "<b>", "β-blocker's", "\x00", "of", "\n"]), max_size=30))
def test_marking_words_changes_nothing_else(words: list[str]) -> None:
    text = " ".join(words)
    shown = str(marked(text, terms_of("chest pains of β-blockers")))
    assert shown.replace("<mark>", "").replace("</mark>", "") == str(visible(text))
    assert shown.count("<mark>") == sum({"pain": 1, "chest": 1, "β-blocker's": 2}.get(w, 0) for w in words)


def test_words_are_marked_by_their_stems_and_not_inside_others() -> None:
    assert str(marked("Painting pains the painter", terms_of("pain"))) == "Painting <mark>pains</mark> the painter"


def test_long_texts_are_cut_at_a_word_and_huge_words_anywhere() -> None:
    assert str(marked("one two three four", (), most=9)) == "one two …"
    assert len(str(marked("x" * 50_000, (), most=100))) < 110
    assert shortened("a\n b   c") == "a b c"
    assert len(shortened("word " * 10_000, 50)) < 60


def test_shared_words_keep_the_form_of_the_passage() -> None:
    terms = terms_of("Does the ECG show bleeding in the lungs?")
    assert shared_words("ECG: the Lung bleeds; lungs", terms) == {"ecg": "ECG", "lung": "lung", "bleed": "bleeds"}
