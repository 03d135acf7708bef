"""Collections of one's own through the command: added, listed, run, shown, exported, removed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from r2med.cli import app
from r2med.core import DataError, UnknownName, UsageError
from tests.builders import beir_folder, other_folder, r2med_folder
from tests.report.unpack import unpack


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def said(*arguments: str | Path) -> Any:
    """What a command prints as JSON."""
    done = call(*arguments, "--json")
    assert done.exit_code == 0, (arguments, done.output, done.exception)
    return json.loads(done.stdout)


def refused(*arguments: str | Path) -> str:
    done = call(*arguments)
    assert isinstance(done.exception, DataError | UsageError), done.output
    return str(done.exception)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A collection of two tasks, of which one has judgments of dev only."""
    monkeypatch.chdir(tmp_path)
    call("data", "convert", "mini@1/MedQA-Diag", "data/cases", "--to", "beir")
    beir_folder(tmp_path / "data" / "notes", dev="q1\td1\t1\n")
    added = said("data", "add", "Mine", "data/cases", "data/notes")
    assert [(one["collection"], one["task"]["name"], one["state"]) for one in added] == [
        ("mine", "cases", "added"),
        ("mine", "notes@dev", "added"),
    ]
    return tmp_path


NAMES = ["mine/cases", "mine/notes@dev"]


def test_a_collection_of_ones_own_is_one_like_the_others(mine: Path) -> None:
    assert [f"{t['collection']}/{t['name']}" for t in said("tasks", "mine")] == NAMES
    assert [t["own"] for t in said("tasks")][-2:] == [True, True]
    assert [s["task"] for s in said("data", "stats", "mine")] == NAMES
    assert [r["task"] for r in said("data", "validate", "mine")["tasks"]] == NAMES
    assert list(said("data", "audit", "mine")["tasks"]) == NAMES
    assert said("search", "fever", "--task", "mine/cases")["task"] == "mine/cases"
    ran = said("run", "-t", "mine", "-r", "bm25", "-r", "bm25-lucene")
    assert [list(system["tasks"]) for system in ran["systems"]] == [NAMES, NAMES]
    macro = {system["name"]: 100 * system["macro"]["ndcg_at_10"] for system in ran["systems"]}
    assert call("run", "-t", "mini@1/Biology", "-r", "bm25", "-r", "bm25-lucene").exit_code == 0
    assert call("run", "-t", "./data/cases", "-r", "bm25", "-r", "bm25-lucene").exit_code == 0
    board = said("leaderboard", "-c", "MINE")
    assert {row["system"]: row["macro"] for row in board} == pytest.approx(macro)
    assert {row["origin"] for row in board} == {"measured here"}
    assert "mine, mini@1, own" in refused("plot", "scores", "-o", "x.svg")
    compared = said("compare", "bm25", "bm25-lucene", "--collection", "mine", "--slices")
    assert list(compared["pairs"][0]["tasks"]) == NAMES
    for kind in ("scores", "ranks", "pareto"):
        assert said("plot", kind, "-c", "mine", "-o", f"{kind}.svg")["file"] == f"{kind}.svg"
    assert said("plot", "scatter", "bm25", "bm25-lucene", "-c", "mine", "-o", "two.svg")["file"] == "two.svg"


def test_pages_report_and_exports(mine: Path) -> None:
    ran = said("run", "-t", "mine", "-r", "bm25")
    assert ran["systems"][0]["tasks"].keys() == set(NAMES)
    report = said("report", "--html", "out.html")
    written = unpack(Path("out.html"))
    html = written.html
    assert report["queries"] == report["of_queries"]
    assert {"task/mine/cases", "task/mine/notes_40dev"} <= set(written.pages)
    assert "why does it hurt" in html, "the texts are found without --tasks"
    assert "judgments not loaded" not in html
    assert "NV-Embed" in written.pages["board/r2med"]
    assert "NV-Embed" not in written.pages["board/mine"]
    pages = said("pages", "mine")
    assert (pages["folder"], pages["tasks"]) == ("pages", ["cases", "notes@dev"])
    built = said("nano", "build", "mine", "--out", "small", "--dense", "none", "--docs", "60")
    assert list(built["tasks"]) == ["cases", "notes_dev"]
    trec = said("export", "trec", "results", "--out", "trec")
    assert {f["kind"] for f in trec["files"]} == {"run", "judgments"}
    assert len(list(Path("trec").rglob("*.qrels"))) == 2
    assert len(said("export", "beir", "mine", "--out", "beir")["files"]) == 2
    assert Path("beir/notes@dev/qrels/dev.tsv").is_file()
    mteb = said("export", "mteb", "results", "--out", "mteb")["results"]
    assert len({one["path"] for one in mteb}) == 2
    said("export", "hub", "results", "--repo", "me/results", "--out", "hub")
    assert str(mine) not in "".join(p.read_text() for p in Path("hub").rglob("*.json"))


