"""Stored results side by side: real runs on Mini, then every way in which a folder can be wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import r2med
from r2med.core import ResultError, UnknownName, UsageError
from r2med.report.collection import all_collections, side_by_side, task_behind, the_collection
from r2med.results import ResultIndex, ResultStore
from r2med.scoring import MAIN, Measure
from r2med.tasks import convert, resolve
from tests.results.sealing import edit


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    refs = [*resolve("mini/Biology"), *resolve("mini/PMC-Clinical")]
    r2med.run("bm25", "bm25-lucene", tasks=refs, results=root / "results")
    return root / "results"


@pytest.fixture
def store(made: Path, tmp_path: Path) -> ResultStore:
    return ResultStore(shutil.copytree(made, tmp_path / "results"))


def test_scores_of_two_systems(store: ResultStore) -> None:
    scores, results, left_out = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)
    assert scores.systems == ("bm25", "bm25-lucene")
    assert [t.name for t in scores.tasks] == ["mini/Biology", "mini/PMC-Clinical"]
    assert (scores.of_tasks, scores.complete, left_out) == (8, False, ())
    for task in scores.tasks:
        for row, system in zip(task.scores, scores.systems, strict=True):
            stored = results.systems[system][task.name.removeprefix("mini/")]
            assert row.mean() == pytest.approx(stored.result.measures["ndcg_at_10"])


def test_tasks_stand_in_the_order_of_the_paper(store: ResultStore) -> None:
    r2med.run("bm25", "bm25-lucene", tasks=resolve("mini/Bioinformatics"), results=store.root)
    scores = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN).scores
    assert [t.name for t in scores.tasks] == ["mini/Biology", "mini/Bioinformatics", "mini/PMC-Clinical"]
    every = side_by_side(ResultIndex([store.root]), [], MAIN).scores
    assert [t.name for t in every.tasks] == [t.name for t in scores.tasks]


def test_a_system_without_the_collection_is_not_dropped_in_silence(store: ResultStore, tmp_path: Path) -> None:
    convert(resolve("mini/Biology"), tmp_path / "mine", to="beir")
    r2med.run("bm25:k1=1.2,b=0.75", tasks=resolve(str(tmp_path / "mine")), results=store.root)
    with pytest.raises(UsageError, match=r"bm25:b=0.75,k1=1.2 has no results on mini"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25:b=0.75,k1=1.2"], MAIN, collection="mini")


def test_tasks_that_only_one_system_has_are_named(store: ResultStore) -> None:
    (store.root / "bm25" / "mini" / "Biology.json").unlink()
    scores, _, left_out = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)
    assert [t.name for t in scores.tasks] == ["mini/PMC-Clinical"]
    assert left_out == ("mini/Biology",)
    with pytest.raises(UsageError, match="not every system has results on mini/Biology"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN, tasks=["mini/Biology"])
    (store.root / "bm25-lucene" / "mini" / "PMC-Clinical.json").unlink()
    with pytest.raises(UsageError, match="have no task in common"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)


def test_a_result_in_the_folder_of_another_system(store: ResultStore) -> None:
    shutil.copy(store.root / "bm25-lucene" / "mini" / "Biology.json", store.root / "bm25" / "mini" / "Biology.json")
    with pytest.raises(ResultError, match="holds a result of 'bm25-lucene'"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)


def test_one_task_is_never_a_whole(store: ResultStore) -> None:
    scores = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN, tasks=["mini/Biology"]).scores
    assert (len(scores.tasks), scores.of_tasks, scores.complete) == (1, 8, False)


def test_a_folder_may_be_given_instead_of_a_name(store: ResultStore) -> None:
    asked = [str(store.root / "bm25"), "bm25-lucene"]
    assert side_by_side(ResultIndex([store.root]), asked, MAIN).scores.systems == ("bm25", "bm25-lucene")


def test_collections_are_kept_apart(store: ResultStore, tmp_path: Path) -> None:
    convert(resolve("mini/Biology"), tmp_path / "mine", to="beir")
    r2med.run("bm25", "bm25-lucene", tasks=resolve(str(tmp_path / "mine")), results=store.root)
    with pytest.raises(UsageError, match=r"several collections .*--collection"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)
    scores = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN, collection="mini").scores
    assert len(scores.tasks) == 2
    own = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN, tasks=["mine"])
    assert (len(own.scores.tasks), own.scores.of_tasks) == (1, 1)
    info = own.results.infos["mine"]
    assert task_behind(info) is not None
    (tmp_path / "mine" / "queries.jsonl").write_text('{"_id": "x", "text": "other"}\n')
    assert task_behind(info) is None
    shutil.rmtree(tmp_path / "mine")
    assert task_behind(info) is None


def test_other_data_are_refused_by_name(store: ResultStore) -> None:
    path = store.root / "bm25" / "mini" / "Biology.json"
    edit(path, lambda document: document["task"].update(fingerprint="f" * 32))
    with pytest.raises(ResultError, match=r"'bm25' and 'bm25-lucene' were scored on different data of mini/Biology"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)


def test_names_nobody_knows(store: ResultStore, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean bm25"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm26"], MAIN)
    with pytest.raises(UsageError, match="'bm25' is given twice"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25"], MAIN)
    with pytest.raises(UsageError, match=r"no nDCG@7 is stored"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], Measure("ndcg", 7))
    with pytest.raises(ResultError, match="no such folder of results"):
        side_by_side(ResultIndex([tmp_path / "nowhere"]), ["bm25"], MAIN)
    with pytest.raises(UsageError, match="bm25 has no results on nano"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN, collection="nano")


def test_other_queries_are_refused(store: ResultStore) -> None:
    path = store.root / "bm25" / "mini" / "Biology.queries.jsonl"
    path.write_text(path.read_text().replace("Biology-q01", "Biology-q99"))
    with pytest.raises(ResultError, match="were changed after they were written"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)
    edit(path.with_name("Biology.json"), lambda document: document.pop("files"))
    with pytest.raises(ResultError, match="scores of different queries on mini/Biology"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)


def test_the_task_behind_a_result(store: ResultStore) -> None:
    results = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN).results
    task = task_behind(results.infos["Biology"])
    assert task is not None
    assert np.all([task.query(q) is not None for q in task.qrels.query_ids])


def test_scores_in_another_order_are_put_beside_their_queries(store: ResultStore) -> None:
    path = store.root / "bm25" / "mini" / "Biology.queries.jsonl"
    before = side_by_side(ResultIndex([store.root]), ["bm25-lucene", "bm25"], MAIN).scores
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    edit(path.with_name("Biology.json"), lambda document: document.pop("files"))
    after = side_by_side(ResultIndex([store.root]), ["bm25-lucene", "bm25"], MAIN).scores
    assert after.tasks[0].query_ids == before.tasks[0].query_ids
    assert (after.tasks[0].scores == before.tasks[0].scores).all()


def test_pages_leave_out_what_cannot_stand_beside_the_rest(store: ResultStore) -> None:
    """Where a comparison refuses, a page shows the rest and says what is missing."""
    other = store.root / "bm25-lucene" / "mini" / "Biology.json"
    edit(other, lambda document: document["task"].update(fingerprint="f" * 32))
    broken = store.root / "bm25" / "mini" / "PMC-Clinical.json"
    broken.write_text(broken.read_text().replace('"depth": 1000', '"depth": 10'))
    (store.root / "bm25" / "mini" / "Biology.queries.jsonl").unlink()
    index = ResultIndex([store.root])
    index.refresh()
    results = all_collections(index)["mini"]
    assert {system: list(tasks) for system, tasks in results.systems.items()} == {
        "bm25": ["Biology"],
        "bm25-lucene": ["PMC-Clinical"],
    }
    assert "was changed after it was written" in results.problems[0]
    assert "was made on other data than most" in results.problems[1]
    assert results.matrix("Biology", MAIN) is None
    assert "there are no per-query scores" in next(iter(results.unread.values()))


def test_the_collection_to_look_at(store: ResultStore, tmp_path: Path) -> None:
    index = ResultIndex([store.root])
    assert the_collection(index) == "mini"
    assert the_collection(index, "nano") == "nano"
    convert(resolve("mini/Biology"), tmp_path / "mine", to="beir")
    r2med.run("bm25", "bm25-lucene", tasks=resolve(str(tmp_path / "mine")), results=store.root)
    with pytest.raises(UsageError, match="results of mini, own: say which with --collection"):
        the_collection(ResultIndex([store.root]))
    own = side_by_side(ResultIndex([store.root]), [], MAIN, collection="own").scores
    assert [t.name for t in own.tasks] == ["mine"]
