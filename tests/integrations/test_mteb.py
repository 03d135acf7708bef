"""MTEB both ways, with the real package: its loaders read our results, and one model gets one score from both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.publish import export as command
from r2med.cli.reproduce import reproduce
from r2med.core import DataError, ResultError
from r2med.integrations import to_mteb
from r2med.integrations.mteb import (
    export_mteb,
    identity,
    ledger_text,
    model_meta,
    mteb_measure,
    mteb_name,
    our_measure,
    read_mteb,
    task_of,
)
from r2med.results import ResultStore, SystemInfo, TaskResult
from r2med.results.ledger import read_ledger
from r2med.scoring import STANDARD
from r2med.tasks import entries
from tests.integrations.conftest import load_embedder

pytestmark = pytest.mark.filterwarnings("ignore")  # of mteb and what it brings along


@pytest.fixture
def exported(results: Path, tmp_path: Path) -> Path:
    done = CliRunner().invoke(command, ["mteb", str(results), "--out", str(tmp_path / "mteb"), "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["results"]) == 4
    return tmp_path / "mteb"


def as_r2med(result: TaskResult) -> TaskResult:
    """The same figures as if measured on R2MED's own task."""
    data = json.loads(json.dumps(_plain(result)))
    data["task"] |= {"collection": "r2med", "revision": "78b585990279cc01a493f876c1b0cf09557fba57"}
    data["system"]["name"] = "minilm"
    data["system"]["kind"] = "dense"
    import msgspec

    return msgspec.convert(data, TaskResult)


def _plain(result: TaskResult) -> Any:
    import msgspec

    return msgspec.to_builtins(result)


def test_mteb_loads_what_we_export(exported: Path, results: Path) -> None:
    import mteb

    (path,) = exported.glob("results/r2med__bm25/*/Mini1R2MEDBiologyRetrieval.json")
    loaded = mteb.TaskResult.from_disk(path, load_historic_data=False)
    stored = ResultStore(results).find("bm25", "mini@1", "Biology")
    assert stored is not None
    assert loaded.get_score() == stored.measures["ndcg_at_10"]
    scores = loaded.scores["test"][0]
    for k in (1, 3, 5, 10, 20, 100, 1000):
        for theirs, ours in (("ndcg", "ndcg"), ("map", "map"), ("recall", "recall"), ("hit_rate", "hit")):
            assert scores[f"{theirs}_at_{k}"] == stored.measures[f"{ours}_at_{k}"]
    cached = mteb.ResultCache(exported).load_results(validate_and_filter=False, require_model_meta=True)
    assert sorted(m.model_name for m in cached.model_results) == ["r2med/bm25", "r2med/bm25-lucene"]
    assert {t.task_name for m in cached.model_results for t in m.task_results} == {
        "Mini1R2MEDBiologyRetrieval",
        "Mini1R2MEDMedQADiagRetrieval",
    }


def test_results_on_r2med_pass_mteb_s_own_validation(results: Path, tmp_path: Path) -> None:
    """Under the name of the task and the revision that MTEB itself has."""
    import mteb
    from mteb.models.model_meta import ModelMeta

    stored = ResultStore(results).find("bm25", "mini@1", "MedQA-Diag")
    assert stored is not None
    (written,) = export_mteb([as_r2med(stored)], tmp_path)
    assert written.model == "sentence-transformers/all-MiniLM-L6-v2"
    task = mteb.get_task("R2MEDMedQADiagRetrieval")
    found = mteb.ResultCache(tmp_path).load_results(
        models=["sentence-transformers/all-MiniLM-L6-v2"], tasks=[task], validate_and_filter=True
    )
    ((result,),) = (list(m.task_results) for m in found.model_results)
    assert result.get_score() == stored.measures["ndcg_at_10"]
    assert result.dataset_revision == task.metadata.revision
    meta = ModelMeta.model_validate_json_resolved(Path(written.path).with_name("model_meta.json").read_bytes())
    assert meta.name == written.model
    assert meta.similarity_fn_name == "cosine"


def test_every_task_of_mteb_is_known_by_its_name() -> None:
    import mteb

    for entry in entries("r2med"):
        theirs = mteb.get_task(mteb_name("r2med", entry.name)).metadata
        assert (theirs.dataset["path"], theirs.dataset["revision"]) == (entry.dataset, entry.revision)
        assert task_of(theirs.name) == entry
        nano = task_of(mteb_name("nano", entry.name))
        assert nano is not None
        assert nano.full_name == f"nano/{entry.name}"
    assert task_of("SciFact") is None


