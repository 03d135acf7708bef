"""Names from data as file names, and texts from data on a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import HostileData
from r2med.core.untrusted import component, file_name, inside, is_portable, printable, printable_json

ANY = st.text(max_size=30) | st.sampled_from(
    ["my task", "my_task", "my:task", "äö", "öä", "CON", "con", "Con", "nul.txt", "a.", "a", "A", "", ".", "..", "a/b"]
)


@given(ANY, ANY)
def test_two_names_never_share_a_file_on_any_file_system(first: str, second: str) -> None:
    if first != second:
        assert file_name(first).casefold() != file_name(second).casefold()


@given(ANY)
def test_a_file_name_is_one_harmless_component(name: str) -> None:
    made = file_name(name)
    assert component(made, "file name") == made
    assert Path(made).name == made
    assert made.isascii()
    assert len(made) <= 130
    assert made.partition(".")[0].lower() not in ("con", "prn", "aux", "nul", "com1", "lpt9")
    assert not made.endswith((".", " "))
    assert is_portable(made)


def test_a_hash_cannot_be_forged_by_a_name() -> None:
    lossy = file_name("my task")
    assert file_name(lossy) != lossy


def test_plain_and_known_names_stay_as_they_are() -> None:
    assert file_name("bm25+bge-small.rrf") == "bm25+bge-small.rrf"
    assert file_name("MedQA-Diag", known={"MedQA-Diag"}) == "MedQA-Diag"
    assert file_name("MedQA-Diag") != "MedQA-Diag"


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".x", "~x", "a/b", "a b", "ä", "con", "NUL.txt", "x.", "C:", "x" * 300]
)
def test_a_name_that_some_file_system_does_not_keep(name: str) -> None:
    assert not is_portable(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0b", "C:x", "c:", "x\n", " x", "\x1b[31m"])
def test_a_component_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(HostileData):
        component(name, "split")


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "", "a//../x", "a/./../x", "a\\..\\x"])
def test_a_relative_name_stays_inside(name: str, tmp_path: Path) -> None:
    with pytest.raises(HostileData):
        inside(tmp_path, name, "file")


def test_a_relative_name_inside() -> None:
    assert inside(Path("x"), "a/b.txt", "file") == Path("x/a/b.txt")


@given(st.text())
def test_nothing_printed_can_drive_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066\u2028" for c in shown)


def test_printing_keeps_what_is_harmless() -> None:
    assert printable("β-blockers 🧬 नमस्ते") == "β-blockers 🧬 नमस्ते"
    assert printable("a\x1b[2Jb\u202ec") == "a\\x1b[2Jb\\u202ec"
    assert printable("a\nb\x07", keep="\n") == "a\nb\\x07"


def test_a_known_name_in_capitals_leaves_no_room_for_the_same_in_small_letters() -> None:
    known = {"Biology", "mini@1"}
    assert file_name("Biology", known=known) == "Biology"
    assert file_name("mini@1", known=known) == "mini@1"
    assert file_name("biology", known=known).startswith("biology~")
    assert file_name("biology") == "biology"


@given(st.text())
def test_json_on_a_terminal_stands_for_the_same(text: str) -> None:
    shown = printable_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(shown) == text
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066\u2028" for c in shown)
