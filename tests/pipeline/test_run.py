from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r2med.api.experiments import LoadedTask
from r2med.core import DataError, ResultError
from r2med.pipeline import Builder, System, SystemSpec, check_writable, run_experiment
from r2med.results import ResultStore
from r2med.results.store import read_result
from r2med.tasks import convert, resolve
from r2med.tasks.load import TaskRef
from tests.llm.conftest import server
from tests.llm.server import ChatServer

__all__ = ["server"]


class Log:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def __call__(self, system: str, task: str, what: str) -> None:
        self.events.append((system, task, what))

    def take(self) -> list[str]:
        seen = [what for system, _, what in self.events if system]
        self.events.clear()
        return seen


def built(*specs: str) -> list[System]:
    builder = Builder()
    return [builder.build(SystemSpec.parse(spec)) for spec in specs]


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "results")


@pytest.fixture
def own(tmp_path: Path) -> list[TaskRef]:
    convert(resolve("mini@1/Biology"), tmp_path / "mine", to="r2med")
    return resolve(str(tmp_path / "mine"))


def test_nothing_is_done_twice(store: ResultStore, own: list[TaskRef]) -> None:
    log, systems = Log(), built("bm25", "bm25-lucene")
    first = run_experiment(own, systems, store, notify=log)
    assert log.take() == ["running", "done"] * 2
    again = run_experiment(own, systems, store, notify=log)
    assert log.take() == ["kept", "kept"]
    assert again.kept == 2
    assert [r.measures for r in again.results] == [r.measures for r in first.results]
    run_experiment(own, systems, store, notify=log, overwrite=True)
    assert log.take() == ["running", "done"] * 2


@pytest.mark.parametrize("suffix", [".run.gz", ".queries.jsonl"])
def test_a_result_without_its_files_is_done_again(store: ResultStore, own: list[TaskRef], suffix: str) -> None:
    log, systems = Log(), built("bm25")
    (result,) = run_experiment(own, systems, store, notify=log).results
    lost = store.path("bm25", "", result.task.name).with_suffix(suffix)
    lost.unlink()
    log.take()
    run_experiment(own, systems, store, notify=log)
    assert log.take() == [f"stale: {lost.name} is gone", "running", "done"]
    assert lost.exists()
    run_experiment(own, systems, store, notify=log)
    assert log.take() == ["kept"]


def test_a_changed_list_of_answers_concerns_its_system_alone(
    server: ChatServer, store: ResultStore, own: list[TaskRef]
) -> None:
    """It ended the whole run, before any other system had its turn."""
    log = Log()
    with Builder() as builder:
        systems = [builder.build(SystemSpec.parse(spec)) for spec in ("hyde:any-model+bm25", "bm25")]
        run_experiment(own, systems, store, notify=log)
        asked = len(server.asked)
        log.take()
        (beside,) = store.root.rglob("*.generations.jsonl")
        written = beside.read_bytes()
        beside.write_bytes(written.replace(b"hyde", b"hide"))
        run_experiment(own, systems, store, notify=log)
    assert log.take() == ["kept", f"stale: {beside.name} was changed or cannot be read", "running", "done"]
    assert len(server.asked) == asked
    assert beside.read_bytes() == written


