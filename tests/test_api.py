"""Everything the command can do, as functions: the same numbers, with objects and loaded tasks as well as names."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import r2med
from r2med import Options, Task
from r2med.core import DataError, MissingExtra, Unavailable, UnknownName, UsageError
from r2med.core.budget import Budget, BudgetSpent
from r2med.pipeline.experiment import BEST_OFFLINE
from r2med.rerank import rerankers
from r2med.scoring.intervals import Settings
from r2med.tasks import write_task
from tests.llm.server import ChatServer, serving

QUICK = Settings(resamples=500)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def biology() -> Task:
    return r2med.load("mini@1/Biology")


class Hashed:
    """Words hashed into `width` buckets: an encoder whose state is its width."""

    def __init__(self, width: int) -> None:
        self.width = width

    def encode(self, texts: list[str]) -> Any:
        rows = np.zeros((len(texts), self.width), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.casefold().split():
                row[zlib.crc32(word.encode()) % self.width] += 1
        return rows


class Overlap:
    """A cross-encoder: words that two texts share."""

    def predict(self, pairs: list[tuple[str, str]]) -> list[float]:
        return [float(len(set(query.split()) & set(passage.split()))) for query, passage in pairs]


def shout(text: str) -> str:
    return f"{text} gene"


def names_of(scores: r2med.Scores) -> list[str]:
    return [row.system for row in scores.table.rows]


# What the command does.


def test_run_gives_the_numbers_of_the_command() -> None:
    scores = r2med.run("bm25", "bm25-lucene", tasks=["mini@1/Biology", "mini@1/MedQA-Diag"], fuse="rrf")
    command = [sys.executable, "-m", "r2med", "run", "-r", "bm25", "-r", "bm25-lucene", "--fuse", "rrf", "--json"]
    done = subprocess.run([*command, "-t", "mini@1/Biology,mini@1/MedQA-Diag"], capture_output=True, check=True)
    assert json.loads(done.stdout) == json.loads(json.dumps(scores.to_dict())), "and the stored results were taken"
    assert names_of(scores) == ["bm25", "bm25-lucene", "bm25+bm25-lucene.rrf"]
    assert f"{100 * scores.table.rows[0].tasks['mini@1/Biology']:.2f}" in repr(scores)
    assert scores.to_markdown().startswith("| System |")
    assert "R@100" in repr(scores.by("R@100"))


def test_the_default_systems() -> None:
    """Each step beside the next; the best of what runs offline comes last, unless a step is asked for."""
    names = names_of(r2med.run(tasks="mini@1/Biology"))
    assert names[0] == "bm25"
    if "bge-small" in names:
        assert names[2:] == ["bm25+bge-small.rrf", BEST_OFFLINE]
        assert BEST_OFFLINE not in names_of(r2med.run(tasks="mini@1/Biology", fuse="combsum"))


def test_finished_results_are_reused() -> None:
    first: list[str] = []
    again: list[str] = []
    assert r2med.run("bm25", tasks="mini@1/Biology", notify=lambda *told: first.append(told[2])).kept == 0
    assert r2med.run("bm25", tasks="mini@1/Biology", notify=lambda *told: again.append(told[2])).kept == 1
    assert {"running", "done"} <= set(first)
    assert "kept" in again
    assert not {"running", "done"} & set(again)
    assert r2med.run("bm25", tasks="mini@1/Biology", overwrite=True).kept == 0


def test_whole_systems_and_what_the_flags_add() -> None:
    made = r2med.systems("bm25", "bm25-lucene", fuse="weighted", weights=[0.7, 0.3], rerank="maxsim@20", rest="drop")
    assert list(map(str, made)) == [
        "bm25",
        "bm25-lucene",
        "bm25+bm25-lucene.weighted:w=0.7/0.3",
        "bm25+bm25-lucene.weighted:w=0.7/0.3+maxsim:rest=drop@20",
    ]
    assert made == [r2med.SystemSpec.parse(str(system)) for system in made]
    scores = r2med.run(
        "bm25+bm25-lucene.weighted:w=0.7/0.3", "bm25+bm25-lucene.weighted:w=0.3/0.7", tasks="mini@1/Biology"
    )
    assert len(set(names_of(scores))) == 2


def test_a_plan_says_what_would_be_done() -> None:
    before = {stage.stage: stage.cached for stage in r2med.plan("bm25", tasks="mini@1/Biology")}
    assert (before["index"], before["search"], before["score"]) == ("no", "no", "no")
    assert not Path("results").exists()
    r2med.run("bm25", tasks="mini@1/Biology")
    assert {stage.cached for stage in r2med.plan("bm25", tasks="mini@1/Biology")} <= {"yes"}


# Objects.


def test_objects_are_systems() -> None:
    scores = r2med.run(r2med.BM25(k1=1.2), "bm25", Hashed(64), tasks="mini@1/Biology", fuse="rrf")
    first, second, third, fused = names_of(scores)
    assert (first, second) == ("bm25:k1=1.2", "bm25")
    assert "Hashed~" in third
    assert fused == f"{first}+{second}+{third}.rrf"


def test_another_state_is_another_system(biology: Task) -> None:
    """A class with two sizes, one after the other and both at once."""
    expected = {width: r2med.evaluate(Hashed(width), biology).mean() for width in (4, 1024)}
    assert expected[4] != expected[1024]
    for width in (4, 1024, 4):
        (row,) = r2med.run(Hashed(width), tasks=biology).table.rows
        assert row.tasks["mini@1/Biology"] == expected[width]
    both = r2med.run(Hashed(4), Hashed(1024), tasks=biology).table.rows
    assert [row.tasks["mini@1/Biology"] for row in both] == list(expected.values())


@pytest.mark.parametrize(
    "rerank",
    [
        (Overlap(), 20),
        ("tests.test_api:Overlap", 20),
        (rerankers.parse("tests.test_api:Overlap"), 20),
        "tests.test_api:Overlap@20",
        rerankers.parse("tests.test_api:Overlap@20"),
    ],
    ids=["object", "name", "spec", "name with depth", "spec with depth"],
)
def test_a_reranker_with_its_depth_is_taken_by_run_and_evaluate(rerank: Any, biology: Task) -> None:
    scores = r2med.run("bm25", tasks=biology, rerank=rerank, rest="drop")
    assert names_of(scores)[-1].endswith(",rest=drop@20")
    evaluation = r2med.evaluate("bm25", biology, rerank=rerank, rest="drop")
    assert scores.table.rows[-1].tasks["mini@1/Biology"] == evaluation.mean()
    ranked = r2med.BM25().retrieve(biology)
    run = r2med.rerank(Overlap(), biology, ranked, depth=20, rest="drop")
    assert r2med.score(run, biology).mean() == evaluation.mean()


def test_rerank_does_all_that_its_spec_says(biology: Task) -> None:
    """What becomes of candidates below the depth, and several rerankers in a row, as in `evaluate`."""
    name, ranked = f"{__name__}:Overlap", r2med.BM25().retrieve(biology)
    dropped = r2med.rerank(f"{name},rest=drop@20", biology, ranked)
    assert dropped.depth == 20
    assert dropped.docs.tolist() == r2med.rerank(f"{name}@20", biology, ranked, rest="drop").docs.tolist()
    chain = f"{name}@50+{name},blend=0.5,rest=drop@10"
    run = r2med.rerank(chain, biology, ranked)
    assert run.depth == 10
    assert r2med.score(run, biology).mean() == r2med.evaluate("bm25", biology, rerank=chain).mean()
    with pytest.raises(UsageError, match="says rest=drop, and something else"):
        r2med.rerank(f"{name},rest=drop@20", biology, ranked, rest="keep")
    for ask in (
        lambda: r2med.rerank(chain, biology, ranked, depth=5),
        lambda: r2med.evaluate("bm25", biology, rerank=(chain, 5)),
    ):
        with pytest.raises(UsageError, match="how deep each of its rerankers goes"):
            ask()


def test_a_cross_encoder_alone_reranks_bm25(biology: Task) -> None:
    assert r2med.evaluate(Overlap(), biology).mean() == r2med.evaluate("bm25", biology, rerank=Overlap()).mean()


def test_an_expander_of_ones_own(biology: Task) -> None:
    scores = r2med.run("bm25", tasks=biology, expand=shout)
    plain, expanded = scores.table.rows
    assert plain.tasks != expanded.tasks
    assert expanded.tasks["mini@1/Biology"] == r2med.evaluate("bm25", biology, expand=shout).mean()
    assert [item.texts[0] for item in r2med.expand(shout, biology, limit=2)] == [
        f"{query.text} gene" for query in biology.queries[:2]
    ]


# Tasks.


def test_loaded_tasks_and_names_together(biology: Task) -> None:
    own = replace(biology, name="mine", collection="", queries=biology.queries[:5])
    scores = r2med.run("bm25", tasks=[biology, "mini@1/Biology", own, "mini@1/MedQA-Diag"])
    assert [row["task"] for row in scores.rows()] == ["mini@1/Biology", "mine", "mini@1/MedQA-Diag"]
    assert names_of(r2med.run("bm25", tasks=own)) == ["bm25"]


def test_two_tasks_of_one_name_are_refused(tmp_path: Path, biology: Task) -> None:
    other = replace(biology, queries=biology.queries[:3])
    for folder, task in (("a", biology), ("b", other)):
        write_task(task, tmp_path / folder / "mine", to="beir")
    both = [str(tmp_path / "a" / "mine"), str(tmp_path / "b" / "mine")]
    with pytest.raises(UsageError, match="two different tasks are called 'mine'"):
        r2med.run("bm25", tasks=both)
    with pytest.raises(UsageError, match="two different tasks are called 'mini@1/Biology'"):
        r2med.run("bm25", tasks=[biology, other])
    assert not (tmp_path / "results").exists()
    (again,) = r2med.run("bm25", tasks=[both[0], f"{both[0]}/", "a/mine"]).rows()
    assert again["task"] == "mine"


# Scores.


def test_tasks_may_be_paths(tmp_path: Path) -> None:
    write_task(r2med.load("mini@1/Biology"), tmp_path / "a, b", to="r2med")
    by_path = r2med.run("bm25", tasks=tmp_path / "a, b", results=tmp_path / "r")
    by_text = r2med.run("bm25", tasks=[f"{tmp_path}/a, b"], results=tmp_path / "r")
    assert [r.fingerprint for r in by_path.results] == [r.fingerprint for r in by_text.results]
    assert by_text.kept == 1
    with pytest.raises(UsageError, match="3 is no task: give a name, a folder or a loaded task"):
        r2med.run("bm25", tasks=[3], results=tmp_path / "r")


def test_score_and_evaluate_are_two_functions(biology: Task) -> None:
    run = r2med.BM25().retrieve(biology)
    evaluation = r2med.evaluate("bm25", biology, measures=["nDCG@10"])
    assert list(evaluation.per_query) == ["nDCG@10"]
    assert evaluation.mean() == r2med.score(run, biology).mean() == r2med.score(run, biology.qrels).mean()
    assert evaluation.mean() == r2med.evaluate(r2med.BM25(), biology).mean()
    with pytest.raises(TypeError, match=r"score\(run, qrels\) scores a run"):
        r2med.evaluate(run, biology)
    with pytest.raises(TypeError, match="evaluated on a task"):
        r2med.evaluate("bm25", biology.qrels)  # type: ignore[arg-type]


def test_rows_and_data_frames_have_the_printed_names(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = r2med.run("bm25", "bm25-lucene", tasks="mini@1/Biology")
    assert scores.rows()[0].keys() >= {"system", "task", "queries", "nDCG@10", "R@100"}
    frame = scores.to_pandas()
    assert list(frame["system"]) == ["bm25", "bm25-lucene"]
    assert frame["nDCG@10"].tolist() == [row.tasks["mini@1/Biology"] for row in scores.table.rows]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"r2med\[interop\]"):
        scores.to_pandas()


def test_compare_stored_systems_and_evaluations(biology: Task) -> None:
    r2med.run("bm25", "bm25-lucene", tasks="mini@1/Biology")
    stored = r2med.compare("bm25", "bm25-lucene", settings=QUICK)
    fresh = r2med.compare({name: r2med.evaluate(name, biology) for name in ("bm25", "bm25-lucene")}, settings=QUICK)
    assert stored.pairs[0].macro.difference == pytest.approx(fresh.pairs[0].macro.difference, abs=1e-12)
    assert stored.pairs[0].moved[0].snippet
    assert "bm25-lucene minus bm25" in stored._repr_html_()


def test_the_share_that_was_judged_is_over_the_tasks_that_are_compared(biology: Task) -> None:
    """It was over all tasks of each system, also those that the other one lacks, which no score beside it counts."""
    other = r2med.load("mini@1/MedQA-Diag")
    first = {"a": r2med.evaluate("bm25", biology), "b": r2med.evaluate("bm25", other)}
    second = {"a": r2med.evaluate("bm25-lucene", biology)}
    assert first["a"].judged_at_10 != first["b"].judged_at_10
    found = r2med.compare({"first": first, "second": second}, settings=QUICK)
    assert (found.systems[0].macro.tasks, found.systems[0].macro.of_tasks) == (1, 2)
    assert found.judged_at_10 == {"first": first["a"].judged_at_10, "second": second["a"].judged_at_10}


def test_margins_and_effects_are_points_as_on_the_command_line() -> None:
    r2med.run("bm25", "bm25-lucene", tasks=["mini@1/Biology", "mini@1/MedQA-Diag"])
    judged = r2med.compare("bm25", "bm25-lucene", settings=QUICK, margin=2).pairs[0].macro.equivalence
    assert judged is not None
    assert judged.margin == 0.02
    assert r2med.design(effect=2).effect == 0.02
    with pytest.raises(UsageError, match="between 0 and 100 points, got 200"):
        r2med.compare("bm25", "bm25-lucene", settings=QUICK, margin=200)


# One step at a time.


def test_search(biology: Task) -> None:
    found = r2med.search("how do honey bees dance", biology, top=3)
    assert len(found) == 3
    assert [hit.doc_id for hit in found] == [
        hit.doc_id for hit in r2med.search("how do honey bees dance", "mini@1/Biology", top=3)
    ]


def test_fuse(biology: Task) -> None:
    runs = [r2med.get_retriever(name).retrieve(biology) for name in ("bm25", "bm25-lucene")]
    fused = r2med.fuse(runs, biology, "weighted:w=1/0", depth=10)
    assert fused.name == "bm25+bm25-lucene.weighted:w=1/0"
    assert [hit.doc_id for hit in fused.of(biology.queries[0].id)] == [
        hit.doc_id for hit in runs[0].of(biology.queries[0].id)[:10]
    ]
    with pytest.raises(UsageError, match="3 rankings need 3 weights, not 2"):
        r2med.fuse([*runs, runs[0]], biology, "weighted:w=1/0")


def test_weights_are_tuned_for_objects_too(biology: Task) -> None:
    named, own = (r2med.tune(first, "bm25-lucene", tasks=[biology]) for first in ("bm25", r2med.BM25()))
    assert named == own
    assert r2med.tune("bm25-lucene", r2med.BM25(), tasks=[biology]).weights == named.weights[::-1]


def test_fuse_takes_the_runs_that_rerank_takes(biology: Task, tmp_path: Path) -> None:
    """A run that was read from a file holds the documents that were found, and perhaps fewer queries."""
    made = r2med.BM25().retrieve(biology)
    r2med.write_run(made.top(10), tmp_path / "stored.run")
    stored = r2med.read_run(tmp_path / "stored.run")
    first = r2med.Run.from_rankings({biology.queries[0].id: stored.of(biology.queries[0].id)})
    for run in (stored, first):
        fused = r2med.fuse([made, run], biology, "rrf", depth=5)
        assert [len(fused), fused.doc_ids] == [len(biology.queries), biology.documents.ids]
        assert fused.of(biology.queries[0].id)[0].doc_id == made.of(biology.queries[0].id)[0].doc_id
    other = r2med.Run.from_rankings({"unknown": stored.of(biology.queries[0].id)})
    with pytest.raises(DataError, match="query 'unknown', which mini@1/Biology does not hold"):
        r2med.fuse([made, other], biology)


def test_where_the_gain_of_an_expansion_comes_from(biology: Task) -> None:
    from r2med import diagnose

    found = diagnose(r2med.expand(shout, biology), biology)
    assert found.judged_by == "words"


# Money.


class Watched(Budget):
    """Keeps the most that was set aside for a call."""

    most = 0.0

    def hold(self, ahead: float) -> Any:
        self.most = max(self.most, ahead)
        return super().hold(ahead)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with serving() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


def test_one_budget_for_the_whole_call(
    server: ChatServer, biology: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two chat models would keep within the limit by itself; together they do not."""
    server.text = lambda body: "Honey bees communicate by dancing."
    small = replace(biology, queries=biology.queries[:4])
    systems = ["hyde:gpt4+bm25", "hyde:o3-mini+bm25"]
    needed = []
    for number, system in enumerate(systems):
        monkeypatch.setenv("R2MED_HOME", str(tmp_path / f"alone-{number}"))
        spending = Watched(None)
        r2med.run(system, tasks=small, results=f"alone-{number}", options=Options(budget=spending))
        assert spending.spent > 0
        needed.append((spending.spent, spending.most))
    limit = max(spent + most for spent, most in needed)
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "together"))
    for number, system in enumerate(systems):
        monkeypatch.setenv("R2MED_HOME", str(tmp_path / f"again-{number}"))
        r2med.run(system, tasks=small, results=f"again-{number}", max_cost=limit)
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "together"))
    with pytest.raises(BudgetSpent):
        r2med.run(*systems, tasks=small, results="together", max_cost=limit, options=Options(concurrency=1))


