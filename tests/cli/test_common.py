"""What is printed: nothing that stands in data drives a terminal, and tables fit it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from r2med.cli.common import note, print_table, say, show
from r2med.core.table import Table
from tests.terminal import run_all

ESCAPE = "\x1b]0;owned\x07\x1b[2J"
HOSTILE = "my\u202eksat"
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]")


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


def test_no_command_lets_data_drive_the_terminal(task: Path, tmp_path: Path) -> None:
    """`search`, `run`, `leaderboard` and `compare` passed them on."""
    commands = {
        "run": ["run", "-t", str(task), "-r", "bm25", "-r", "bm25-lucene"],
        "search": ["search", "fever", "-t", str(task)],
        "leaderboard": ["leaderboard"],
        "compare": ["compare", "bm25", "bm25-lucene"],
        "no such system": ["compare", "bm25", ESCAPE],
        "no such task": ["run", "-t", f"./{ESCAPE}"],
        "validate": ["data", "validate", str(task)],
        "json": ["search", "fever", "-t", str(task), "--json"],
        "export": ["export", "beir", "results", "--out", ESCAPE],
        "plot": ["plot", "scores", "--out", f"{ESCAPE}.svg", "--resamples", "200"],
    }
    shown = run_all([(220, arguments) for arguments in commands.values()], tmp_path, {"NO_COLOR": "1"})
    said = dict(zip(commands, (one.text for one in shown), strict=True))
    for name, text in said.items():
        assert text.strip()
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


def test_output_is_utf8_whatever_the_locale_says() -> None:
    """A table into a file stopped with a stack trace on Windows, whose encoding has no lines to draw."""
    settings = os.environ | {"PYTHONIOENCODING": "cp1252:strict"}
    command = [sys.executable, "-m", "r2med"]
    done = subprocess.run([*command, "no─such─command"], env=settings, capture_output=True, check=False)
    assert "no─such─command" in done.stderr.decode("utf-8")
    done = subprocess.run([*command, "tasks"], env=settings, capture_output=True, check=False)
    assert "───" in done.stdout.decode("utf-8")


def test_markdown_of_a_run_keeps_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from r2med.cli.run import command

    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, ["-t", "mini@1/Biology", "-r", "bm25", "--markdown"])
    assert done.stdout.splitlines()[:2] == ["| System | Biology | judged@10 |", "|:---|---:|---:|"]
