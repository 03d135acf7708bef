"""Stored results side by side: real runs on Mini, then every way in which a folder can be wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from r2med.core import ResultError, UnknownName, UsageError
from r2med.pipeline import run_experiment, systems_from
from r2med.report.stored import score_set, select, stored_scores, task_behind
from r2med.results import ResultStore
from r2med.scoring import MAIN, Measure
from r2med.tasks import convert, resolve


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    refs = [*resolve("mini/Biology"), *resolve("mini/PMC-Clinical")]
    run_experiment(refs, systems_from(["bm25", "bm25-lucene"]), ResultStore(root / "results"))
    return root / "results"


@pytest.fixture
def store(made: Path, tmp_path: Path) -> ResultStore:
    return ResultStore(shutil.copytree(made, tmp_path / "results"))


def test_scores_of_two_systems(store: ResultStore) -> None:
    scores, results, left_out = stored_scores(store, ["bm25", "bm25-lucene"], MAIN)
    assert scores.systems == ("bm25", "bm25-lucene")
    assert [t.name for t in scores.tasks] == ["mini/Biology", "mini/PMC-Clinical"]
    assert (scores.of_tasks, scores.complete, left_out) == (8, False, ())
    for task in scores.tasks:
        for row, system in zip(task.scores, scores.systems, strict=True):
            assert row.mean() == pytest.approx(results[system][task.name].measures["ndcg_at_10"])


def test_tasks_stand_in_the_order_of_the_paper(store: ResultStore) -> None:
    run_experiment(resolve("mini/Bioinformatics"), systems_from(["bm25", "bm25-lucene"]), store)
    scores = stored_scores(store, ["bm25", "bm25-lucene"], MAIN).scores
    assert [t.name for t in scores.tasks] == ["mini/Biology", "mini/Bioinformatics", "mini/PMC-Clinical"]
    assert [t.name for t in score_set(store, select(store)).tasks] == [t.name for t in scores.tasks]


def test_a_system_without_the_collection_is_not_dropped_in_silence(store: ResultStore, tmp_path: Path) -> None:
    convert(resolve("mini/Biology"), tmp_path / "mine", to="beir")
    run_experiment(resolve(str(tmp_path / "mine")), systems_from(["bm25:k1=1.2,b=0.75"]), store)
    with pytest.raises(UsageError, match=r"bm25,k1=1.2,b=0.75 has no results on mini"):
        stored_scores(store, ["bm25", "bm25,k1=1.2,b=0.75"], MAIN, collection="mini")


def test_tasks_that_only_one_system_has_are_named(store: ResultStore) -> None:
    (store.root / "bm25" / "mini" / "Biology.json").unlink()
    scores, _, left_out = stored_scores(store, ["bm25", "bm25-lucene"], MAIN)
    assert [t.name for t in scores.tasks] == ["mini/PMC-Clinical"]
    assert left_out == ("mini/Biology",)
    with pytest.raises(UsageError, match="not every system has results on mini/Biology"):
        stored_scores(store, ["bm25", "bm25-lucene"], MAIN, tasks=["mini/Biology"])
    (store.root / "bm25-lucene" / "mini" / "PMC-Clinical.json").unlink()
    with pytest.raises(UsageError, match="have no task in common"):
        stored_scores(store, ["bm25", "bm25-lucene"], MAIN)


def test_a_result_in_the_folder_of_another_system(store: ResultStore) -> None:
    shutil.copy(store.root / "bm25-lucene" / "mini" / "Biology.json", store.root / "bm25" / "mini" / "Biology.json")
    with pytest.raises(ResultError, match="holds a result of 'bm25-lucene'"):
        stored_scores(store, ["bm25", "bm25-lucene"], MAIN)


def test_one_task_is_never_a_whole(store: ResultStore) -> None:
    scores = stored_scores(store, ["bm25", "bm25-lucene"], MAIN, tasks=["mini/Biology"]).scores
    assert (len(scores.tasks), scores.of_tasks, scores.complete) == (1, 8, False)


def test_a_folder_may_be_given_instead_of_a_name(store: ResultStore) -> None:
    asked = [str(store.root / "bm25"), "bm25-lucene"]
    assert stored_scores(store, asked, MAIN).scores.systems == ("bm25", "bm25-lucene")


def test_collections_are_kept_apart(store: ResultStore, tmp_path: Path) -> None:
    convert(resolve("mini/Biology"), tmp_path / "mine", to="beir")
    run_experiment(resolve(str(tmp_path / "mine")), systems_from(["bm25", "bm25-lucene"]), store)
    with pytest.raises(UsageError, match=r"several collections .*--collection"):
        stored_scores(store, ["bm25", "bm25-lucene"], MAIN)
    scores = stored_scores(store, ["bm25", "bm25-lucene"], MAIN, collection="mini").scores
    assert len(scores.tasks) == 2
    own = stored_scores(store, ["bm25", "bm25-lucene"], MAIN, tasks=["mine"])
    assert (len(own.scores.tasks), own.scores.of_tasks) == (1, 1)
    info = own.results["bm25"]["mine"].task
    assert task_behind(info) is not None
    (tmp_path / "mine" / "queries.jsonl").write_text('{"_id": "x", "text": "other"}\n')
    assert task_behind(info) is None
    shutil.rmtree(tmp_path / "mine")
    assert task_behind(info) is None


def edit(path: Path, **changes: object) -> None:
    document = json.loads(path.read_text())
    document["checksum"] = ""
    for key, value in changes.items():
        document["task"][key] = value
    path.write_text(json.dumps(document))


def test_other_data_are_refused_by_name(store: ResultStore) -> None:
    edit(store.root / "bm25" / "mini" / "Biology.json", fingerprint="f" * 32)
    with pytest.raises(ResultError, match=r"'bm25' and 'bm25-lucene' were scored on different data of mini/Biology"):
        stored_scores(store, ["bm25", "bm25-lucene"], MAIN)


def test_names_nobody_knows(store: ResultStore, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean bm25"):
        stored_scores(store, ["bm25", "bm26"], MAIN)
    with pytest.raises(UsageError, match="'bm25' is given twice"):
        stored_scores(store, ["bm25", "bm25"], MAIN)
    with pytest.raises(UsageError, match=r"no nDCG@7 is stored"):
        stored_scores(store, ["bm25", "bm25-lucene"], Measure("ndcg", 7))
    with pytest.raises(ResultError, match="no such folder of results"):
        stored_scores(ResultStore(tmp_path / "nowhere"), ["bm25"], MAIN)
    with pytest.raises(UsageError, match="bm25 has no results on nano"):
        stored_scores(store, ["bm25", "bm25-lucene"], MAIN, collection="nano")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda p: p.unlink(), "cannot be read"),
        (lambda p: p.write_text("{broken\n"), "cannot be read"),
        (lambda p: p.write_text(""), "do not add up"),
        (lambda p: p.write_text("".join(p.read_text().splitlines(keepends=True)[1:])), "do not add up"),
        (lambda p: p.write_bytes(b'{"query_id": "q", "measures": {"ndcg_at_10": NaN}}\n'), "cannot be read"),
        (lambda p: p.write_bytes(b'{"query_id": "q", "measures": {}}\n'), "cannot be read"),
    ],
)
def test_damaged_per_query_scores(store: ResultStore, damage: object, words: str) -> None:
    damage(store.root / "bm25" / "mini" / "Biology.queries.jsonl")  # type: ignore[operator]
    with pytest.raises(ResultError, match=f"bm25 on mini/Biology: .*{words}"):
        stored_scores(store, ["bm25", "bm25-lucene"], MAIN)


def test_other_queries_are_refused(store: ResultStore) -> None:
    path = store.root / "bm25" / "mini" / "Biology.queries.jsonl"
    path.write_text(path.read_text().replace("Biology-q01", "Biology-q99"))
    with pytest.raises(ResultError, match="scores of different queries on mini/Biology"):
        stored_scores(store, ["bm25", "bm25-lucene"], MAIN)


def test_the_task_behind_a_result(store: ResultStore) -> None:
    results = stored_scores(store, ["bm25", "bm25-lucene"], MAIN).results
    task = task_behind(results["bm25"]["mini/Biology"].task)
    assert task is not None
    assert np.all([task.query(q) is not None for q in task.qrels.query_ids])
