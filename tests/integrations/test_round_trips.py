"""Runs and judgments out to each real package and back: ids, scores, order, and the package's own nDCG@10."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import r2med
from r2med.core import DataError, Qrels, R2MedError, Run, UsageError
from r2med.integrations import (
    from_beir,
    from_ir_measures,
    from_pyterrier,
    from_ranx,
    qrels_from_dict,
    run_from_dict,
    to_beir,
    to_dict,
    to_ir_measures,
    to_pyterrier,
    to_ranx,
)
from tests.builders import ANY_ID

TASKS = ("mini@1/MedQA-Diag", "mini@1/PMC-Clinical")


@pytest.fixture(scope="module", params=TASKS)
def made(request: pytest.FixtureRequest) -> tuple[r2med.Task, Run, float]:
    task = r2med.load(request.param)
    run = r2med.BM25().retrieve(task, depth=50)
    return task, run, r2med.score(run, task).mean("nDCG@10")


def tied_run() -> Run:
    """Equal scores, a score that only float32 has, and one query with a single document."""
    third = float(np.float32(1 / 3))
    return Run.from_rankings({"q1": [("d1", 1.0), ("d3", 1.0), ("d2", third)], "q2": [("d9", -4.5)]}, name="ties")


def graded_qrels() -> Qrels:
    return Qrels.from_judgments([("q1", "d1", 2), ("q1", "d2", 0), ("q1", "d3", 1), ("q2", "d9", -1), ("q2", "d8", 3)])


def same_run(left: Run, right: Run) -> bool:
    """The same queries, documents, scores and order."""
    return list(left) == list(right)


PAIRS: list[tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any]]] = [
    (to_dict, run_from_dict, qrels_from_dict),
    (to_ir_measures, from_ir_measures, from_ir_measures),
    (to_pyterrier, from_pyterrier, from_pyterrier),
]


@pytest.mark.parametrize(("out", "run_in", "qrels_in"), PAIRS, ids=["dicts", "ir_measures", "pyterrier"])
def test_runs_and_judgments_come_back(
    out: Callable[[Any], Any], run_in: Callable[[Any], Any], qrels_in: Callable[[Any], Any],
    made: tuple[r2med.Task, Run, float],
) -> None:  # fmt: skip
    task, run, _ = made
    for one in (run, tied_run()):
        assert same_run(run_in(out(one)), one)
    for judgments in (task.qrels, graded_qrels()):
        assert qrels_in(out(judgments)) == judgments


SCORES = st.floats(width=32, allow_nan=False)
RANKINGS = st.dictionaries(ANY_ID, st.dictionaries(ANY_ID, SCORES, min_size=1, max_size=5), min_size=1, max_size=4)


@given(RANKINGS)
def test_any_run_comes_back(rankings: dict[str, dict[str, float]]) -> None:
    run = run_from_dict(rankings)
    for out, run_in, _ in PAIRS:
        assert same_run(run_in(out(run)), run)


@pytest.mark.filterwarnings("ignore")
def test_pytrec_eval_agrees(made: tuple[r2med.Task, Run, float]) -> None:
    import pytrec_eval

    task, run, ours = made
    scores = pytrec_eval.RelevanceEvaluator(to_dict(task.qrels), {"ndcg_cut.10"}).evaluate(to_dict(run))
    assert np.mean([s["ndcg_cut_10"] for s in scores.values()]) == pytest.approx(ours, abs=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_ir_measures_agrees(made: tuple[r2med.Task, Run, float]) -> None:
    import ir_measures
    from ir_measures import nDCG

    task, run, ours = made
    theirs = ir_measures.calc_aggregate([nDCG @ 10], to_ir_measures(task.qrels), to_ir_measures(run))
    assert theirs[nDCG @ 10] == pytest.approx(ours, abs=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_pyterrier_agrees(made: tuple[r2med.Task, Run, float]) -> None:
    """`pt.Evaluate` works on frames and starts no Java."""
    import pyterrier

    task, run, ours = made
    frame = to_pyterrier(run)
    assert list(frame.columns) == ["qid", "docno", "rank", "score"]
    assert frame.groupby("qid")["rank"].min().eq(0).all()
    theirs = pyterrier.Evaluate(frame, to_pyterrier(task.qrels), metrics=["ndcg_cut_10"])
    assert theirs["ndcg_cut_10"] == pytest.approx(ours, abs=1e-9)
    assert not pyterrier.java.started()
    assert list(to_pyterrier(task)["qid"]) == list(task.query_ids)


@pytest.mark.filterwarnings("ignore")
def test_beir_agrees_and_tasks_come_back(made: tuple[r2med.Task, Run, float]) -> None:
    from beir.retrieval.evaluation import EvaluateRetrieval

    task, run, ours = made
    corpus, queries, qrels = to_beir(task)
    ndcg, *_ = EvaluateRetrieval.evaluate(qrels, to_dict(run), [10], ignore_identical_ids=False)
    assert ndcg["NDCG@10"] == round(ours, 5)
    back = from_beir(corpus, queries, qrels, name=task.name)
    assert back.documents.fingerprint == task.documents.fingerprint
    assert back.qrels == task.qrels
    assert r2med.evaluate(r2med.BM25(), back, depth=50).mean("nDCG@10") == ours


@pytest.mark.filterwarnings("ignore")
def test_beir_reads_the_exported_folder(tmp_path: Any) -> None:
    from beir.datasets.data_loader import GenericDataLoader

    from r2med.integrations.exporting import export_beir

    task = r2med.load("mini@1/Biology")
    export_beir("mini@1/Biology", tmp_path / "beir")
    loaded = GenericDataLoader(str(tmp_path / "beir")).load(split="test")
    expected = to_beir(task)
    assert loaded[0] == expected.corpus
    assert loaded[1] == expected.queries
    positives = {q: {d: g for d, g in of.items() if g > 0} for q, of in expected.qrels.items()}
    assert {q: {d: g for d, g in of.items() if g > 0} for q, of in loaded[2].items()} == positives


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ranx_round_trip_and_agreement(made: tuple[r2med.Task, Run, float], tmp_path: Any) -> None:
    """It compiles before its first answer, for up to a minute where its cache is empty."""
    import ranx

    task, run, ours = made
    assert same_run(from_ranx(to_ranx(run)), run)  # type: ignore[arg-type]
    assert from_ranx(to_ranx(task.qrels)) == task.qrels
    assert from_ranx(to_ranx(run)).name == run.name  # type: ignore[union-attr]
    assert ranx.evaluate(to_ranx(task.qrels), to_ranx(run), "ndcg@10") == pytest.approx(ours, abs=1e-9)
    to_ranx(run).save(str(tmp_path / "run.trec"), kind="trec")
    assert same_run(r2med.read_run(tmp_path / "run.trec"), run)


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: run_from_dict({"q": {"d": float("nan")}}), "not a number"),
    (lambda: run_from_dict({"q": {"d": "high"}}), "not a number"),  # type: ignore[dict-item]
    (lambda: run_from_dict({"q": {7: 1.0}}), "document id 7 is of type int"),  # type: ignore[dict-item]
    (lambda: run_from_dict({}), "no rankings"),
    (lambda: qrels_from_dict({"q": {"d": 0.5}}), "whole numbers"),  # type: ignore[dict-item]
    (lambda: qrels_from_dict({"q": {"d": float("inf")}}), "as inf: grades are whole numbers"),  # type: ignore[dict-item]
    (lambda: qrels_from_dict({"q": {"d": 2**40}}), "grades are whole numbers of at most 2,147,483,647"),
    (lambda: qrels_from_dict({"q": {"d": "1_0"}}), "a score that is not a number"),  # type: ignore[dict-item]
    (lambda: run_from_dict({"q": {"d": "\u0663"}}), "a score that is not a number"),  # type: ignore[dict-item]
    (lambda: from_ir_measures([]), "nothing to read"),
    (lambda: from_ir_measures([("q", "d", 1.0)]), "expected ScoredDoc or Qrel"),
    (lambda: from_pyterrier(to_pyterrier(tied_run()).drop(columns="docno")), "missing: docno"),
    (lambda: from_pyterrier(object()), "missing: qid"),
    (lambda: from_beir({}, {"q": "?"}, {"q": {"d": 1}}), "corpus dict is empty"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input_is_one_clear_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises((DataError, UsageError), match=message) as caught:
        call()
    assert isinstance(caught.value, R2MedError)
    assert "\n" not in str(caught.value)


def test_a_document_twice_is_refused() -> None:
    frame = to_pyterrier(tied_run())
    doubled = importlib.import_module("pandas").concat([frame, frame])
    with pytest.raises(DataError, match="twice"):
        from_pyterrier(doubled)


def test_every_public_name_is_there() -> None:
    package = importlib.import_module("r2med.integrations")
    assert all(callable(getattr(package, name)) for name in package.__all__)
