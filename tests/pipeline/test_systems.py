"""Systems with expansion, fusion, stored candidates and reranking, on the real parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import r2med
from r2med.core import DataError, Run, Task, UsageError
from r2med.pipeline import Builder, Experiment, SystemSpec, ladder, read_experiment, run_experiment
from r2med.results import ResultStore, TaskResult
from r2med.tasks import resolve


class ByLength:
    """A reranker that anybody can check: shortest document first."""

    name, kind = "by-length", "custom"

    def describe(self) -> dict[str, object]:
        return {"reranker": "by-length"}

    def rerank(self, task: Task, candidates: Run, depth: int = 100, *, rest: str = "keep") -> Run:
        rankings = {}
        for query_id, hits in candidates:
            first = sorted(hits[:depth], key=lambda h: len(task.documents.get(h.doc_id).text))  # type: ignore[union-attr]
            kept = [*first, *(hits[depth:] if rest == "keep" else [])]
            rankings[query_id] = [(h.doc_id, float(len(kept) - i)) for i, h in enumerate(kept)]
        return Run.from_rankings(rankings, doc_ids=task.documents.ids)


by_length = ByLength()
HERE = f"{__name__}:by_length"


def results_of(specs: list[SystemSpec], task: str, folder: Path) -> dict[str, TaskResult]:
    builder = Builder()
    done = run_experiment(resolve(task), [builder.build(s) for s in specs], ResultStore(folder))
    return {r.system.name: r for r in done.results}


def test_the_ladder_shows_each_step() -> None:
    specs = ladder(["bm25", "bm25-lucene"], fuse="rrf", expand="oracle", rerank=f"{HERE}@20")
    names = [Builder().build(s).name for s in specs]
    assert names == [
        "bm25", "bm25-lucene", "bm25+bm25-lucene.rrf",
        "oracle+bm25", "oracle+bm25-lucene", "oracle+bm25+bm25-lucene.rrf",
        "oracle+bm25+bm25-lucene.rrf+by-length@20",
    ]  # fmt: skip


def test_expansion_changes_the_search_and_is_accounted_for(tmp_path: Path) -> None:
    results = results_of(ladder(["bm25"], expand="oracle"), "mini/MedQA-Diag", tmp_path)
    plain, expanded = results["bm25"], results["oracle+bm25"]
    assert expanded.system.kind == "expanded"
    assert expanded.measures["ndcg_at_10"] > plain.measures["ndcg_at_10"]
    notes = expanded.notes["expansion"]
    assert isinstance(notes, dict)
    assert notes["policy"] == "query+passages"
    assert "ceiling" in str(notes["warning"])
    assert expanded.seconds["expand"] >= 0
    kept = ResultStore(tmp_path).path("oracle+bm25", "mini", "MedQA-Diag").with_suffix(".expansions.jsonl")
    first = json.loads(kept.read_text().splitlines()[0])
    assert first["texts"] == [r2med.load("mini/MedQA-Diag").queries[0].answer]


def test_replayed_expansions(tmp_path: Path) -> None:
    task = r2med.load("mini/MedQA-Diag")
    lines = [json.dumps({"id": q.id, "text": q.text, "hy_doc": q.answer}) for q in task.queries[1:]]
    (tmp_path / "hydoc.jsonl").write_text("\n".join(lines))
    spec = f"hyde:replay:{tmp_path / 'hydoc.jsonl'}"
    (result,) = results_of([SystemSpec(retrievers=["bm25"], expand=spec)], "mini/MedQA-Diag", tmp_path / "r").values()
    notes = result.notes["expansion"]
    assert isinstance(notes, dict)
    assert notes["raw_query_used"] == 1
    assert notes["policy"] == "passages"


def test_fusions_by_score(tmp_path: Path) -> None:
    pair = ["bm25", "bm25-lucene"]
    specs = [SystemSpec(retrievers=pair, fuse=f) for f in ("combsum", "combmnz", "tuned")]
    specs.append(SystemSpec(retrievers=pair, fuse="weighted", weights=[1.0, 0.0]))
    results = results_of([*specs, SystemSpec(retrievers=["bm25"])], "mini/Biology", tmp_path)
    assert results["bm25+bm25-lucene.weighted"].measures == pytest.approx(results["bm25"].measures)
    folds = results["bm25+bm25-lucene.tuned"].notes["folds"]
    assert isinstance(folds, dict)
    held_out = [q for fold in folds["folds"] for q in fold["queries"]]
    assert sorted(held_out) == sorted(q.id for q in r2med.load("mini/Biology").queries)


@pytest.mark.parametrize("rest", ["keep", "drop"])
def test_reranking_shows_before_and_after(tmp_path: Path, rest: str) -> None:
    spec = SystemSpec(retrievers=["bm25"], rerank=f"{HERE}@10", rest=rest)  # type: ignore[arg-type]
    results = results_of([SystemSpec(retrievers=["bm25"]), spec], "mini/Biology", tmp_path)
    plain, reranked = results["bm25"], results["bm25+by-length@10"]
    effect = reranked.notes["before_after"]
    assert isinstance(effect, dict)
    assert effect["before"]["ndcg_at_10"] == pytest.approx(plain.measures["ndcg_at_10"])
    assert effect["after"]["ndcg_at_10"] == pytest.approx(reranked.measures["ndcg_at_10"])
    assert effect["oracle"]["ndcg_at_10"] >= max(effect["before"]["ndcg_at_10"], effect["after"]["ndcg_at_10"])
    assert effect["helped"] + effect["hurt"] + effect["unchanged"] == pytest.approx(1)
    longest = int(ResultStore(tmp_path).run(reranked).lengths().max())
    assert (longest == 10) is (rest == "drop")


def test_stored_candidates_are_the_first_stage(tmp_path: Path) -> None:
    plain = results_of([SystemSpec(retrievers=["bm25"])], "mini/Biology", tmp_path)["bm25"]
    folder, file = tmp_path / "bm25", tmp_path / "bm25" / "mini" / "Biology.run.gz"
    for source in (folder, file):
        again = results_of([SystemSpec(retrievers=[f"run:{source}"])], "mini/Biology", tmp_path / source.name)
        (result,) = again.values()
        assert result.system.kind == "stored"
        assert result.measures == pytest.approx(plain.measures)


def test_candidates_of_upstream(tmp_path: Path) -> None:
    task = r2med.load("mini/Biology")
    run = r2med.BM25().retrieve(task, depth=10)
    lines = [json.dumps({"id": q, "topk_pid": [[h.doc_id, h.score] for h in hits]}) for q, hits in run]
    (tmp_path / "Biology.jsonl").write_text("\n".join(lines))
    (result,) = results_of([SystemSpec(retrievers=[f"run:{tmp_path}"])], "mini/Biology", tmp_path / "r").values()
    assert result.measures["ndcg_at_10"] == pytest.approx(r2med.evaluate(run, task).mean())


def test_nano_candidates(tmp_path: Path) -> None:
    from r2med.tasks import write_task
    from r2med.tasks.formats.parquet import write_candidates

    task = r2med.load("mini/Biology")
    write_task(task, tmp_path / "nano", to="nano", split="Mine")
    write_candidates(r2med.BM25().retrieve(task, depth=20), tmp_path / "nano", "bm25", "Mine")
    (result,) = results_of([SystemSpec(retrievers=["run:nano:bm25"])], str(tmp_path / "nano"), tmp_path / "r").values()
    assert result.measures["ndcg_at_10"] == pytest.approx(r2med.evaluate("bm25", task).mean())


def test_mistakes(tmp_path: Path) -> None:
    builder = Builder()
    with pytest.raises(DataError, match="no such file"):
        builder.build(SystemSpec(retrievers=["run:nowhere.run"]))
    with pytest.raises(UsageError, match="no Nano task"):
        results_of([SystemSpec(retrievers=["run:nano:bm25"])], "mini/Biology", tmp_path)
    with pytest.raises(UsageError, match="takes no weights"):
        builder.build(SystemSpec(retrievers=["bm25", "bm25-lucene"], fuse="rrf", weights=[1, 2]))
    with pytest.raises(UsageError, match="unknown reranker"):
        builder.build(SystemSpec(retrievers=["bm25"], rerank="maxsmi@10"))
    (tmp_path / "other.run").write_text("Biology-q01 Q0 nowhere 1 1.0 x\n")
    with pytest.raises(DataError, match="nowhere"):
        results_of([SystemSpec(retrievers=[f"run:{tmp_path / 'other.run'}"])], "mini/Biology", tmp_path)


def test_an_experiment_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text('tasks = ["mini/Biology"]\n[[system]]\nretrievers = ["bm25"]\n')
    assert read_experiment(path) == Experiment(tasks=["mini/Biology"], system=[SystemSpec(retrievers=["bm25"])])
    for broken in ("[[system]]\nretriever = 1\n", "tasks = [", "x = 1\n"):
        path.write_text(broken)
        with pytest.raises(DataError, match="is no experiment"):
            read_experiment(path)


def test_one_retriever_serves_all_systems_that_name_it() -> None:
    builder = Builder()
    one, two = (builder.build(s) for s in ladder(["bm25", "bm25-lucene"], fuse="rrf")[::2])
    assert one.retrievers[0] is two.retrievers[0]


def test_expansions_that_fit_no_query_are_refused(tmp_path: Path) -> None:
    (tmp_path / "hydoc.jsonl").write_text('{"id": "elsewhere", "text": "x", "hy_doc": "y"}\n')
    spec = SystemSpec(retrievers=["bm25"], expand=f"hyde:replay:{tmp_path / 'hydoc.jsonl'}")
    with pytest.raises(UsageError, match="no usable text"):
        results_of([spec], "mini/MedQA-Diag", tmp_path / "r")


def test_a_dry_run_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Builder(dry_run=True) as builder:
        system = builder.build(SystemSpec(retrievers=["bm25"], expand="hyde:gpt4"))
        assert system.expander is not None
        plan = system.expander.plan(r2med.load("mini/Biology"))
    assert plan.calls == 13
    assert plan.cost


def test_only_judged_queries_count_as_missing(tmp_path: Path) -> None:
    from r2med.tasks import convert

    convert(resolve("mini/Biology"), tmp_path / "mine", to="r2med")
    query = tmp_path / "mine" / "query.jsonl"
    query.write_text(query.read_text() + '{"id": "unjudged", "text": "the"}\n')
    (result,) = results_of([SystemSpec(retrievers=["bm25"])], str(tmp_path / "mine"), tmp_path / "r").values()
    assert result.missing_queries == 0
