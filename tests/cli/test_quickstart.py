"""`r2med quickstart` as a newcomer types it: in a terminal, against a hub on loopback with eight small tasks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.reproduce import quickstart as command
from r2med.core import Documents, Qrels, Task
from r2med.core.files import home
from r2med.pipeline import quickstart as quick
from r2med.pipeline.experiment import BEST_OFFLINE
from r2med.tasks import collections, write_task
from tests.hub_server import Hub, running_hub
from tests.retrieve.encoders.weights import HOME, real_model
from tests.terminal import Shown, run_all

FAILING = "R2MED/PMC-Clinical"
NANO = {entry.name: entry for entry in collections()["nano"].tasks}
CATALOGUE = """
import json, msgspec
from r2med.tasks import catalogue
read = catalogue._read
counts = json.loads({counts!r})

def small(name):
    found = read(name)
    if name not in ("r2med", "nano"):
        return found
    tasks = [msgspec.structs.replace(t, **counts[t.name]) for t in found.tasks]
    return msgspec.structs.replace(found, tasks=tuple(tasks))

catalogue._read = small
"""


def small_task(name: str) -> Task:
    """Two queries of the first edition of Mini with the documents that were judged for them."""
    task = r2med.load(f"mini@1/{name}")
    queries = task.queries[:2]
    judged = [j for j in task.qrels if j.query_id in {q.id for q in queries}]
    kept = {j.doc_id for j in judged}
    documents = Documents.of(d for d in task.documents if d.id in kept)
    return replace(task, queries=queries, documents=documents, qrels=Qrels.from_judgments(judged))


class Newcomer:
    """A machine with an empty home, and a hub that has R2MED and NanoR2MED in small."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self.folder, self.hub, self.counts = folder, hub, dict[str, dict[str, object]]()
        for entry in collections()["r2med"].tasks:
            task, place = small_task(entry.name), folder / "hub" / entry.name
            write_task(task, place, to="r2med")
            hub.add(entry.dataset, place, commit=entry.revision)
            write_task(task, folder / "hub" / "nano", to="nano", split=NANO[entry.name].split)
            sizes = len(task.queries), len(task.documents), len(task.qrels)
            self.counts[entry.name] = dict(zip(("queries", "documents", "judgments"), sizes, strict=True))
        hub.add("hakari-bench/NanoR2MED", folder / "hub" / "nano")
        (folder / "sitecustomize.py").write_text(CATALOGUE.format(counts=json.dumps(self.counts)))
        (folder / "home").mkdir()
        (folder / "work").mkdir()
        if (HOME / "models").is_dir():
            (folder / "home" / "models").symlink_to(HOME / "models")

    def types(self, *commands: tuple[int, list[str]], **more: str) -> list[Shown]:
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        settings = {"HF_ENDPOINT": self.hub.url, "HF_HOME": str(self.folder / "hf"), "NO_PROXY": "127.0.0.1"}
        settings |= {"R2MED_HOME": str(self.folder / "home"), "PYTHONPATH": path, **more}
        return run_all(commands, self.folder / "work", settings)


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")
    pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    real_model("bge-small", "tokenizer.json")
    with running_hub() as hub:
        yield Newcomer(tmp_path, hub)


def test_from_nothing_to_the_published_row_beside_ours(newcomer: Newcomer) -> None:
    lacking = newcomer.hub.datasets.pop(FAILING)
    planned, done, narrow = newcomer.types(
        (80, ["quickstart", "r2med", "--plan"]), (80, ["quickstart", "r2med"]), (60, ["quickstart", "r2med"])
    )
    assert planned.code == 0, planned.text
    assert "Download: 8 tasks of r2med" in planned.text
    assert "Run: bge-small, the embedded model: no GPU was found; weights are here" in planned.text
    assert "MISSING" not in planned.text
    begun = [line for line in done.err if line.startswith(("ok  ", "Download:", "Run:"))]  # said before it is done
    assert begun == [line for line in planned.out if line in begun]
    assert len(begun) == 7
    assert done.code == narrow.code == 1  # one task could not be had, and the others were run
    assert any("the hub has no dataset R2MED/PMC-Clinical" in line for line in done.err)
    assert "1 of 8 tasks are left out: r2med/PMC-Clinical" in done.err
    for shown, columns in ((done, 80), (narrow, 60)):
        assert max(map(len, shown.out)) <= max(columns, 100)  # commands to be copied stay whole
        assert [line for line in shown.out if len(line) > columns and not line.startswith("  r2med ")] == []
        rows = [line for line in shown.out if line.startswith(("bm25, ", "bge-small, "))]
        assert {row.split("  ")[0] for row in rows} == {
            *(f"bm25, {what}" for what in ("published", "here", "verdict")),
            *(f"bge-small, {what}" for what in ("published", "here", "verdict")),
        }  # fmt: skip
    text = "\n".join(done.out)
    assert "19.19" in text.split("bm25, published")[1].split("\n")[0]  # the paper's BM25 on Biology
    assert "15.13" in text  # and its mean
    assert "drifts" in text  # eight documents are not Biology
    assert "differs: the weights here are 8-bit" in "\n".join(done.err)
    commands = [line.strip() for line in done.out[done.out.index("Next:") + 1 :]]
    assert commands[0] == "r2med compare bm25 bge-small --collection r2med"
    assert len(commands) == 3
    assert all(line.startswith("r2med ") for line in commands)
    newcomer.hub.datasets[FAILING] = lacking
    newcomer.hub.requests.clear()
    (again,) = newcomer.types((80, ["quickstart", "r2med", "--json"]))
    assert again.code == 0, again.text
    assert {r.path.split("/")[3] for r in newcomer.hub.contents()} == {"PMC-Clinical"}  # nothing is fetched twice
    compared, listed = newcomer.types((80, commands[0].split()[1:]), (80, commands[1].split()[1:]))
    assert compared.code == listed.code == 0, compared.text + listed.text
    assert sorted(p.name for p in (newcomer.folder / "work" / "results").iterdir() if p.is_dir()) == [
        "bge-small",
        "bm25",
    ]


