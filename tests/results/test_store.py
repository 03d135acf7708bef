from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pytest

from r2med.core import DataError, ResultError
from r2med.pipeline import Builder, SystemSpec, run_experiment
from r2med.results import ResultIndex, ResultStore, TaskResult
from r2med.results.beside import UsedGenerations
from r2med.results.ledger import ledger
from r2med.results.store import KNOWN_NAMES, query_weighted, read_result
from r2med.scoring import score
from r2med.tasks import collections, load, resolve

from .sealing import edit, scores_in


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    store = ResultStore(tmp_path / "results")
    run_experiment(resolve("mini@1/Biology"), [Builder().build(SystemSpec.parse("bm25"))], store)
    return store


def result_file(store: ResultStore) -> Path:
    return store.root / "bm25" / "mini@1" / "Biology.json"


def test_three_files_a_task(store: ResultStore) -> None:
    folder = store.root / "bm25" / "mini@1"
    assert sorted(p.name for p in folder.iterdir()) == ["Biology.json", "Biology.queries.jsonl", "Biology.run.gz"]


def test_a_system_whose_name_no_file_system_takes_has_no_result_of_the_first_edition(store: ResultStore) -> None:
    """The place the first edition would have used was looked at, and the error of the system went through."""
    assert store.find(f"{'bm25+' * 80}bm25.rrf", "mini@1", "Biology") is None


def test_a_result_says_how_it_was_made(store: ResultStore) -> None:
    document = json.loads(result_file(store).read_text())
    assert document["schema"] == 1
    assert 0 < document["measures"]["ndcg_at_10"] < 1
    assert document["system"]["description"]["retrievers"][0] == {
        "retriever": "bm25", "k1": 0.9, "b": 0.4, "query": "bm25", "analyzer": "english",
    }  # fmt: skip
    assert document["task"]["fingerprint"]
    assert {"load", "retrieve", "score"} <= document["seconds"].keys()
    assert {"numpy", "python", "r2med"} <= document["environment"]["versions"].keys()
    assert set(document["files"]) == {".run.gz", ".queries.jsonl"}


def test_run_and_per_query_scores_read_back(store: ResultStore) -> None:
    (result,) = store
    per_query = scores_in(result_file(store), "ndcg_at_10")
    assert np.mean(list(per_query.values())) == pytest.approx(result.measures["ndcg_at_10"], abs=1e-12)
    assert score(store.run(result), load("mini@1/Biology").qrels).mean() == pytest.approx(result.measures["ndcg_at_10"])


@pytest.mark.parametrize("texts", [["zzz"], ["zzz", "gout"]], ids=["no query finds anything", "one does"])
def test_queries_without_hits_read_back(texts: list[str], tmp_path: Path) -> None:
    task = tmp_path / "task"
    task.mkdir()
    (task / "corpus.jsonl").write_text('{"id": "d1", "text": "gout"}\n')
    (task / "query.jsonl").write_text("".join(f'{{"id": "q{i}", "text": "{text}"}}\n' for i, text in enumerate(texts)))
    (task / "qrels.jsonl").write_text(
        "".join(f'{{"q_id": "q{i}", "p_id": "d1", "score": 1}}\n' for i in range(len(texts)))
    )
    store = ResultStore(tmp_path / "results")
    run_experiment(resolve(str(task)), [Builder().build(SystemSpec.parse("bm25"))], store)
    (result,) = store
    run = store.run(result)
    assert {query_id: len(hits) for query_id, hits in run} == {f"q{i}": int(t == "gout") for i, t in enumerate(texts)}
    (store.root / "bm25" / "own" / "task.queries.jsonl").write_text("{")
    with pytest.raises(ResultError, match=r"the per-query scores cannot be read"):
        store.run(result)


def test_another_schema_is_refused(store: ResultStore) -> None:
    path = result_file(store)
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 99', 1))
    with pytest.raises(ResultError, match="schema 99"):
        list(store)
    path.write_text('{"schema": 1}')
    with pytest.raises(ResultError, match="not a result file"):
        list(store)
    path.write_text("{")
    with pytest.raises(ResultError, match="not a result file"):
        list(store)


