"""`--workers`: processes of this machine."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from r2med.core import UsageError
from r2med.pipeline import Builder, Executor, SystemSpec, get_executor, run_experiment
from r2med.pipeline.executors.pooled import PoolExecutor
from r2med.pipeline.executors.processes import Processes
from r2med.results import ResultStore
from r2med.tasks import resolve
from tests.retrieve.encoders.weights import real_model

from .nodes import command_line, descendants, home_with
from .runs import Ran, without

ARGUMENTS = ["--tasks", "mini/Biology,mini/MedQA-Diag", "-r", "bm25", "-r", "bge-small:max_length=32", "--fuse", "rrf"]


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
    ran = Ran(home, tmp_path / "r", "--tasks", "mini", "-r", "bge-small:max_length=64", "--workers", "2")
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
    assert type(get_executor("local", workers=1)) is Executor


@pytest.mark.slow
def test_a_model_that_batches_gets_the_same_batches(tmp_path: Path) -> None:
    arguments = ["--tasks", "mini/Biology", "-r", str(real_model("minilm", "model.safetensors"))]
    found = []
    for name, more in (("here", ()), ("there", ("--workers", "2"))):
        found.append(Ran(tmp_path / name, tmp_path / f"r{name}", *arguments, *more).end().files())
    assert found[0] == found[1]
    assert found[0]


@pytest.mark.parametrize(("expand", "jobs"), [("", 1), ("oracle", 0)])
def test_whole_rankings_are_made_by_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expand: str, jobs: int
) -> None:
    """As on Ray, with a process in an actor's place: the corpus goes there, the ranking comes back.

    Expanded queries are the driver's: a worker knows the queries of the task only.
    """
    monkeypatch.setenv("R2MED_HOME", str(home_with(tmp_path / "home", "colbert-small-backbone")))
    retrievers = ["bm25", "colbert-small-backbone:max_length=8"]
    found = []
    for executor in (Executor(), PoolExecutor("ray", Processes(1), print)):
        with Builder() as builder, executor:
            system = builder.build(SystemSpec(retrievers=retrievers, fuse="rrf", expand=expand))
            executor.adopt(builder.made)
            store = ResultStore(tmp_path / executor.name)
            (result,) = run_experiment(resolve("mini/IIYi-Clinical"), [system], store, executor=executor).results
            found.append((result.measures, without(result.notes), store.run(result).scores.tobytes()))
            if isinstance(executor, PoolExecutor):
                assert executor.pool._next == jobs  # one job in all: the ranking
                assert len(executor.pool.nodes) == jobs
    assert found[0] == found[1]