def test_stored_answers_are_read_once_for_all_results(
    server: ChatServer, store: ResultStore, own: list[TaskRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six results share one store; to see whether an answer was asked for again it was read for each of them."""
    log, refs = Log(), [*own, *resolve("mini@1/MedQA-Diag"), *resolve("mini@1/IIYi-Clinical")]
    read, really = list[str](), Path.open

    def noted(path: Path, *arguments: Any, **more: Any) -> Any:
        read.append(path.parent.parent.name)
        return really(path, *arguments, **more)

    with Builder() as builder:
        specs = [f"{first}+yesno:any-model@2" for first in ("bm25", "bm25-lucene")]
        systems = [builder.build(SystemSpec.parse(spec)) for spec in specs]
        run_experiment(refs, systems, store, notify=log)
        log.take()
        monkeypatch.setattr(Path, "open", noted)
        run_experiment(refs, systems, store, notify=log)
    assert log.take() == ["kept"] * 6
    assert read.count("rerank-yesno") == 1


def test_another_family_is_another_instruction(store: ResultStore) -> None:
    log, systems, task = Log(), built("bm25"), resolve("mini@1/Biology")[0].load()
    for family, told in (("biology", ["running", "done"]), ("biology", ["kept"]), ("treatment", ["running", "done"])):
        run_experiment([LoadedTask(replace(task, family=family))], systems, store, notify=log)
        seen = log.take()
        assert seen[-len(told) :] == told
    assert seen[0] == "stale: the task's family changed"


def test_changes_are_noticed(store: ResultStore, own: list[TaskRef], tmp_path: Path) -> None:
    log = Log()
    run_experiment(own, built("bm25"), store, notify=log)
    log.take()
    run_experiment(own, built("bm25"), store, notify=log, depth=10)
    assert log.take()[0] == "stale: it was made at depth 1000"
    corpus = tmp_path / "mine" / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("the", "thee", 1))
    run_experiment(own, built("bm25"), store, notify=log, depth=10)
    assert log.take() == ["stale: the data changed", "running", "done"]
    from r2med.retrieve import BM25

    class Renamed(BM25):
        """The same name with other parameters, as a model whose files changed has."""

    other = Renamed(k1=2.0)
    other.spec = BM25().spec
    run_experiment(own, [System((other,))], store, notify=log, depth=10)
    assert log.take()[0] == "stale: the system's parameters or files changed"


def test_a_half_written_result_is_done_again(store: ResultStore, own: list[TaskRef]) -> None:
    systems = built("bm25")
    (result,) = run_experiment(own, systems, store).results
    path = store.path("bm25", "", "mine")
    path.unlink()  # as a crash leaves it: the run is there, the result is not
    log = Log()
    (again,) = run_experiment(own, systems, store, notify=log).results
    assert log.take() == ["running", "done"]
    assert again.measures == result.measures


def test_two_runs_write_the_same_run_and_scores(own: list[TaskRef], tmp_path: Path) -> None:
    contents = []
    for name in ("one", "two"):
        store = ResultStore(tmp_path / name)
        run_experiment(own, built("bm25"), store)
        path = store.path("bm25", "", "mine")
        contents.append((path.with_suffix(".run.gz").read_bytes(), path.with_suffix(".queries.jsonl").read_bytes()))
    assert contents[0] == contents[1]


SLOW = """
import time
import numpy as np


class Slow:
    version = "1"

    def encode(self, texts):
        time.sleep(0.002 * len(texts))
        return np.array([[len(t) % 7 + 1.0, t.count("e") + 1.0] for t in texts], dtype=np.float32)
"""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model that takes its time."""
    (tmp_path / "slow_model.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "slow_model:Slow"


def test_what_a_first_run_takes_is_known_also_where_all_was_stored(
    store: ResultStore, own: list[TaskRef], slow: str
) -> None:
    """The same model stood at 0.424 and at 0.0017 seconds a query, encoded or cached."""
    systems = [slow, f"bm25+{slow}.rrf", f"bm25+neighbours:model={slow}@5"]
    cold = run_experiment(own, built(*systems), store).results
    warm = run_experiment(own, built(*systems), store, overwrite=True).results
    texts = cold[0].task.documents + cold[0].task.queries
    assert cold[0].saved_seconds == {"retrieve": 0.0}
    assert cold[0].cold_seconds == cold[0].seconds
    for number, stage in ((0, "retrieve"), (1, f"{slow}.retrieve")):  # a pause for each text, and no more than it took
        saved = (warm[number].saved_seconds or {})[stage]
        assert saved is not None
        assert 0.002 * texts <= saved <= cold[number].seconds[stage]
        assert warm[number].cold_seconds[stage] == warm[number].seconds[stage] + saved
    for results in (cold, warm):  # what the first system encoded, the third found, in both runs
        reranked = results[2].saved_seconds or {}
        assert 0.002 * 5 <= (reranked["rerank"] or 0.0) <= cold[0].seconds["retrieve"]
    assert read_result(store.path(slow, "", "mine")).saved_seconds == warm[0].saved_seconds


def test_the_time_of_an_older_result_is_unknown(store: ResultStore, own: list[TaskRef]) -> None:
    (result,) = run_experiment(own, built("bm25"), store).results
    assert None not in result.cold_seconds.values()
    result.saved_seconds = None
    assert result.cold_seconds == {**result.seconds, "retrieve": None}


def test_fusion_shares_the_work(store: ResultStore, own: list[TaskRef]) -> None:
    systems = built("bm25", "bm25-lucene", "bm25+bm25-lucene.rrf")
    assert [s.name for s in systems] == ["bm25", "bm25-lucene", "bm25+bm25-lucene.rrf"]
    results = run_experiment(own, systems, store).results
    fused = results[-1]
    assert fused.system.kind == "fused"
    assert fused.seconds["bm25.retrieve"] == results[0].seconds["retrieve"]  # the same run, not a second one


def test_positives_nobody_can_find_are_counted(store: ResultStore, own: list[TaskRef], tmp_path: Path) -> None:
    qrels = tmp_path / "mine" / "qrels.jsonl"
    qrels.write_text(qrels.read_text() + '{"q_id":"Biology-q01","p_id":"nowhere","score":1}\n')
    with pytest.warns(UserWarning, match="judgments name the document 'nowhere', not there"):
        (result,) = run_experiment(own, built("bm25"), store).results
    assert result.notes["judgments_of_missing_documents"] == 1


def test_a_results_path_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match="cannot be written"):
        check_writable(ResultStore(tmp_path / "file" / "results"))


def test_a_folder_that_vanishes(own: list[TaskRef], store: ResultStore, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "mine")
    with pytest.raises(DataError, match="no such folder"):
        run_experiment(own, built("bm25"), store)