# Mistakes.


def test_mistakes(biology: Task) -> None:
    with pytest.raises(UnknownName, match="did you mean bm25"):
        r2med.run("bm26")
    with pytest.raises(Unavailable, match="not on this machine"):
        r2med.run("bm25", tasks="r2med/Biology")
    with pytest.raises(UsageError):
        r2med.run(3)
    with pytest.raises(UsageError, match="no tasks"):
        r2med.run("bm25", tasks=[])
    with pytest.raises(UsageError, match="two different objects are called"):
        r2med.run(Named("mine"), Named("mine"), tasks=biology)
    with pytest.raises(UsageError, match="name one"):
        r2med.run("bm25", tasks=biology, weights=[1, 2])
    with pytest.raises(UsageError, match="name one"):
        r2med.run("bm25", tasks=biology, policy="passages")
    with pytest.raises(UsageError, match="two or more names"):
        r2med.compare("bm25")
    with pytest.raises(UsageError, match="is no evaluation"):
        r2med.compare({"a": 1, "b": 2})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="both rerankers"):
        r2med.evaluate(Overlap(), biology, rerank=Overlap())


class Named(Hashed):
    """Two of these say that they are the same and are not."""

    version = "1"

    def __init__(self, name: str) -> None:
        super().__init__(16)
        self.name = name


