"""What `r2med run` says beside its table: once, and only what is of use."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from r2med.cli import app
from r2med.cli.run import command

TASKS = "mini@1/Biology,mini@1/MedQA-Diag"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def call(*arguments: str) -> Result:
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_what_systems_and_tasks_share_is_said_once(folder: Path) -> None:
    """`had no usable expansion` stood there once for each system and task."""
    (folder / "blank_texts.py").write_text("def nothing(text):\n    return [] if 'a' in text else [text]\n")
    said = call("-t", TASKS, "-e", "blank_texts:nothing", "-r", "bm25", "-r", "bm25-lucene").stderr.splitlines()
    (line,) = [line for line in said if "usable expansion" in line]
    names = "expand=blank_texts:nothing+bm25, expand=blank_texts:nothing+bm25-lucene"
    assert line == (
        f"{names}: 26 queries had no usable expansion; the raw query was used (mini@1/Biology 13, mini@1/MedQA-Diag 13)"
    )


def test_a_plan_lists_what_is_left_to_do(folder: Path) -> None:
    """24 finished results were 24 rows."""
    call("-t", TASKS, "-r", "bm25")
    assert call("-t", TASKS, "-r", "bm25", "--plan").stdout == "2 of 2 stages are finished: nothing is left to do.\n"
    more = call("-t", TASKS, "-r", "bm25", "-r", "bm25-lucene", "--plan")
    rows = [line.split() for line in more.stdout.splitlines() if line.startswith("mini@1/")]
    assert ["mini@1/Biology", "score", "bm25-lucene"] in [row[:3] for row in rows]
    assert ["mini@1/Biology", "score", "bm25"] not in [row[:3] for row in rows]
    assert not [row for row in rows if row[3] == "yes"]
    assert "are finished and not listed (--json lists them)" in more.stderr


def test_files_have_names_of_their_own(folder: Path) -> None:
    """`report` and `plot` asked for the name of a file."""
    call("-t", TASKS, "-r", "bm25")
    for arguments, name in ((["plot", "scores", "--resamples", "200"], "scores.svg"), (["report"], "report.html")):
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert name in done.output
        assert (folder / name).stat().st_size > 1000


MODEL = """
class Encoder:
    version = "1"

    def encode(self, texts):
        return [[float(len(text) % 7), 1.0] for text in texts]
"""


def test_a_model_may_be_named_by_its_file(folder: Path) -> None:
    (folder / "my_encoder.py").write_text(MODEL)
    (folder / "inside").mkdir()
    (folder / "inside" / "other_encoder.py").write_text(MODEL)
    named = ("-r", "my_encoder.py:Encoder", "-r", "./inside/other_encoder.py:Encoder")
    shown = call("-t", "mini@1/Biology", *named).stdout.splitlines()
    assert [line.split()[0] for line in shown[2:4]] == ["my_encoder:Encoder", "inside.other_encoder:Encoder"]
    again = call("-t", "mini@1/Biology", "-r", str(folder / "my_encoder.py") + ":Encoder")
    assert "1 of 1 results were there already" in again.stderr
