"""From names and places to tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.core import Unavailable, UsageError
from r2med.core.places import home
from r2med.tasks import collections, load, load_all, resolve, write_task
from r2med.tasks.catalogue import drop_in, locate
from tests.builders import r2med_folder, small_task


def test_mini_is_always_there() -> None:
    for entry in collections()["mini"].tasks:
        assert locate(entry) is not None
    task = load("mini/Biology")
    assert (task.full_name, task.family, task.source) == ("mini/Biology", "Q&A reference", "built in")


def test_a_name_wins_over_a_folder_unless_a_path_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_task(small_task(), tmp_path / "mini", to="r2med")
    monkeypatch.chdir(tmp_path)
    assert len(resolve("mini")) == 8
    assert load("./mini").fingerprint == small_task().fingerprint
    (tmp_path / "mini").rename("other")
    assert load("other").name == "other"
    assert load(tmp_path / "other").full_name == "other"


def test_one_task_is_not_eight() -> None:
    with pytest.raises(UsageError, match=r"'mini' stands for 8 tasks \(mini/Biology, .*\); name one of them"):
        load("mini")
    assert len(load_all("mini/MedQA-Diag")) == 1


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
    task = load(name)
    assert task.fingerprint == small_task().fingerprint
    assert (task.full_name, task.revision) == (name, ref.entry.revision)


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
    assert load("r2med/PMC-Treatment").fingerprint == small_task().fingerprint
