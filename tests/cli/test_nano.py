from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from r2med.cli.browse import pages
from r2med.cli.data import audit
from r2med.cli.nano import command as nano
from r2med.cli.publish import export
from r2med.core import R2MedError, UsageError
from r2med.pipeline.nano_profile import dense_retriever
from r2med.tasks import convert, resolve
from r2med.tasks.validate import validate
from tests.builders import lines


def call(command: click.Command, *arguments: object) -> str:
    done = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def as_json(command: click.Command, *arguments: object) -> Any:
    return json.loads(call(command, *arguments, "--json"))


def test_build_profile_pages(tmp_path: Path) -> None:
    out = tmp_path / "out"
    built = as_json(nano, "build", "mini@1/PMC-Clinical", "--docs", 60, "--out", out, "--dense", "none")
    facts = built["tasks"]["NanoMini_1PMCClinical"]
    assert facts["documents"] == sum(facts["admitted"].values()) == 60
    assert "pool" not in facts
    profile = as_json(nano, "profile", out)
    assert profile["group"]["bm25"]["ndcg_at_10"] == pytest.approx(facts["profiles"]["bm25"]["ndcg_at_10"])
    assert profile["group"]["dense"] is None
    assert "All, by query" in call(nano, "profile", out)
    lucene, nano_bm25 = (
        as_json(nano, "profile", out, "--bm25", name)["group"]["bm25"]["ndcg_at_10"]
        for name in ("bm25-lucene", "bm25-nano")
    )
    assert nano_bm25 == pytest.approx(profile["group"]["bm25"]["ndcg_at_10"])  # which made the lists
    assert nano_bm25 != lucene
    assert "not a Nano task" not in call(nano, "profile", "mini@1/PMC-Clinical", "--bm25", "bm25-nano")
    assert "Not audited yet" in (out / "pages" / "index.md").read_text()
    assert [Path(p).name for p in built["pages"]][-2:] == ["index.md", "index.json"]
    written = as_json(pages, out)
    assert "Not audited yet" not in (out / "pages" / "index.md").read_text()
    assert Path(written["folder"]) == out / "pages"
    assert (out / "pages" / "NanoMini_1PMCClinical.md").is_file()
    assert as_json(nano, "profile", out) == profile  # pages beside the data disturb nothing


def test_published_profile() -> None:
    group = as_json(nano, "profile", "--published")["group"]
    assert round(group["bm25"]["ndcg_at_10"], 4) == 0.2110
    assert round(group["dense"]["ndcg_at_10"], 4) == 0.2980
    assert set(group["hybrid"]) >= {"ndcg_at_10", "hit_at_10", "recall_at_100"}
    for told in (call(nano, "profile", "--published"), call(nano, "profile", "--published", "--markdown")):
        assert "21.10" in told.partition("All, by query")[2]
        assert "nDCG@10 × 100 of the candidates" in told


def test_profile_wants_one_of_the_two() -> None:
    done = CliRunner().invoke(nano, ["profile"])
    assert isinstance(done.exception, UsageError)
    assert "give a Nano folder, or ask for the published figures" in str(done.exception)


def test_fidelity(tmp_path: Path) -> None:
    out = tmp_path / "out"
    call(nano, "build", "mini@1/Biology", "--docs", 60, "--out", out, "--dense", "none")
    found = as_json(nano, "fidelity", "mini@1/Biology", out, "-r", "bm25", "-r", "bm25-lucene", "-r", "bm25:k1=2,b=1")
    assert [s["name"] for s in found["systems"]] == ["bm25", "bm25-lucene", "bm25:b=1,k1=2"]
    assert -1 <= found["kendall"]["low"] <= found["kendall"]["value"] <= 1
    told = call(nano, "fidelity", "mini@1/Biology", out, "-r", "bm25", "-r", "bm25-lucene")
    assert f"{100 * found['systems'][0]['full']:.2f}" in told
    assert "nDCG@10 × 100, each task on all its queries." in told
    assert "Spearman" in told
    assert "Inflation × 100 on" in told


