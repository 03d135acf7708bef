from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from r2med.core import DataError, Document, Documents, Qrels, Query, Task, UsageError
from r2med.pipeline.training import MiningSettings, evaluation_refs, export_training, mine, protected
from r2med.retrieve import BM25
from r2med.tasks import load, resolve

SETTINGS = MiningSettings(negatives=2, depth=20)
GOLD = "Kawasaki disease brings fever for five days with red eyes cracked lips and a rash in a small child"


def own() -> Task:
    """A task of one's own: a positive, its near copy, a passage of its article, one that names the answer, the rest."""
    documents = [
        Document("kd_0", GOLD),
        Document("copy", f"{GOLD} again"),
        Document("kd_1", "fever and rash in a child of the same article"),
        Document("named", "fever rash child: think of kawasaki disease early"),
        Document("measles", "fever rash child with cough and spots in the mouth"),
        Document("scarlet", "fever rash child with a sore throat and a strawberry tongue"),
        Document("far", "elbow"),
    ]
    queries = (Query("q1", "a child with fever and rash and red eyes", "Kawasaki disease"), Query("q2", "unjudged"))
    return Task("own", queries, Documents.of(documents), Qrels.from_judgments([("q1", "kd_0", 1)]))


def test_negatives_look_alike_and_lead_elsewhere() -> None:
    (example,), reasons = mine(own(), [BM25()], MiningSettings(negatives=5, depth=20))
    assert [p.id for p in example.positives] == ["kd_0"]
    assert {n.id for n in example.negatives} == {"measles", "scarlet"}
    assert all(n.by == "bm25" and n.rank > 0 for n in example.negatives)
    assert reasons == {
        "positive": 1, "nearly a positive": 1, "article of a positive": 1, "names the answer": 1,
        "query without positive": 1,
    }  # fmt: skip


def test_both_forms_are_written_and_audited(tmp_path: Path) -> None:
    report = export_training(own(), tmp_path / "out", [BM25()], protected(resolve("mini@1/Biology")), SETTINGS)
    whole = [json.loads(line) for line in (tmp_path / "out" / "train.jsonl").read_text().splitlines()]
    path = tmp_path / "out" / "sentence-transformers" / "train.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert whole[0]["positives"] == [GOLD]
    assert sorted(whole[0]["negative_ids"]) == ["measles", "scarlet"]
    assert [sorted(row) for row in rows] == [["anchor", "negative_1", "negative_2", "positive"]]
    assert (report.examples, report.positives, report.negatives, report.rows) == (1, 1, 2, 1)
    assert report.audit == {"train.jsonl": 4, "sentence-transformers/train.jsonl": 4}
    stored = json.loads((tmp_path / "out" / "report.json").read_bytes())
    assert list(stored["protected"]) == ["mini@1/Biology"]


def test_an_evaluation_task_is_no_training_data(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="mini@1/Biology is an evaluation task"):
        export_training(load("mini@1/Biology"), tmp_path / "out", [BM25()], [], SETTINGS)


@pytest.mark.parametrize("side", ["query", "positive", "negative"])
def test_any_overlap_is_refused_or_left_out(tmp_path: Path, side: str) -> None:
    mini = load("mini@1/MedQA-Diag")
    gold = next(d for d, g in mini.qrels.of(mini.queries[0].id).items() if g > 0)
    text = mini.queries[0].text if side == "query" else mini.documents[mini.documents.ids.position(gold)].text
    task = own()
    if side == "query":
        task = replace(task, queries=(Query("q1", f"Please: {text}", "x"), *task.queries[1:]))
    else:
        changed = "kd_0" if side == "positive" else "measles"
        stays = [d if d.id != changed else Document(d.id, f"fever rash child {text}") for d in task.documents]
        task = replace(task, documents=Documents.of(stays))
    guarded = protected(resolve("mini@1/MedQA-Diag"))
    with pytest.raises(
        DataError, match=rf"texts overlap evaluation tasks, first the {side} of 'q1' \(mini@1/MedQA-Diag"
    ):
        export_training(task, tmp_path / "out", [BM25()], guarded, SETTINGS)
    assert list(tmp_path.iterdir()) == []
    if side == "negative":
        report = export_training(task, tmp_path / "out", [BM25()], guarded, SETTINGS, drop_overlap=True)
        assert report.overlap_dropped == {"negative": 1}
        assert (report.negatives, report.examples_without_all_negatives, report.rows) == (1, 1, 0)
    else:
        with pytest.raises(DataError, match="no query is left"):
            export_training(task, tmp_path / "out", [BM25()], guarded, SETTINGS, drop_overlap=True)


def test_a_piece_of_a_positive_passage_is_overlap_too(tmp_path: Path) -> None:
    mini = load("mini@1/MedQA-Diag")
    gold = next(d for d, g in mini.qrels.of(mini.queries[0].id).items() if g > 0)
    words = mini.documents[mini.documents.ids.position(gold)].text.split()
    piece = " ".join(words[2:14])
    task = replace(own(), documents=Documents.of([Document("kd_0", piece), *list(own().documents)[1:]]))
    with pytest.raises(DataError, match=rf"first the positive of 'q1'.*this text stand in positive '{gold}'"):
        export_training(task, tmp_path / "out", [BM25()], protected(resolve("mini@1/MedQA-Diag")), SETTINGS)


def test_what_was_not_compared_is_named(tmp_path: Path) -> None:
    guarded = protected(resolve("mini@1/MedQA-Diag"))
    report = export_training(own(), tmp_path / "out", [BM25()], guarded, SETTINGS)
    assert "mini@1/MedQA-Diag" not in report.not_compared
    assert {"mini@1/Biology", "r2med/Biology", "nano/MedQA-Diag"} <= set(report.not_compared)
    assert json.loads((tmp_path / "out" / "report.json").read_text())["not_compared"] == report.not_compared


def test_every_catalogue_task_here_is_protected() -> None:
    assert {ref.full_name for ref in evaluation_refs()} >= {"mini@1/Biology", "mini@1/PMC-Treatment"}


def test_sentence_transformers_columns_are_a_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    export_training(own(), tmp_path / "out", [BM25()], [], SETTINGS)
    path = str(tmp_path / "out" / "sentence-transformers" / "train.jsonl")
    rows = datasets.load_dataset("json", data_files=path, split="train", cache_dir=str(tmp_path / "cache"))
    assert rows.column_names == ["anchor", "positive", "negative_1", "negative_2"]


@pytest.mark.parametrize("settings", [{"negatives": 0}, {"depth": 0}, {"skip": -1}, {"similarity": 0.0}])
def test_senseless_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        MiningSettings(**settings)  # type: ignore[arg-type]


def test_negatives_need_a_retriever() -> None:
    with pytest.raises(UsageError, match="at least one retriever"):
        mine(own(), [], SETTINGS)
