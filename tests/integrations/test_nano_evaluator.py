"""NanoR2MEDEvaluator beside the real NanoBEIREvaluator's contract, and inside a training that really trains."""

from __future__ import annotations

import csv
import inspect
import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import r2med
from r2med.core import ModelError, Unavailable, UnknownName, UsageError
from r2med.tasks import write_task
from tests.builders import r2med_folder
from tests.integrations.conftest import load_embedder

pytestmark = [
    pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="sentence-transformers is not installed"),
    pytest.mark.filterwarnings("ignore"),  # of torch, transformers and sentence-transformers
]

NAMES = ["MedQA-Diag", "Biology"]


def evaluator(dataset_names: Any = None, **options: Any) -> Any:
    from r2med.integrations.sentence_transformers import NanoR2MEDEvaluator

    return NanoR2MEDEvaluator(dataset_names, **{"dataset_id": "mini@1", **options})


@pytest.fixture(scope="module")
def model(tiny_embedder: Path) -> Any:
    return load_embedder(tiny_embedder)


def test_its_arguments_are_those_of_nano_beir() -> None:
    from sentence_transformers.sentence_transformer.evaluation import NanoBEIREvaluator

    from r2med.integrations.sentence_transformers import NanoR2MEDEvaluator

    theirs = list(inspect.signature(NanoBEIREvaluator).parameters.values())
    ours = list(inspect.signature(NanoR2MEDEvaluator).parameters.values())
    assert [p.name for p in ours if p.kind is not p.KEYWORD_ONLY] == [p.name for p in theirs]
    for left, right in zip(ours, theirs, strict=False):
        if isinstance(right.default, list):
            assert list(left.default) == right.default
        elif right.name not in ("dataset_id",):
            assert left.default == right.default


def test_figures_are_those_of_r2med_and_their_mean(model: Any) -> None:
    asked = evaluator(NAMES)
    found = asked(model)
    for name, label in zip(NAMES, ("Mini1R2MEDMedQADiag", "Mini1R2MEDBiology"), strict=True):
        ours = r2med.evaluate(model, r2med.load(f"mini@1/{name}"))
        for theirs, measure in (
            ("ndcg@10", "nDCG@10"), ("map@100", "AP@100"), ("mrr@10", "RR@10"), ("recall@5", "R@5"),
            ("precision@3", "P@3"), ("accuracy@10", "hit@10"),
        ):  # fmt: skip
            assert found[f"{label}_cosine_{theirs}"] == pytest.approx(ours.mean(measure), abs=1e-6)
    assert asked.primary_metric == "Mini1R2MED_mean_cosine_ndcg@10"
    both = [found["Mini1R2MEDMedQADiag_cosine_ndcg@10"], found["Mini1R2MEDBiology_cosine_ndcg@10"]]
    assert found[asked.primary_metric] == pytest.approx(np.mean(both), abs=1e-12)
    low, high = (found[f"{asked.primary_metric}_{end}"] for end in ("low", "high"))
    assert low < found[asked.primary_metric] < high
    assert all(isinstance(value, float) for value in found.values())


def test_it_agrees_with_their_own_evaluator_on_binary_judgments(model: Any) -> None:
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    task = r2med.load("mini@1/Biology")
    relevant = {q: {d for d, grade in task.qrels.of(q).items() if grade > 0} for q in task.query_ids}
    theirs = InformationRetrievalEvaluator(
        {q.id: q.text for q in task.queries}, {d.id: d.contents for d in task.documents}, relevant,
        name="Mini1R2MEDBiology",
    )(model)  # fmt: skip
    ours = evaluator(["Biology"], intervals=False)(model)
    assert theirs.keys() <= ours.keys()
    for key, value in theirs.items():
        assert ours[key] == pytest.approx(value, abs=1e-9), key


def test_all_of_mini_dev_is_the_default() -> None:
    from r2med.integrations.sentence_transformers import NanoR2MEDEvaluator

    asked = NanoR2MEDEvaluator()
    assert asked.dataset_id == "mini-dev"
    assert asked.name == "MiniDevR2MED_mean"
    assert len(asked.evaluators) == 8
    assert sum(len(one.task.queries) for one in asked.evaluators) == 64
    assert asked.dataset_names[0] == "Biology"
    assert asked.description == "Nano R2MED"


def test_csv_predictions_prompts_and_dimensions(model: Any, tmp_path: Path) -> None:
    asked = evaluator(["Biology"], query_prompts={"Biology": "question: "}, truncate_dim=8, write_predictions=True)
    plain = evaluator(["Biology"])(model)
    for epoch in (1, 2):
        found = asked(model, str(tmp_path), epoch, 10)
    assert asked.name == "Mini1R2MED_mean_8"
    assert found["Mini1R2MED_mean_8_cosine_ndcg@10"] == found["Mini1R2MEDBiology_8_cosine_ndcg@10"]
    assert found["Mini1R2MEDBiology_8_cosine_ndcg@10"] != plain["Mini1R2MEDBiology_cosine_ndcg@10"]
    rows = list(csv.DictReader((tmp_path / "Mini1R2MED_evaluation_mean_results.csv").open()))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert float(rows[0]["cosine-NDCG@10"]) == found[asked.primary_metric]
    (predicted,) = tmp_path.glob("*_predictions_cosine.jsonl")
    lines = [json.loads(line) for line in predicted.read_text().splitlines()]
    task = r2med.load("mini@1/Biology")
    run = r2med.Run.from_rankings({r["query_id"]: [tuple(h.values()) for h in r["results"]] for r in lines})
    assert r2med.score(run, task).mean("nDCG@10") == pytest.approx(found[asked.primary_metric], abs=1e-12)
    settings = asked.get_config_dict()
    assert settings.pop("query_prompts") == {"Biology": "question: "}
    assert settings == {"dataset_names": ["Biology"], "dataset_id": "mini@1", "truncate_dim": 8}