def test_a_plan_without_systems_is_that_of_the_default_ones(tmp_path: Path) -> None:
    planned = r2med.plan(tasks="mini@1/Biology", results=tmp_path)
    assert ("search", "bm25") in [(stage.stage, stage.what) for stage in planned]


def test_arguments_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    """Each of these was ignored, or gave a number for something else."""
    task = r2med.load("mini@1/Biology")
    ranked = r2med.BM25().retrieve(task)
    scored = {name: {"Biology": r2med.evaluate(name, task)} for name in ("bm25", "bm25-lucene")}
    for call, words in (
        (lambda: r2med.rerank("maxsim", task, ranked, depth=0), "depth must be 1 or more"),
        (lambda: r2med.search("bees", task, retriever=r2med.BM25(), prompts="pack.json"), "prompts belong to a model"),
        (lambda: r2med.compare(scored, tasks=["Other"]), "choose among stored results"),
        (lambda: r2med.compare(scored, collection="mini"), "choose among stored results"),
        (lambda: r2med.tune("bm25", "bm25-lucene", steps=0), "a step or more"),
        (lambda: r2med.tune("bm25", object(), tasks=[task]), "does not encode"),
        (lambda: r2med.expand("hyde:smollm2", task, limit=0), "1 or more, not 0"),
        (lambda: r2med.plot_pareto(tmp_path / "a.svg", axis="secs"), "the axis is seconds or cost"),  # type: ignore[arg-type]
        (lambda: r2med.plot_truncation(tmp_path / "a.svg", side="doc"), "document or query"),  # type: ignore[arg-type]
        (lambda: r2med.reproduce(tolerance=float("nan"), results=tmp_path), "a tolerance is 0 points or more"),
        (lambda: r2med.reproduce(tolerance=-1.0, results=tmp_path), "a tolerance is 0 points or more"),
    ):
        with pytest.raises(UsageError, match=words):
            call()
