"""Collections of one's own: what a name may be, what is kept of a folder, and what happens when it is another one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import r2med
from r2med.core import DataError, R2MedError, UnknownName, UsageError
from r2med.core.files import home
from r2med.tasks import list_tasks, load, resolve, write_task
from r2med.tasks.catalogue import remembered
from r2med.tasks.own import own_collection, own_collections
from tests.builders import other_folder, r2med_folder, small_task

HOSTILE = ["", ".", "..", "../x", "a/b", "/abs", "~", "-rf", "x\n", "\x1b[2J", "a" * 65, "ä", "a b/", "x.zip", "a@1"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_cannot_be_one_is_refused(name: str, tmp_path: Path) -> None:
    folder = r2med_folder(tmp_path / "task")
    with pytest.raises(UsageError, match="cannot name a collection"):
        r2med.add_collection(name, folder)
    assert not (home() / "collections").exists()
    with pytest.raises(R2MedError):
        r2med.remove_collection(name)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("mini", "collection of r2med"),
        ("Mini-Dev", "collection of r2med"),
        ("R2MED", "collection of r2med"),
        ("Biology", "task of r2med"),
        ("stack_biology", "task of r2med"),
        ("R2MEDBiologyRetrieval", "task of r2med"),
        ("own", "belong to no collection"),
    ],
)
def test_a_name_that_means_something_else_is_refused(name: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=what):
        r2med.add_collection(name, r2med_folder(tmp_path / "task"))


def test_the_name_of_a_model_is_free(tmp_path: Path) -> None:
    """No place takes a task and a model alike."""
    r2med.add_collection("bm25", r2med_folder(tmp_path / "task"))
    scores = r2med.run("bm25", tasks="bm25", results=tmp_path / "results")
    assert [r.task.full_name for r in scores.results] == ["bm25/task"]


def test_a_name_has_one_spelling(tmp_path: Path) -> None:
    (added,) = r2med.add_collection("My_Notes", r2med_folder(tmp_path / "task"))
    assert added.collection == "my-notes"
    r2med.add_collection("MY-NOTES", other_folder(tmp_path / "second"))
    assert [c.name for c in own_collections()] == ["my-notes"]
    assert [ref.full_name for ref in resolve("my notes")] == ["my-notes/task", "my-notes/second"]
    assert load("My-Notes/TASK").full_name == "my-notes/task"
    with pytest.raises(UsageError, match="two of the folders would be my-notes/New"):
        r2med.add_collection("my-notes", other_folder(tmp_path / "new", "a"), other_folder(tmp_path / "b/New", "b"))


def test_what_is_added_is_loaded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    r2med_folder(Path("one"))
    other_folder(Path("two"))
    added = r2med.add_collection("mine", "one", Path("two"))
    assert [(a.state, a.task.name, a.task.queries, a.task.documents) for a in added] == [
        ("added", "one", 2, 2),
        ("added", "two", 2, 2),
    ]
    monkeypatch.chdir("/")
    task = r2med.load("mine/one")
    assert (task.full_name, task.source) == ("mine/one", str(tmp_path / "one"))
    assert task.fingerprint == load(str(tmp_path / "one")).fingerprint == added[0].task.fingerprint
    assert [t.name for t in r2med.load_all("mine")] == ["one", "two"]
    r2med.prune_cache(max_bytes=0)
    listed = [t for t in list_tasks() if t.own]
    assert listed == list_tasks("mine")
    assert [(t.collection, t.name, t.available, t.path) for t in listed] == [
        ("mine", "one", True, str(tmp_path / "one")),
        ("mine", "two", True, str(tmp_path / "two")),
    ]
    with pytest.raises(UnknownName, match="did you mean mine/one"):
        load("mine/on")


def test_two_folders_of_one_name_and_nothing_half_done(tmp_path: Path) -> None:
    first, second = r2med_folder(tmp_path / "a" / "cases"), other_folder(tmp_path / "b" / "cases")
    with pytest.raises(UsageError, match=r"two of the folders would be mine/cases: name one as TASK=FOLDER"):
        r2med.add_collection("mine", first, second)
    assert own_collection("mine") is None
    r2med.add_collection("mine", first, f"later={second}")
    assert [ref.full_name for ref in resolve("mine")] == ["mine/cases", "mine/later"]
    with pytest.raises(UsageError, match="holds other data than"):
        r2med.add_collection("mine", second)
    with pytest.raises(UsageError, match="hold the same data: mine takes one of them"):
        r2med.add_collection("mine", f"again={second}")
    assert [ref.full_name for ref in resolve("mine")] == ["mine/cases", "mine/later"]


def test_a_folder_that_changed_is_refused_until_it_is_added_again(tmp_path: Path) -> None:
    folder = r2med_folder(tmp_path / "task")
    (before,) = r2med.add_collection("mine", folder)
    assert r2med.add_collection("mine", folder)[0].state == "unchanged"
    other_folder(folder)
    with pytest.raises(DataError, match="has changed since it became mine/task") as caught:
        load("mine/task")
    assert f"r2med data add mine {folder} takes it as it is now" in str(caught.value)
    assert load(str(folder)).full_name == "task", "by its path it is what it is"
    (after,) = r2med.add_collection("mine", folder)
    assert (after.state, after.task.fingerprint != before.task.fingerprint) == ("changed", True)
    assert load("mine/task").fingerprint == after.task.fingerprint


def test_a_folder_that_is_gone_moved_or_replaced(tmp_path: Path) -> None:
    folder = r2med_folder(tmp_path / "task")
    r2med.add_collection("mine", folder)
    folder.rename(tmp_path / "moved")
    assert [(t.name, t.available, t.bytes) for t in list_tasks("mine")] == [("task", False, None)]
    with pytest.raises(
        DataError, match=r"task: is not there any more \(it was mine/task\): r2med data add mine task=NEW"
    ):
        load("mine/task")
    (added,) = r2med.add_collection("mine", f"task={tmp_path / 'moved'}")
    assert added.state == "moved"
    assert load("mine/task").source == str(tmp_path / "moved")
    shutil.rmtree(tmp_path / "moved")
    write_task(small_task(), tmp_path / "moved", to="beir")
    with pytest.raises(DataError, match=r"has changed since it became mine/task .* r2med data add mine task=/"):
        load("mine/task")


def test_one_folder_in_two_collections(tmp_path: Path) -> None:
    folder = r2med_folder(tmp_path / "task")
    for name in ("mine", "ours"):
        r2med.add_collection(name, folder)
    results = tmp_path / "results"
    scores = r2med.run("bm25", tasks=["mine", "ours", str(folder)], results=results)
    assert [r.task.full_name for r in scores.results] == ["mine/task", "ours/task", "task"]
    assert len({r.task.fingerprint for r in scores.results}) == 1
    assert sorted(p.parent.name for p in results.glob("*/*/*.json")) == ["mine", "ours", "own"]
    r2med.remove_collection("mine")
    assert load("ours/task").full_name == "ours/task"


def test_removing(tmp_path: Path) -> None:
    first, second = r2med_folder(tmp_path / "one"), other_folder(tmp_path / "two")
    r2med.add_collection("mine", first, second)
    assert r2med.remove_collection("Mine/ONE") == ["mine/one"]
    assert [ref.full_name for ref in resolve("mine")] == ["mine/two"]
    with pytest.raises(UnknownName, match="mine has no task one"):
        r2med.remove_collection("mine/one")
    assert r2med.remove_collection("mine/two") == ["mine/two"]
    assert (own_collections(), first.is_dir(), second.is_dir()) == ([], True, True)
    for name in ("mine", "mini", "../collections", ""):
        with pytest.raises(UnknownName, match="others cannot be removed"):
            r2med.remove_collection(name)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"[" * 100_000, b'{"schema": 9, "name": "mine", "tasks": []}', b"\xff\xfe"]
)
def test_a_damaged_list_is_one_line_and_can_be_removed(content: bytes, tmp_path: Path) -> None:
    folder = r2med_folder(tmp_path / "task")
    r2med.add_collection("mine", folder)
    r2med.add_collection("ours", folder)
    path = home() / "collections" / "mine.json"
    path.write_bytes(content)
    for ask in (lambda: load("mine/task"), lambda: r2med.add_collection("mine", folder), list_tasks):
        with pytest.raises(DataError, match="is no list of a collection") as caught:
            ask()
        assert len(str(caught.value).splitlines()) == 1
    assert load("ours/task").name == "task"
    assert len(resolve("mini")) == 8
    r2med.remove_collection("mine")
    assert [c.name for c in own_collections()] == ["ours"]


def test_a_list_under_another_name_is_not_read(tmp_path: Path) -> None:
    r2med.add_collection("mine", r2med_folder(tmp_path / "task"))
    folder = home() / "collections"
    shutil.copy(folder / "mine.json", folder / "yours.json")
    with pytest.raises(DataError, match="is no list of a collection of this r2med"):
        resolve("yours")


def test_names_that_a_file_system_keeps_for_itself(tmp_path: Path) -> None:
    r2med.add_collection("con", r2med_folder(tmp_path / "task"))
    assert load("con/task").full_name == "con/task"
    assert not (home() / "collections" / "con.json").exists()


ADDING = "import sys, r2med; r2med.add_collection('mine', sys.argv[1])"


def test_processes_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    folders = [other_folder(tmp_path / f"task{i}", str(i)) for i in range(4)]
    started = [subprocess.Popen([sys.executable, "-c", ADDING, str(folder)]) for folder in folders]
    assert [process.wait(120) for process in started] == [0] * 4
    assert sorted(ref.name for ref in resolve("mine")) == [f.name for f in folders]


def test_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "file"))
    folder = r2med_folder(tmp_path / "task")
    with pytest.raises(R2MedError, match="cannot be written"):
        r2med.add_collection("mine", folder)
    scores = r2med.run("bm25", tasks=str(folder), results=tmp_path / "results")
    assert scores.results[0].task.name == "task", "only the texts of later pages are lost"


def test_a_run_remembers_where_its_task_lay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = load(str(r2med_folder(Path("task"))))
    assert remembered(task.fingerprint) is None
    r2med.run("bm25", tasks="./task", results="results")
    place = remembered(task.fingerprint)
    assert place is not None
    assert (place.path, place.judged) == (str(tmp_path / "task"), "")
    r2med.run("bm25", tasks="mini@1/Biology", results="results")
    assert len(list((home() / "places").iterdir())) == 1, "tasks of the catalogue are found by their names"
    for hostile in ("../collections/mine", "/etc/passwd", "", "a" * 5000):
        assert remembered(hostile) is None
    (file,) = (home() / "places").iterdir()
    file.write_text(json.dumps({"path": 7}))
    assert remembered(task.fingerprint) is None