def test_no_two_tasks_share_a_name_in_mteb() -> None:
    assert mteb_name("", "my-task") == "OwnMyTaskRetrieval"
    own = [("", name) for name in ("my task", "my_task", "My-Task", "mytask", "task-2", "task2", "äö", "öä", "Biology")]
    own += [("", "my-task"), ("my", "task"), ("r2med", "my-task"), ("nano", "other")]
    official = [(entry.collection, entry.name) for entry in entries()]
    names = {mteb_name(*task) for task in (*own, *official)}
    assert len(names) == len(own) + len(official)
    assert not names & {mteb_name(*task).lower() for task in official}
    assert all(name.replace("_", "").isalnum() and name.isascii() for name in names)


def test_measures_are_named_both_ways() -> None:
    named = {m.key: mteb_measure(m.key) for m in STANDARD}
    assert named["hit_at_10"] == "hit_rate_at_10"
    assert named["ndcg_at_25"] is None
    assert all(our_measure(theirs) == ours for ours, theirs in named.items() if theirs)
    assert our_measure("nauc_ndcg_at_10_max") is None


def test_only_the_model_itself_goes_under_its_name() -> None:
    plain = identity(SystemInfo(name="minilm", kind="dense", description={}))
    assert (plain.name, plain.exact) == ("sentence-transformers/all-MiniLM-L6-v2", True)
    for name, kind in (
        ("bge-small", "dense"),
        ("bm25", "lexical"),
        ("minilm+msmarco-minilm@50", "reranked"),
        ("minilm:max_length=64", "dense"),
        ("sentence-transformers/all-MiniLM-L6-v2:max_length=64", "dense"),
        ("sentence-transformers/all-MiniLM-L6-v2~0123abcd", "dense"),
    ):
        other = identity(SystemInfo(name=name, kind=kind, description={"name": name}))
        assert other.name.startswith("r2med/")
        assert not other.exact
        assert model_meta(other)["name"] == other.name


def test_results_stay_in_their_folder(results: Path, tmp_path: Path) -> None:
    stored = [r for r in ResultStore(results) if r.system.name == "bm25"]
    for named in ({"revision": "../../up"}, {"revision": ".."}, {"model": ".."}, {"revision": "/tmp"}):
        with pytest.raises(DataError, match="cannot be part of a path"):
            export_mteb(stored, tmp_path / "a" / "b" / "mteb", **named)
    assert not list(tmp_path.rglob("*.json"))
    (written, _) = export_mteb(stored, tmp_path, model="my lab/../x", revision="1")
    assert Path(written.path).relative_to(tmp_path).parts[:2] == ("results", "my_lab__..__x")


def test_refusals_are_one_line(results: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="one model name cannot stand for 2 systems"):
        export_mteb(ResultStore(results), tmp_path, model="org/name")
    with pytest.raises(ResultError, match="no such folder of results"):
        CliRunner().invoke(
            command, ["mteb", str(tmp_path / "absent"), "--out", str(tmp_path / "x")], catch_exceptions=False
        )
    with pytest.raises(DataError, match="holds no MTEB result"):
        read_mteb(tmp_path)
    (tmp_path / "broken.json").write_text('{"task_name": "R2MEDBiologyRetrieval", "scores": 3}')
    with pytest.raises(DataError, match=r"broken\.json: not an MTEB result"):
        read_mteb(tmp_path)
    (tmp_path / "broken.json").write_text('{"task_name": "R2MEDBiologyRetrieval", "scores": {"test": []}}')
    with pytest.raises(DataError, match="expected one split"):
        read_mteb(tmp_path)
    (tmp_path / "broken.json").write_text("[" * 10_000)
    with pytest.raises(DataError, match="not JSON"):
        read_mteb(tmp_path)