def test_removing_and_what_is_gone(mine: Path) -> None:
    (mine / "data" / "cases").rename(mine / "elsewhere")
    listed = call("tasks", "mine")
    assert f"mine/cases: {mine}/data/cases is not there any more" in listed.stderr
    assert "is not there any more (it was mine/cases)" in refused("run", "-t", "mine", "-r", "bm25")
    assert said("run", "-t", "mine/notes@dev", "-r", "bm25")["systems"]
    assert said("data", "add", "mine", "cases=elsewhere")[0]["state"] == "moved"
    assert "nothing to download" in refused("data", "download", "mine")
    assert said("data", "remove", "mine/cases") == {"removed": ["mine/cases"]}
    removed = call("data", "remove", "mine")
    assert removed.stdout == "mine/notes@dev: removed\n"
    assert "left as they are" in removed.stderr
    assert isinstance(call("tasks", "mine").exception, UnknownName)
    assert (mine / "elsewhere").is_dir()


def test_what_changed_is_said(mine: Path) -> None:
    said("run", "-t", "mine", "-r", "bm25")
    notes = mine / "data" / "notes"
    (notes / "qrels" / "dev.tsv").write_text("q1\td2\t1\n")
    assert f"r2med data add mine {notes}@dev takes it as it is now" in refused("run", "-t", "mine", "-r", "bm25")
    added = call("data", "add", "mine", f"{notes}@dev")
    assert "mine/notes@dev: changed" in added.stdout
    assert "results on it have to be run again" in added.stderr
    board = call("leaderboard", "-c", "mine", "--json")
    assert json.loads(board.stdout)[0]["macro"] is None
    assert "bm25 on mine/notes@dev was made on other data than mine/notes@dev holds here now" in board.stderr


def test_downloads_go_on_past_a_task_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    names = ("mini@1/Biology", "r2med/Biology", "mini@1/MedQA-Diag")
    done = call("data", "download", *names)
    assert done.exit_code == 1
    *each, summary = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in each][::2] == ["mini@1/Biology", "mini@1/MedQA-Diag"]
    assert "HF_HUB_OFFLINE forbids the network" in each[1]
    assert summary == "1 of 3 tasks could not be fetched: r2med/Biology; the same command tries them again"
    listed = call("data", "download", *names, "--json")
    assert listed.exit_code == 1
    assert [bool(one["error"]) for one in json.loads(listed.stdout)] == [False, True, False]
    assert call("data", "download", "r2med").exception is not None, "where all fail, the first error is the answer"


def test_what_is_said_on_the_way_stands_on_stderr(tmp_path: Path) -> None:
    """In a process of its own: one line for a folder called like a collection, one for the split that is used."""
    other_folder(tmp_path / "mini@1")
    beir_folder(tmp_path / "notes", test="q1\td1\t1\n", dev="q2\td3\t1\n")
    arguments = ["run", "-r", "bm25", "-t", "mini@1/Biology,mini@1", "-t", "notes", "--json"]
    command = [sys.executable, "-m", "r2med", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["systems"][0]["tasks"]) == 9
    assert done.stderr.splitlines() == [
        "r2med: mini@1 means the collection or task of that name; write ./mini@1 for the folder",
        "r2med: notes: the judgments of test are used; notes@dev takes those of dev",
    ]


def test_a_clash_of_names_is_one_line(tmp_path: Path) -> None:
    first, second = r2med_folder(tmp_path / "a" / "t"), other_folder(tmp_path / "b" / "t")
    assert re.search(r"two of the folders would be mine/t: name one as", refused("data", "add", "mine", first, second))
    assert "is the name of a collection of r2med" in refused("data", "add", "Nano", first)
    assert isinstance(call("tasks", "mine").exception, UnknownName)
