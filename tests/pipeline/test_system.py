"""Systems with expansion, fusion, stored candidates and reranking, on the real parts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import r2med
from r2med.core import DataError, Run, Task, UsageError
from r2med.core.options import Options
from r2med.core.spec import Content, Spec
from r2med.fuse import ReciprocalRank, Weighted
from r2med.pipeline import Builder, Reranking, System, SystemSpec, ablations, run_experiment
from r2med.pipeline.experiment import fusion_spec, reranker_spec
from r2med.rerank import as_reranker, rerankers
from r2med.results import ResultStore, TaskResult
from r2med.retrieve import BM25, retrievers
from r2med.retrieve.stored import StoredRun
from r2med.tasks import resolve
from tests.pipeline.by_hand import ranked

HERE = f"{__name__}:by_length"


class ByLength:
    """A reranker that anybody can check: shortest document first."""

    kind = "custom"

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


def results_of(texts: list[str], task: str, folder: Path) -> list[TaskResult]:
    """One result for each system, in their order: nothing is lost among equal names."""
    builder = Builder()
    systems = [builder.build(SystemSpec.parse(text)) for text in texts]
    results = run_experiment(resolve(task), systems, ResultStore(folder)).results
    assert [r.system.name for r in results] == [s.name for s in systems]
    return results


def test_ablations_show_each_step() -> None:
    retrieved = [retrievers.parse(name) for name in ("bm25", "bm25-lucene")]
    made = ablations(
        retrieved, fusion=fusion_spec("rrf"), expander=Spec("oracle"), reranker=rerankers.parse(f"{HERE}@20")
    )
    assert [str(spec) for spec in made] == [
        "bm25", "bm25-lucene", "bm25+bm25-lucene.rrf",
        "oracle+bm25", "oracle+bm25-lucene", "oracle+bm25+bm25-lucene.rrf",
        f"oracle+bm25+bm25-lucene.rrf+{HERE}@20",
    ]  # fmt: skip
    assert [SystemSpec.parse(str(spec)) for spec in made] == made
    assert [Builder().build(spec).name for spec in made] == [str(spec) for spec in made]


def test_expansion_changes_the_search_and_is_accounted_for(tmp_path: Path) -> None:
    plain, expanded = results_of(["bm25", "oracle+bm25"], "mini@1/MedQA-Diag", tmp_path)
    assert expanded.system.kind == "expanded"
    assert expanded.measures["ndcg_at_10"] > plain.measures["ndcg_at_10"]
    notes = expanded.notes["expansion"]
    assert isinstance(notes, dict)
    assert notes["policy"] == "query+passages"
    assert "ceiling" in str(notes["warning"])
    assert expanded.seconds["expand"] >= 0
    kept = ResultStore(tmp_path).path("oracle+bm25", "mini@1", "MedQA-Diag").with_suffix(".expansions.jsonl")
    first = json.loads(kept.read_text().splitlines()[0])
    assert first["texts"] == [r2med.load("mini@1/MedQA-Diag").queries[0].answer]


def test_a_policy_is_part_of_the_system(tmp_path: Path) -> None:
    texts = ["oracle+bm25", "oracle:policy=passages+bm25", "oracle:policy=query*3%2Bpassages+bm25"]
    results = results_of(texts, "mini@1/MedQA-Diag", tmp_path)
    assert len({r.measures["ndcg_at_10"] for r in results}) == 3
    used = [r.notes["expansion"]["policy"] for r in results]  # type: ignore[index]
    assert used == ["query+passages", "passages", "query*3+passages"]
    assert [r.system.name for r in results] == texts


def test_replayed_expansions(tmp_path: Path) -> None:
    task = r2med.load("mini@1/MedQA-Diag")
    lines = [json.dumps({"id": q.id, "text": q.text, "hy_doc": q.answer}) for q in task.queries[1:]]
    (tmp_path / "hydoc.jsonl").write_text("\n".join(lines))
    (result,) = results_of([f"hyde:replay:{tmp_path / 'hydoc.jsonl'}+bm25"], "mini@1/MedQA-Diag", tmp_path / "r")
    notes = result.notes["expansion"]
    assert isinstance(notes, dict)
    assert notes["raw_query_used"] == 1
    assert notes["policy"] == "passages"


def test_fusions_by_score(tmp_path: Path) -> None:
    fusions = ("combsum", "combmnz", "tuned", "weighted:w=1/0")
    names = [f"bm25+bm25-lucene.{fusion}" for fusion in fusions]
    *_, tuned, weighted, plain = results_of([*names, "bm25"], "mini@1/Biology", tmp_path)
    assert weighted.measures == pytest.approx(plain.measures)
    fusion = tuned.notes["fusion"]
    assert isinstance(fusion, dict)
    assert "folds" not in tuned.notes, "the folds are stored once"
    held_out = [q for fold in fusion["folds"] for q in fold["queries"]]
    assert sorted(held_out) == sorted(q.id for q in r2med.load("mini@1/Biology").queries)


def test_what_differs_has_another_name_and_another_result(tmp_path: Path) -> None:
    """Weights, the constant of rrf, normalisations, folds, depth and rest: each is in the name."""
    pair = "bm25+bm25-lucene"
    texts = [
        f"{pair}.weighted:w=0.7/0.3", f"{pair}.weighted:w=0.3/0.7", f"{pair}.weighted:norm=rank,w=0.7/0.3",
        f"{pair}.rrf", f"{pair}.rrf:k=1", f"{pair}.tuned:folds=2", f"{pair}.tuned:folds=3",
        f"bm25+{HERE}@5", f"bm25+{HERE}@6", f"bm25+{HERE},rest=drop@5",
    ]  # fmt: skip
    first = results_of(texts, "mini@1/Biology", tmp_path)
    assert [r.system.name for r in first] == texts
    assert len({r.fingerprint for r in first}) == len(texts)
    assert len({r.measures["ndcg_at_10"] for r in first[:2]}) == 2
    again = results_of(texts[::-1], "mini@1/Biology", tmp_path)[::-1]
    assert [r.measures for r in again] == [r.measures for r in first]
    store, task = ResultStore(tmp_path), r2med.load("mini@1/Biology")
    fresh = [ranked(Builder().build(SystemSpec.parse(text)), task, 1000) for text in texts]
    for result, run in zip(again, fresh, strict=True):
        assert [hits for _, hits in store.run(result)] == [hits for _, hits in run]


@pytest.mark.parametrize("rest", ["keep", "drop"])
def test_reranking_shows_before_and_after(tmp_path: Path, rest: Literal["keep", "drop"]) -> None:
    system = f"bm25+{HERE}@10" if rest == "keep" else f"bm25+{HERE},rest=drop@10"
    plain, reranked = results_of(["bm25", system], "mini@1/Biology", tmp_path)
    effect = reranked.notes["before_after"]
    assert isinstance(effect, dict)
    assert effect["before"]["ndcg_at_10"] == pytest.approx(plain.measures["ndcg_at_10"])
    assert effect["after"]["ndcg_at_10"] == pytest.approx(reranked.measures["ndcg_at_10"])
    assert effect["oracle"]["ndcg_at_10"] >= max(effect["before"]["ndcg_at_10"], effect["after"]["ndcg_at_10"])
    assert effect["helped"] + effect["hurt"] + effect["unchanged"] == pytest.approx(1)
    longest = int(ResultStore(tmp_path).run(reranked).lengths().max())
    assert (longest == 10) is (rest == "drop")


def test_rerankers_follow_each_other(tmp_path: Path) -> None:
    """Each reorders what the one before it left; the order of two is part of the name and of the ranking."""
    names = ["bm25", f"bm25+{HERE}@10", f"bm25+{HERE}@10+{HERE}@4", f"bm25+{HERE}@4+{HERE}@10", f"bm25+{HERE}@4"]
    plain, one, two, other, four = results_of(names, "mini@1/Biology", tmp_path)
    store = ResultStore(tmp_path)
    task = r2med.load("mini@1/Biology")
    for result, depths in ((one, (10,)), (two, (10, 4)), (other, (4, 10)), (four, (4,))):
        run = store.run(plain)
        for depth in depths:
            run = by_length.rerank(task, run, depth)
        assert [[h.doc_id for h in hits] for _, hits in store.run(result)] == [
            [h.doc_id for h in hits] for _, hits in run
        ]
    assert two.notes["before_after"]["before"] == one.notes["before_after"]["before"]  # type: ignore[index]
    assert two.fingerprint != other.fingerprint
    assert two.system.description["reranking"]["then"][0]["depth"] == 4  # type: ignore[index]
    made = ablations([retrievers.parse("bm25")], reranker=rerankers.join([f"{HERE}@10", f"{HERE}@4"]))
    assert [str(spec) for spec in made] == names[:3]
    assert str(reranker_spec(f"{HERE}@10+{HERE}@4", rest="drop")).count("rest=drop") == 2


def test_stored_candidates_are_the_first_stage(tmp_path: Path) -> None:
    (plain,) = results_of(["bm25"], "mini@1/Biology", tmp_path)
    folder, file = tmp_path / "bm25", tmp_path / "bm25" / "mini@1" / "Biology.run.gz"
    for source in (folder, file):
        (result,) = results_of([f"run:{source}"], "mini@1/Biology", tmp_path / f"from-{source.name}")
        assert result.system.kind == "stored"
        assert result.measures == pytest.approx(plain.measures)


def test_two_stored_runs_of_one_name(tmp_path: Path) -> None:
    """`p/bm25` and `q/bm25` are two systems; the same run in two places is one."""
    task = r2med.load("mini@1/Biology")
    for folder, retriever in (("p", BM25()), ("q", BM25(k1=5.0)), ("copy", BM25())):
        (tmp_path / folder).mkdir()
        r2med.write_run(retriever.retrieve(task, depth=20), tmp_path / folder / "bm25.run")
    names = [f"run:{tmp_path / folder / 'bm25.run'}" for folder in ("p", "q", "copy")]
    first, second = results_of(names[:2], "mini@1/Biology", tmp_path / "r")
    assert first.system.name != second.system.name
    assert first.system.name.startswith("run:bm25~")
    assert first.measures != second.measures
    (fused,) = results_of([f"{names[0]}+{names[1]}.rrf"], "mini@1/Biology", tmp_path / "r")
    assert fused.system.name == f"{first.system.name}+{second.system.name}.rrf"
    builder = Builder()
    assert builder.retriever(names[0]) is builder.retriever(names[2])
    (again,) = results_of([names[2]], "mini@1/Biology", tmp_path / "r")
    assert (again.fingerprint, again.seconds) == (first.fingerprint, first.seconds), "it is the stored one"


def test_a_stored_run_that_changed_is_another(tmp_path: Path) -> None:
    task, file = r2med.load("mini@1/Biology"), tmp_path / "mine.run"
    seen = []
    for k1 in (0.9, 9.0, 0.9):
        r2med.write_run(BM25(k1=k1).retrieve(task, depth=20), file)
        (result,) = results_of([f"run:{file}"], "mini@1/Biology", tmp_path / "r")
        seen.append(result)
    assert seen[0].system.name == seen[2].system.name != seen[1].system.name
    assert (seen[0].measures, seen[0].seconds) == (seen[2].measures, seen[2].seconds)
    assert seen[0].measures != seen[1].measures


def test_candidates_of_upstream(tmp_path: Path) -> None:
    task = r2med.load("mini@1/Biology")
    run = r2med.BM25().retrieve(task, depth=10)
    lines = [json.dumps({"id": q, "topk_pid": [[h.doc_id, h.score] for h in hits]}) for q, hits in run]
    (tmp_path / "Biology.jsonl").write_text("\n".join(lines))
    (result,) = results_of([f"run:{tmp_path}"], "mini@1/Biology", tmp_path / "r")
    assert result.measures["ndcg_at_10"] == pytest.approx(r2med.score(run, task).mean())


def test_nano_candidates(tmp_path: Path) -> None:
    from r2med.tasks import write_task
    from r2med.tasks.formats.parquet import write_candidates

    task = r2med.load("mini@1/Biology")
    write_task(task, tmp_path / "nano", to="nano", split="Mine")
    write_candidates(BM25().retrieve(task, depth=20), tmp_path / "nano", "bm25", "Mine")
    (result,) = results_of(["nano:bm25"], str(tmp_path / "nano"), tmp_path / "r")
    assert result.measures["ndcg_at_10"] == pytest.approx(r2med.evaluate("bm25", task).mean())


def test_candidates_that_change_are_run_again(tmp_path: Path) -> None:
    """The candidates of a Nano task are no part of its fingerprint, and of the result's all the same."""
    plain = r2med.load("mini@1/Biology")
    found = []
    for retriever in (BM25(), BM25(k1=9.0), BM25()):
        run = retriever.retrieve(plain, depth=20)
        task = replace(plain, candidates=lambda config, run=run: run)  # type: ignore[misc]
        found.append(r2med.run("nano:bm25", tasks=task, results=tmp_path).results[0])
    assert found[0].measures == found[2].measures != found[1].measures
    assert found[0].fingerprint == found[2].fingerprint != found[1].fingerprint


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no nowhere\.run"):
        SystemSpec.parse("run:nowhere.run")
    known = SystemSpec((Spec("run", Content("elsewhere", "0123abcd")),))
    assert SystemSpec.parse(str(known)) == known
    with pytest.raises(DataError, match="elsewhere~0123abcd names content that is not at hand"):
        Builder().build(known)
    with pytest.raises(UsageError, match="comes without candidates"):
        results_of(["nano:bm25"], "mini@1/Biology", tmp_path)
    with pytest.raises(UsageError, match="2 rankings need 2 weights, not 3"):
        Builder().build(SystemSpec.parse("bm25+bm25-lucene.weighted:w=1/2/3"))
    with pytest.raises(UsageError, match="unknown reranker"):
        SystemSpec.parse("bm25+maxsmi@10")
    (tmp_path / "other.run").write_text("Biology-q01 Q0 nowhere 1 1.0 x\n")
    with pytest.raises(DataError, match="nowhere"):
        results_of([f"run:{tmp_path / 'other.run'}"], "mini@1/Biology", tmp_path)
    with pytest.raises(UsageError, match="expanded queries cannot change it"):
        Builder().build(SystemSpec.parse(f"oracle+run:{tmp_path / 'other.run'}"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty text"),
        ("bm25+bm25-lucene", "names several retrievers and no fusion"),
        ("bm25.rrf", "unknown retriever"),
        ("oracle", "a system needs a retriever"),
        ("maxsim@5", "a system needs a retriever"),
        ("bm25+", "no fusion"),
        ("+bm25", "no fusion"),
        ("bm25+maxsim", "no fusion"),
        ("bm25:k1=1.2@5", "unknown reranker"),
    ],
)
def test_texts_that_are_no_system(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        SystemSpec.parse(text)


def test_one_retriever_serves_all_systems_that_name_it() -> None:
    builder = Builder()
    one, two = (builder.build(SystemSpec.parse(text)) for text in ("bm25", "bm25+bm25-lucene.rrf"))
    assert one.retrievers[0] is two.retrievers[0]
    written = builder.retriever("bm25:k1=0.90,b=0.4")
    assert written is one.retrievers[0], "parameters at their defaults change nothing"


def test_expansions_that_fit_no_query_are_refused(tmp_path: Path) -> None:
    (tmp_path / "hydoc.jsonl").write_text('{"id": "elsewhere", "text": "x", "hy_doc": "y"}\n')
    with pytest.raises(UsageError, match="no usable text"):
        results_of([f"hyde:replay:{tmp_path / 'hydoc.jsonl'}+bm25"], "mini@1/MedQA-Diag", tmp_path / "r")
    with pytest.raises(UsageError, match="no usable text"):
        r2med.evaluate(f"hyde:replay:{tmp_path / 'hydoc.jsonl'}+bm25", r2med.load("mini@1/MedQA-Diag"))


def test_a_plan_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Builder(Options()) as builder:
        system = builder.build(SystemSpec.parse("hyde:gpt4+bm25"))
        assert system.expander is not None
        plan = system.expander.plan(r2med.load("mini@1/Biology"))
    assert plan.calls == 13
    assert plan.cost


def test_only_judged_queries_count_as_missing(tmp_path: Path) -> None:
    from r2med.tasks import convert

    convert(resolve("mini@1/Biology"), tmp_path / "mine", to="r2med")
    query = tmp_path / "mine" / "query.jsonl"
    query.write_text(query.read_text() + '{"id": "unjudged", "text": "the"}\n')
    (result,) = results_of(["bm25"], str(tmp_path / "mine"), tmp_path / "r")
    assert result.missing_queries == 0


def test_objects_and_names_make_the_same_system(tmp_path: Path) -> None:
    """What a system is does not depend on how it was put together."""
    task = r2med.load("mini@1/Biology")
    r2med.write_run(BM25().retrieve(task, depth=9), tmp_path / "stored.run")
    stored = StoredRun(Content.of(tmp_path / "stored.run"))
    by_hand = System(
        (BM25(k1=1.5), stored), ReciprocalRank(k=7), rerankings=(Reranking(as_reranker(by_length), 4, "drop"),)
    )
    text = f"bm25:k1=1.5+run:{tmp_path / 'stored.run'}.rrf:k=7+{HERE},rest=drop@4"
    by_name = Builder().build(SystemSpec.parse(text))
    assert by_hand.spec.first_stage == by_name.spec.first_stage
    assert np.array_equal(ranked(by_hand, task, 50).docs, ranked(by_name, task, 50).docs)
    with pytest.raises(UsageError, match="at least two"):
        System((BM25(),), Weighted())
    with pytest.raises(UsageError, match="need a fusion"):
        System((BM25(), stored))


@pytest.mark.parametrize(
    "system",
    [
        "bm25+openai-small@20",
        "bm25+neighbours:model=openai-small@20",
        "lamer:smollm2,retriever=openai-small+bm25",
        "thinkqe:smollm2,retriever=openai-small+bm25",
        "search-o1:smollm2,retriever=openai-small+bm25",
    ],
)
def test_a_model_inside_another_component_is_named_with_its_host(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers shared a printed name, and each run replaced the results of the other."""
    names = []
    for port in (9, 10):
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
        with Builder() as builder:
            names.append(builder.build(SystemSpec.parse(system)).name)
            assert builder.build(SystemSpec.parse(names[-1])).name == names[-1]
    assert names == [system.replace("openai-small", f"openai-small:host=127.0.0.1:{port}") for port in (9, 10)]
    monkeypatch.delenv("OPENAI_BASE_URL")
    with Builder() as builder:
        assert builder.build(SystemSpec.parse(system)).name == system
