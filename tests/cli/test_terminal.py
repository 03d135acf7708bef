"""Every command that prints a table, in a real pseudo-terminal: readable at 60, 80, 120 and 200 columns."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import r2med
from r2med.cli.layout import TITLE
from r2med.core.table import cell_len
from r2med.judge import open_project
from tests.judge.judging import judge_all
from tests.terminal import OURS, Shown, run_all

ANY = 2_000
WIDTHS = (60, 80, 120, 200)
LONG = "rm3+bm25:b=0.8,k1=1.3+bm25-lucene:b=0.75,k1=1.2.rrf:k=100"
MODEL = '''
import numpy as np


class Encoder:
    """An encoder of three features."""

    version = "1"

    def encode(self, texts):
        return np.array([[len(t) % 7 + 1, len(t) % 5 + 1, 1.0] for t in texts], dtype="float32")
'''
COMMANDS = {
    "run": ["run", "-t", "mini@1", "-r", "bm25", "-r", "bm25-lucene"],
    "run with a long name": ["run", "-t", "mini@1", "-s", "bm25", "-s", LONG],
    "run on folders": ["run", "-t", "./心脏病学", "-t", "./e\u0301tude", "-r", "bm25"],
    "run --plan": ["run", "-t", "mini@1/Biology,mini@1/MedQA-Diag", "-s", f"{LONG}+maxsim@50", "-r", "bm25", "--plan"],
    "run @": ["run", "@"],
    "run @NAME --plan": ["run", "@grouprank-32b", "--plan"],
    "compare": ["compare", "bm25", LONG, "--resamples", "200", "--slices", "--aware", "--holes", "--margin", "1"],
    "leaderboard": ["leaderboard", "-c", "mini@1"],
    "leaderboard --published": ["leaderboard", "--published", "--protocol", "all"],
    "design": ["design", "--effect", "2"],
    "models": ["models"],
    "tasks": ["tasks"],
    "data stats": ["data", "stats", "mini@1"],
    "data audit": ["data", "audit", "mini@1/Biology"],
    "cache": ["cache"],
    "nano profile": ["nano", "profile", "--published"],
    "nano fidelity": ["nano", "fidelity", "mini@1/Biology", "mini@1/Biology", "-r", "bm25", "-r", "bm25-lucene",
                      "-r", "bm25:b=0.9"],
    "reproduce": ["reproduce", "-c", "mini@1", "--no-run"],
    "score": ["score", "results/bm25/mini@1/MedQA-Diag.run.gz", "test.qrels", "--per-query"],
    "search": ["search", "fever in a child", "-t", "mini@1/MedQA-Diag"],
    "judge check": ["judge", "check", "project"],
    "judge agree": ["judge", "agree", "project", "--resamples", "100"],
    "recommend": ["recommend", "--gpu-memory", "24GB"],
    "protocol": ["protocol"],
    "protocol show": ["protocol", "show", "r2med-paper"],
    "expand --dry-run": ["expand", "-m", "hyde", "-l", "gpt4", "-t", "mini@1", "--dry-run"],
    "an error": ["run", "-t", "mini@1", "-r", "a-name-that-nobody-has-ever-given-to-anything"],
}  # fmt: skip
COPIED = re.compile(r" *(#|r2med |stages: r2med |\S+$)")
"""Lines that are whole whatever the width, to be copied: commands, and single words such as a path."""


Printed = dict[tuple[str, int], Shown]
"""What each command printed, by its name here and the width."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of systems with short and with very long names, an encoder's cache, and a judged project."""
    root = tmp_path_factory.mktemp("terminal")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("R2MED_HOME", str(root / "home"))
        patched.chdir(root)
        patched.syspath_prepend(str(root))
        (root / "features.py").write_text(MODEL)
        r2med.run("bm25", "bm25-lucene", tasks="mini@1", results=root / "results")
        r2med.run(r2med.SystemSpec.parse(LONG), tasks="mini@1", results=root / "results")
        r2med.run("features:Encoder", tasks="mini@1/Biology", results=root / "other")
        for name in ("心脏病学", "e\u0301tude"):
            r2med.convert("mini@1/Biology", root / name, to="r2med")
        qrels = r2med.load("mini@1/MedQA-Diag").qrels
        (root / "test.qrels").write_text("".join(f"{q} 0 {d} {grade}\n" for q, d, grade in qrels))
        r2med.judge_pool("mini@1/Biology", "bm25", "bm25-lucene", out=root / "project", depth=3)
        judge_all(open_project(root / "project"), "Ada", lambda pooled: len(pooled.systems) - 1)
        judge_all(open_project(root / "project"), "Ben", lambda pooled: int(pooled.doc_id < "b"))
    return root


