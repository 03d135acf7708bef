"""Results folders: found, watched, and never left."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from r2med.core import DataError
from r2med.report.web.data.columns import MEASURES
from r2med.report.web.data.rankings import Ranking, Rankings
from r2med.report.web.data.shelf import Shelf
from r2med.report.web.site import Site
from r2med.results import ResultStore
from r2med.scoring import MAIN


def test_everything_is_found_in_the_order_of_the_paper(results: Path) -> None:
    site = Site([results])
    (holdings,) = site.held.values()
    assert holdings.collection == "mini"
    assert len(holdings.tasks) == 8
    assert holdings.tasks[0] == "Biology"
    assert set(holdings.systems) == {"bm25", "bm25-lucene", "bm25+bm25-lucene.rrf"}
    assert all(holdings.complete(s) for s in holdings.systems)
    assert not site.problems(holdings)


def test_per_query_scores_are_those_stored(results: Path) -> None:
    site, store = Site([results]), ResultStore(results)
    (holdings,) = site.held.values()
    for entry in (e for of in holdings.systems.values() for e in of.values()):
        for measure in (MAIN, MEASURES[-1]):
            stored = store.per_query(entry.result, measure.key)
            assert site.book.scores(entry, measure) == pytest.approx(stored, abs=1e-6)


def test_lists_are_those_stored(results: Path) -> None:
    shelf, store = Shelf([results]), ResultStore(results)
    shelf.refresh()
    rankings = Rankings(shelf)
    for entry in shelf.entries[:6]:
        ranking, run = rankings.of(entry), store.run(entry.result)
        for query_id, hits in run:
            assert ranking.of(query_id).docs == tuple(h.doc_id for h in hits)
            assert [h.score for h in ranking.top(query_id)] == pytest.approx([h.score for h in hits[:10]], rel=1e-6)
        assert ranking.of("nobody").docs == ()
        assert ranking.ranks(query_id, [hits[4].doc_id, "none"]) == [5, None]


@pytest.mark.parametrize(
    "lines",
    [
        "q1 Q0 a 1 1 t\nq1 Q0 b 2 2 t\nq2 Q0 c 1 1 t\n",  # not in order
        "q1 Q0 b 1 2 t\nq2 Q0 c 1 1 t\nq1 Q0 a 2 1 t\n",  # not together
        "q1\tQ0\tb\t1\t2\tt\nq1\tQ0\ta\t2\t1\tt\nq2\tQ0\tc\t1\t1\tt\n",  # tabs
        "q1 Q0 b 1 2 t\r\nq1 Q0 a 2 1 t\r\n\r\nq2 Q0 c 1 1 t",  # other line ends, no end
    ],
)
def test_a_run_in_another_order_is_sorted_by_its_scores(tmp_path: Path, lines: str) -> None:
    path = tmp_path / "x.run.gz"
    import gzip

    path.write_bytes(gzip.compress(lines.encode()))
    ranking = Ranking(path, 10)
    assert ranking.of("q1").docs == ("b", "a")
    assert ranking.of("q2").docs == ("c",)


def test_a_broken_run_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "x.run.gz"
    path.write_bytes(b"\x1f\x8b broken")
    with pytest.raises(DataError, match=r"x\.run\.gz"):
        Ranking(path, 10)


def test_broken_and_foreign_files_are_named_and_the_rest_is_shown(own_results: Path) -> None:
    (own_results / "bm25" / "mini" / "Biology.json").write_text("{ not json")
    (own_results / "bm25" / "mini" / "MedQA-Diag.json").write_text('{"schema": 99}')
    (own_results / "bm25-lucene" / "mini" / "Biology.queries.jsonl").write_text('{"query_id": "x"')
    (own_results / "bm25-lucene" / "mini" / "MedQA-Diag.queries.jsonl").unlink()
    site = Site([own_results])
    holdings = site.holdings("mini")
    standing = site.standings.of(holdings, MAIN, site.shelf.version, wait=None)
    assert standing is not None
    assert not holdings.complete("bm25")
    assert "Biology" not in standing.scores["bm25"].tasks
    said = "\n".join(site.problems(holdings))
    assert "not a result file" in said
    assert "schema 99" in said
    assert "bm25-lucene on mini/Biology" in said
    assert "there are no per-query scores" in said
    assert len(site.problems(holdings)) == 4


def test_links_out_of_the_folder_are_not_followed(own_results: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(own_results / "bm25", outside / "secret")
    (own_results / "secret").symlink_to(outside / "secret")
    inner = own_results / "bm25" / "mini"
    for name in ("Biology.run.gz", "Biology.queries.jsonl", "PMC-Clinical.json"):
        (inner / name).unlink()
        (inner / name).symlink_to(outside / "secret" / "mini" / name)
    site = Site([own_results])
    holdings = site.holdings("mini")
    assert "secret" not in {e.path.parts[-3] for of in holdings.systems.values() for e in of.values()}
    assert "PMC-Clinical" not in holdings.systems["bm25"]
    entry = holdings.systems["bm25"]["Biology"]
    assert site.book.of(entry) is None
    with pytest.raises(DataError, match="not followed"):
        site.rankings.of(entry)
    assert sum("not followed" in p for p in site.problems(holdings)) == 2


def test_new_changed_and_removed_results_are_noticed(own_results: Path) -> None:
    hidden = own_results.parent / "aside"
    (own_results / "bm25-lucene").rename(hidden)
    site = Site([own_results])
    assert set(site.held["mini"].systems) == {"bm25", "bm25+bm25-lucene.rrf"}
    hidden.rename(own_results / "bm25-lucene")
    site.shelf.refresh(now=True)
    assert len(site.held["mini"].systems) == 3
    path = own_results / "bm25" / "mini" / "Biology.json"
    changed = json.loads(path.read_text()) | {"depth": 7, "checksum": ""}
    aside = path.with_name(".new")
    aside.write_text(json.dumps(changed))
    aside.replace(path)
    before = site.shelf.version
    site.shelf.refresh(now=True)
    assert site.shelf.version == before + 1
    assert site.held["mini"].systems["bm25"]["Biology"].result.depth == 7
    site.shelf.refresh(now=True)
    assert site.shelf.version == before + 1
    path.unlink()
    site.shelf.refresh(now=True)
    assert "Biology" not in site.held["mini"].systems["bm25"]


def test_the_same_system_in_two_folders_is_told_apart(results: Path, own_results: Path, tmp_path: Path) -> None:
    other = tmp_path / "later"
    shutil.copytree(own_results / "bm25", other / "bm25")
    names = set(Site([results, other]).held["mini"].systems)
    assert names == {"bm25 (results)", "bm25 (later)", "bm25-lucene", "bm25+bm25-lucene.rrf"}


def test_results_on_other_data_do_not_stand_beside_the_rest(own_results: Path) -> None:
    path = own_results / "bm25" / "mini" / "Biology.json"
    changed = json.loads(path.read_text()) | {"checksum": ""}
    changed["task"]["fingerprint"] = "f" * 32
    path.write_text(json.dumps(changed))
    holdings = Site([own_results]).held["mini"]
    assert "Biology" not in holdings.systems["bm25"]
    assert "other data" in holdings.problems[0]


def test_huge_and_unreadable_files_do_no_harm(own_results: Path) -> None:
    inner = own_results / "bm25" / "mini"
    (inner / "Huge.json").write_bytes(b"[" * (9 << 20))
    (inner / "Deep.json").write_bytes(b'{"schema": 1, "x": ' + b"[" * 100_000)
    (inner / "Latin.json").write_bytes(b'{"schema": 1, "x": "\xff"}')
    (inner / "Folder.json").mkdir()
    os.mkfifo(inner / "Pipe.json")
    site = Site([own_results])
    assert len(site.held["mini"].systems) == 3
    assert len(site.problems()) == 3
