from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.cli.output import GAP, fitted

WIDTHS = st.lists(st.integers(1, 60), min_size=1, max_size=12)


def on_a_terminal(columns: int, *arguments: str, cwd: Path) -> str:
    """What `r2med` prints on a terminal of so many columns, without colours and movements of the cursor."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "r2med", *arguments]
    process = subprocess.Popen(
        command, cwd=cwd, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=environment | {"TERM": "xterm"}
    )
    os.close(theirs)
    printed = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not block:
            break
        printed += block
    os.close(ours)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed.decode()).replace("\r\n", "\n")


@given(WIDTHS, st.integers(0, 4), st.integers(20, 200))
def test_every_figure_is_shown_once_and_whole(widths: list[int], left: int, width: int) -> None:
    blocks = fitted(widths, left, width)
    words = min(left, len(widths))
    figures = [column for block in blocks for column in block.columns if column >= words]
    assert figures == list(range(words, len(widths)))
    assert blocks[0].columns[:words] == list(range(words)), "every column of words is there once at least"
    for block in blocks:
        shown = dict(zip(block.columns, block.widths, strict=True))
        assert all(shown[column] == widths[column] for column in block.columns if column >= words)
        assert all(0 < shown[column] <= widths[column] for column in block.columns)


@given(WIDTHS, st.integers(0, 4))
def test_a_table_that_fits_is_one_block_as_it_is(widths: list[int], left: int) -> None:
    (block,) = fitted(widths, left, sum(widths) + GAP * (len(widths) - 1))
    assert block.widths == widths


def test_figures_go_below_each_other_beside_the_names() -> None:
    first, second = fitted([18, *[8] * 10], 1, 80)
    assert [first.columns, second.columns] == [[0, 1, 2, 3, 4, 5], [0, 6, 7, 8, 9, 10]]
    assert sum(first.widths) + GAP * (len(first.widths) - 1) <= 80


def test_words_give_way_before_names_and_long_texts_are_not_repeated() -> None:
    (block,) = fitted([22, 16, 39, 4, 5], 3, 80)
    assert block.widths == [22, 16, 21, 4, 5]
    _, again = fitted([20, 70, 30, 30], 2, 80)
    assert again.columns == [0, 3]


@pytest.mark.parametrize("columns", [80, 50])
def test_names_and_numbers_are_whole_on_a_narrow_terminal(tmp_path: Path, columns: int) -> None:
    names = ("bm25", "bm25-lucene:b=0.75,k1=1.2")
    printed = on_a_terminal(columns, "run", "-r", names[0], "-r", names[1], cwd=tmp_path)
    assert all(name in printed for name in names)
    assert {"18.50", "45.73", "28.23", "20.67", "28.26", "33.22", "33.20", "43.67", "31.44", "31.30"} <= {
        *printed.split()
    }
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= columns
