from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import r2med
from r2med.cli.publish import board
from r2med.cli.publish import bundle as command
from tests.builders import r2med_folder
from tests.results.sealing import edit


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli-bundle") / "results"
    r2med.run("bm25", "bm25-lucene", tasks="mini@1/Biology", results=folder)
    return folder


def r2med_bundle(*arguments: str | Path) -> Result:
    done = CliRunner().invoke(command, list(map(str, arguments)))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def told(done: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_there_and_back(results: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    done = r2med_bundle("pack", "bm25", "--results", results, "--out", path, "--title", "One", "--json")
    assert told(done) | {"id": "", "bytes": 0, "date": ""} == {
        "bundle": str(path),
        "id": "",
        "bytes": 0,
        "date": "",
        "systems": told(done)["systems"],
        "notes": [],
    }
    checked = r2med_bundle("check", path, "--json")
    assert (checked.exit_code, told(checked)["verified"], told(checked)["title"]) == (0, 1, "One")
    assert told(checked)["results"] == [
        {"system": "bm25", "task": "mini@1/Biology", "status": "verified", "reason": "", "differences": []}
    ]
    added = r2med_bundle("add", path, "--results", tmp_path / "there", "--json")
    assert told(added)["results"] == [["bm25", "mini@1/Biology"]]
    assert "bm25 on mini@1/Biology" not in r2med_bundle("add", path, "--results", tmp_path / "there").stdout


def test_what_is_printed(results: Path, tmp_path: Path) -> None:
    done = r2med_bundle("pack", "--results", results, "--out", tmp_path / "a.zip")
    assert done.stdout.strip() == str(tmp_path / "a.zip")
    assert "2 systems, 2 results" in done.stderr
    lines = r2med_bundle("check", tmp_path / "a.zip").stdout.splitlines()
    assert lines[0].split() == ["System", "Task", "Result"]
    assert lines[2].split() == ["bm25", "mini@1/Biology", "verified"]


def test_a_false_score_fails_and_one_that_cannot_be_verified_does_so_on_demand(tmp_path: Path) -> None:
    folder, made = r2med_folder(tmp_path / "cases"), tmp_path / "results"
    r2med.run("bm25", tasks=str(folder), results=made)
    r2med_bundle("pack", "--results", made, "--out", tmp_path / "a.zip")
    assert r2med_bundle("check", tmp_path / "a.zip", "--strict").exit_code == 0
    (path,) = made.glob("*/*/*.json")
    edit(path, lambda document: document["task"].update(fingerprint="0" * 32))
    r2med_bundle("pack", "--results", made, "--out", tmp_path / "b.zip")
    unknown = r2med_bundle("check", tmp_path / "b.zip")
    assert (unknown.exit_code, "cannot be verified" in unknown.stdout) == (0, True)
    assert r2med_bundle("check", tmp_path / "b.zip", "--strict").exit_code == 1
    fingerprint = r2med.load(str(folder)).fingerprint
    edit(path, lambda d: (d["task"].update(fingerprint=fingerprint), d["measures"].update(recall_micro_at_10=0.123)))
    r2med_bundle("pack", "--results", made, "--out", tmp_path / "c.zip")
    wrong = r2med_bundle("check", tmp_path / "c.zip", "--tasks", folder)
    assert wrong.exit_code == 1
    assert "scores differ" in wrong.stdout
    assert "stated is 0.123000" in wrong.stdout


@pytest.mark.skipif(find_spec("jinja2") is None, reason="the extra `view` is not installed")
def test_a_board_is_built_and_false_scores_fail(tmp_path: Path) -> None:
    results = tmp_path / "results"
    r2med.run("bm25", "bm25-lucene", tasks="mini@1/Biology", results=results)
    r2med.pack_bundle(tmp_path / "a.zip", results=results, title="A")
    arguments = ["build", str(tmp_path / "a.zip"), "--out", str(tmp_path / "site")]
    done = CliRunner().invoke(board, arguments)
    assert (done.exit_code, done.stdout.strip()) == (0, str(tmp_path / "site"))
    assert "1 submission, 1 of them verified, 2 systems" in done.stderr
    edit(results / "bm25" / "mini@1" / "Biology.json", lambda d: d.update(judged_at_10=0.5))
    r2med.pack_bundle(tmp_path / "b.zip", results=results, title="B")
    done = CliRunner().invoke(board, [*arguments, str(tmp_path / "b.zip"), "--json"])
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["submissions"], told["verified"], told["false"]) == (2, 1, 1)
    assert "B" in (tmp_path / "site" / "index.html").read_text("utf-8")
