from __future__ import annotations

import threading
from pathlib import Path

import pytest

from r2med.core import DataError, UsageError
from r2med.judge.journal import Conflict, Entry, Header, Journal, now

HEADER = Header(project="p", judge="Ada", kind="person")


def entry(name: str, *, replaces: str = "", grade: int | None = 1, doc_id: str = "d1", at: str = "") -> Entry:
    return Entry(id=name, at=at or now(), query_id="q1", doc_id=doc_id, grade=grade, replaces=replaces)


def test_entries_are_there_after_reopening(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "ada.jsonl", HEADER)
    journal.save(entry("1", grade=2))
    journal.save(entry("2", grade=0, replaces="1"))
    again = Journal(tmp_path / "ada.jsonl", HEADER, read_only=True)
    assert again.grades() == journal.grades() == {("q1", "d1"): 0}
    assert not again.forks


def test_an_entry_sent_twice_counts_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "ada.jsonl", HEADER)
    journal.save(entry("1"))
    journal.save(entry("2", replaces="1", grade=3))
    journal.save(entry("1"))
    assert journal.grades() == {("q1", "d1"): 3}
    assert (tmp_path / "ada.jsonl").read_bytes().count(b"\n") == 3  # the header and two entries
    with pytest.raises(UsageError, match="two different entries"):
        journal.save(entry("1", grade=0))


def test_two_windows_cannot_overwrite_each_other(tmp_path: Path) -> None:
    first, second = (Journal(tmp_path / "ada.jsonl", HEADER) for _ in range(2))
    first.save(entry("1", grade=2))
    with pytest.raises(Conflict) as stopped:
        second.save(entry("2", grade=0))
    assert stopped.value.current is not None
    assert stopped.value.current.grade == 2
    second.save(entry("2", grade=0, replaces="1"))
    first.refresh()
    assert first.grades() == {("q1", "d1"): 0}


def test_taking_a_grade_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "ada.jsonl", HEADER)
    journal.save(entry("1"))
    journal.save(entry("2", grade=None, replaces="1"))
    assert journal.grades() == {}


def test_a_line_cut_short_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "ada.jsonl"
    Journal(path, HEADER).save(entry("1"))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        journal = Journal(path, HEADER)
        if not journal.current("q1", "d1"):
            journal.save(entry("1"))
        journal.save(entry("2", grade=3, replaces="1"))
        assert Journal(path, HEADER, read_only=True).grades() == {("q1", "d1"): 3}


def test_clones_put_together_are_told(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine.jsonl", tmp_path / "theirs.jsonl"
    for path, grade, at in ((mine, 1, "2026-01-02"), (theirs, 3, "2026-01-01")):
        Journal(path, HEADER).save(entry(path.stem, grade=grade, at=at))
    mine.write_bytes(mine.read_bytes() + theirs.read_bytes().split(b"\n", 1)[1])
    journal = Journal(mine, HEADER, read_only=True)
    assert journal.forks == {("q1", "d1")}
    assert journal.grades() == {("q1", "d1"): 1}  # the later one


def test_another_judges_file_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "ada.jsonl", HEADER).save(entry("1"))
    with pytest.raises(DataError, match="is not the journal of Bob"):
        Journal(tmp_path / "ada.jsonl", Header(project="p", judge="Bob", kind="person"))
    (tmp_path / "other.jsonl").write_text("nonsense\n")
    with pytest.raises(DataError, match="not a journal"):
        Journal(tmp_path / "other.jsonl", HEADER)


def test_many_threads_lose_nothing(tmp_path: Path) -> None:
    journals = [Journal(tmp_path / "ada.jsonl", HEADER) for _ in range(4)]

    def write(number: int) -> None:
        for i in range(20):
            journals[number % 4].save(entry(f"{number}-{i}", doc_id=f"d{number}-{i}"))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Journal(tmp_path / "ada.jsonl", HEADER, read_only=True).grades()) == 160
