"""Running: finished results are reused, shared stages done once, and what is printed is what runs."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from r2med.api.experiments import LoadedTask
from r2med.cache import EmbeddingCache
from r2med.cli.run import command
from r2med.core import DataError, ResultError, Task
from r2med.core.spec import Spec
from r2med.expand import as_expander
from r2med.fuse import ReciprocalRank
from r2med.pipeline import Builder, System, SystemSpec, check_writable, run_experiment
from r2med.pipeline.run import plan_experiment, run_plan
from r2med.pipeline.stages import Plan, StageEstimate, estimate_all
from r2med.results import ResultStore
from r2med.results.store import read_result
from r2med.retrieve import BM25, Retriever, as_retriever, embed
from r2med.retrieve.bm25 import BM25Lucene
from r2med.retrieve.dense import DenseRetriever, Variant
from r2med.tasks import convert, resolve
from r2med.tasks.load import TaskRef
from tests.llm.conftest import server
from tests.llm.server import ChatServer
from tests.pipeline.by_hand import ranked
from tests.retrieve.encoders.hashing import HashEncoder

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


@pytest.fixture
def encoder() -> HashEncoder:
    return HashEncoder()


def twenty(encoder: HashEncoder, cache: EmbeddingCache) -> list[System]:
    """Twenty systems over one encoder and two ways to weigh a query."""
    precisions = ("float32", "int8", "binary", "float16", "bfloat16")
    variants = [*(Variant(p) for p in precisions), Variant("float32", 4), Variant("int8", 4)]  # type: ignore[arg-type]
    dense = [DenseRetriever(encoder, Spec(f"hash.{v}"), variant=v, cache=cache) for v in variants]
    lexical = [BM25(), BM25Lucene()]
    fused = [System((bm25, d), ReciprocalRank()) for bm25 in lexical for d in dense][:11]
    alone: list[Retriever] = [*dense, *lexical]
    return [*(System((r,)) for r in alone), *fused]


def kinds(plan: Plan) -> Counter[str]:
    return Counter(step.kind for step in plan.steps)


def test_twenty_systems_over_one_encoder_encode_once(tmp_path: Path, encoder: HashEncoder) -> None:
    cache, store = EmbeddingCache(tmp_path / "cache"), ResultStore(tmp_path / "results")
    systems = twenty(encoder, cache)
    assert len(systems) == 20
    (plan,) = plan_experiment(resolve("mini@1/Biology"), systems, store)
    assert kinds(plan) == {
        "load": 1, "prepare": 9, "search": 9, "fuse": 11, "score": 20,
    }  # fmt: skip
    assert not encoder.asked
    run_experiment(resolve("mini@1/Biology"), systems, store)
    task = resolve("mini@1/Biology")[0].load()
    assert Counter(encoder.asked) == Counter({*task.documents.contents}) + Counter({*task.query_texts})


def test_a_stage_stands_behind_those_it_needs_and_knows_its_systems(tmp_path: Path, encoder: HashEncoder) -> None:
    systems = twenty(encoder, EmbeddingCache(tmp_path / "cache"))
    (plan,) = plan_experiment(resolve("mini@1/Biology"), systems, ResultStore(tmp_path))
    before: set[str] = set()
    for step in plan.steps:
        assert set(step.needs) <= before
        before.add(step.key)
    load = plan.steps[0]
    assert load.kind == "load"
    assert sorted(load.systems) == sorted(s.name for s in systems)


def test_the_plan_that_is_printed_is_the_plan_that_runs(tmp_path: Path, encoder: HashEncoder) -> None:
    systems, store = twenty(encoder, EmbeddingCache(tmp_path / "cache")), ResultStore(tmp_path / "results")
    refs = [*resolve("mini@1/Biology"), *resolve("mini@1/MedQA-Diag")]
    printed = [stage.key for stage in estimate_all(plan_experiment(refs, systems, store))]
    done: list[str] = []
    for plan in plan_experiment(refs, systems, store):
        for step, _ in run_plan(plan, lambda plan, step: None):
            done.append(step.key)
    assert sorted(done) == sorted(printed)
    assert all(stage.cached == "yes" for stage in estimate_all(plan_experiment(refs, systems, store)))


def test_keys_follow_the_content(tmp_path: Path) -> None:
    def of(revision: str = "1", depth: int = 10, spec: str = "mini@1/Biology") -> dict[str, str]:
        retriever = DenseRetriever(HashEncoder(revision=revision), Spec("h"), cache=EmbeddingCache(tmp_path / "c"))
        (plan,) = plan_experiment(resolve(spec), [System((retriever,))], ResultStore(tmp_path / "r"), depth=depth)
        return {step.kind: step.key for step in plan.steps}

    first = of()
    assert of() == first
    deeper, other, task = of(depth=20), of(revision="2"), of(spec="mini@1/Bioinformatics")
    assert {k for k in first if deeper[k] == first[k]} == {"load", "prepare"}
    assert {k for k in first if other[k] == first[k]} == {"load"}
    assert not any(task[k] == first[k] for k in first)


def stages(systems: list[System], store: ResultStore) -> dict[str, StageEstimate]:
    found = estimate_all(plan_experiment(resolve("mini@1/Biology"), systems, store))
    return {stage.stage: stage for stage in found}


def test_what_is_cached_is_counted(tmp_path: Path, encoder: HashEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, store = EmbeddingCache(tmp_path / "cache"), ResultStore(tmp_path / "results")
    systems = [System((DenseRetriever(encoder, Spec("h"), cache=cache),))]
    task = resolve("mini@1/Biology")[0].load()
    documents = list(task.documents.contents)
    cold = stages(systems, store)["encode documents"]
    assert (cold.cached, cold.texts, cold.missing, cold.seconds) == ("no", 86, 86, None)
    monkeypatch.setattr("r2med.cache.arrays.TELLING_SECONDS", 0.0)
    embed.embed(encoder, documents[:30], "document", cache=cache)
    half = stages(systems, store)["encode documents"]
    assert (half.cached, half.missing) == ("partly", 56)
    assert half.tokens == sum(min(len(d.encode()) // 4 + 1, 16) for d in documents[30:])
    assert half.seconds is not None
    assert half.seconds > 0
    embed.embed(encoder, documents, "document", cache=cache)
    assert stages(systems, store)["encode documents"].cached == "yes"
    run_experiment(resolve("mini@1/Biology"), systems, store)
    (done,) = stages(systems, store).values()
    assert (done.stage, done.what, done.cached) == ("score", "h", "yes")


def test_shared_index_and_vectors_change_no_ranking(tmp_path: Path, encoder: HashEncoder) -> None:
    cache, store = EmbeddingCache(tmp_path / "cache"), ResultStore(tmp_path / "results")
    task: Task = resolve("mini@1/Biology")[0].load()
    results = run_experiment(resolve("mini@1/Biology"), twenty(encoder, cache)[:9], store).results
    for result, system in zip(results, twenty(HashEncoder(), EmbeddingCache(tmp_path / "other")), strict=False):
        alone = system.retrievers[0].retrieve(task, depth=1000)
        stored = store.run(result)
        kept = alone.docs >= 0
        assert np.array_equal(np.asarray(stored.lengths()), alone.lengths())
        assert [h.doc_id for q in stored.query_ids for h in dict(stored)[q]] == [
            alone.doc_ids[int(i)] for i in alone.docs[kept]
        ]


@pytest.mark.parametrize("flag", ["--plan", "--dry-run"])
def test_the_command_prints_and_does_nothing(tmp_path: Path, flag: str) -> None:
    arguments = ["-r", "bm25", "-r", "bm25-lucene", "--fuse", "rrf", "--results", str(tmp_path / "r"), flag]
    shown = CliRunner().invoke(command, ["--tasks", "mini@1/Biology", *arguments, "--json"], catch_exceptions=False)
    document = json.loads(shown.stdout)
    assert document["schema"] == 1
    assert document["executor"] == "local"
    assert Counter(s["stage"] for s in document["stages"]) == {
        "load": 1, "index": 2, "search": 2, "fuse": 1, "score": 3,
    }  # fmt: skip
    assert document["totals"]["to_do"] == 8
    keys = {s["key"] for s in document["stages"]}
    assert all(set(s["needs"]) <= keys for s in document["stages"])
    text = CliRunner().invoke(command, ["--tasks", "mini@1/Biology", *arguments], catch_exceptions=False).stdout
    assert "8 of 9 stages are left to do" in " ".join(text.split())
    assert not (tmp_path / "r").exists()


class Counting:
    """An encoder without a version, so that nothing of it is kept on disk; counts the texts it is asked for."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def encode(self, texts: list[str]) -> Any:
        self.asked.update(texts)
        return np.array([[len(t), t.count("e"), t.count("a"), 1.0] for t in texts])


