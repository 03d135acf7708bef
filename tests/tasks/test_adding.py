"""The folders of `r2med data add`: in every layout, with every choice, under every name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import r2med
from r2med.core import DataError, HostileData, UsageError
from r2med.tasks import load, resolve, write_task
from tests.builders import beir_folder, other_folder, r2med_folder, small_task


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
