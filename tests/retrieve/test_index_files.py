from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import r2med
from r2med.core import DataError, Task, UsageError
from r2med.retrieve import BM25, load_index, save_index


@pytest.fixture
def task() -> Task:
    return r2med.load("mini/MedQA-Diag")


@pytest.fixture
def saved(task: Task, tmp_path: Path) -> Path:
    save_index(BM25().index(task), tmp_path / "index", corpus=task.documents.fingerprint)
    return tmp_path / "index"


def test_a_saved_index_gives_the_same_run(task: Task, saved: Path) -> None:
    index = load_index(saved, corpus=task.documents.fingerprint, verify=True)
    assert isinstance(index.postings.docs, np.memmap)
    fresh, mapped = BM25().retrieve(task), BM25().retrieve(task, index=index)
    assert np.array_equal(fresh.docs, mapped.docs)
    assert np.array_equal(fresh.scores, mapped.scores)


def test_a_saved_index_can_grow(task: Task, saved: Path) -> None:
    more = r2med.load("mini/Biology").documents
    assert len(load_index(saved).extended(more.contents)) == len(task.documents) + len(more)


def test_an_index_of_other_documents_is_refused(saved: Path) -> None:
    with pytest.raises(UsageError, match="other documents"):
        load_index(saved, corpus=r2med.load("mini/Biology").documents.fingerprint)
    with pytest.raises(UsageError, match="documents"):
        BM25().retrieve(r2med.load("mini/Medical-Sciences"), index=load_index(saved))


@pytest.mark.parametrize("other", [BM25(k1=1.2), BM25(query="count"), BM25(analyzer="whitespace")])
def test_an_index_of_other_parameters_is_refused(task: Task, saved: Path, other: BM25) -> None:
    with pytest.raises(UsageError, match=r"the index was made with .*, the retriever has"):
        other.retrieve(task, index=load_index(saved))


def test_damage_is_noticed(saved: Path) -> None:
    path = saved / "impacts.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="checksum"):
        load_index(saved, verify=True)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="cannot be mapped"):
        load_index(saved)
    (saved / "index.json").write_text("{")
    with pytest.raises(DataError, match="manifest"):
        load_index(saved)
    with pytest.raises(DataError, match=r"no index\.json"):
        load_index(saved.parent)