def twice(text: str) -> list[str]:
    """An expander: two texts for each query."""
    return [text.upper(), text[: len(text) // 2]]


def test_expanded_and_raw_queries_search_one_index(tmp_path: Path) -> None:
    """Nothing of an encoder without a version is cached: its documents are encoded once all the same."""
    model = Counting()
    retriever, expander = as_retriever(model), as_expander(twice)
    systems = [System((retriever,)), *(System((retriever,), expander=expander, policy=p) for p in (None, "mean"))]
    fused = System((retriever, BM25()), ReciprocalRank(), expander)
    results = run_experiment(resolve("mini@1/Biology"), [*systems, fused], ResultStore(tmp_path)).results
    task: Task = resolve("mini@1/Biology")[0].load()
    assert {model.asked[text] for text in task.documents.contents} == {1}
    plain, joined, mean, _ = results
    documents = len({*task.documents.contents})
    assert plain.notes["cache"] == {"cached": 0, "encoded": documents + 13, "damaged_shards": 0}
    assert joined.notes["cache"] == {"cached": 0, "encoded": documents + 13, "damaged_shards": 0}
    assert mean.notes["cache"] == {"cached": 0, "encoded": documents + 3 * 13, "damaged_shards": 0}
    assert mean.notes["averaged_texts"] == 39
    for result, system in zip(results, [*systems, fused], strict=True):
        fresh = ranked(system, task, 1000)
        assert [hits for _, hits in ResultStore(tmp_path).run(result)] == [hits for _, hits in fresh]


def test_expanded_queries_are_accounted_for_like_any(tmp_path: Path) -> None:
    """Truncation and cache are noted for queries that were expanded, too."""
    encoder, cache = HashEncoder(limit=16), EmbeddingCache(tmp_path / "cache")
    retriever = DenseRetriever(encoder, Spec("hash"), cache=cache)
    systems = [System((retriever,)), System((retriever,), expander=as_expander(twice), policy="mean")]
    task: Task = resolve("mini@1/Biology")[0].load()
    for attempt in range(2):
        store = ResultStore(tmp_path / str(attempt))
        plain, expanded = run_experiment(resolve("mini@1/Biology"), systems, store).results
        truncation: Any = expanded.notes["truncation"]
        assert truncation["document"] == plain.notes["truncation"]["document"]  # type: ignore[index]
        texts = [t for q in task.queries for t in (q.text, *twice(q.text))]
        lengths = [len(t.split()) for t in texts]
        assert truncation["query"]["texts"] == len(texts)
        assert truncation["query"]["tokens_cut"] == sum(max(n - 16, 0) for n in lengths)
        documents = len({*task.documents.contents})
        counted: Any = expanded.notes["cache"]
        assert counted["cached"] + counted["encoded"] == documents + 2 * 13 + 13
        assert counted["encoded"] == (0 if attempt else documents + 2 * 13)
