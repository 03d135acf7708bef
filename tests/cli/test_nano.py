from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from r2med.cli.browse import pages
from r2med.cli.data import audit
from r2med.cli.export import command as export
from r2med.cli.nano import command as nano
from r2med.core import R2MedError, UsageError
from r2med.pipeline.nano_profile import dense_retriever
from r2med.tasks import convert, resolve
from r2med.tasks.validate import validate


def call(command: click.Command, *arguments: object) -> str:
    done = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def as_json(command: click.Command, *arguments: object) -> Any:
    return json.loads(call(command, *arguments, "--json"))


def test_build_profile_pages(tmp_path: Path) -> None:
    out = tmp_path / "out"
    built = as_json(nano, "build", "mini/PMC-Clinical", "--docs", 60, "--out", out, "--dense", "none")
    facts = built["tasks"]["NanoMiniPMCClinical"]
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
    assert "not a Nano task" not in call(nano, "profile", "mini/PMC-Clinical", "--bm25", "bm25-nano")
    assert "Not audited yet" in (out / "pages" / "index.md").read_text()
    assert [Path(p).name for p in built["pages"]][-2:] == ["index.md", "index.json"]
    written = as_json(pages, out)
    assert "Not audited yet" not in (out / "pages" / "index.md").read_text()
    assert Path(written["folder"]) == out / "pages"
    assert (out / "pages" / "NanoMiniPMCClinical.md").is_file()
    assert as_json(nano, "profile", out) == profile  # pages beside the data disturb nothing


def test_published_profile() -> None:
    group = as_json(nano, "profile", "--published")["group"]
    assert round(group["bm25"]["ndcg_at_10"], 4) == 0.2110
    assert round(group["dense"]["ndcg_at_10"], 4) == 0.2980
    assert set(group["hybrid"]) >= {"ndcg_at_10", "hit_at_10", "recall_at_100"}
    assert "| All, by query | 876 |" in call(nano, "profile", "--published", "--markdown")


def test_profile_wants_one_of_the_two() -> None:
    done = CliRunner().invoke(nano, ["profile"])
    assert isinstance(done.exception, UsageError)
    assert "give a Nano folder, or ask for the published figures" in str(done.exception)


def test_fidelity(tmp_path: Path) -> None:
    out = tmp_path / "out"
    call(nano, "build", "mini/Biology", "--docs", 60, "--out", out, "--dense", "none")
    found = as_json(nano, "fidelity", "mini/Biology", out, "-r", "bm25", "-r", "bm25-lucene", "-r", "bm25:k1=2,b=1")
    assert [s["name"] for s in found["systems"]] == ["bm25", "bm25-lucene", "bm25:b=1,k1=2"]
    assert -1 <= found["kendall"]["low"] <= found["kendall"]["value"] <= 1
    assert "Spearman" in call(nano, "fidelity", "mini/Biology", out)


def test_audit_of_a_group(tmp_path: Path) -> None:
    text = resolve("mini/Biology")[0].load().queries[0].text
    (tmp_path / "train.jsonl").write_text(json.dumps({"q": text}))
    found = as_json(audit, "mini/Biology", "mini/MedQA-Diag", "--against", tmp_path / "train.jsonl")
    biology = found["tasks"]["mini/Biology"]
    assert biology["by_kind"]["query-in-training"] == 1
    scores = biology["scores"][0]
    assert scores["all"]["queries"] == scores["without"]["query-in-training"]["queries"] + 1
    assert found["tasks"]["mini/MedQA-Diag"]["by_kind"].get("query-in-training") is None
    assert "1 of 13 queries flagged" in call(audit, "mini/Biology", "--against", tmp_path / "train.jsonl")


def test_audit_scores_a_run_of_ones_own(tmp_path: Path) -> None:
    task = resolve("mini/Biology")[0].load()
    run = tmp_path / "my.run"
    run.write_text("".join(f"{q} Q0 {d} 1 1.0 me\n" for q, d, g in task.qrels if g > 0))
    (scores,) = as_json(audit, "mini/Biology", "--run", run)["tasks"]["mini/Biology"]["scores"]
    assert scores["all"]["measures"]["ndcg_at_10"] == pytest.approx(1.0)
    with pytest.raises(R2MedError, match="exactly one task"):
        call(audit, "mini", "--run", run)


def test_export_training(tmp_path: Path) -> None:
    with pytest.raises(R2MedError, match="is an evaluation task"):
        call(export, "training", "mini/Biology", "--out", tmp_path / "a")
    convert(resolve("mini/Biology"), tmp_path / "copy", to="beir")  # under another name it is found by its texts
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
    call(nano, "build", "mini/PMC-Clinical", "--docs", 60, "--out", out, "--dense", "none", "--licence", "MIT")
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
    call(nano, "build", "mini/Biology", "--docs", 60, "--out", "nano", "--dense", "none")
    assert (tmp_path / "nano" / "pages" / "index.md").is_file()
