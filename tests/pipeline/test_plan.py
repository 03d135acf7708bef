"""The plan: shared stages, what is cached, and that what is printed is what runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from r2med.cache import EmbeddingCache
from r2med.cli.run import command
from r2med.core import Task
from r2med.core.spec import Spec
from r2med.expand import as_expander
from r2med.fuse import ReciprocalRank
from r2med.pipeline import System, run_experiment
from r2med.pipeline.plan import Plan, StageEstimate, estimate_all, plan_experiment
from r2med.pipeline.run import run_plan
from r2med.results import ResultStore
from r2med.retrieve import BM25, Retriever, as_retriever, embed
from r2med.retrieve.bm25 import BM25Lucene
from r2med.retrieve.dense import DenseRetriever
from r2med.retrieve.variants import Variant
from r2med.tasks import resolve
from tests.pipeline.by_hand import ranked
from tests.retrieve.encoders.hashing import HashEncoder


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