READERS: dict[str, Callable[[ResultStore], object]] = {
    "read": lambda store: read_result(result_file(store)),
    "iteration": list,
    "find": lambda store: store.find("bm25", "mini@1", "Biology"),
    "index": lambda store: ResultIndex([store.root]).all()[0].result,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("removed", [True, False])
def test_a_score_without_a_valid_checksum_is_refused(
    store: ResultStore, reader: Callable[[ResultStore], object], removed: bool
) -> None:
    """A score edited to 0.99 was believed where the checksum was emptied with it."""
    path = result_file(store)
    document = json.loads(path.read_text())
    document["measures"]["ndcg_at_10"] = 0.99
    if removed:
        document["checksum"] = ""
    path.write_text(json.dumps(document))
    words = "has no checksum" if removed else "was changed after it was written"
    with pytest.raises(ResultError, match=f"{words}.*remove it or use --overwrite"):
        reader(store)
    del document["checksum"]
    path.write_text(json.dumps(document))
    with pytest.raises(ResultError, match="has no checksum"):
        reader(store)


def test_a_field_of_another_edition_counts_for_the_checksum(store: ResultStore) -> None:
    path = result_file(store)
    edit(path, lambda document: document.update({"later": {"x": 1}}))
    assert read_result(path).system.name == "bm25"
    path.write_text(path.read_text().replace('"later": {"x": 1}', '"later": {"x": 2}'))
    with pytest.raises(ResultError, match="was changed"):
        read_result(path)


def test_an_old_result_does_not_stand_beside_a_new_run(store: ResultStore, monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = store
    run = store.run(result)
    evaluation = score(run, load("mini@1/Biology").qrels)
    monkeypatch.setattr("r2med.results.store.QueryScores", None)  # stopped after the run, before the scores
    with pytest.raises(TypeError):
        store.write(result, run, evaluation)
    assert list(store) == []


def test_an_old_expansion_does_not_stand_beside_a_new_result(store: ResultStore) -> None:
    (result,) = store
    run = store.run(result)
    evaluation = score(run, load("mini@1/Biology").qrels)
    used = [UsedGenerations(method="hyde", digest="0" * 32, prompts=["1"])]
    path = store.write(result, run, evaluation, expansions=[{"query_id": "q", "texts": ["x"]}], generations=used)
    assert path.with_suffix(".expansions.jsonl").exists()
    (stored,) = ResultIndex([store.root]).select()
    assert stored.generations() == used
    path.with_suffix(".generations.jsonl").write_text("{}")
    with pytest.raises(DataError, match="was changed after it was written"):
        stored.generations()
    store.write(result, run, evaluation)
    assert sorted(p.name for p in path.parent.iterdir()) == ["Biology.json", "Biology.queries.jsonl", "Biology.run.gz"]


NAMES = [
    "./my task", "./my_task", "./my:task", "my_task", "äö", "öä", "MedQA", "medqa", "MEDQA", "CON", "con", "con.txt",
    "..", ".", "../../etc", "a/b", "a_b", "A_b", "x" * 300, "x" * 301, "bm25,k1=1.2", "bm25:k1=1.2", "tail.", "tail",
    "my_task~abcdef01", "\x1b[31m", " ", "Biology", "biology",
]  # fmt: skip


def test_two_different_results_never_share_a_place(tmp_path: Path) -> None:
    """Whichever of system, collection and task differs, on a file system that folds capitals, too."""
    store = ResultStore(tmp_path)
    for first, second in combinations(NAMES, 2):
        for place in range(3):
            keys = [["s", "c", "t"], ["s", "c", "t"]]
            keys[0][place], keys[1][place] = first, second
            one, other = (store.path(*key) for key in keys)
            assert str(one).casefold() != str(other).casefold(), (first, second)
            assert one.is_relative_to(tmp_path)
            assert len(one.relative_to(tmp_path).parts) == 3
    own = [store.path("s", collection, "t") for collection in ("", "own", "own~", "Own")]
    assert len({str(path).casefold() for path in own}) == 4
    assert own[0] == tmp_path / "s" / "own" / "t.json"


def renamed(result: TaskResult, system: str, task: str) -> TaskResult:
    info = msgspec.structs.replace(result.task, collection="", name=task)
    return msgspec.structs.replace(result, system=msgspec.structs.replace(result.system, name=system), task=info)


def test_results_of_hostile_names_are_all_kept_and_read_under_their_names(store: ResultStore) -> None:
    (result,) = store
    run, evaluation = store.run(result), None
    evaluation = score(run, load("mini@1/Biology").qrels)
    for name in NAMES:
        store.write(renamed(result, name, name), run, evaluation)
    found = {(r.system.name, r.task.name) for r in store if not r.task.collection}
    assert found == {(name, name) for name in NAMES}
    for name in NAMES:
        kept = store.find(name, "", name)
        assert kept is not None
        assert len(store.run(kept)) == len(run)
    assert store.find("nobody", "", "Biology") is None


def test_names_of_the_catalogue_are_filed_as_they_are(tmp_path: Path) -> None:
    names = {name for c in collections().values() for name in (c.name, *(entry.name for entry in c.tasks))}
    published = {name for source in ledger().sources for name in (source.collection, *source.tasks)}
    assert names | published == KNOWN_NAMES
    assert (
        ResultStore(tmp_path).path("bm25", "mini@1", "MedQA-Diag") == tmp_path / "bm25" / "mini@1" / "MedQA-Diag.json"
    )


def test_a_mean_over_queries_leaves_out_what_counts_judgments() -> None:
    few = {"recall_at_10": 0.0, "recall_micro_at_10": 0.0}
    many = {"recall_at_10": 1.0, "recall_micro_at_10": 1.0}
    assert query_weighted([(1, few), (3, many)]) == {"recall_at_10": 0.75}
    assert query_weighted([]) == {}
