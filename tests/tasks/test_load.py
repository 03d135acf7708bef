"""From names and folders to tasks, and folders under a name, in every layout and with every choice."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from msgspec import structs

import r2med
from r2med.core import DataError, HostileData, Task, Unavailable, UsageError
from r2med.core.files import home
from r2med.tasks import collections, list_tasks, load, load_all, resolve, resolve_all, write_task
from r2med.tasks.catalogue import drop_in, locate
from tests.builders import beir_folder, other_folder, r2med_folder, small_task


def test_mini_is_always_there() -> None:
    for entry in collections()["mini@1"].tasks:
        assert locate(entry) is not None
    task = load("mini@1/Biology")
    assert (task.full_name, task.family, task.source) == ("mini@1/Biology", "Q&A reference", "built in")


def test_a_name_wins_over_a_folder_unless_a_path_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_task(small_task(), tmp_path / "mini@1", to="r2med")
    monkeypatch.chdir(tmp_path)
    means = r"^{0} means the collection or task of that name; write \./{0} for the folder$"
    with pytest.warns(UserWarning, match=means.format("mini@1")):
        assert len(resolve("mini@1")) == 8
    (tmp_path / "r2med").mkdir()
    (tmp_path / "r2med" / "corpus.jsonl").write_text("half a task\n")
    with pytest.warns(UserWarning, match=means.format("r2med")):
        assert len(resolve("r2med")) == 8
    assert load("./mini@1").fingerprint == small_task().fingerprint
    (tmp_path / "mini@1").rename("other")
    assert load("other").name == "other"
    assert load(tmp_path / "other").full_name == "other"


@pytest.mark.parametrize("spec", ["", " ", "mini@1/Biology,"])
def test_an_empty_text_is_not_the_folder_one_works_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    """`--tasks "$UNSET"` ran whatever the folder held."""
    write_task(small_task(), tmp_path, to="r2med")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="an empty text names no task"):
        resolve_all([spec])
    assert [ref.name for ref in resolve_all(["."])] == [tmp_path.name]


def test_one_task_is_not_eight() -> None:
    with pytest.raises(UsageError, match=r"'mini@1' stands for 8 tasks \(mini@1/Biology, .*\); name one of them"):
        load("mini@1")
    assert len(load_all("mini@1/MedQA-Diag")) == 1


def test_a_task_that_is_not_here_says_what_to_do() -> None:
    with pytest.raises(Unavailable) as caught:
        load("r2med/Biology")
    assert str(caught.value) == (
        "r2med/Biology is not on this machine: r2med data download r2med/Biology, "
        f"or put its files into {home() / 'data/r2med/Biology'}, or give a folder instead of the name"
    )


@pytest.mark.parametrize("name", ["r2med/Biology", "nano/Biology"])
def test_files_dropped_in_are_found(name: str) -> None:
    (ref,) = resolve(name)
    assert ref.entry is not None
    place = drop_in(ref.entry)
    if name.startswith("nano"):
        write_task(small_task(), place.parent, to="nano", split=ref.entry.split)
    else:
        write_task(small_task(), place, to="r2med", compress="gz")
    task = small_as_published(name)
    assert task.fingerprint == small_task().fingerprint
    assert (task.full_name, task.revision) == (name, ref.entry.revision)


def small_as_published(name: str) -> Task:
    """What is found under a name, were it published with the counts of the small task."""
    (ref,) = resolve(name)
    assert ref.entry is not None
    counts = {"queries": 2, "documents": 3, "judgments": len(small_task().qrels)}
    return ref._replace(entry=structs.replace(ref.entry, **counts)).load()


def test_other_files_than_the_published_ones_are_refused_under_its_name() -> None:
    """They were run as `r2med/Biology`, with its revision in the results."""
    (ref,) = resolve("r2med/Biology")
    assert ref.entry is not None
    write_task(small_task(), drop_in(ref.entry), to="r2med")
    wrong = r"is not r2med/Biology as published: it has 2 queries instead of 103, 3 documents instead of 57,359, "
    with pytest.raises(DataError, match=wrong):
        load("r2med/Biology")
    assert load(drop_in(ref.entry)).fingerprint == small_task().fingerprint


def test_files_beside_the_folders_of_tasks_are_not_every_task() -> None:
    write_task(small_task(), home() / "data" / "r2med", to="r2med")
    assert not any(task.available for task in list_tasks("r2med"))


def test_half_of_the_files_are_not_a_task() -> None:
    (ref,) = resolve("r2med/Biology")
    assert ref.entry is not None
    folder = r2med_folder(drop_in(ref.entry))
    assert locate(ref.entry) == folder
    (folder / "qrels.jsonl").unlink()
    assert locate(ref.entry) is None


def test_a_zip_dropped_in_is_found(tmp_path: Path) -> None:
    import shutil

    (ref,) = resolve("r2med/PMC-Treatment")
    assert ref.entry is not None
    write_task(small_task(), tmp_path / "a", to="r2med")
    place = drop_in(ref.entry)
    place.parent.mkdir(parents=True)
    shutil.make_archive(str(place), "zip", tmp_path / "a")
    assert small_as_published("r2med/PMC-Treatment").fingerprint == small_task().fingerprint


def names(spec: str) -> list[str]:
    return [ref.full_name for ref in resolve(spec)]


def test_a_split_that_is_not_the_test_set_is_in_the_name(tmp_path: Path) -> None:
    folder = beir_folder(tmp_path / "notes", dev="q1\td1\t1\n")
    task = load(str(folder))
    assert (task.full_name, task.extra["judged"]) == ("notes@dev", "dev")
    assert names(f"{folder}@dev") == ["notes@dev"]
    with pytest.raises(UsageError, match=r"has no 'test' \(it has dev\)"):
        resolve(f"{folder}@test")
    assert names(str(beir_folder(tmp_path / "folds", fold2="q1\td1\t1\n"))) == ["folds@fold2"]
    plain = beir_folder(tmp_path / "plain", qrels="q1\td1\t1\n")
    assert names(str(plain)) == ["plain"], "judgments that belong to no split"


def test_of_several_splits_the_one_that_is_used_is_said(tmp_path: Path) -> None:
    folder = beir_folder(tmp_path / "notes", test="q1\td1\t1\n", dev="q2\td3\t1\n", train="q1\td2\t1\n")
    said = f"{folder}: the judgments of test are used; {folder}@dev takes those of dev (train likewise)"
    with pytest.warns(UserWarning, match=f"^{re.escape(said)}$"):
        usual = load(str(folder))
    test, dev = load(f"{folder}@test"), load(f"{folder}@dev")
    assert (test.full_name, test.fingerprint) == ("notes", usual.fingerprint)
    assert (dev.full_name, [q.id for q in dev.queries]) == ("notes@dev", ["q2"])
    assert dev.fingerprint != test.fingerprint
    (folder / "qrels" / "test.tsv").unlink()
    with pytest.warns(UserWarning, match="the judgments of dev are used"):
        assert names(str(folder)) == ["notes@dev"]


def test_tasks_without_a_split_are_named(tmp_path: Path) -> None:
    """Their mean would be taken for that of all tasks."""
    beir_folder(tmp_path / "set" / "both", test="q1\td1\t1\n", dev="q2\td3\t1\n")
    beir_folder(tmp_path / "set" / "one", test="q1\td1\t1\n")
    with pytest.warns(UserWarning, match=r"set: 1 task without 'dev' left out \(one\)$"):
        assert names(f"{tmp_path}/set@dev") == ["both@dev"]
    assert names(f"{tmp_path}/set@test") == ["both", "one"]


def test_a_path_may_hold_an_at_sign(tmp_path: Path) -> None:
    folder = beir_folder(tmp_path / "v@2" / "notes@home", test="q1\td1\t1\n")
    assert names(str(folder)) == ["notes@home"]
    assert names(f"{folder}@test") == ["notes@home"]
    with pytest.raises(UsageError, match="has no 'dev'"):
        resolve(f"{folder}@dev")


def test_one_task_of_a_nano_folder(tmp_path: Path) -> None:
    for split in ("one", "two"):
        write_task(small_task(), tmp_path / "small", to="nano", split=split)
    assert names(f"{tmp_path}/small@two") == ["small/two"]
    with pytest.raises(UsageError, match=r"has no 'three' \(it has one, two\)"):
        resolve(f"{tmp_path}/small@three")


@pytest.mark.parametrize("name", ["nano", "NANO", "r2med"])
def test_a_folder_called_like_a_collection_is_not_the_collection(name: str, tmp_path: Path) -> None:
    """Its results would stand beside what others published on other data."""
    write_task(small_task(), tmp_path / name, to="nano", split="NanoR2MEDBiology")
    assert names(str(tmp_path / name)) == [f"{name}~/Biology"]


def test_a_catalogue_task_has_test_judgments() -> None:
    (ref,) = resolve("r2med/Biology")
    assert ref.entry is not None
    beir_folder(drop_in(ref.entry), dev="q1\td1\t1\n")
    with pytest.raises(DataError, match="has judgments of dev, and r2med/Biology is a test set"):
        load("r2med/Biology")


def test_judgments_of_what_is_not_there_are_told(tmp_path: Path) -> None:
    """A judged query under another id counts as 0 for every system, which `run` did not say."""
    write_task(small_task(), tmp_path / "t", to="beir")
    with (tmp_path / "t" / "qrels" / "test.tsv").open("a") as stream:
        stream.write("q1 \td1\t1\nq1\td98\t1\nq1\td99\t1\n")
    with pytest.warns(UserWarning, match="not there and never found") as told:
        load(tmp_path / "t")
    query, documents = (str(warning.message) for warning in told)
    assert f"{tmp_path / 't'}: judgments name the query 'q1 ', not there and never found" in query
    assert "judgments name the document 'd98' and 1 more, not there" in documents


def test_two_splits_of_one_name_are_two_tasks(tmp_path: Path) -> None:
    """`NanoR2MEDBiology` is called Biology: beside a split of that name one of the two was left out unseen."""
    for split in ("Biology", "NanoR2MEDBiology", "NanoR2MEDMedQADiag"):
        write_task(small_task(), tmp_path / "set", to="nano", split=split)
    refs = resolve_all([str(tmp_path / "set")])
    assert {ref.split: ref.full_name for ref in refs} == {
        "Biology": "set/Biology",
        "NanoR2MEDBiology": "set/NanoR2MEDBiology",
        "NanoR2MEDMedQADiag": "set/MedQA-Diag",
    }
    assert [ref.split for ref in resolve(f"{tmp_path / 'set'}@Biology")] == ["Biology"]


# Folders under a name: `r2med data add`.


def added(*folders: object) -> list[str]:
    return [one.task.name for one in r2med.add_collection("mine", *map(str, folders))]


def test_splits_are_tasks_of_their_own(tmp_path: Path) -> None:
    folder = beir_folder(tmp_path / "notes", test="q1\td1\t1\n", dev="q2\td3\t1\n")
    with pytest.warns(UserWarning, match="the judgments of test are used"):
        assert added(folder) == ["notes"]
    assert added(f"{folder}@dev") == ["notes@dev"]
    tasks = {ref.name: ref.load() for ref in resolve("mine")}
    assert {name: [q.id for q in task.queries] for name, task in tasks.items()} == {
        "notes": ["q1"],
        "notes@dev": ["q2"],
    }
    assert load("mine/Notes@DEV").fingerprint == tasks["notes@dev"].fingerprint
    (folder / "qrels" / "test.tsv").unlink()
    with pytest.raises(DataError, match=r"has no qrels/test\.tsv"):
        load("mine/notes")
    with pytest.raises(DataError, match="has changed since it became mine/notes@dev"):
        load("mine/notes@dev")  # with one file of judgments, queries without any are part of the task


def test_a_name_of_its_own_keeps_the_split(tmp_path: Path) -> None:
    folder = beir_folder(tmp_path / "notes", dev="q2\td3\t1\n")
    assert added(f"ward={folder}") == ["ward@dev"]
    assert added(f"ward={folder}@dev") == ["ward@dev"]


def test_a_folder_of_tasks_a_zip_and_a_nano_folder(tmp_path: Path) -> None:
    for number in range(2):
        other_folder(tmp_path / "all" / f"task{number}", str(number))
    assert added(tmp_path / "all") == ["task0", "task1"]
    shutil.make_archive(str(tmp_path / "packed"), "zip", r2med_folder(tmp_path / "plain"))
    assert added(tmp_path / "packed.zip") == ["packed"]
    write_task(small_task(), tmp_path / "nano", to="nano", split="one")
    assert added(tmp_path / "nano") == ["one"]
    assert [ref.full_name for ref in resolve("mine")] == [f"mine/{n}" for n in ("task0", "task1", "packed", "one")]
    assert load("mine/one").fingerprint == small_task().fingerprint


def test_paths_with_signs_that_mean_something(tmp_path: Path) -> None:
    odd = r2med_folder(tmp_path / "a=b@c" / "x=y@z")
    assert added(odd) == ["x=y@z"]
    r2med.remove_collection("mine")
    assert added(f"task={odd}") == ["task"]
    assert load("mine/task").source == str(odd)
    comma = other_folder(tmp_path / "a,b")
    assert added(comma) == ["a,b"]
    assert [s.task for s in r2med.stats("mine/a,b")] == ["mine/a,b"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a/b=FOLDER", DataError),  # a path that is not there
        ("..=FOLDER", HostileData),
        ("=FOLDER", DataError),
        ("a@dev=FOLDER", UsageError),
        ("a,b=FOLDER", UsageError),
        ("nowhere", DataError),
        ("mini/Biology", DataError),  # a name, and no folder
    ],
)
def test_what_is_no_folder_and_what_is_no_name(text: str, error: type[Exception], tmp_path: Path) -> None:
    folder = r2med_folder(tmp_path / "task")
    with pytest.raises(error):
        r2med.add_collection("mine", text.replace("FOLDER", str(folder)))
    with pytest.raises(UsageError, match="no folder is given"):
        r2med.add_collection("mine")


def test_several_tasks_keep_their_names(tmp_path: Path) -> None:
    for number in range(2):
        other_folder(tmp_path / "all" / f"task{number}", str(number))
    with pytest.raises(UsageError, match="holds 2 tasks, which keep their names"):
        added(f"one={tmp_path / 'all'}")


def test_a_folder_that_cannot_be_read_as_a_task_is_not_added(tmp_path: Path) -> None:
    folder = r2med_folder(tmp_path / "task", qrels=b"")
    with pytest.raises(DataError, match="holds no judgments"):
        added(folder)
    with pytest.raises(UsageError, match="unknown task 'mine'"):
        resolve("mine")
