from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.board import command
from tests.results.sealing import edit

pytest.importorskip("jinja2", reason="the extra `view` is not installed")


def test_a_board_is_built_and_false_scores_fail(tmp_path: Path) -> None:
    results = tmp_path / "results"
    r2med.run("bm25", "bm25-lucene", tasks="mini@1/Biology", results=results)
    r2med.pack_bundle(tmp_path / "a.zip", results=results, title="A")
    arguments = ["build", str(tmp_path / "a.zip"), "--out", str(tmp_path / "site")]
    done = CliRunner().invoke(command, arguments)
    assert (done.exit_code, done.stdout.strip()) == (0, str(tmp_path / "site"))
    assert "1 submissions, 1 of them verified, 2 systems" in done.stderr
    edit(results / "bm25" / "mini@1" / "Biology.json", lambda d: d.update(judged_at_10=0.5))
    r2med.pack_bundle(tmp_path / "b.zip", results=results, title="B")
    done = CliRunner().invoke(command, [*arguments, str(tmp_path / "b.zip"), "--json"])
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["submissions"], told["verified"], told["false"]) == (2, 1, 1)
    assert "B" in (tmp_path / "site" / "index.html").read_text("utf-8")
