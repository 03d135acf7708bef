"""A results folder that the first edition of r2med wrote is read, whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

import r2med
from r2med.core import ResultError
from r2med.report.collection import side_by_side
from r2med.report.leaderboard import board
from r2med.results import ResultIndex, ResultStore
from r2med.results.protocols import parts
from r2med.results.store import slug
from r2med.scoring import MAIN, score
from r2med.tasks import load

from .sealing import edit, scores_in

FOLDER = Path(__file__).with_name("first_edition")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return shutil.copytree(FOLDER, tmp_path / "results")


def test_every_result_is_there_with_its_numbers(root: Path) -> None:
    store = ResultStore(root)
    found = {(r.system.name, r.task.name): r for r in store}
    assert {key: round(100 * r.measures["ndcg_at_10"], 2) for key, r in found.items()} == {
        ("bm25", "Biology"): 18.50,
        ("bm25", "MedQA-Diag"): 28.26,
        ("bm25+bge-small.rrf", "MedQA-Diag"): 28.48,
    }
    for (_, task), result in found.items():
        assert (result.system.spec, result.files) == ({}, {})
        scored = score(store.run(result), load(f"mini@1/{task}").qrels)
        assert scored.mean() == pytest.approx(result.measures["ndcg_at_10"], abs=1e-12)
        assert dict(zip(scored.query_ids, scored.per_query["ndcg_at_10"], strict=True)) == pytest.approx(
            scores_in(root / result.system.name / "mini" / f"{task}.json", "ndcg_at_10")
        )


def test_every_reader_takes_it(root: Path) -> None:
    index = ResultIndex([root])
    scores, _, left_out = side_by_side(index, ["bm25", "bm25+bge-small.rrf"], MAIN)
    assert [t.name for t in scores.tasks] == ["mini@1/MedQA-Diag"]
    assert left_out == ("mini@1/Biology",)
    assert [r.system for r in board(root, measured=True).rows] == ["bm25", "bm25+bge-small.rrf"]
    stored = index.select(["bm25"])[0]
    assert len(stored.run().of("Biology-q01").docs) > 10


def test_a_changed_score_is_refused_as_it_was(root: Path) -> None:
    path = root / "bm25" / "mini" / "Biology.json"
    text = path.read_text()
    path.write_text(text.replace('"ndcg_at_10": 0.18', '"ndcg_at_10": 0.98', 1))
    assert path.read_text() != text
    with pytest.raises(ResultError, match="was changed after it was written"):
        list(ResultStore(root))


def test_the_retrievers_of_a_system_without_a_spec(root: Path) -> None:
    fused = ResultStore(root).find("bm25+bge-small.rrf", "mini@1", "MedQA-Diag")
    assert fused is not None
    assert [(part.name, part.kind) for part in parts(fused.system)] == [("bm25", "lexical"), ("bge-small", "dense")]


def test_a_result_on_an_earlier_edition_of_the_data_is_kept_apart(root: Path) -> None:
    """Mini was made anew: results that lie under `mini` but were made on its first edition are `mini@1`'s."""
    store = ResultStore(root)
    old = store.find("bm25", "mini@1", "Biology")
    assert old is not None
    assert (old.task.full_name, old.task.revision) == ("mini@1/Biology", "1")
    assert store.find("bm25", "mini", "Biology") is None
    done = r2med.run("bm25", tasks="mini/Biology", results=root)
    again, new = store.find("bm25", "mini@1", "Biology"), store.find("bm25", "mini", "Biology")
    assert again is not None
    assert again.measures == old.measures, "the new edition's result does not replace that of the first"
    assert store.run(again).query_ids == store.run(old).query_ids
    assert new is not None
    assert new.measures["ndcg_at_10"] == done.results[0].measures["ndcg_at_10"] != old.measures["ndcg_at_10"]
    assert {s.key[1] for s in ResultIndex([root]).all()} == {"mini", "mini@1"}


def test_old_file_names_are_found_and_give_way_to_new_ones(root: Path) -> None:
    """`BAAI/bge` and `BAAI_bge` shared a folder; the name inside the file tells whose result it is."""
    store = ResultStore(root)
    (old,) = (root / slug("BAAI/bge") / "own").parent.parent.glob("bm25/mini/Biology.json")
    target = root / slug("BAAI/bge") / "own" / f"{slug('my:task')}.json"
    target.parent.mkdir(parents=True)
    for suffix in (".json", ".run.gz", ".queries.jsonl"):
        shutil.copy(old.with_suffix(suffix), target.with_suffix(suffix))
    edit(target, lambda d: (d["system"].update(name="BAAI/bge"), d["task"].update(collection="", name="my:task")))
    found = store.find("BAAI/bge", "", "my:task")
    assert found is not None
    assert len(store.run(found)) == 13
    assert store.find("BAAI_bge", "", "my_task") is None, "another system of the same old file name"
    assert ("BAAI/bge", "", "my:task") in {s.key for s in ResultIndex([root]).all()}
    newer = msgspec.structs.replace(found, depth=7)
    path = store.write(newer, store.run(found), score(store.run(found), load("mini@1/Biology").qrels))
    assert path != target
    (again,) = [s for s in ResultIndex([root]).all() if s.system == "BAAI/bge"]
    assert (again.path, again.result.depth) == (path, 7)
