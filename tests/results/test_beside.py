"""Per-query scores and expansions: what was stored, or an error that says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from r2med.core import DataError, ResultError
from r2med.results import ResultStore, StoredResult
from r2med.results.beside import read_expansion
from r2med.results.index import ResultIndex
from r2med.scoring import score
from r2med.tasks import load

from .sealing import edit, scores_in


def biology(root: Path) -> StoredResult:
    return next(s for s in ResultIndex([root]).all() if s.key == ("bm25", "mini", "Biology"))


def test_some_measures_of_all_queries(own_results: Path) -> None:
    stored = biology(own_results)
    columns = stored.scores(["ndcg_at_10", "recall_at_100", "made_up"])
    assert columns.values.shape == (3, stored.result.task.queries)
    assert columns.values[0].mean() == pytest.approx(stored.result.measures["ndcg_at_10"], abs=1e-12)
    assert np.isnan(columns.values[2]).all()
    for row, key in enumerate(("ndcg_at_10", "recall_at_100")):
        assert dict(zip(columns.query_ids, columns.values[row].tolist(), strict=True)) == scores_in(stored.path, key)


def test_large_files_are_read_in_pieces(own_results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = biology(own_results).scores(["ndcg_at_10"])
    for size in (1, 700, 5000):
        monkeypatch.setattr("r2med.results.beside.CHUNK", size)
        again = biology(own_results).scores(["ndcg_at_10"])
        assert again.query_ids == whole.query_ids
        assert (again.values == whole.values).all()


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (lambda p: p.unlink(), "there are no per-query scores"),
    "no JSON": (lambda p: p.write_text("{broken\n"), "cannot be read"),
    "empty": (lambda p: p.write_text(""), "do not add up"),
    "a line lost": (lambda p: p.write_text("".join(p.read_text().splitlines(keepends=True)[1:])), "do not add up"),
    "no number": (lambda p: p.write_bytes(b'{"query_id": "q", "measures": {"ndcg_at_10": NaN}}\n'), "cannot be read"),
    "no measure": (
        lambda p: p.write_text(p.read_text().replace('"ndcg_at_10"', '"other"')),
        "do not add up",
    ),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("hashed", [True, False], ids=["with a hash", "of the first edition"])
def test_damaged_scores_are_refused(
    own_results: Path, damage: Callable[[Path], object], words: str, hashed: bool
) -> None:
    path = own_results / "bm25" / "mini" / "Biology.json"
    if not hashed:
        edit(path, lambda document: document.pop("files"))
    damage(path.with_suffix(".queries.jsonl"))
    either = f"{words}|were changed after they were written" if hashed else words
    with pytest.raises(ResultError, match=f"bm25 on mini/Biology: .*({either})"):
        biology(own_results).scores(["ndcg_at_10"])


def test_scores_that_change_places_are_noticed_by_their_hash(own_results: Path) -> None:
    """Two queries exchange their scores: the mean stays, the hash does not."""
    path = own_results / "bm25" / "mini" / "Biology.queries.jsonl"
    text = path.read_text().replace("Biology-q01", "tmp").replace("Biology-q02", "Biology-q01")
    path.write_text(text.replace("tmp", "Biology-q02"))
    with pytest.raises(ResultError, match="were changed after they were written"):
        biology(own_results).scores(["ndcg_at_10"])


def test_a_run_of_another_result_is_noticed(own_results: Path) -> None:
    run = own_results / "bm25-lucene" / "mini" / "Biology.run.gz"
    (own_results / "bm25" / "mini" / "Biology.run.gz").write_bytes(run.read_bytes())
    with pytest.raises(DataError, match=r"Biology\.run\.gz: was changed after it was written"):
        biology(own_results).run()
    store = ResultStore(own_results)
    with pytest.raises(DataError, match="was changed after it was written"):
        store.run(biology(own_results).result)


def test_expansions(own_results: Path) -> None:
    stored, store = biology(own_results), ResultStore(own_results)
    assert stored.expansion("Biology-q01") is None
    run = store.run(stored.result)
    texts = [{"query_id": q, "texts": [f"about {q}"], "cost": None} for q in run.query_ids]
    store.write(stored.result, run, score(run, load("mini/Biology").qrels), expansions=texts)
    stored = biology(own_results)
    found = stored.expansion("Biology-q02")
    assert found is not None
    assert found.texts == ["about Biology-q02"]
    assert stored.expansion("about Biology-q02") is None
    path = stored.path.with_suffix(".expansions.jsonl")
    path.write_text(path.read_text().replace("about Biology-q05", "nothing about it"))
    with pytest.raises(DataError, match="was changed after it was written"):
        stored.expansion("Biology-q02")
    path.write_text('{"query_id": "q"\n')
    with pytest.raises(DataError, match="cannot be read"):
        read_expansion(path, "q")