def test_audit_of_a_group(tmp_path: Path) -> None:
    text = resolve("mini@1/Biology")[0].load().queries[0].text
    (tmp_path / "train.jsonl").write_text(json.dumps({"q": text}))
    found = as_json(audit, "mini@1/Biology", "mini@1/MedQA-Diag", "--against", tmp_path / "train.jsonl")
    biology = found["tasks"]["mini@1/Biology"]
    assert biology["by_kind"]["query-in-training"] == 1
    scores = biology["scores"][0]
    assert scores["all"]["queries"] == scores["without"]["query-in-training"]["queries"] + 1
    assert found["tasks"]["mini@1/MedQA-Diag"]["by_kind"].get("query-in-training") is None
    assert "1 of 13 queries flagged" in call(audit, "mini@1/Biology", "--against", tmp_path / "train.jsonl")


def test_audit_scores_a_run_of_ones_own(tmp_path: Path) -> None:
    task = resolve("mini@1/Biology")[0].load()
    run = tmp_path / "my.run"
    run.write_text("".join(f"{q} Q0 {d} 1 1.0 me\n" for q, d, g in task.qrels if g > 0))
    (scores,) = as_json(audit, "mini@1/Biology", "--run", run)["tasks"]["mini@1/Biology"]["scores"]
    assert scores["all"]["measures"]["ndcg_at_10"] == pytest.approx(1.0)
    with pytest.raises(R2MedError, match="exactly one task"):
        call(audit, "mini@1", "--run", run)


def test_export_training(tmp_path: Path) -> None:
    with pytest.raises(R2MedError, match="is an evaluation task"):
        call(export, "training", "mini@1/Biology", "--out", tmp_path / "a")
    convert(resolve("mini@1/Biology"), tmp_path / "copy", to="beir")  # under another name it is found by its texts
    with pytest.raises(R2MedError, match="overlap evaluation tasks"):
        call(export, "training", tmp_path / "copy", "--out", tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_training_from_a_real_collection(shared_data: Path, tmp_path: Path) -> None:
    report = as_json(export, "training", shared_data / "scifact", "--out", tmp_path / "out", "--negatives", 3)
    assert (report["examples"], report["rows"]) == (300, 339)
    assert report["negatives"] == 900
    assert report["audit"]["train.jsonl"] > 1000


def test_validate_notices_a_changed_file_of_a_built_nano(tmp_path: Path) -> None:
    out = tmp_path / "out"
    call(nano, "build", "mini@1/PMC-Clinical", "--docs", 60, "--out", out, "--dense", "none", "--licence", "MIT")
    assert "license: mit" in (out / "README.md").read_text()
    report = validate(resolve(str(out))[0])
    assert report.ok, report.errors
    (changed,) = (out / "bm25").iterdir()
    changed.write_bytes(changed.read_bytes() + b"\0")
    (found,) = validate(resolve(str(out))[0]).errors
    assert (found.code, found.examples) == ("changed-file", [f"bm25/{changed.name}"])


def test_automatic_dense_needs_an_engine_besides_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "models" / "bge-small"
    folder.mkdir(parents=True)
    for name in ("model.onnx", "tokenizer.json"):
        (folder / name).write_bytes(b"")
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as if it were not installed
    assert dense_retriever("auto") is None


def test_a_folder_called_as_a_collection_is_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pages were looked for in the catalogue's collection of that name."""
    monkeypatch.chdir(tmp_path)
    call(nano, "build", "mini@1/Biology", "--docs", 60, "--out", "nano", "--dense", "none")
    assert (tmp_path / "nano" / "pages" / "index.md").is_file()


ENCODER = """
import numpy as np


class Words:
    name = "words"

    def encode(self, texts, **_):
        out = np.full((len(texts), 32), 0.01, dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                out[row, sum(map(ord, word)) % 32] += 1
        return out
"""
NINE = [f"passage {i} about fever, rash and sign{i}" for i in range(9)]


class Typed:
    """The command as a user types it, in a folder of its own with a small encoder beside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "words_encoder.py").write_text(ENCODER)

    def task(self, name: str, texts: list[str], queries: list[str], judged: list[tuple[int, int, int]]) -> None:
        """A task in BEIR's layout, with slashes in every id."""
        (self.folder / name / "qrels").mkdir(parents=True)
        corpus = lines([{"_id": f"d/{i}/..", "text": text} for i, text in enumerate(texts)])
        (self.folder / name / "corpus.jsonl").write_bytes(corpus)
        asked = lines([{"_id": f"../q/{i}", "text": text} for i, text in enumerate(queries)])
        (self.folder / name / "queries.jsonl").write_bytes(asked)
        rows = "".join(f"../q/{q}\td/{d}/..\t{grade}\n" for q, d, grade in judged)
        (self.folder / name / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "r2med", *arguments]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])}
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    def build(self, name: str) -> subprocess.CompletedProcess[str]:
        return self("nano", "build", name, "--dense", "words_encoder:Words", "--out", f"nano-{name}")

    def page(self, name: str) -> str:
        """The page of a task, built and written by the commands."""
        for done in (self.build(name), self("pages", f"nano-{name}", "--html")):
            assert done.returncode == 0, done.stderr
        return (self.folder / f"nano-{name}" / "pages" / f"{name}.md").read_text("utf-8")

    def refused(self, *arguments: str) -> str:
        """The one line that answers a command."""
        done = self(*arguments)
        assert (done.returncode != 0, done.stdout) == (True, "")
        (line,) = done.stderr.strip().splitlines()
        assert line.startswith("r2med: ")
        return line


