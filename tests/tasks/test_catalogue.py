from __future__ import annotations

import csv

import pytest

from r2med.core import UnknownName
from r2med.tasks import collections, entries, find_tasks
from r2med.tasks.catalogue import COLLECTION_NAMES
from tests.conftest import SHARED_DATA

# queries, documents, judgments as published
R2MED = {
    "Biology": (103, 57_359, 374),
    "Bioinformatics": (77, 47_473, 227),
    "Medical-Sciences": (88, 34_810, 244),
    "MedXpertQA-Exam": (97, 61_379, 292),
    "MedQA-Diag": (118, 56_250, 522),
    "PMC-Treatment": (150, 28_954, 315),
    "PMC-Clinical": (114, 60_406, 248),
    "IIYi-Clinical": (129, 10_449, 457),
}


def test_the_collections() -> None:
    assert tuple(collections()) == COLLECTION_NAMES == ("mini@1", "mini-dev", "mini", "nano", "r2med")
    for name, collection in collections().items():
        assert collection.name == name
        assert [t.name for t in collection.tasks] == list(R2MED)
        assert {t.family for t in collection.tasks} == {"Q&A reference", "Clinical evidence", "Clinical case"}
        assert all(t.scenario and t.description and t.licence and t.layout for t in collection.tasks)


def test_counts_and_revisions_of_r2med() -> None:
    for entry in entries("r2med"):
        assert (entry.queries, entry.documents, entry.judgments) == R2MED[entry.name]
        assert entry.dataset == f"R2MED/{entry.name}"
        assert len(entry.revision) == 40
    assert sum(e.queries for e in entries("r2med")) == 876
    assert len({e.revision for e in entries("r2med")}) == 8


def test_counts_of_nano() -> None:
    nano = list(entries("nano"))
    assert {e.name: e.queries for e in nano} == {name: counts[0] for name, counts in R2MED.items()}
    assert {e.documents for e in nano} == {10_000}
    assert all(e.dataset == "hakari-bench/NanoR2MED" and e.split.startswith("NanoR2MED") for e in nano)


def test_counts_of_nano_are_those_published() -> None:
    table = SHARED_DATA.parent / "published" / "nano_r2med_profiles.csv"
    if not table.is_file():
        pytest.skip("no ../shared/published/nano_r2med_profiles.csv")
    with table.open(newline="") as stream:
        published = {row["task"]: row for row in csv.DictReader(stream)}
    for entry in entries("nano"):
        row = published[entry.split]
        assert (entry.queries, entry.documents, entry.judgments) == tuple(
            int(row[c]) for c in ("queries", "documents", "positives")
        )


def test_no_name_means_two_tasks() -> None:
    names = [e.full_name for e in entries()]
    assert len(names) == len(set(names)) == 40
    for collection in collections():
        spelled = [n.casefold() for e in entries(collection) for n in (e.name, *e.aliases)]
        assert len(spelled) == len(set(spelled))


@pytest.mark.parametrize("collection", COLLECTION_NAMES)
def test_a_collection_and_its_tasks_are_found(collection: str) -> None:
    assert find_tasks(collection) == collections()[collection].tasks
    for entry in entries(collection):
        assert find_tasks(entry.full_name) == (entry,)
        assert find_tasks(entry.full_name.upper()) == (entry,)
        for alias in entry.aliases:
            assert find_tasks(alias) == (entry,)


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("Biology", "r2med/Biology"),
        ("Stack-Biology", "r2med/Biology"),
        ("PMC-Treat", "r2med/PMC-Treatment"),
        ("R2MEDBiologyRetrieval", "r2med/Biology"),
        ("NanoR2MEDBiology", "nano/Biology"),
        ("nano/Stack-Biology", "nano/Biology"),
        ("mini@1/PMC-Treat", "mini@1/PMC-Treatment"),
        ("medqa_diag", "r2med/MedQA-Diag"),
        ("nano/", "nano/Biology"),
    ],
)
def test_the_spellings_of_others(spelled: str, meant: str) -> None:
    assert find_tasks(spelled)[0].full_name == meant


def test_every_task_has_the_spellings_of_mteb_and_nano() -> None:
    assert all(any(a.startswith("R2MED") and a.endswith("Retrieval") for a in e.aliases) for e in entries("r2med"))
    assert all(e.split in e.aliases for e in entries("nano"))


@pytest.mark.parametrize(
    ("typo", "nearest"), [("r2med/Biolgy", "r2med/Biology"), ("nanno", "nano"), ("MedQADiag", "MedQA-Diag")]
)
def test_a_typo_gets_a_suggestion(typo: str, nearest: str) -> None:
    with pytest.raises(UnknownName, match=f"unknown task '{typo}'; did you mean .*{nearest}") as caught:
        find_tasks(typo)
    assert nearest in caught.value.suggestions


def test_nonsense_gets_none() -> None:
    with pytest.raises(UnknownName, match=r"unknown task 'qqqqq' \(r2med tasks lists them"):
        find_tasks("qqqqq")


def test_a_name_in_a_collection_gets_no_other_collection() -> None:
    """`mini/Nope` was taken for a typo of `mini`."""
    with pytest.raises(UnknownName, match=r"unknown task 'mini/Nope' \(r2med tasks mini lists them"):
        find_tasks("mini/Nope")
    with pytest.raises(UnknownName) as caught:
        find_tasks("mini-dev/Biolgy")
    assert caught.value.suggestions[0] == "mini-dev/Biology"
    assert all(name.startswith("mini-dev/") for name in caught.value.suggestions)