def test_result_folders_of_mteb_become_a_ledger(exported: Path, results: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["ledger", str(exported), "--out", str(tmp_path / "mteb.toml"), "--json"])
    assert done.exit_code == 0, done.output
    figures = read_ledger(tmp_path / "mteb.toml")
    stored = ResultStore(results).find("bm25", "mini@1", "Biology")
    assert stored is not None
    figure = figures.find("bm25", "mini@1", "default")  # what we exported comes back as the system it was
    assert figure.tasks("ndcg_at_10")["Biology"] == stored.measures["ndcg_at_10"]
    assert set(figure.tasks("recall_at_100")) == {"Biology", "MedQA-Diag"}
    arguments = ["--ledger", str(tmp_path / "mteb.toml"), "--results", str(results), "--no-run", "--json"]
    again = CliRunner().invoke(reproduce, [*arguments, "--collection", "mini@1"])
    assert again.exit_code == 0, again.output
    for path in exported.rglob("*Retrieval.json"):  # without our mark it is MTEB's own word
        data = json.loads(path.read_text())
        del data["r2med"]
        path.write_text(json.dumps(data))
    assert {(one.model, one.protocol) for one in read_mteb(exported)} == {
        ("r2med/bm25", "mteb"),
        ("r2med/bm25-lucene", "mteb"),
    }


def test_models_with_other_tasks_have_a_source_of_their_own(exported: Path, tmp_path: Path) -> None:
    next(exported.glob("results/r2med__bm25/*/Mini1R2MEDBiologyRetrieval.json")).unlink()
    path = tmp_path / "ledger.toml"
    path.write_text(ledger_text(read_mteb(exported), source="mine", title='"Mine" \x7f 😀'), encoding="utf-8")
    assert read_ledger(path).sources[0].title == '"Mine" \x7f 😀'
    assert [(s.id, s.tasks) for s in read_ledger(path).sources] == [
        ("mine-1", ("MedQA-Diag",)),
        ("mine-2", ("Biology", "MedQA-Diag")),
    ]


def test_only_tasks_of_the_catalogue_are_called_medical() -> None:
    pytest.importorskip("mteb")
    assert to_mteb(r2med.load("mini@1/Biology")).metadata.domains == ["Medical"]
    own = to_mteb(awkward_task()).metadata
    assert own.domains is None
    assert "medical" not in own.description


def scored_by_mteb(task: r2med.Task, model: Any) -> tuple[dict[str, float], float]:
    """MTEB's scores, which it rounds to five digits, and its mean nDCG@10 before it did."""
    import mteb

    theirs, exact = to_mteb(task), list[float]()

    def keep(scores: dict[str, dict[str, float]], *_: object, **__: object) -> dict[str, float]:
        exact.append(float(np.mean([s["ndcg_cut_10"] for s in scores.values()])))
        return {}

    theirs.task_specific_scores = keep
    done = mteb.evaluate(model, theirs, cache=None, show_progress_bar=False, encode_kwargs={"batch_size": 16})
    (result,) = done.task_results
    return result.scores["test"][0], exact[0]


def awkward_task() -> r2med.Task:
    """Titles, a query with a document's id, two documents with one text, grades, and a judged non-relevant document."""
    mini = r2med.load("mini@1/Biology")
    documents = [r2med.Document(d.id, d.text, title=" ".join(d.text.split()[:3])) for d in mini.documents[:40]]
    documents += [r2med.Document("copy", documents[0].text, documents[0].title)]
    ids = [d.id for d in documents]
    queries = (r2med.Query(ids[0], mini.queries[0].text), r2med.Query("q2", mini.queries[1].text))
    judged = [(ids[0], ids[0], 2), (ids[0], "copy", 2), (ids[0], ids[3], 1), ("q2", ids[5], 0), ("q2", ids[7], 3)]
    return r2med.Task("awkward", queries, r2med.Documents.of(documents), r2med.Qrels.from_judgments(judged))


@pytest.mark.parametrize("task", [r2med.load("mini@1/MedQA-Diag"), awkward_task()], ids=lambda t: t.name)
def test_a_model_gets_the_same_score_from_mteb_and_from_us(task: r2med.Task, tiny_embedder: Path) -> None:
    from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper

    model = SentenceTransformerEncoderWrapper(load_embedder(tiny_embedder))
    scores, exact = scored_by_mteb(task, model)
    for ours in (r2med.evaluate(model, task), r2med.evaluate(model.model, task)):
        assert ours.mean("nDCG@10") == pytest.approx(exact, abs=1e-6)
        for key in ("ndcg_at_10", "map_at_100", "recall_at_10", "precision_at_5"):
            assert scores[key] == pytest.approx(ours.means[key], abs=6e-6)
    assert 0.02 < exact < 0.95
