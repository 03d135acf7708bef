"""TREC and BEIR files from results and tasks, read back by us and by others."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.publish import export as command
from r2med.core import DataError, R2MedError, ResultError
from r2med.integrations import qrels_from_dict, run_from_dict
from r2med.integrations.exporting import export_beir, export_trec
from r2med.integrations.hub import prepare
from r2med.results import ResultStore
from tests.builders import r2med_folder


def files(arguments: list[str]) -> list[dict[str, str]]:
    done = CliRunner().invoke(command, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found: list[dict[str, str]] = json.loads(done.stdout)["files"]
    assert all(Path(one["path"]).exists() for one in found)
    return found


def test_trec_files_of_results_score_as_stored(results: Path, tmp_path: Path) -> None:
    found = files(["trec", str(results), "--out", str(tmp_path / "trec"), "--system", "bm25"])
    assert sorted(one["kind"] for one in found) == ["judgments", "judgments", "run", "run"]
    for stored in ResultStore(results):
        if stored.system.name == "bm25":
            run = r2med.read_run(tmp_path / "trec" / "bm25" / "mini@1" / f"{stored.task.name}.run")
            qrels = r2med.read_qrels(tmp_path / "trec" / "mini@1" / f"{stored.task.name}.qrels")
            assert r2med.score(run, qrels).mean("nDCG@10") == stored.measures["ndcg_at_10"]


@pytest.mark.filterwarnings("ignore")
def test_ir_measures_reads_our_trec_files(results: Path, tmp_path: Path) -> None:
    import ir_measures

    export_trec(str(results), tmp_path / "trec")
    qrels = ir_measures.read_trec_qrels(str(tmp_path / "trec" / "mini@1" / "Biology.qrels"))
    run = ir_measures.read_trec_run(str(tmp_path / "trec" / "bm25" / "mini@1" / "Biology.run"))
    stored = ResultStore(results).find("bm25", "mini@1", "Biology")
    assert stored is not None
    found = ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)
    assert found[ir_measures.nDCG @ 10] == pytest.approx(stored.measures["ndcg_at_10"], abs=1e-9)


@pytest.mark.parametrize("export", [export_trec, export_beir])
def test_two_tasks_of_one_name_are_not_one_file(tmp_path: Path, export: Callable[[str, Path], object]) -> None:
    """A folder beside its own archive: the files of one were written over those of the other."""
    r2med_folder(tmp_path / "set" / "one")
    shutil.make_archive(str(tmp_path / "set" / "one"), "zip", r2med_folder(tmp_path / "other"))
    with pytest.raises(R2MedError, match="are both called 'one': rename one"):
        export(str(tmp_path / "set"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_trec_files_of_a_task(tmp_path: Path) -> None:
    found = files(["trec", "mini@1/Biology", "--out", str(tmp_path / "trec")])
    assert [one["kind"] for one in found] == ["judgments", "topics"]
    task = r2med.load("mini@1/Biology")
    lines = Path(found[1]["path"]).read_text("utf-8").splitlines()
    assert [line.split("\t")[0] for line in lines] == list(task.query_ids)
    assert r2med.read_qrels(found[0]["path"]) == task.qrels


def test_beir_of_a_task_and_of_results(results: Path, tmp_path: Path) -> None:
    files(["beir", "mini@1", "--out", str(tmp_path / "tasks")])
    tasks = r2med.load_all(tmp_path / "tasks")
    assert sorted(t.qrels.fingerprint for t in tasks) == sorted(t.qrels.fingerprint for t in r2med.load_all("mini@1"))
    files(["beir", str(results), "--out", str(tmp_path / "runs")])
    data = json.loads((tmp_path / "runs" / "bm25" / "mini@1" / "Biology.json").read_text())
    stored = ResultStore(results).find("bm25", "mini@1", "Biology")
    assert stored is not None
    run = run_from_dict(data)
    qrels = qrels_from_dict({q: r2med.load("mini@1/Biology").qrels.of(q) for q in run.query_ids})
    assert r2med.score(run, qrels).mean("nDCG@10") == stored.measures["ndcg_at_10"]


def test_runs_on_different_data_do_not_share_judgments(tmp_path: Path) -> None:
    """The judgments of one system's data stood beside the runs of both, and both in one table of a card."""
    folder = r2med_folder(tmp_path / "notes")
    r2med.run("bm25", tasks=str(folder), results=tmp_path / "results")
    judgments = (folder / "qrels.jsonl").read_text().splitlines(keepends=True)
    (folder / "qrels.jsonl").write_text("".join(judgments[1:]))
    r2med.run("bm25-lucene", tasks=str(folder), results=tmp_path / "results")
    for export in (export_trec, lambda source, out: prepare(Path(source), "lab/notes", out)):
        with pytest.raises(ResultError, match="'bm25' and 'bm25-lucene' were scored on different data of notes"):
            export(str(tmp_path / "results"), tmp_path / "out")
    with pytest.warns(UserWarning, match=r"the judgments of notes are not written\. .* is not what these results were"):
        made = export_trec(str(tmp_path / "results"), tmp_path / "out", systems=["bm25"])
    assert [one.kind for one in made] == ["run"]


def test_refusals_are_one_line(results: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match="not an empty folder"):
        export_trec(str(results), tmp_path / "full")
    for source, systems, message in (
        ("nosuch", (), "unknown task"),
        ("mini@1/Biology", ("bm25",), "this is a task"),
        (str(results), ("bm52",), "unknown system"),
        (str(tmp_path), (), "not a task|no task|cannot|layout|holds"),
    ):
        for export in (export_trec, export_beir):
            with pytest.raises(R2MedError, match=message):
                export(source, tmp_path / "out", systems=systems)
            assert not (tmp_path / "out").exists(), "nothing half-made is left"


def test_the_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    asked = [sys.executable, "-m", "r2med", "export", "mteb", str(tmp_path / "absent"), "--out", str(tmp_path / "x")]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("r2med: ")
    assert len(done.stderr.splitlines()) == 1
