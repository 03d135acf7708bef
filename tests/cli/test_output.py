"""What is printed: nothing that stands in data drives a terminal, and tables fit it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from r2med.cli.output import GAP, fitted, note, print_table, say, show
from r2med.core.table import Table

ESCAPE = "\x1b]0;owned\x07\x1b[2J"
HOSTILE = "my\u202eksat"
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]")
OURS = re.compile(r"\x1b\[(?:\?25[lh]|[0-9;]*[mAK]|2K)")  # the progress bar and bold words of our own
WIDTHS = st.lists(st.integers(1, 60), min_size=1, max_size=12)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task whose name turns the direction of writing, and whose ids and texts hold escape sequences."""
    folder = tmp_path / HOSTILE
    folder.mkdir()
    rows: dict[str, list[dict[str, Any]]] = {
        "corpus": [{"id": f"d{i}{ESCAPE}", "text": f"fever {ESCAPE} \u202ereversed\x9b31m line{i}"} for i in range(3)],
        "query": [{"id": f"q{ESCAPE}", "text": f"fever {ESCAPE}"}],
        "qrels": [{"q_id": f"q{ESCAPE}", "p_id": f"d1{ESCAPE}", "score": 1}],
    }
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def on_a_terminal(cwd: Path, *arguments: str, columns: int = 220, errors: bool = True) -> str:
    """What a command prints on a real pseudo-terminal, without its own colours and progress bar."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "r2med", *arguments]
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment | {"TERM": "xterm", "NO_COLOR": "1"},
        stdout=writer,
        stderr=writer if errors else subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    os.close(writer)
    shown = bytearray()
    while True:
        try:
            data = os.read(reader, 1 << 16)
        except OSError:  # how Linux says that the other end is closed
            break
        if not data:
            break
        shown += data
    os.close(reader)
    process.wait(120)
    return OURS.sub("", shown.decode("utf-8", "replace"))


def test_no_command_lets_data_drive_the_terminal(task: Path, tmp_path: Path) -> None:
    """`search`, `run`, `leaderboard` and `compare` passed them on."""
    said = {
        "run": on_a_terminal(tmp_path, "run", "-t", str(task), "-r", "bm25", "-r", "bm25-lucene"),
        "search": on_a_terminal(tmp_path, "search", "fever", "-t", str(task)),
        "leaderboard": on_a_terminal(tmp_path, "leaderboard"),
        "compare": on_a_terminal(tmp_path, "compare", "bm25", "bm25-lucene"),
        "no such system": on_a_terminal(tmp_path, "compare", "bm25", ESCAPE),
        "no such task": on_a_terminal(tmp_path, "run", "-t", f"./{ESCAPE}"),
        "validate": on_a_terminal(tmp_path, "data", "validate", str(task)),
        "json": on_a_terminal(tmp_path, "search", "fever", "-t", str(task), "--json"),
        "export": on_a_terminal(tmp_path, "export", "beir", "results", "--out", ESCAPE),
        "plot": on_a_terminal(tmp_path, "plot", "scores", "--out", f"{ESCAPE}.svg", "--resamples", "200"),
    }
    for name, text in said.items():
        assert not CONTROL.search(text), (name, text)
        assert "Traceback" not in text
    for name in ("run", "leaderboard", "compare"):
        assert r"my\u202eksat" in said[name], (name, said[name])
    assert r"\x1b]0;owned\x07" in said["search"]


def test_every_way_to_print(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table([f"a{ESCAPE}", "b\nc"], [[f"\u202e{ESCAPE}", "1\r2"]], caption=f"x{ESCAPE}\ny")
    show(table)
    print_table([f"a{ESCAPE}"], [["\x9b"]], caption="z\x00")
    say(f"one{ESCAPE}\ntwo")
    say("one\ntwo\x07", lines=True)
    note(f"{ESCAPE}\n")
    out, err = capsys.readouterr()
    assert not CONTROL.search(out + err)
    assert r"one\x1b]0;owned\x07\x1b[2J\ntwo" in out
    assert "one\ntwo\\x07\n" in out


def test_markdown_of_a_run_keeps_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from r2med.cli.run import command

    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, ["-t", "mini/Biology", "-r", "bm25", "--markdown"])
    assert done.stdout.splitlines()[:2] == ["| System | Biology |", "|:---|---:|"]


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
    printed = on_a_terminal(tmp_path, "run", "-r", names[0], "-r", names[1], columns=columns, errors=False)
    assert all(name in printed for name in names)
    assert {"18.50", "45.73", "28.23", "20.67", "28.26", "33.22", "33.20", "43.67", "31.44", "31.30"} <= {
        *printed.split()
    }
    assert "…" not in printed[printed.index("System") :], "in the tables; the bar above them may be cut"
    assert max(map(len, printed.splitlines())) <= columns
