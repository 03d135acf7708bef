"""`r2med compare` on two real systems on Mini and on published runs."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import r2med
from r2med.cli.compare import command, design
from r2med.core import R2MedError
from r2med.tasks import read_run, resolve, write_run
from tests.results.sealing import edit
from tests.scoring.test_compare import contradictions


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("compared") / "results"
    r2med.run("bm25", "bm25-lucene", tasks=resolve("mini@1"), fuse="rrf", results=root)
    return root


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(a) for a in arguments])


def document(*arguments: str | Path) -> Any:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refusal(*arguments: str | Path) -> str:
    """The one line that the command prints for a mistake."""
    with pytest.raises((R2MedError, click.ClickException)) as caught:
        command.main([str(a) for a in arguments], standalone_mode=False)
    shown = caught.value.format_message() if isinstance(caught.value, click.ClickException) else str(caught.value)
    assert "\n" not in shown
    return shown


def test_what_was_judged_stands_beside_every_score(results: Path) -> None:
    shares = {
        task.full_name: r2med.evaluate("bm25", task, measures=["judged@10"]).mean("judged@10")
        for task in r2med.load_all("mini@1")
    }
    mean = sum(shares.values()) / len(shares)
    assert document("bm25", "bm25-lucene", "--results", results)["judged_at_10"]["bm25"] == pytest.approx(mean)
    compared = call("bm25", "bm25-lucene", "--results", results).stdout.splitlines()
    assert "judged@10" in compared[0]
    assert any(line.startswith("bm25 ") and line.rstrip().endswith(f"{100 * mean:.0f} %") for line in compared)
    again = r2med.run("bm25", tasks="mini@1", results=results)
    (system,) = again.to_dict()["systems"]
    assert system["judged_at_10"] == pytest.approx(shares)
    assert f"{100 * mean:.0f} %" in repr(again)
    assert {row["task"]: row["judged@10"] for row in again.rows()} == pytest.approx(shares)
    (row,) = [r for r in r2med.leaderboard(results, measured=True).rows if r.system == "bm25"]
    assert row.judged_at_10 == pytest.approx(mean)


def test_two_systems_on_mini(results: Path) -> None:
    found = document("bm25", "bm25-lucene", "--results", results)
    assert {"schema", "measure", "settings", "systems", "tie_groups", "pairs", "left_out"} <= found.keys()
    assert (found["schema"], found["measure"]) == (1, "ndcg_at_10")
    assert found["settings"] == {
        "level": 0.95, "method": "bca", "resamples": 10000, "seed": 0, "expanded": True,
    }  # fmt: skip
    (pair,) = found["pairs"]
    assert (pair["first"], pair["second"], len(pair["tasks"])) == ("bm25", "bm25-lucene", 8)
    stored = {s["name"]: s for s in found["systems"]}
    for name, line in pair["tasks"].items():
        means = [
            json.loads((results / s / f"{name}.json").read_text())["measures"]["ndcg_at_10"]
            for s in ("bm25", "bm25-lucene")
        ]
        assert line["difference"] == pytest.approx(means[1] - means[0])
        assert stored["bm25"]["tasks"][name]["value"] == pytest.approx(means[0])
        assert line["low"] <= line["difference"] <= line["high"]
        assert line["p"] <= line["p_adjusted"] <= 1
        assert line["wins"] + line["ties"] + line["losses"] == line["n"]
    assert pair["macro"]["complete"] is True
    assert (pair["macro"]["tasks"], pair["macro"]["of_tasks"], pair["macro"]["n"]) == (8, 8, 102)
    assert len(pair["moved"]) == 10
    assert all(m["snippet"] for m in pair["moved"])
    sizes = [abs(m["difference"]) for m in pair["moved"]]
    assert sizes == sorted(sizes, reverse=True)
    assert found == document("bm25", "bm25-lucene", "--results", results)  # seeded
    plain = document("bm25", "bm25-lucene", "--results", results, "--method", "percentile")
    assert plain["settings"]["method"] == "percentile"
    assert plain["systems"][0]["macro"]["low"] != found["systems"][0]["macro"]["low"]
    assert plain["pairs"] == found["pairs"]  # differences have the interval that belongs to their test
    assert found["letters"].keys() == found["ranks"].keys() == stored.keys()
    assert pair["populations"]["tasks"] == 8


def test_a_margin_gives_verdicts(results: Path) -> None:
    found = document("bm25", "bm25-lucene", "--results", results, "--margin", "50")
    macro = found["pairs"][0]["macro"]
    assert macro["equivalence"]["margin"] == 0.5
    assert macro["equivalence"]["equivalent"]
    assert macro["equivalence"]["verdict"] == ("worse" if macro["different"] else "equivalent")
    assert "Margin 50.00" in call("bm25", "bm25-lucene", "--results", results, "--margin", "50").stdout
    assert "margin" in refusal("bm25", "bm25-lucene", "--results", results, "--margin", "-1")


def test_a_design_from_real_scores(results: Path) -> None:
    arguments = ["--effect", "2", "--power", "0.8", "--results", str(results)]
    result = CliRunner().invoke(design, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["effect"], found["power"], found["pairs"]) == (0.02, 0.8, 3)
    assert found["rows"][0]["queries_same_tasks"] > found["rows"][3]["queries_same_tasks"] > 1
    assert "Other tasks of this kind" in CliRunner().invoke(design, arguments).stdout
    more = CliRunner().invoke(design, ["bm25", "bm25-lucene", *arguments, "--compared", "20", "--json"])
    assert json.loads(more.stdout)["systems"] == 20


@pytest.mark.parametrize("measure", ["nDCG@10", "RR@10", "hit@10", "R@100"])
def test_no_line_of_mini_contradicts_itself(results: Path, measure: str) -> None:
    """4 of 24 lines of RR@10 had intervals without 0 and p above 0.05; 13 of 24 intervals of hit@10 were points."""
    systems = ("bm25", "bm25-lucene", "bm25+bm25-lucene.rrf")
    found = r2med.compare(*systems, results=results, measure=measure)
    assert contradictions(found) == []
    assert all(e.low < e.high for s in found.systems for e in s.tasks.values())


def test_three_systems_make_three_pairs(results: Path) -> None:
    found = document("bm25", "bm25-lucene", "bm25+bm25-lucene.rrf", "--results", results, "--measure", "R@10")
    assert len(found["pairs"]) == 3
    assert found["measure"] == "recall_at_10"
    assert set(found["tie_groups"].values()) >= {1}


def test_the_tables(results: Path) -> None:
    shown = call("bm25", "bm25-lucene", "--results", results).stdout
    for words in (
        "Macro",
        "By query",
        "p adjusted",
        "Letters",
        "Best",
        "Detectable",
        "other tasks of this kind",
        "W/T/L",
        "mini@1/MedQA-Diag",
        "bm25-lucene minus bm25",
    ):
        assert words in shown
    assert "only" not in shown


def test_an_incomplete_set_is_labelled_everywhere(results: Path) -> None:
    arguments = ("bm25", "bm25-lucene", "--results", results, "--task", "mini@1/Biology", "--task", "mini@1/MedQA-Diag")
    shown = call(*arguments)
    assert "Mean of only 2 of 8 tasks" in shown.stdout
    assert "Macro (only 2 of 8 tasks)" in shown.stdout
    assert "only 2 of 8 tasks" in shown.stderr
    assert document(*arguments)["pairs"][0]["macro"]["complete"] is False


def test_slices_flags_ties_holes_and_pool(results: Path, tmp_path: Path) -> None:
    flags = tmp_path / "flags.txt"
    flags.write_text("Biology-q01\nmini@1/MedQA-Diag\tMedQA-Diag-q02\n\n")
    pool = tmp_path / "pool.jsonl"
    arguments = ("bm25", "bm25-lucene", "--results", results, "--slices", "--flagged", flags)
    found = document(*arguments, "--aware", "--holes", "--pool", pool)
    by = {s["by"] for s in found["slices"]}
    assert by == {"family", "body system", "positives", "query length", "difficulty", "audit"}
    flagged = next(s for s in found["slices"] if s["value"] == "flagged")
    assert (flagged["n"], flagged["tiny"]) == (2, True)
    assert sum(s["n"] for s in found["slices"] if s["by"] == "family") == 102
    assert len(found["aware"]) == 16
    assert all(a["copies_known"] for a in found["aware"])
    assert len(found["holes"]) == 8
    for reports in found["holes"].values():
        assert all(r["low"] <= r["judged"] <= r["high"] for r in reports)
    assert found["pool"]["entries"] == len(pool.read_text().splitlines()) > 100
    shown = call(*arguments, "--aware", "--holes").stdout
    assert "tiny" in shown
    assert "Strict" in shown
    assert "hole@10" in shown


def test_a_row_per_query_and_system(results: Path, tmp_path: Path) -> None:
    """The same scores as are stored, and the same slices as `--slices` counts."""
    flags, out = tmp_path / "flags.txt", tmp_path / "queries.csv"
    flags.write_text("Biology-q01\n")
    two = ("bm25", "bm25-lucene", "--results", results, "--resamples", "200")
    found = document(*two, "--slices", "--flagged", flags, "--per-query", out)
    rows = list(csv.DictReader(io.StringIO(out.read_text("utf-8"))))
    assert found["per_query"] == {"path": str(out), "rows": 204}
    assert len(rows) == 204
    assert list(rows[0])[:9] == [
        "Task", "Query", "Family", "Body system", "Positives", "Query length", "Difficulty", "Audit", "System",
    ]  # fmt: skip
    stored = results / "bm25" / "mini@1" / "Biology.queries.jsonl"
    scores = {line["query_id"]: line["measures"] for line in map(json.loads, stored.read_text().splitlines())}
    mine = {row["Query"]: row for row in rows if (row["Task"], row["System"]) == ("mini@1/Biology", "bm25")}
    assert mine.keys() == scores.keys()
    for query_id, row in mine.items():
        assert float(row["nDCG@10"]) == scores[query_id]["ndcg_at_10"]
        assert float(row["R@100"]) == scores[query_id]["recall_at_100"]
    for part in found["slices"]:
        inside = [row for row in rows if row[part["by"].capitalize()] == part["value"] and row["System"] == "bm25"]
        assert len(inside) == part["n"], part["value"]
        assert sum(float(row["nDCG@10"]) for row in inside) / part["n"] == pytest.approx(
            part["scores"]["bm25"]["value"]
        )
    assert "204 rows" in call(*two, "--per-query", out).stderr
    assert ".csv" in refusal(*two, "--per-query", tmp_path / "queries.tsv")
    table = r2med.per_query("bm25", "bm25-lucene", results=results, measure="AP@100")
    assert (len(table.rows), table.titles[8]) == (204, "AP@100")


def test_per_query_scores_of_run_files_have_no_slices(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_text("q1 Q0 d1 1 0.5 t\n")
    (tmp_path / "b.run").write_text("q1 Q0 d2 1 0.5 t\nq2 Q0 d2 1 0.5 t\n")
    (tmp_path / "q.qrels").write_text("q1 0 d1 1\nq2 0 d2 1\n")
    out = tmp_path / "queries.csv"
    done = call(tmp_path / "a.run", tmp_path / "b.run", "--qrels", tmp_path / "q.qrels", "--per-query", out)
    assert done.exit_code == 0, done.output
    assert "no groups: the texts of q.qrels are not on this machine" in done.stderr
    rows = list(csv.DictReader(io.StringIO(out.read_text("utf-8"))))
    found = [(row["Query"], row["System"], row["Body system"], row["nDCG@10"]) for row in rows]
    assert found == [("q1", "a.run", "", "1.0"), ("q1", "b.run", "", "0.0"),
                     ("q2", "a.run", "", "0.0"), ("q2", "b.run", "", "1.0")]  # fmt: skip


def test_run_files(shared_runs: Path, tmp_path: Path) -> None:
    run, qrels = shared_runs / "e5-mistral.IIYi-Clinical.run.gz", shared_runs / "IIYi-Clinical.qrels"
    worse = tmp_path / "worse.run"
    full = read_run(run)
    lost = list(full.query_ids)[:3]
    write_run(full.top(5).for_queries(type(full.query_ids)(q for q in full.query_ids if q not in lost)), worse)
    found = document(run, worse, "--qrels", qrels, "--aware", "--holes")
    (pair,) = found["pairs"]
    assert found["missing_queries"] == {run.name: 0, "worse.run": 3}
    assert {s["name"]: s for s in found["systems"]}[run.name]["macro"]["value"] == pytest.approx(0.2137, abs=5e-5)
    assert pair["macro"]["difference"] < 0
    assert pair["macro"]["wins"] == 0
    assert pair["macro"]["n"] == 129
    assert not any(a["copies_known"] for a in found["aware"])
    assert "worse.run: 3 queries without results scored 0" in call(run, worse, "--qrels", qrels).stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no rankings"),
        ("q1 Q0 d1 1 nan tag\n", "not a number"),
        ("q1 Q0 d1 1 0.5 tag\nq1 Q0 d1 2 0.4 tag\n", "twice"),
        ("q1 Q0 d1 1 0.5\n", "expected 6 columns"),
        ("other Q0 d1 1 0.5 tag\n", "answers none of the 2 judged queries"),
    ],
)
def test_bad_runs_are_refused(content: str, words: str, tmp_path: Path) -> None:
    good, bad, qrels = tmp_path / "good.run", tmp_path / "bad.run", tmp_path / "q.qrels"
    good.write_text("q1 Q0 d1 1 0.5 tag\nq2 Q0 d2 1 0.5 tag\n")
    bad.write_text(content)
    qrels.write_text("q1 0 d1 1\nq2 0 d2 1\n")
    shown = refusal(good, bad, "--qrels", qrels)
    assert words in shown
    assert "bad.run" in shown


def test_unknown_ids_and_unsorted_ranks_count_as_trec_eval_counts_them(tmp_path: Path) -> None:
    first, second, qrels = tmp_path / "a.run", tmp_path / "b.run", tmp_path / "q.qrels"
    first.write_text("q1 Q0 d1 1 0.5 t\nq2 Q0 d9 1 0.5 t\nextra Q0 d1 1 1 t\n")
    second.write_text("q1 Q0 x 1 0.1 t\nq1 Q0 d1 2 0.9 t\nq2 Q0 d2 1 0.5 t\n")
    qrels.write_text("q1 0 d1 1\nq2 0 d2 1\n")
    found = document(first, second, "--qrels", qrels)
    scores = {s["name"]: s["macro"]["value"] for s in found["systems"]}
    assert scores == {"a.run": 0.5, "b.run": 1.0}
    assert found["unjudged_queries"] == {"a.run": 1, "b.run": 0}


def test_qrels_of_zeros_are_refused(tmp_path: Path) -> None:
    run, qrels = tmp_path / "a.run", tmp_path / "q.qrels"
    run.write_text("q1 Q0 d1 1 0.5 t\n")
    shutil.copy(run, tmp_path / "b.run")
    qrels.write_text("q1 0 d1 0\n")
    assert "no positive judgment" in refusal(run, tmp_path / "b.run", "--qrels", qrels)
    (tmp_path / "cut.run.gz").write_bytes(gzip.compress(b"q1 Q0 d1 1 0.5 t\n" * 500)[:30])
    qrels.write_text("q1 0 d1 1\n")
    assert "cut.run.gz" in refusal(run, tmp_path / "cut.run.gz", "--qrels", qrels)


def test_other_mistakes(results: Path, tmp_path: Path) -> None:
    two = ("bm25", "bm25-lucene", "--results", results)
    assert "at least two systems" in refusal("bm25", "--results", results)
    assert "did you mean bm25-lucene" in refusal("bm25", "bm25-lucen", "--results", results)
    assert "level" in refusal(*two, "--level", "1.5")
    assert "x>=100" in refusal(*two, "--resamples", "5")
    assert "seed" in refusal(*two, "--seed", "-1")
    assert "magic" in refusal(*two, "--method", "magic")
    assert "nDCG@10" in refusal(*two, "--measure", "nDGC@10")
    assert "depth" in refusal(*two, "--holes", "--depth", "0")
    assert ".tsv or a .jsonl" in refusal(*two, "--pool", tmp_path / "pool.csv")
    assert "there is one task" in refusal("a.run", "b.run", "--qrels", "q", "--task", "mini@1/Biology")
    assert "no such folder of results" in refusal("bm25", "bm25-lucene", "--results", tmp_path / "none")
    flags = tmp_path / "flags"
    flags.write_text("Biology-q01\nnobody\n")
    assert "flags:2: no compared task has a query 'nobody'" in refusal(*two, "--flagged", flags)


def test_different_data_are_refused_by_name(results: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(results, tmp_path / "results")
    edit(copy / "bm25" / "mini@1" / "Biology.json", lambda document: document["task"].update(fingerprint="0" * 32))
    shown = refusal("bm25", "bm25-lucene", "--results", copy)
    assert "'bm25' and 'bm25-lucene' were scored on different data of mini@1/Biology" in shown
