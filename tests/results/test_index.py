"""Results folders: found, watched, and never left."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from r2med.core import DataError, ResultError, UnknownName, UsageError
from r2med.results import ResultIndex, ResultStore
from r2med.results.index import Kept

from .sealing import edit, scores_in


def names(index: ResultIndex) -> set[tuple[str, str]]:
    index.refresh()
    return {(stored.label, stored.full_name) for stored in index.stored}


def messages(index: ResultIndex) -> list[str]:
    return [problem.message for problem in index.problems]


def test_everything_is_found_by_what_stands_inside(own_results: Path) -> None:
    (own_results / "bm25").rename(own_results / "another name")
    found = names(ResultIndex([own_results]))
    tasks = ("mini@1/Biology", "mini@1/PMC-Clinical")
    assert found == {(s, t) for s in ("bm25", "bm25-lucene", "bm25+bm25-lucene.rrf") for t in tasks}


def test_results_runs_and_scores_are_those_stored(made: Path) -> None:
    store = ResultStore(made)
    for stored in ResultIndex([made]).all():
        assert store.find(*stored.key) == stored.result
        columns, run = stored.scores(["ndcg_at_10", "hit_at_1"]), store.run(stored.result)
        by_query = dict(zip(columns.query_ids, columns.values[0].tolist(), strict=True))
        assert by_query == scores_in(stored.path, "ndcg_at_10")
        assert [(q, hits) for q, hits in stored.whole_run()] == [(q, hits) for q, hits in run]
        for query_id, hits in run:
            ranking = stored.run().of(query_id)
            assert ranking.docs == tuple(h.doc_id for h in hits)
            assert ranking.scores == pytest.approx([h.score for h in hits], rel=1e-6)
        assert stored.run().of("nobody").docs == ()
        assert stored.scores(["ndcg_at_10", "hit_at_1"]) is columns
        assert stored.run() is stored.run()


def test_broken_and_foreign_files_are_named_and_the_rest_is_there(own_results: Path) -> None:
    (own_results / "bm25" / "mini@1" / "Biology.json").write_text("{ not json")
    (own_results / "bm25" / "mini@1" / "PMC-Clinical.json").write_text('{"schema": 99}')
    index = ResultIndex([own_results], every=0.0)
    assert len(names(index)) == 4
    assert "not a result file" in messages(index)[0]
    assert "schema 99" in messages(index)[1]
    with pytest.raises(ResultError, match="not a result file"):
        index.all()
    with pytest.raises(UnknownName, match="unknown system 'bm25'"):
        index.select(["bm25"])
    assert len(index.select(["bm25-lucene"])) == 2
    (own_results / "bm25-lucene" / "mini@1" / "Biology.json").write_text("{")
    index.refresh()
    with pytest.raises(ResultError, match=r"bm25-lucene/mini@1/Biology\.json: not a result file"):
        index.select(["bm25-lucene"])


def test_links_out_of_the_folder_are_not_followed(own_results: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(own_results / "bm25", outside / "secret")
    (own_results / "secret").symlink_to(outside / "secret")
    inner = own_results / "bm25" / "mini@1"
    for name in ("Biology.run.gz", "Biology.queries.jsonl", "PMC-Clinical.json"):
        (inner / name).unlink()
        (inner / name).symlink_to(outside / "secret" / "mini@1" / name)
    (inner / "Biology.expansions.jsonl").symlink_to(tmp_path / "outside" / "secret" / "mini@1" / "Biology.json")
    index = ResultIndex([own_results], every=0.0)
    assert ("bm25", "mini@1/PMC-Clinical") not in names(index)
    assert sum("not followed" in message for message in messages(index)) == 2
    stored = next(s for s in index.stored if s.key == ("bm25", "mini@1", "Biology"))
    for look in (stored.run, lambda: stored.scores(["ndcg_at_10"]), lambda: stored.expansion("Biology-q01")):
        with pytest.raises(DataError, match="not followed"):
            look()


def test_new_changed_and_removed_results_are_noticed(own_results: Path) -> None:
    hidden = own_results.parent / "aside"
    (own_results / "bm25-lucene").rename(hidden)
    index = ResultIndex([own_results], every=0.0)
    assert {label for label, _ in names(index)} == {"bm25", "bm25+bm25-lucene.rrf"}
    hidden.rename(own_results / "bm25-lucene")
    assert len({label for label, _ in names(index)}) == 3
    path = own_results / "bm25" / "mini@1" / "Biology.json"
    before, kept = index.version, index.stored[-1]
    edit(path, lambda document: document.update(depth=7))
    index.refresh()
    assert index.version == before + 1
    assert next(s for s in index.stored if s.key == ("bm25", "mini@1", "Biology")).result.depth == 7
    assert index.stored[-1] is kept, "what did not change is not read again"
    index.refresh()
    assert index.version == before + 1
    path.unlink()
    assert ("bm25", "mini@1/Biology") not in names(index)


def test_a_result_changed_in_place_is_noticed(own_results: Path) -> None:
    index = ResultIndex([own_results], every=0.0)
    stored = next(s for s in index.all() if s.key == ("bm25", "mini@1", "Biology"))
    assert stored.result.depth == 1000
    for folder in (own_results / "bm25" / "mini@1", stored.path):
        os.utime(folder, (1, 1))  # long ago: nothing seems to be going on
    index.refresh()
    with stored.path.open("r+") as stream:
        document = json.loads(stream.read()) | {"depth": 7}
        stream.seek(0)
        stream.truncate()
        stream.write(json.dumps(document))
    os.utime(own_results / "bm25" / "mini@1", (1, 1))
    index.refresh()
    with pytest.raises(ResultError, match="was changed"):
        _ = next(s for s in index.stored if s.key == ("bm25", "mini@1", "Biology")).result


def test_the_same_system_in_two_folders_is_told_apart(made: Path, own_results: Path, tmp_path: Path) -> None:
    other = tmp_path / "later"
    shutil.copytree(own_results / "bm25", other / "bm25")
    found = {label for label, _ in names(ResultIndex([made, other]))}
    assert found == {"bm25 (results)", "bm25 (later)", "bm25-lucene", "bm25+bm25-lucene.rrf"}


def test_two_files_of_one_result(own_results: Path) -> None:
    """The one in its own place counts; another one is named, and stops whoever asks for its folder."""
    shutil.copy(
        own_results / "bm25-lucene" / "mini@1" / "Biology.json", own_results / "bm25" / "mini@1" / "Biology.json"
    )
    index = ResultIndex([own_results], every=0.0)
    assert ("bm25-lucene", "mini@1/Biology") in names(index)
    assert ("bm25", "mini@1/Biology") not in names(index)
    with pytest.raises(ResultError, match="holds a result of 'bm25-lucene'"):
        index.select(["bm25", "bm25-lucene"])


def test_what_is_no_file_does_no_harm(own_results: Path) -> None:
    """A named pipe among the results hung pages: whoever opened it waited for ever."""
    inner = own_results / "bm25" / "mini@1"
    (inner / "Huge.json").write_bytes(b"[" * (9 << 20))
    (inner / "Deep.json").write_bytes(b'{"schema": 1, "x": ' + b"[" * 100_000)
    (inner / "Latin.json").write_bytes(b'{"schema": 1, "x": "\xff"}')
    (inner / "Folder.json").mkdir()
    os.mkfifo(inner / "Pipe.json")
    for suffix in (".run.gz", ".queries.jsonl", ".expansions.jsonl"):
        (inner / f"Biology{suffix}").unlink(missing_ok=True)
        os.mkfifo(inner / f"Biology{suffix}")
    index = ResultIndex([own_results], every=0.0)
    assert len(names(index)) == 6
    assert len(index.problems) == 3
    stored = next(s for s in index.stored if s.key == ("bm25", "mini@1", "Biology"))
    with pytest.raises(DataError, match="not a plain file"):
        stored.run()
    with pytest.raises(ResultError, match="cannot be read"):
        stored.scores(["ndcg_at_10"])
    with pytest.raises(DataError, match="cannot be read"):
        stored.expansion("Biology-q01")


def test_choosing(own_results: Path, tmp_path: Path) -> None:
    index = ResultIndex([own_results], every=0.0)
    assert [s.label for s in index.select(["bm25-lucene", "bm25"])] == ["bm25-lucene"] * 2 + ["bm25"] * 2
    assert {s.label for s in index.select([str(own_results / "bm25")])} == {"bm25"}
    assert len(index.select(collection="mini@1")) == 6
    with pytest.raises(UnknownName, match="did you mean bm25"):
        index.select(["bm26"])
    with pytest.raises(UsageError, match="'bm25' is given twice"):
        index.select(["bm25", str(own_results / "bm25")])
    with pytest.raises(UsageError, match="bm25 has no results on nano"):
        index.select(["bm25"], collection="nano")
    with pytest.raises(ResultError, match="holds no results on own"):
        index.select(collection="own")
    with pytest.raises(ResultError, match="no such folder of results"):
        ResultIndex([tmp_path / "nowhere"]).select()


def test_a_collection_called_own_is_not_that_of_tasks_without_one(own_results: Path) -> None:
    for task, collection in (("Biology", ""), ("PMC-Clinical", "own")):
        path = own_results / "bm25" / "mini@1" / f"{task}.json"
        edit(path, lambda document, c=collection: document["task"].update(collection=c))  # type: ignore[misc]
    index = ResultIndex([own_results], every=0.0)
    assert [s.task for s in index.select(collection="own")] == ["Biology"]
    assert [s.task for s in index.select(collection="own~")] == ["PMC-Clinical"]


def test_what_is_kept_is_bounded() -> None:
    made = list[int]()

    def make(number: int) -> bytes:
        made.append(number)
        return bytes(40)

    kept: Kept[int, bytes] = Kept(100, len)
    for number in (1, 2, 1, 3, 1, 2):
        kept.get(number, lambda n=number: make(n))  # type: ignore[misc]
    assert made == [1, 2, 3, 2]
    alone: Kept[int, bytes] = Kept(10, len)
    assert alone.get(1, lambda: bytes(40)) is alone.get(1, lambda: bytes(1))
