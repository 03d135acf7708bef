"""`r2med leaderboard`, `reproduce` and `plot` as commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from r2med.cli.browse import leaderboard
from r2med.cli.plot import command as plot
from r2med.cli.reproduce import reproduce
from r2med.cli.run import command as run
from r2med.core import R2MedError
from r2med.tasks import load, write_task


def call(command: Any, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def refused(result: Result) -> str:
    assert isinstance(result.exception, R2MedError), result.output
    assert result.stdout == ""
    return str(result.exception)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("cli") / "results")
    for system in ("bm25", "bm25-lucene"):
        assert call(reproduce, "--system", system, "--collection", "mini@1", "--results", folder).exit_code == 0
    return folder


def test_published_json() -> None:
    done = call(leaderboard, "--published", "--json")
    rows = json.loads(done.stdout)
    assert round(rows[0]["macro"], 2) == 41.65
    assert round(next(r["macro"] for r in rows if r["kind"] == "retriever"), 2) == 31.43
    assert all(row["measured"] is False for row in rows)
    assert "--protocol all" in done.stderr


def test_table(results: str) -> None:
    done = call(leaderboard, "--results", results)
    assert done.exit_code == 0
    assert "measured here" in done.output
    assert "our reference" in done.output
    top = call(leaderboard, "--published", "--kind", "retriever", "-n", "1")
    assert "nv" in top.output
    assert "31.43" in top.output
    assert "grit" not in top.output


def test_reproduce_says_and_exits(results: str, tmp_path: Path) -> None:
    for collection, arguments in {"mini": [str(tmp_path)], "mini@1": [results, "--collection", "mini@1"]}.items():
        done = call(reproduce, "--json", "--results", *arguments)
        assert done.exit_code == 0
        document = json.loads(done.stdout)
        assert document["ok"] is True
        assert {t["verdict"] for t in document["tasks"]} == {"matches"}
        assert [t["task"].partition("/")[0] for t in document["tasks"]] == [collection] * 8
    some = ("--task", "MedQA-Diag", "--task", "mini@1/Biology")
    table = call(reproduce, "--results", results, "--collection", "mini@1", *some, "--no-run")
    assert table.output.count("matches") == 2
    assert "tolerance 0.01" in table.output


def test_reproduce_fails_when_a_task_drifts(results: str, tmp_path: Path) -> None:
    book = tmp_path / "book.toml"
    book.write_text(
        '[[source]]\nid = "o"\ntitle = "o"\nurl = "https://example.org"\ndate = "2026-01"\nprotocol = "default"\n'
        'collection = "mini@1"\nmeasured = false\nscale = 100\ntasks = ["Biology"]\n'
        '[source.systems.bm25]\nkind = "retriever"\nndcg_at_10 = [50.0]\n'
    )
    done = call(reproduce, "--collection", "mini@1", "--results", results, "--ledger", str(book))
    assert done.exit_code == 1
    assert "drifts" in done.output
    assert "-31.50" in done.output


def test_plots_are_written(results: str, tmp_path: Path) -> None:
    for name, *arguments in (["scores", "--resamples", "200"], ["pareto"], ["scatter", "bm25", "bm25-lucene"]):
        out = tmp_path / f"{name}.svg"
        done = call(plot, name, *arguments, "--results", results, "--out", str(out))
        assert done.exit_code == 0, done.output
        assert out.read_text().startswith("<svg")
        assert done.stdout == ""
    done = call(plot, "pareto", "--results", results, "--out", str(tmp_path / "b.svg"), "--json")
    assert json.loads(done.stdout)["file"] == str(tmp_path / "b.svg")


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (leaderboard, ["--published", "--source", "mteb-result"], "did you mean mteb-results"),
        (leaderboard, ["--measure", "nDGC@10"], "did you mean nDCG@10"),
        (reproduce, ["--system", "bm26"], "did you mean bm25"),
        (reproduce, ["--protocol", "mteb"], "no figures of bm25 on mini under mteb"),
        (reproduce, ["--task", "Biolgy"], "did you mean mini/Biology"),
        (reproduce, ["--task", "mini@1/Biology"], "a task of mini@1, and the collection is mini"),
        (reproduce, ["--collection", "r2med"], "r2med data download"),
        (reproduce, ["--ledger", "none.toml"], "cannot be read"),
        (plot, ["scores", "--out", "x.gif"], "ends in .svg or .png"),
        (plot, ["truncation", "--out", "x.svg"], "says what was truncated"),
        (plot, ["scatter", "bm25", "bm26", "--out", "x.svg"], "did you mean bm25"),
        (plot, ["pareto", "--collection", "nano", "--out", "x.svg"], "no results on nano"),
    ],
)
def test_mistakes_are_named(results: str, command: Any, arguments: list[str], words: str) -> None:
    assert words in refused(call(command, *arguments, "--results", results))


def test_folders_whose_names_were_one_file_name_keep_their_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`./my task`, `./my_task` and `./my:task` printed three scores and left one result; `äö` was `öä`."""
    monkeypatch.chdir(tmp_path)
    names = ["my task", "my_task", "my:task", "äö", "öä", "MINE", "mine", "CON"]
    sources = ["Biology", "MedQA-Diag", "PMC-Clinical"]
    for number, name in enumerate(names):
        write_task(load(f"mini@1/{sources[number % 3]}"), Path(name), to="r2med")
    asked = [part for name in names for part in ("-t", f"./{name}")]
    printed = json.loads(call(run, *asked, "-r", "bm25", "--json").stdout)["systems"][0]["tasks"]
    stored = json.loads(call(leaderboard, "--collection", "own", "--json").stdout)[0]["tasks"]
    assert set(printed) == set(stored) == set(names)
    for name in names:
        assert stored[name] == pytest.approx(100 * printed[name]["ndcg_at_10"])
    files = [path.name.casefold() for path in Path("results/bm25/own").iterdir()]
    assert len(files) == len(set(files)) == 3 * len(names)
