"""Tables in any width: no line is too wide, and no name and no number is cut, dropped or torn apart."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from r2med.cli.layout import GAP, NARROW, lay_out, table_lines, wrapped
from r2med.core.table import Table, cell_len

LONG = "hyde:gpt4+bm25+nv.rrf:k=100+maxsim:model=bge-small@50"
TASKS = ["Biology", "Bioinf", "MedSci", "MedXpert", "MedQA", "PMC-T", "PMC-C", "IIYi", "Macro", "By query", "judged@10"]
NAMES = st.sampled_from(
    ["bm25", "bge-small", LONG, f"{LONG}+{LONG}", "bm25-lucene:b=0.75,k1=1.2", "检索系统", "e\u0301tude" * 4, ""]
)
TEXTS = st.sampled_from(["", "yes", "r2med models fetch bge", "A woman of 61 whose back has hurt since March. " * 3])
FIGURES = st.sampled_from(["40.53", "–", "100 %", "43.98 [40.49, 47.49]", "[+20.64, +43.51]", "1 (1–3)", "", "<0.001*"])
ROWS = st.lists(st.tuples(NAMES, TEXTS, NAMES, *[FIGURES] * 7), max_size=5)
TITLES = ("System", "Text", "First stage", LONG, "95 % interval", "p adjusted", "Rank", "Detectable", "W/T/L", "n")


def drawn(titles: list[str] | tuple[str, ...], rows: list[tuple[str, ...]], left: int, width: int) -> list[str]:
    return [line.text for line in table_lines(titles, rows, left, width)]


@settings(deadline=None)
@given(ROWS, st.integers(0, 4), st.integers(24, 200))
@example([(LONG, "yes", "bm25", *["40.53"] * 7)] * 3, 1, 60)
def test_every_name_and_number_is_whole_in_any_width(rows: list[tuple[str, ...]], left: int, width: int) -> None:
    lines = drawn(TITLES, rows, left, width)
    assert max(map(cell_len, lines)) <= width
    wanted = Counter(word for row in rows for cell in row for word in cell.split() if cell_len(word) <= width - NARROW)
    found = Counter(word for line in lines for word in line.split())
    assert not wanted - found


@given(ROWS, st.integers(0, 4))
def test_a_table_that_fits_is_one_block_with_a_line_for_each_row(rows: list[tuple[str, ...]], left: int) -> None:
    anywhere = Table(TITLES, rows, left=left).text().split("\n")
    widest = max(map(cell_len, anywhere))
    assert len(anywhere) == 2 + len(rows)
    assert drawn(TITLES, rows, left, widest) == anywhere
    layout = lay_out(TITLES, rows, left, widest)
    assert (len(layout.blocks), layout.below, layout.gap) == (1, [], GAP)


def test_figures_go_to_further_blocks_beside_the_names() -> None:
    rows = [(name, *["40.53"] * 10, "100 %") for name in ("bm25", "bge-small", "bm25+bge-small.rrf")]
    lines = drawn(["System", *TASKS], rows, 1, 80)
    assert [line.split()[0] for line in lines if line and line[0] != "─"] == ["System", *(row[0] for row in rows)] * 2
    assert [title for line in lines if line.startswith("System") for title in line.split()[1:]] == " ".join(
        TASKS
    ).split()


def test_a_long_name_stands_above_its_figures_and_short_ones_beside_theirs() -> None:
    rows = [(name, *["40.53"] * 6) for name in ("bm25", LONG, "bge-small")]
    lines = drawn(["System", *TASKS[:6]], rows, 1, 60)
    place = lines.index(LONG)
    assert lines[place + 1].split() == ["40.53"] * 6
    assert lines[place - 1].split() == ["bm25", *["40.53"] * 6]
    assert lines[place - 1].index("40.53") == lines[place + 1].index("40.53")


def test_a_long_text_stands_below_its_row() -> None:
    text = "A woman of 61 whose back has hurt since the second week of March and who now limps"
    lines = drawn(["Task", "Query", "Text", "bm25", "bge"], [("mini/Biology", "q13", text, "0.00", "79.75")], 3, 60)
    assert lines[2].split() == ["mini/Biology", "q13", "0.00", "79.75"]
    assert " ".join(" ".join(lines[3:]).split()) == f"Text: {text}"
    wide = drawn(["Task", "Query", "Text", "bm25", "bge"], [("mini/Biology", "q13", text, "0.00", "79.75")], 3, 90)
    assert wide[2].split()[:3] == ["mini/Biology", "q13", "A"], "wrapped in its column where that has room"


def test_rows_that_share_a_name_keep_what_tells_them_apart_in_every_block() -> None:
    rows = [(kind, model, what, *["1,234"] * 9) for kind in ("a", "b") for model in ("x", "y") for what in ("1", "2")]
    assert lay_out(["Kind", "Model", "What", *["Figure"] * 9], rows, 3, 40).keys == [0, 1, 2]
    assert lay_out(["Kind", "Model", "What", *["Figure"] * 9], rows[:1], 3, 40).keys == [0]


def test_names_stand_beside_their_figures_rather_than_above_them() -> None:
    """The tables of `compare` and of `leaderboard` at 80 columns: a second block is read more easily."""
    titles = ["System", "Letters", "Rank", "Best", "Macro", "By query", "judged@10"]
    figures = ("a", "1 (1–1)", "100 %", "35.26 [32.7, 37.7]", "35.66 [33.1, 38.1]", "100 %")
    lines = drawn(titles, [("bm25", *figures), ("bm25-lucene", *figures)], 1, 80)
    assert lines[0].split() == ["System", "Letters", "Rank", "Best", "Macro", "By", "query"]
    assert [line.split()[:2] for line in lines[2:4]] == [["bm25", "a"], ["bm25-lucene", "a"]]


def test_a_title_takes_the_room_that_a_block_has_left() -> None:
    titles = ["Tasks", "Other queries of these tasks", "Other tasks of this kind"]
    lines = drawn(titles, [("1", "995", "–")], 0, 60)
    assert [line.strip() for line in lines[:2]] == ["Other tasks", "Tasks  Other queries of these tasks  of this kind"]


@pytest.mark.parametrize(
    ("word", "width", "lines"),
    [
        (LONG, 30, ["hyde:gpt4+bm25+nv.rrf:k=100", "+maxsim:model=bge-small@50"]),
        ("k1=1.2,b=0.75", 11, ["k1=1.2,", "b=0.75"]),
        ("bm25:b=0.75", 9, ["bm25:", "b=0.75"]),
        ("x1234567.25", 8, ["x", "1234567.", "25"]),  # longer than a line: it cannot be whole
        ("检索系统检索", 5, ["检索", "系统", "检索"]),
        ("e\u0301" * 5, 3, ["e\u0301" * 3, "e\u0301" * 2]),
    ],
)
def test_a_name_longer_than_a_line_is_broken_between_its_parts(word: str, width: int, lines: list[str]) -> None:
    assert wrapped(word, width) == lines


def test_wrapping_keeps_what_is_aligned_by_spaces() -> None:
    assert wrapped("MISSING  network: no answer", 20) == ["MISSING  network: no", "answer"]


@given(st.text("ab1 .,+-:检\u0301", max_size=60), st.integers(4, 30), st.integers(0, 2))
def test_wrapping_loses_nothing(text: str, width: int, indent: int) -> None:
    lines = wrapped(text, width, indent=indent)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert max(map(cell_len, lines)) <= max(width, 1)


def test_words_that_are_to_be_copied_are_not_cut() -> None:
    path = "/a/very/long/path/that/no/terminal/has/room/for"
    assert wrapped(f"  see {path} there", 20, indent=2, cut=False) == ["  see", f"  {path}", "  there"]