def test_nano_and_a_model_that_cannot_be_had(newcomer: Newcomer) -> None:
    """BM25's row is shown also where the weights of the dense model are not on the hub."""
    alone, lacking = newcomer.types(
        (80, ["quickstart", "nano", "--dense", "none", "--json"]), (80, ["quickstart", "nano", "--dense", "harrier"])
    )
    assert alone.code == 0, alone.text
    found = json.loads("\n".join(alone.out))
    (row,) = found["systems"]
    assert (row["system"], row["source"], row["protocol"]) == ("bm25-nano", "nanor2med-profiles", "nano-profile")
    assert set(row["verdicts"]) == set(row["measured"]) == set(NANO)
    assert lacking.code == 1, lacking.text
    assert any(line.startswith("bm25, here") for line in lacking.out)
    assert any(line.startswith("harrier was not run: cannot download") for line in lacking.err), lacking.err
    assert lacking.out[-4:] == [
        "Next:",
        "  r2med data stats nano",
        "  r2med leaderboard --collection nano",
        f"  r2med run --tasks nano --system {BEST_OFFLINE}",
    ]


def looked(monkeypatch: pytest.MonkeyPatch, *arguments: str, **environment: str) -> dict[str, Any]:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(command, ["r2med", "--plan", "--json", *arguments], catch_exceptions=False)
    found: dict[str, Any] = json.loads(done.stdout)
    failed = [check["name"] for check in found["checks"] if not check["ok"]]
    assert done.exit_code == (1 if failed else 0)
    return {"failed": {c["name"]: c["command"] for c in found["checks"] if not c["ok"]}, **found}


def test_what_is_missing_is_named_with_the_one_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(quick, "check_reachable", lambda repository: None)
    assert looked(monkeypatch)["failed"] == {}
    monkeypatch.setattr("r2med.tasks.download.is_installed", lambda module: False)
    monkeypatch.setattr(quick, "missing_extra", lambda card: "onnx")
    assert looked(monkeypatch)["failed"] == {"extras": "pip install 'r2med[hub,parquet,onnx]'"}
    assert looked(monkeypatch, "--dense", "none")["failed"] == {"extras": "pip install 'r2med[hub,parquet]'"}
    monkeypatch.undo()
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(quick, "check_reachable", lambda repository: None)
    monkeypatch.setattr(quick, "free_space", lambda place: 1 << 28)
    assert looked(monkeypatch)["failed"] == {"disk": "export HF_HOME=/a/larger/disk"}
    assert not (tmp_path / "home").exists()


def test_a_hub_that_cannot_be_reached_is_said_before_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")
    found = looked(monkeypatch, HF_ENDPOINT="http://127.0.0.1:9", NO_PROXY="127.0.0.1")
    assert list(found["failed"]) == ["network"]
    assert looked(monkeypatch, HF_HUB_OFFLINE="1")["failed"] == {"network": "unset HF_HUB_OFFLINE"}
    with monkeypatch.context() as here:
        here.setattr(quick, "to_fetch", lambda entries: [])
        assert looked(here, "--dense", "contriever")["failed"] == {"network": "unset HF_HUB_OFFLINE"}  # its weights
        assert looked(here)["failed"] == {}
    shown = CliRunner().invoke(command, ["r2med"])
    assert shown.exit_code == 1
    assert shown.stderr.splitlines()[-1] == "  unset HF_HUB_OFFLINE"
    assert "MISSING  network: " in shown.stderr
    assert not shown.stdout
    assert not home().exists()


def test_the_dense_model_follows_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver says decides, and what was asked for comes first."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA A, 8192 MiB'\necho 'NVIDIA B, 24564 MiB'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(quick, "check_reachable", lambda repository: None)
    assert looked(monkeypatch)["dense"]["name"] == "reason-embed-8b"  # the best of `r2med recommend` for 24 GB
    assert looked(monkeypatch, "--gpu-memory", "4GB")["dense"]["name"] == "inst-xl"
    assert looked(monkeypatch, "--gpu-memory", "0")["dense"]["name"] == "bge-small"
    assert looked(monkeypatch, "--dense", "contriever")["dense"]["name"] == "contriever"
    assert looked(monkeypatch, "--dense", "none")["dense"] is None
    nano = CliRunner().invoke(command, ["nano", "--plan", "--json"])
    assert json.loads(nano.stdout)["dense"]["name"] == "harrier"
    small = CliRunner().invoke(command, ["nano", "--plan", "--json", "--gpu-memory", "100MB"])
    assert json.loads(small.stdout)["dense"]["why"] == "the embedded model: harrier does not fit 100MB of GPU memory"
    for wrong in ("voyage", "bge-reranker", "nobody"):
        assert CliRunner().invoke(command, ["r2med", "--plan", "--dense", wrong]).exit_code != 0
