"""Per-query scores and expansions: what was stored, or an error that says so."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.core import DataError, IdTable, ResultError, Run
from r2med.core.run import read_run
from r2med.results import ResultStore, StoredResult, beside
from r2med.results.beside import open_run, read_expansion, write_blocks
from r2med.results.index import ResultIndex
from r2med.scoring import score
from r2med.tasks import load

from .sealing import edit, scores_in


def biology(root: Path) -> StoredResult:
    return next(s for s in ResultIndex([root]).all() if s.key == ("bm25", "mini@1", "Biology"))


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
        monkeypatch.setattr("r2med.core.stores.CHUNK", size)
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
    path = own_results / "bm25" / "mini@1" / "Biology.json"
    if not hashed:
        edit(path, lambda document: document.pop("files"))
    damage(path.with_suffix(".queries.jsonl"))
    either = f"{words}|were changed after they were written" if hashed else words
    with pytest.raises(ResultError, match=f"bm25 on mini@1/Biology: .*({either})"):
        biology(own_results).scores(["ndcg_at_10"])


def test_scores_that_change_places_are_noticed_by_their_hash(own_results: Path) -> None:
    """Two queries exchange their scores: the mean stays, the hash does not."""
    path = own_results / "bm25" / "mini@1" / "Biology.queries.jsonl"
    text = path.read_text().replace("Biology-q01", "tmp").replace("Biology-q02", "Biology-q01")
    path.write_text(text.replace("tmp", "Biology-q02"))
    with pytest.raises(ResultError, match="were changed after they were written"):
        biology(own_results).scores(["ndcg_at_10"])


def test_a_run_of_another_result_is_noticed(own_results: Path) -> None:
    run = own_results / "bm25-lucene" / "mini@1" / "Biology.run.gz"
    (own_results / "bm25" / "mini@1" / "Biology.run.gz").write_bytes(run.read_bytes())
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
    store.write(stored.result, run, score(run, load("mini@1/Biology").qrels), expansions=texts)
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


def made(queries: int, depth: int, *, seed: int = 0) -> Run:
    rng = np.random.default_rng(seed)
    docs = np.stack([rng.permutation(5 * depth)[:depth] for _ in range(queries)]).astype(np.int32)
    scores = np.sort(rng.random((queries, depth), dtype=np.float32))[:, ::-1]
    ids = [f"q{i}" for i in rng.permutation(queries)]  # in no order
    return Run(IdTable(ids), IdTable(f"doc{i}" for i in range(5 * depth)), docs, np.ascontiguousarray(scores))


def test_it_is_a_gzip_file_that_reads_back(tmp_path: Path) -> None:
    run = made(300, 100)
    write_blocks(run, tmp_path / "x.run.gz")
    back = read_run(tmp_path / "x.run.gz", query_ids=run.query_ids)
    assert [(q, [h.doc_id for h in hits]) for q, hits in back] == [(q, [h.doc_id for h in hits]) for q, hits in run]
    unpacked = subprocess.run(["gzip", "-dc", tmp_path / "x.run.gz"], capture_output=True, check=True).stdout
    assert unpacked == gzip.decompress((tmp_path / "x.run.gz").read_bytes())
    assert unpacked.count(b"\n") == 300 * 100


def test_the_same_run_gives_the_same_bytes_and_hash(tmp_path: Path) -> None:
    first, second = (write_blocks(made(50, 20), tmp_path / name) for name in ("a.run.gz", "b.run.gz"))
    assert first == second != write_blocks(made(50, 20, seed=1), tmp_path / "c.run.gz")
    assert (tmp_path / "a.run.gz").read_bytes() == (tmp_path / "b.run.gz").read_bytes()


def test_one_query_unpacks_one_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(400, 100)
    expected = write_blocks(run, tmp_path / "x.run.gz")
    stored = open_run(tmp_path / "x.run.gz", expected=expected)
    unpacked = list[int]()
    whole = beside.RunBlocks.block

    def counting(self: beside.RunBlocks, number: int, *, most: int = 0) -> bytes:
        text = whole(self, number, most=most)
        unpacked.append(len(text))
        return text

    monkeypatch.setattr(beside.RunBlocks, "block", counting)
    ranking = stored.of(run.query_ids[7])
    assert ranking.docs == tuple(hit.doc_id for hit in run.row(7))
    assert ranking.scores == pytest.approx([hit.score for hit in run.row(7)], rel=1e-6)
    assert sum(unpacked) < 2 * beside.BLOCK + 12 * 4096  # bisection looks at beginnings only
    assert stored.nbytes < 1 << 20


@settings(max_examples=40, deadline=None)
@given(st.sets(st.text(st.characters(exclude_categories=("Cs", "Z", "Cc")), min_size=1, max_size=8), max_size=30))
def test_every_query_is_found_and_no_other(tmp_path_factory: pytest.TempPathFactory, ids: set[str]) -> None:
    usable = [i for i in ids if i.split() == [i]]
    path = tmp_path_factory.mktemp("runs") / "x.run.gz"
    run = Run.from_rankings({i: [(f"{i}-d{n}", 9.0 - n) for n in range(len(i) % 3)] for i in usable})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside, "BLOCK", 40)
        expected = write_blocks(run, path)
    stored = open_run(path, expected=expected)
    for query_id in usable:
        assert stored.of(query_id).docs == tuple(hit.doc_id for hit in run.of(query_id))
    for absent in ("nobody", "", "q", *(f"{i}x" for i in usable), *(i[:-1] for i in usable)):
        if absent not in usable:
            assert stored.of(absent).docs == ()


def test_ranks(tmp_path: Path) -> None:
    run = made(3, 10)
    write_blocks(run, tmp_path / "x.run.gz")
    docs = [hit.doc_id for hit in run.row(0)]
    assert open_run(tmp_path / "x.run.gz").of(run.query_ids[0]).ranks([docs[4], "none"]) == [5, None]


def test_an_empty_run_is_a_gzip_file_too(tmp_path: Path) -> None:
    empty = Run(IdTable([]), IdTable([]), np.empty((0, 0), dtype=np.int32), np.empty((0, 0), dtype=np.float32))
    expected = write_blocks(empty, tmp_path / "x.run.gz")
    assert subprocess.run(["gzip", "-t", tmp_path / "x.run.gz"], check=False).returncode == 0
    assert open_run(tmp_path / "x.run.gz", expected=expected).of("q").docs == ()


@pytest.mark.parametrize(
    "lines",
    [
        "q1 Q0 b 1 2 t\nq1 Q0 a 2 1 t\nq2 Q0 c 1 1 t\n",
        "q1 Q0 a 1 1 t\nq1 Q0 b 2 2 t\nq2 Q0 c 1 1 t\n",  # not in order
        "q1 Q0 b 1 2 t\nq2 Q0 c 1 1 t\nq1 Q0 a 2 1 t\n",  # not together
        "q1\tQ0\tb\t1\t2\tt\nq1\tQ0\ta\t2\t1\tt\nq2\tQ0\tc\t1\t1\tt\n",  # tabs
        "q1 Q0 b 1 2 t\r\nq1 Q0 a 2 1 t\r\n\r\nq2 Q0 c 1 1 t",  # other line ends, no end
    ],
)
def test_a_run_in_one_piece_is_sorted_by_its_scores(tmp_path: Path, lines: str) -> None:
    path = tmp_path / "x.run.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    stored = open_run(path)
    assert stored.of("q1").docs == ("b", "a")
    assert stored.of("q2").docs == ("c",)
    assert stored.of("q3").docs == ()
    with pytest.raises(DataError, match="was changed after it was written"):
        open_run(path, expected="0" * 32)


def test_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    run, path = made(6, 5), tmp_path / "x.run.gz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside, "BLOCK", 200)
        expected = write_blocks(run, path)
    data = path.read_bytes()
    rankings = {q: open_run(path, expected=expected).of(q) for q in run.query_ids}
    refused = 0
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        try:
            stored = open_run(path, expected=expected)
            assert dict(stored.whole()) == dict(run)
            assert {q: stored.of(q) for q in run.query_ids} == rankings
        except DataError:
            refused += 1
    assert refused > 0.6 * len(data)
    for cut in (data[:-1], data[: len(data) // 2], data + b"\0", b""):
        path.write_bytes(cut)
        with pytest.raises(DataError):
            open_run(path, expected=expected).whole()


def test_a_line_never_goes_on_in_the_next_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other tool would read such blocks as one line."""
    path = tmp_path / "x.run.gz"
    monkeypatch.setattr(beside, "_texts", lambda run: [b"q1 Q0 d1 1 2 t", b"q1 Q0 d2 2 1 t\n"])
    expected = write_blocks(made(1, 1), path)
    with pytest.raises(DataError, match="was changed after it was written"):
        open_run(path, expected=expected).whole()


def test_a_broken_or_missing_run_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "x.run.gz"
    with pytest.raises(DataError, match="there is no run beside this result"):
        open_run(path)
    path.write_bytes(b"\x1f\x8b broken")
    with pytest.raises(DataError, match=r"x\.run\.gz"):
        open_run(path)


def test_threads_that_read_different_blocks_get_their_own(tmp_path: Path) -> None:
    run = made(400, 50)
    stored = open_run(tmp_path / "x.run.gz", expected=write_blocks(run, tmp_path / "x.run.gz"))
    expected = {query_id: tuple(hit.doc_id for hit in hits) for query_id, hits in run}

    def read(offset: int) -> bool:
        ids = list(run.query_ids)[offset:] + list(run.query_ids)[:offset]
        return all(stored.of(query_id).docs == expected[query_id] for query_id in ids[:150])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(0, 400, 25)))