@pytest.fixture(scope="module")
def printed(folder: Path) -> Printed:
    asked = [(name, columns) for name in COMMANDS for columns in (ANY, *WIDTHS)]
    shown = run_all(
        [(columns, COMMANDS[name]) for name, columns in asked], folder, {"R2MED_HOME": str(folder / "home")}
    )
    return dict(zip(asked, shown, strict=True))


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_wider_than_the_terminal(printed: Printed, name: str, columns: int) -> None:
    shown = printed[name, columns]
    assert shown.code == printed[name, ANY].code
    assert shown.out or shown.err
    wide = [line for line in (*shown.out, *shown.err) if cell_len(line) > columns and not COPIED.match(line)]
    assert not wide


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_name_and_number_is_whole(printed: Printed, name: str, columns: int) -> None:
    """All words of the table that has room are those of the one that has not; a title may be broken or repeated."""
    whole, narrow = (printed[name, width].out for width in (ANY, columns))
    wanted = Counter(word for line in whole for word in line.split() if "─" not in word)
    found = Counter(word for line in narrow for word in line.split())
    lost = [word for word in wanted if len(word) > TITLE and word not in found and cell_len(word) < columns - 4]
    lost += [w for w, n in wanted.items() if len(w) <= TITLE and found[w] < n and f"{w}:" not in found]
    assert not lost


@pytest.mark.parametrize("columns", [60, 80])
def test_the_progress_line_keeps_its_counter_and_its_time(printed: Printed, columns: int) -> None:
    """At 80 columns the time was cut; it is the description that gives way."""
    drawn = [line for line in printed["run with a long name", columns].err if "━" in line]
    assert [line for line in drawn if re.search(r" 16/16 +0:00:0\d left mini@1/IIYi-Clinical: rm3\+", line)]
    assert all(re.search(r" (0/\?|\d+/16) +\d:\d\d:\d\d ", f"{line} ") for line in drawn)


@pytest.mark.parametrize("columns", WIDTHS)
def test_passages_are_indented_line_by_line(printed: Printed, columns: int) -> None:
    lines = printed["search", columns].raw.replace("\r", "").split("\n")
    lines = [OURS.sub("", line) for line in lines if line]
    assert [line for line in lines if re.match(r"\d\. ", line)]
    assert not [line for line in lines if not re.match(r"\d\. |   \S", line) or line.endswith(" ")]


def test_captions_and_notes_are_broken_between_words(printed: Printed) -> None:
    for columns in (60, 80):
        text = " ".join(printed["run", columns].out)
        assert "judged@10: share of the top ten that somebody judged." in text
        assert "(--overwrite runs them again)" in " ".join(printed["run", columns].err)


def test_colours_and_widths_are_as_the_terminal_and_the_environment_say(printed: Printed, folder: Path) -> None:
    usual = [printed[name, 60] for name in ("run", "search")]
    assert "\x1b[1mSystem" in usual[0].raw
    home = {"R2MED_HOME": str(folder / "home")}
    plain = run_all([(60, COMMANDS["run"]), (60, COMMANDS["search"])], folder, {**home, "TERM": "dumb"})
    assert not [shown for shown in plain if "\x1b" in shown.raw]
    chosen = [(200, COMMANDS["run"]), (200, COMMANDS["search"])]
    without = run_all(chosen, folder, {**home, "NO_COLOR": "1", "COLUMNS": "60"})
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", without[1].raw)
    assert [s.out for s in usual] == [s.out for s in plain] == [s.out for s in without]


def test_a_note_stands_above_the_bar(folder: Path) -> None:
    """It was written behind the bar, on the same line."""
    run = ["run", "-t", "mini@1/Biology", "-r", "bm25", "--results", "shallow", "--depth"]
    _, again = run_all([(60, [*run, depth]) for depth in ("5", "9")], folder, {"R2MED_HOME": str(folder / "home")})
    assert [line for line in again.err if line.startswith("bm25 on mini@1/Biology is run again: ")]
    assert not [line for line in again.err if "━" in line and "is run again" in line]
