"""`--workers`: processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from r2med.core import UsageError
from r2med.core.options import Options
from r2med.core.spec import Spec
from r2med.pipeline import Builder, Executor, SystemSpec, get_executor, run_experiment
from r2med.pipeline.pooled_models import PoolExecutor
from r2med.pipeline.workers import Component, Done, Failure, Job, Processes, Worker
from r2med.results import ResultStore
from r2med.retrieve import BM25
from r2med.retrieve.late_interaction import MaxSimRetriever
from r2med.tasks import resolve
from tests.retrieve.encoders import tiny
from tests.retrieve.encoders.weights import real_model

from .ray_nodes import command_line, descendants, home_with
from .run_process import Ran, without

ARGUMENTS = [
    "--tasks",
    "mini@1/Biology,mini@1/MedQA-Diag",
    "-r",
    "bm25",
    "-r",
    "bge-small:max_length=32",
    "--fuse",
    "rrf",
]


def workers_of(pid: int) -> list[int]:
    return [p for p in descendants(pid) if "spawn_main" in command_line(p)]


def test_workers_give_the_same_bytes_and_one_may_be_killed(tmp_path: Path) -> None:
    here = Ran(home_with(tmp_path / "one", "bge-small"), tmp_path / "here", *ARGUMENTS).end()
    there = Ran(home_with(tmp_path / "two", "bge-small"), tmp_path / "there", *ARGUMENTS, "--workers", "2")
    both = there.until(lambda: len(found := workers_of(there.process.pid)) == 2 and found)
    there.until(there.shards)
    os.kill(both[0], signal.SIGKILL)
    there.end()
    assert there.document() == here.document()
    assert there.files() == here.files()


def test_workers_end_with_a_killed_driver(tmp_path: Path) -> None:
    home = home_with(tmp_path / "home", "bge-small")
    ran = Ran(home, tmp_path / "r", "--tasks", "mini@1", "-r", "bge-small:max_length=64", "--workers", "2")
    both = ran.until(lambda: len(found := workers_of(ran.process.pid)) == 2 and found)
    ran.until(ran.shards)
    ran.process.kill()
    ran.end(-signal.SIGKILL)
    end = time.monotonic() + 20
    while any("spawn_main" in command_line(pid) for pid in both):
        assert time.monotonic() < end, "a worker outlived its driver"
        time.sleep(0.05)


def test_what_cannot_be() -> None:
    with pytest.raises(UsageError, match="unknown executor 'slurm'"):
        get_executor("slurm")
    with pytest.raises(UsageError, match="add --executor ray"):
        get_executor("local", address="10.0.0.1:6379")
    with pytest.raises(UsageError, match="--device is cpu or cuda, not cuda:1"):  # which was ignored
        get_executor("ray", device="cuda:1")
    assert type(get_executor("local", workers=1)) is Executor


@pytest.mark.slow
def test_a_model_that_batches_gets_the_same_batches(tmp_path: Path) -> None:
    arguments = ["--tasks", "mini@1/Biology", "-r", str(real_model("minilm", "model.safetensors"))]
    found = []
    for name, more in (("here", ()), ("there", ("--workers", "2"))):
        found.append(Ran(tmp_path / name, tmp_path / f"r{name}", *arguments, *more).end().files())
    assert found[0] == found[1]
    assert found[0]


def late_interaction(folder: Path) -> Path:
    """A tiny late-interaction model with random weights, laid out as PyLate saves one."""
    pytest.importorskip("torch", reason="the torch extra is not installed")
    tiny.save_model(folder, "bert")
    tiny.save_tokenizer(folder, "bert")
    tiny.save_projection(folder / "1_Dense", 8)
    steps = [{"type": "models.Transformer", "path": ""}, {"type": "models.Dense", "path": "1_Dense"}]
    (folder / "modules.json").write_text(json.dumps(steps))
    markers = {"query_prefix": "Query", "document_prefix": "Represent"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(markers))
    return folder


def learned_sparse(folder: Path) -> Path:
    """A tiny learned sparse model with random weights, laid out as sentence-transformers saves one."""
    tiny.save_masked_lm(folder)
    steps = [{"type": "models.MLMTransformer", "path": ""}, {"type": "models.SpladePooling", "path": "1_SpladePooling"}]
    (folder / "modules.json").write_text(json.dumps(steps))
    return folder


@pytest.mark.parametrize("make", [late_interaction, learned_sparse])
def test_vectors_of_tokens_and_weights_of_terms_are_made_by_workers(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    model = f"{make(tmp_path / 'tiny')}:max_length=8"
    texts = [
        f"{expander}{system}" for expander in ("", "oracle:policy=passages+") for system in (model, f"bm25+{model}.rrf")
    ]
    specs = [SystemSpec.parse(text) for text in texts]
    found = []
    for executor in (Executor(), PoolExecutor("workers", Processes(1), print)):
        with Builder(Options(device="cpu", threads=1, cache=False)) as builder, executor:
            systems = [builder.build(spec) for spec in specs]
            executor.adopt(builder.components)
            store = ResultStore(tmp_path / executor.name)
            results = run_experiment(resolve("mini@1/IIYi-Clinical"), systems, store, executor=executor).results
            kept = (path.read_bytes() for path in sorted(store.root.rglob("*.run.gz")))
            found.append(([(r.measures, without(r.notes)) for r in results], list(kept)))
            if isinstance(executor, PoolExecutor):
                assert executor.pool.sent >= 3  # documents, queries, expanded queries
                assert len(executor.pool.nodes) == 1
    assert found[0] == found[1]
    assert len(set(found[0][1])) == 4


def test_a_folder_called_like_a_retriever_is_not_what_workers_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bm25` is a name; a folder of that name in the working directory is another thing on every side."""
    folder = late_interaction(tmp_path / "bm25")
    monkeypatch.chdir(tmp_path)
    with Builder(Options(device="cpu", threads=1)) as builder:
        assert isinstance(builder.retriever("bm25"), BM25)
        assert builder.components[-1].spec == Spec("bm25")
        model = builder.retriever("./bm25")
    assert model.spec.path == folder.resolve()
    for place in (tmp_path, tmp_path.parent):
        monkeypatch.chdir(place)  # a worker may stand anywhere
        worker = Worker("here", device="cpu", threads=1)
        made = worker.component(Component("retriever", Spec("bm25"), Options()))
        assert isinstance(made, BM25)
        again = worker.component(Component("retriever", model.spec, Options()))
        assert again.describe() == model.describe()


def test_a_worker_with_other_files_is_refused(tmp_path: Path) -> None:
    folder = late_interaction(tmp_path / "tiny-colbert")
    with Builder(Options(device="cpu", threads=1)) as builder:
        retriever = builder.retriever(f"{folder}:max_length=8")
    assert isinstance(retriever, MaxSimRetriever)
    component, described = Component("retriever", retriever.spec, Options()), retriever.encoder.describe("document")
    texts = ["fever and rash", "cough"]
    job = Job(component, described, ("document",), "stream_states", (texts, "document", ""))
    done = Worker("there", device="cpu", threads=1).do(job)
    assert isinstance(done, Done)
    assert sorted(row for batch in done.batches for row in batch.rows.tolist()) == [0, 1]
    tiny.save_model(folder, "bert", seed=1)
    failed = Worker("there", device="cpu", threads=1).do(job)
    assert isinstance(failed, Failure)
    assert "differs from the driver's (files): fetch the same files on both" in failed.message
