"""Stored results side by side: real runs on Mini, then every way in which a folder can be wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

import r2med
from r2med.core import ResultError, UnknownName, UsageError
from r2med.core.files import home
from r2med.report.collection import all_collections, side_by_side, task_behind, the_collection
from r2med.report.leaderboard import board
from r2med.results import ResultIndex, ResultStore, TaskInfo
from r2med.scoring import MAIN, Measure
from r2med.tasks import convert, resolve, write_task
from tests.builders import beir_folder, other_folder, r2med_folder, small_task
from tests.results.sealing import edit


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    refs = [*resolve("mini@1/Biology"), *resolve("mini@1/PMC-Clinical")]
    r2med.run("bm25", "bm25-lucene", tasks=refs, results=root / "results")
    return root / "results"


@pytest.fixture
def store(made: Path, tmp_path: Path) -> ResultStore:
    return ResultStore(shutil.copytree(made, tmp_path / "results"))


def test_scores_of_two_systems(store: ResultStore) -> None:
    scores, results, left_out = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)
    assert scores.systems == ("bm25", "bm25-lucene")
    assert [t.name for t in scores.tasks] == ["mini@1/Biology", "mini@1/PMC-Clinical"]
    assert (scores.of_tasks, scores.complete, left_out) == (8, False, ())
    for task in scores.tasks:
        for row, system in zip(task.scores, scores.systems, strict=True):
            stored = results.systems[system][task.name.removeprefix("mini@1/")]
            assert row.mean() == pytest.approx(stored.result.measures["ndcg_at_10"])


def test_tasks_stand_in_the_order_of_the_paper(store: ResultStore) -> None:
    r2med.run("bm25", "bm25-lucene", tasks=resolve("mini@1/Bioinformatics"), results=store.root)
    scores = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN).scores
    assert [t.name for t in scores.tasks] == ["mini@1/Biology", "mini@1/Bioinformatics", "mini@1/PMC-Clinical"]
    every = side_by_side(ResultIndex([store.root]), [], MAIN).scores
    assert [t.name for t in every.tasks] == [t.name for t in scores.tasks]


def test_a_system_without_the_collection_is_not_dropped_in_silence(store: ResultStore, tmp_path: Path) -> None:
    convert(resolve("mini@1/Biology"), tmp_path / "mine", to="beir")
    r2med.run("bm25:k1=1.2,b=0.75", tasks=resolve(str(tmp_path / "mine")), results=store.root)
    with pytest.raises(UsageError, match=r"bm25:b=0.75,k1=1.2 has no results on mini@1"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25:b=0.75,k1=1.2"], MAIN, collection="mini@1")


def test_tasks_that_only_one_system_has_are_named(store: ResultStore) -> None:
    (store.root / "bm25" / "mini@1" / "Biology.json").unlink()
    scores, _, left_out = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)
    assert [t.name for t in scores.tasks] == ["mini@1/PMC-Clinical"]
    assert left_out == ("mini@1/Biology",)
    with pytest.raises(UsageError, match="not every system has results on mini@1/Biology"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN, tasks=["mini@1/Biology"])
    (store.root / "bm25-lucene" / "mini@1" / "PMC-Clinical.json").unlink()
    with pytest.raises(UsageError, match="have no task in common"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)


def test_a_result_in_the_folder_of_another_system(store: ResultStore) -> None:
    shutil.copy(store.root / "bm25-lucene" / "mini@1" / "Biology.json", store.root / "bm25" / "mini@1" / "Biology.json")
    with pytest.raises(ResultError, match="holds a result of 'bm25-lucene'"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)


def test_one_task_is_never_a_whole(store: ResultStore) -> None:
    scores = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN, tasks=["mini@1/Biology"]).scores
    assert (len(scores.tasks), scores.of_tasks, scores.complete) == (1, 8, False)


def test_a_folder_may_be_given_instead_of_a_name(store: ResultStore) -> None:
    asked = [str(store.root / "bm25"), "bm25-lucene"]
    assert side_by_side(ResultIndex([store.root]), asked, MAIN).scores.systems == ("bm25", "bm25-lucene")


def test_collections_are_kept_apart(store: ResultStore, tmp_path: Path) -> None:
    convert(resolve("mini@1/Biology"), tmp_path / "mine", to="beir")
    r2med.run("bm25", "bm25-lucene", tasks=resolve(str(tmp_path / "mine")), results=store.root)
    with pytest.raises(UsageError, match=r"several collections .*--collection"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)
    scores = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN, collection="mini@1").scores
    assert len(scores.tasks) == 2
    own = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN, tasks=["mine"])
    assert (len(own.scores.tasks), own.scores.of_tasks) == (1, 1)
    info = own.results.infos["mine"]
    assert task_behind(info).task is not None
    (tmp_path / "mine" / "queries.jsonl").write_text('{"_id": "x", "text": "other"}\n')
    assert task_behind(info).task is None
    shutil.rmtree(tmp_path / "mine")
    assert task_behind(info).task is None


def test_other_data_are_refused_by_name(store: ResultStore) -> None:
    path = store.root / "bm25" / "mini@1" / "Biology.json"
    edit(path, lambda document: document["task"].update(fingerprint="f" * 32))
    with pytest.raises(ResultError, match=r"'bm25' and 'bm25-lucene' were scored on different data of mini@1/Biology"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)


def test_rankings_that_end_before_the_cut_off_are_not_compared_with_longer_ones(tmp_path: Path) -> None:
    """nDCG@10 of the first five documents stood beside nDCG@10 of ten, without a word."""
    task, store = "mini@1/Biology", ResultStore(tmp_path / "results")
    shown = r2med.run("bm25", tasks=task, depth=5, results=store.root).table.table().caption
    assert "Rankings were cut at rank 5, so that nDCG@10 counts less than there is to find." in shown
    assert "cut at" not in r2med.run("bm25-lucene", tasks=task, results=store.root).table.table().caption
    index = ResultIndex([store.root])
    with pytest.raises(ResultError, match=r"'bm25' was ranked to depth 5 on mini@1/Biology and 'bm25-lucene' to 1000"):
        side_by_side(index, ["bm25", "bm25-lucene"], MAIN)
    assert side_by_side(index, ["bm25", "bm25-lucene"], Measure.parse("nDCG@5")).scores.queries
    rows = {row.system: row.caution for row in board(store.root, collection="mini@1").rows if row.measured}
    assert rows["bm25"].startswith("Rankings were cut at rank 5")
    assert not rows["bm25-lucene"]


def test_score_against_cost_refuses_rankings_of_unlike_depth_and_says_which_tasks_it_is_over(tmp_path: Path) -> None:
    """It drew R@100 of ten documents beside R@100 of a hundred, and a mean of two tasks as that of the collection."""
    root, out = tmp_path / "results", tmp_path / "pareto.svg"
    tasks = ["mini@1/Biology", "mini@1/MedQA-Diag"]
    r2med.run("bm25", tasks=tasks, results=root)
    r2med.run("bm25-lucene", tasks=tasks, depth=10, results=root)
    for plot in (r2med.plot_pareto, r2med.plot_truncation):
        with pytest.raises(ResultError, match=r"'bm25-lucene' was ranked to depth 10 on mini@1/Biology and 'bm25' to"):
            plot(out, results=root, measure="R@100")
    found = r2med.plot_pareto(out, results=root)
    assert found.notes == ["only 2 of 8 tasks: those that have results"]
    assert "nDCG@10 × 100, mean of 2 of 8 tasks" in out.read_text("utf-8")
    r2med.run("bm25", tasks="mini@1", results=root)
    assert not r2med.plot_pareto(out, "bm25", results=root).notes
    assert "nDCG@10 × 100, mean of the tasks" in out.read_text("utf-8")


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
    path = store.root / "bm25" / "mini@1" / "Biology.queries.jsonl"
    path.write_text(path.read_text().replace("Biology-q01", "Biology-q99"))
    with pytest.raises(ResultError, match="were changed after they were written"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)
    edit(path.with_name("Biology.json"), lambda document: document.pop("files"))
    with pytest.raises(ResultError, match="scores of different queries on mini@1/Biology"):
        side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN)


def test_the_task_behind_a_result(store: ResultStore) -> None:
    results = side_by_side(ResultIndex([store.root]), ["bm25", "bm25-lucene"], MAIN).results
    task = task_behind(results.infos["Biology"]).task
    assert task is not None
    assert np.all([task.query(q) is not None for q in task.qrels.query_ids])


def test_scores_in_another_order_are_put_beside_their_queries(store: ResultStore) -> None:
    path = store.root / "bm25" / "mini@1" / "Biology.queries.jsonl"
    before = side_by_side(ResultIndex([store.root]), ["bm25-lucene", "bm25"], MAIN).scores
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    edit(path.with_name("Biology.json"), lambda document: document.pop("files"))
    after = side_by_side(ResultIndex([store.root]), ["bm25-lucene", "bm25"], MAIN).scores
    assert after.tasks[0].query_ids == before.tasks[0].query_ids
    assert (after.tasks[0].scores == before.tasks[0].scores).all()


def test_pages_leave_out_what_cannot_stand_beside_the_rest(store: ResultStore) -> None:
    """Where a comparison refuses, a page shows the rest and says what is missing."""
    other = store.root / "bm25-lucene" / "mini@1" / "Biology.json"
    edit(other, lambda document: document["task"].update(fingerprint="f" * 32))
    broken = store.root / "bm25" / "mini@1" / "PMC-Clinical.json"
    broken.write_text(broken.read_text().replace('"depth": 1000', '"depth": 10'))
    (store.root / "bm25" / "mini@1" / "Biology.queries.jsonl").unlink()
    index = ResultIndex([store.root])
    index.refresh()
    results = all_collections(index)["mini@1"]
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
    assert the_collection(index) == "mini@1"
    assert the_collection(index, "nano") == "nano"
    convert(resolve("mini@1/Biology"), tmp_path / "mine", to="beir")
    r2med.run("bm25", "bm25-lucene", tasks=resolve(str(tmp_path / "mine")), results=store.root)
    with pytest.raises(UsageError, match="results of mini@1, own: say which with --collection"):
        the_collection(ResultIndex([store.root]))
    own = side_by_side(ResultIndex([store.root]), [], MAIN, collection="own").scores
    assert [t.name for t in own.tasks] == ["mine"]


def names_of(collection: str, root: Path) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """What of a collection is shown, by system, and what is said."""
    index = ResultIndex([root])
    index.refresh()
    found = all_collections(index)[collection]
    return {system: sorted(tasks) for system, tasks in found.systems.items()}, found.problems


def test_results_on_earlier_content_are_not_mixed_with_new_ones(tmp_path: Path) -> None:
    one, two, root = r2med_folder(tmp_path / "one"), other_folder(tmp_path / "two"), tmp_path / "results"
    r2med.add_collection("mine", one, two)
    r2med.run("bm25", "bm25-lucene", tasks="mine", results=root)
    old = task_behind(side_by_side(ResultIndex([root]), [], MAIN).results.infos["two"])
    assert old.task is not None
    other_folder(two, "newer")
    r2med.add_collection("mine", two)
    shown, said = names_of("mine", root)
    assert shown == {"bm25": ["one"], "bm25-lucene": ["one"]}
    assert said == tuple(
        f"{system} on mine/two was made on other data than mine/two holds here now; run it again"
        for system in ("bm25", "bm25-lucene")
    )
    both = side_by_side(ResultIndex([root]), ["bm25", "bm25-lucene"], MAIN)
    assert [t.name for t in both.scores.tasks] == ["mine/one"]
    assert (both.scores.of_tasks, both.results.problems) == (2, said)
    with pytest.raises(ResultError, match="was made on other data than mine/two holds here now"):
        side_by_side(ResultIndex([root]), ["bm25", "bm25-lucene"], MAIN, tasks=["mine/two"])
    rows = board(root, collection="mine").rows
    assert [(row.macro, row.scope) for row in rows] == [(None, "1 of 2")] * 2
    with pytest.warns(UserWarning, match="run it again"):
        r2med.compare("bm25", "bm25-lucene", results=root)
    told: list[str] = []
    r2med.run("bm25", tasks="mine", results=root, notify=lambda system, task, what: told.append(f"{task}: {what}"))
    assert "mine/two: stale: the data changed" in told
    assert names_of("mine", root)[0] == {"bm25": ["one", "two"], "bm25-lucene": ["one"]}
    with pytest.raises(ResultError, match=r"different data of mine/two .*: run 'bm25-lucene' again"):
        side_by_side(ResultIndex([root]), ["bm25", "bm25-lucene"], MAIN)


def test_texts_are_found_again_or_it_is_said_why_not(tmp_path: Path) -> None:
    folder, root = r2med_folder(tmp_path / "one"), tmp_path / "results"
    r2med.run("bm25", tasks=str(folder), results=root)  # before it was added
    (before,) = ResultIndex([root]).all()
    info = before.result.task
    assert (info.full_name, before.slug) == ("one", "own")
    assert task_behind(info).task is not None
    folder.rename(tmp_path / "moved")
    assert task_behind(info).why == f"{folder}: no such folder or file."
    assert task_behind(info, [tmp_path / "moved"]).task is None, "a folder of another name is another task"
    r2med.add_collection("mine", f"renamed={tmp_path / 'moved'}")
    assert task_behind(info).task is not None, "the same content, wherever it lies now"
    other_folder(tmp_path / "moved")
    changed = f"{tmp_path / 'moved'} on this machine is not what these results were made on."
    assert task_behind(info) == (None, changed)
    unknown = TaskInfo(**{**msgspec.structs.asdict(info), "fingerprint": "f" * 32})
    assert task_behind(unknown) == (None, "The folder of its task is not known on this machine.")


def test_a_split_is_found_again(tmp_path: Path) -> None:
    folder = beir_folder(tmp_path / "notes", test="q1\td1\t1\n", dev="q2\td3\t1\n")
    for part in ("dev", "test"):
        r2med.run("bm25", tasks=f"{folder}@{part}", results=tmp_path / "results")
    found = {stored.task: task_behind(stored.result.task).task for stored in ResultIndex([tmp_path / "results"]).all()}
    assert {name: task and [q.id for q in task.queries] for name, task in found.items()} == {
        "notes": ["q1"],
        "notes@dev": ["q2"],
    }
    shutil.rmtree(home() / "places")
    (info,) = [s.result.task for s in ResultIndex([tmp_path / "results"]).all() if s.task == "notes@dev"]
    assert task_behind(info).task is None
    named = task_behind(info, [tmp_path / "nowhere", folder]).task
    assert named is not None
    assert [q.id for q in named.queries] == ["q2"], "the folder that was named, and the split of the result"


def test_a_collection_is_what_was_added_under_its_name(tmp_path: Path) -> None:
    one, two, root = r2med_folder(tmp_path / "one"), other_folder(tmp_path / "two"), tmp_path / "results"
    r2med.add_collection("mine", two, one)
    r2med.run("bm25", tasks="mine", results=root)
    assert [t.rpartition("/")[2] for t in board(root).tasks] == ["two", "one"], "in the order in which they were added"
    assert all(row.measured for row in board(root).rows), "nobody published anything on it"
    r2med.remove_collection("mine/two")
    assert names_of("mine", root) == ({"bm25": ["one"]}, ("bm25 on mine/two is left out: mine has no task two here",))
    r2med.remove_collection("mine")
    assert names_of("mine", root) == ({"bm25": ["one", "two"]}, ())


def test_another_collection_of_the_same_name(tmp_path: Path) -> None:
    """Results that somebody else made on a collection that is called as one here."""
    root = tmp_path / "results"
    r2med.add_collection("mine", r2med_folder(tmp_path / "a" / "one"))
    r2med.run("bm25", tasks="mine", results=root)
    r2med.remove_collection("mine")
    r2med.add_collection("mine", other_folder(tmp_path / "b" / "one"), other_folder(tmp_path / "b" / "two", "two"))
    said = "the results on mine were made on other data than it holds here now; run them again"
    assert names_of("mine", root) == ({"bm25": ["one"]}, (said,))
    (row,) = board(root).rows
    assert (row.complete, row.tasks_of, board(root).notes) == (True, (1, 1), [said])


def test_a_collection_may_be_spelled_as_one_likes(tmp_path: Path) -> None:
    root = tmp_path / "results"
    r2med.add_collection("my-notes", r2med_folder(tmp_path / "one"))
    r2med.add_collection("empty", r2med_folder(tmp_path / "one"))
    r2med.run("bm25", tasks="my-notes", results=root)
    index = ResultIndex([root])
    assert the_collection(index, "My_Notes") == "my-notes"
    assert board(root, collection="MY NOTES").rows[0].collection == "my-notes"
    with pytest.raises(ResultError, match="nothing has nDCG@10 on empty"):
        board(root, collection="Empty")
    with pytest.raises(UnknownName, match=r"unknown collection 'my-note'; did you mean my-notes\?"):
        the_collection(index, "my-note")


def test_a_folder_called_like_a_collection_stands_beside_nothing_published(tmp_path: Path) -> None:
    """Results on it, also those of before it was told apart, are not those of NanoR2MED."""
    write_task(small_task(), tmp_path / "nano", to="nano", split="NanoR2MEDBiology")
    root = tmp_path / "results"
    r2med.run("bm25", tasks=str(tmp_path / "nano"), results=root)
    (stored,) = ResultIndex([root]).all()
    assert stored.full_name == "nano~/Biology"
    old = root / "bm25" / "nano" / "Biology.json"
    old.parent.mkdir()
    for suffix in (".run.gz", ".queries.jsonl", ".json"):
        stored.path.with_suffix(suffix).rename(old.with_suffix(suffix))
    edit(old, lambda document: document["task"].update(collection="nano"))
    (again,) = ResultIndex([root]).all()
    assert (again.path, again.full_name, again.result.task.full_name) == (old, "nano~/Biology", "nano~/Biology")
    assert ResultStore(root).find("bm25", "nano", "Biology") is None
    found = ResultStore(root).find("bm25", "nano~", "Biology")
    assert found is not None
    rows = board(root).rows
    assert ({row.origin for row in rows}, rows[0].collection) == ({"measured here"}, "nano~")
    assert task_behind(again.result.task).task is not None
    kept = r2med.run("bm25", tasks=str(tmp_path / "nano"), results=root)
    assert kept.kept == 1