def test_own_folders_and_score_functions(model: Any, tmp_path: Path) -> None:
    from sentence_transformers.util import cos_sim, dot_score

    write_task(r2med.load("mini@1/Biology"), tmp_path / "my task", to="beir")
    asked = evaluator([str(tmp_path / "my task")], score_functions={"cosine": cos_sim, "dot": dot_score})
    found = asked(model)
    assert asked.primary_metric in ("own_mean_cosine_ndcg@10", "own_mean_dot_ndcg@10")
    assert found["my_task_cosine_ndcg@10"] == evaluator(["Biology"])(model)["Mini1R2MEDBiology_cosine_ndcg@10"]
    assert "my_task_dot_ndcg@10" in found


@pytest.mark.parametrize("name", ["Biology", "NanoR2MEDBiology"])
def test_a_task_of_a_nano_folder_is_known_by_its_name_and_by_its_split(tmp_path: Path, name: str) -> None:
    task = r2med.load("mini@1/Biology")
    write_task(task, tmp_path / "copy", to="nano", split="NanoR2MEDBiology")
    (found,) = evaluator([name], dataset_id=str(tmp_path / "copy")).evaluators
    assert found.task.query_ids == task.query_ids


def test_bad_input_is_one_clear_line(model: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = r2med_folder(tmp_path / "mine")
    for arguments, error, message in (
        ({"dataset_names": []}, UsageError, "None stands for all"),
        ({"dataset_names": "Biology"}, UsageError, "a list of names"),
        ({"dataset_names": ["Biologie"]}, UnknownName, "did you mean"),
        ({"dataset_names": ["MedQA-Diag"], "dataset_id": str(folder)}, UnknownName, "unknown task of"),
        ({"dataset_names": ["Biology", "mini@1/Biology"]}, UsageError, "both be called"),
        ({"dataset_names": NAMES, "query_prompts": {"Biology": "q: "}}, UsageError, "no query prompt for MedQA-Diag"),
        ({"dataset_id": "nano"}, Unavailable, "is not on this machine"),
        ({"ndcg_at_k": [0]}, UsageError, "cut-offs"),
        ({"score_functions": {"dot": max}, "main_score_function": "cosine"}, UsageError, "not among dot"),
    ):
        with pytest.raises(error, match=message):
            evaluator(**arguments)
    monkeypatch.setattr(type(model), "similarity", property(lambda self: lambda q, d: q @ d.T * math.nan))
    with pytest.raises(ModelError, match="not finite"):
        evaluator(["Biology"])(model)


def test_scores_that_are_not_ours_are_refused(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version of the library may ask its evaluators for scores in another way."""
    from r2med.integrations import sentence_transformers

    asked = evaluator(["Biology"])
    (theirs,) = sentence_transformers.Evaluator.__bases__
    monkeypatch.setattr(theirs, "__call__", lambda *_: {"a_ndcg@10": 1.0})
    with pytest.raises(ModelError, match="this version of sentence-transformers"):
        asked(model)


def test_the_main_score_function_decides(model: Any) -> None:
    from sentence_transformers.util import cos_sim, dot_score

    functions = {"mine": dot_score, "theirs": cos_sim}
    for main in functions:
        asked = evaluator(["Biology"], score_functions=functions, main_score_function=main)
        found = asked(model)
        assert asked.primary_metric == f"Mini1R2MED_mean_{main}_ndcg@10"
        assert found[asked.primary_metric] == found[f"Mini1R2MEDBiology_{main}_ndcg@10"]


def test_it_chooses_the_best_model_of_a_real_training(tiny_embedder: Path, tmp_path: Path) -> None:
    """A few steps on pairs from other tasks; the checkpoint with the best figure is the one that is kept."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = load_embedder(tiny_embedder)
    pairs = [
        {"anchor": task.query(j.query_id).text, "positive": task.documents.get(j.doc_id).text}  # type: ignore[union-attr]
        for task in (r2med.load("mini@1/PMC-Treatment"), r2med.load("mini@1/Medical-Sciences"))
        for j in task.qrels
        if j.grade > 0
    ]
    asked = evaluator(["Biology"])
    key = "eval_Mini1R2MED_mean_cosine_ndcg@10"
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path), max_steps=4, per_device_train_batch_size=8, learning_rate=5e-3, eval_strategy="steps",
        eval_steps=2, save_strategy="steps", save_steps=2, save_only_model=True, load_best_model_at_end=True,
        metric_for_best_model=key,
        report_to="none", use_cpu=True, seed=3, disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_list(pairs), loss=MultipleNegativesRankingLoss(model),
        evaluator=asked,
    )  # fmt: skip
    before = asked(model)[asked.primary_metric]
    trainer.train()
    seen = [entry[key] for entry in trainer.state.log_history if key in entry]
    assert len(seen) == 2
    assert len({before, *seen}) > 1, "training changed nothing"
    assert trainer.state.best_metric == max(seen)
    assert asked(model)[asked.primary_metric] == pytest.approx(max(seen), abs=1e-6)
    rows = list(csv.DictReader((tmp_path / "eval" / "Mini1R2MED_evaluation_mean_results.csv").open()))
    assert [float(row["cosine-NDCG@10"]) for row in rows] == seen
    model.save_pretrained(str(tmp_path / "kept"))
    assert "Mini1R2MEDBiology" in (tmp_path / "kept" / "README.md").read_text()