@pytest.fixture
def typed(tmp_path: Path) -> Typed:
    return Typed(tmp_path)


def test_a_task_without_positives_is_one_line(typed: Typed) -> None:
    typed.task("none", NINE, ["what is sign3?"], [(0, 3, 0)])
    assert "positive" in typed.refused("nano", "build", "none", "--out", "out", "--dense", "none")
    assert "no positive judgment" in typed.refused("pages", "none", "--out", "written")
    assert not (typed.folder / "out").exists()
    assert not (typed.folder / "written").exists()


def test_a_task_of_one_query_and_nine_documents(typed: Typed) -> None:
    typed.task("one", NINE, ["what is sign3?"], [(0, 3, 1)])
    page = typed.page("one")
    assert "puts 1 query to 9 documents; 1 judgment is positive" in page
    assert page.count("1 of 1 query (100 %) has a positive among the first ten.") == 3
    assert "nan" not in page.lower().split()
    assert "1 queries" not in page


def test_a_task_with_slashes_in_its_ids(typed: Typed) -> None:
    queries = [f"what is sign{i}?" for i in range(4)] + ["nothing of the sort"]
    typed.task("slashes", [*NINE, *["sort of thing"] * 20], queries, [(i, i, 1) for i in range(5)])
    assert "`../q/4`" in typed.page("slashes")
    left = {p.name for p in typed.folder.iterdir()} - {"__pycache__"}
    assert left == {"nano-slashes", "slashes", "words_encoder.py"}


def test_a_task_that_is_not_english(typed: Typed) -> None:
    typed.task("zh", [f"发热和皮疹的原因{i}号" for i in range(9)], ["什么引起皮疹", "发热"], [(0, 0, 1), (1, 1, 1)])
    page = typed.page("zh")
    assert "| Language | not stated |" in page
    assert "2 queries have no candidate at all from it." in page  # BM25 reads ASCII words only


def test_a_dense_profile_of_another_corpus_is_one_line(typed: Typed) -> None:
    typed.task("one", NINE, ["what is sign3?"], [(0, 3, 1)])
    typed.task("many", [f"text {i}" for i in range(40)], ["text 30"], [(0, 30, 1)])
    for name in ("one", "many"):
        assert typed.build(name).returncode == 0
    (mine,), (foreign,) = (list((typed.folder / f"nano-{n}").glob("words*/*.parquet")) for n in ("one", "many"))
    mine.write_bytes(foreign.read_bytes())
    for command in (("nano", "profile"), ("pages",)):
        assert mine.parent.name in typed.refused(*command, "nano-one")
