from __future__ import annotations

import gzip
import os
import tempfile
from codecs import BOM_UTF8
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, IdTable, Qrels, Run
from r2med.core import run as runs
from r2med.core.stores import write_packed
from r2med.scoring import score
from r2med.tasks import read_qrels, read_run, write_qrels, write_run
from tests.builders import TREC_ID

SUFFIXES = ["", ".gz", ".zst"]
SCORES = st.floats(width=32, allow_nan=False)
RANKINGS = st.dictionaries(TREC_ID, st.dictionaries(TREC_ID, SCORES, min_size=1, max_size=4), min_size=1, max_size=4)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_mark_before_the_first_line_is_refused(suffix: str, tmp_path: Path) -> None:
    """As some editors write it: it was part of the first id, and that query scored 0."""
    for name, line, read in (("a.run", b"q Q0 d 1 1 x\n", read_run), ("a.qrels", b"q 0 d 1\n", read_qrels)):
        path = tmp_path / f"{name}{suffix}"
        with path.open("wb") as stream:
            write_packed(stream, [BOM_UTF8, line], suffix=suffix)
        with pytest.raises(DataError, match="1: begins with a byte-order mark"):
            read(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_run_survives(suffix: str) -> None:
    @given(RANKINGS)
    def check(rankings: dict[str, dict[str, float]]) -> None:
        run = Run.from_rankings({q: list(hits.items()) for q, hits in rankings.items()}, name="my system")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"x.run{suffix}"
            write_run(run, path)
            back = read_run(str(path))
            assert list(back) == list(run)
            assert back.name == "my-system"
            assert list(read_run(path, doc_ids=IdTable(sorted(run.doc_ids)))) == list(run)

    check()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_qrels_survive(suffix: str) -> None:
    @given(st.dictionaries(st.tuples(TREC_ID, TREC_ID), st.integers(-2, 3), min_size=1, max_size=6))
    def check(judged: dict[tuple[str, str], int]) -> None:
        qrels = Qrels.from_judgments((q, d, g) for (q, d), g in judged.items())
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"x.qrels{suffix}"
            write_qrels(qrels, path)
            assert read_qrels(str(path)) == qrels

    check()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_run_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    run = Run.from_rankings({"q": [("a", 0.1), ("b", 1 / 3)]})
    for name in ("one", "two"):
        write_run(run, tmp_path / (name + suffix))
    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


def test_the_lines_of_a_run(tmp_path: Path) -> None:
    write_run(Run.from_rankings({"q": [("a", 0.25), ("b", 3.0)], "p": []}, name="x"), tmp_path / "run")
    assert (tmp_path / "run").read_text() == "q Q0 b 1 3 x\nq Q0 a 2 0.25 x\n"


def test_order_follows_the_scores_not_the_ranks(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("q Q0 a 1 1.0 t\n\nq\tQ0\tb\t2\t2.0\tt\r\n")
    assert [hit.doc_id for hit in read_run(tmp_path / "run").of("q")] == ["b", "a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x: holds no rankings"),
        (b"q Q0 a 1 1.0 t\nq Q0 a 1 1.0\n", "x:2: expected 6 columns, got 5"),
        (b"q Q0 a 1 1.0\nq Q0 b 1 1.0 t u\n", "x:1: expected 6 columns, got 5"),
        (b"q Q0 a 1 high t\n", "x:1: score 'high' is not a number"),
        (b"q Q0 a 1 \xff t\n", "x:1: score '\ufffd' is not a number"),
        (b"q Q0 a 1 nan t\n", "x:1: score 'nan' is not a number"),
        (b"q Q0 a 1 1_0 t\n", "x:1: score '1_0' is not a number"),
        (b"q Q0 \xff 1 1.0 t\n", "x:1: is not valid UTF-8"),
        (b"q Q0 a\0b 1 1.0 t\n", "x:1: holds a NUL character"),
        (b"q Q0 a 1 1.0 t\nq Q0 a 2 0.5 t\n", "x: query 'q' retrieves document 'a' twice"),
    ],
)
def test_a_broken_run(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_run(tmp_path / "x")


@pytest.mark.parametrize("size", [7, 60, 1 << 20])
def test_a_run_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("r2med.core.stores.CHUNK", size)
    lines = [f"q{i % 3} Q0 d{i} {i} {-i / 3} t{i}\n" for i in range(40)]
    (tmp_path / "x").write_text("".join(lines) + "\n \n" + "".join(lines).replace("Q0 d", "Q0 e").rstrip())
    read = read_run(tmp_path / "x", query_ids=["none", "q1", "none"])
    assert list(read.query_ids) == ["none", "q1", "q0", "q2"]
    assert read.of("none") == []
    assert [hit.doc_id for hit in read.of("q0")][:4] == ["e0", "d0", "e3", "d3"]
    assert (len(read.of("q1")), read.name) == (26, "t39")
    (tmp_path / "x").write_text("".join(lines) + "q Q0 d 1 nan t\n")
    with pytest.raises(DataError, match="x:41: score 'nan'"):
        read_run(tmp_path / "x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x: holds no judgments"),
        (b"\n \n", "x: holds no judgments"),
        (b"query-id\tcorpus-id\tscore\n", "x: holds no judgments"),
        (b"q 0 d 1\nq d\n", "x:2: expected 3 or 4 columns, got 2"),
        (b"q 0 d 1.5\n", "x:1: grade '1.5' is not a whole number"),
        (b"q 0 d high\n", "x:1: grade 'high' is not a whole number"),
        (b"q\td\t1\x1d", r"x:1: grade '1\\x1d' is not a whole number"),
        (b"q 0 d 1_0\n", "x:1: grade '1_0' is not a whole number"),
        ("q 0 d １\n".encode(), "x:1: grade '１' is not a whole number"),
        (b"q 0 d inf\n", "x:1: grade 'inf' is not a whole number"),
        ("q 0 d \u0663\n".encode(), "x:1: grade '\u0663' is not a whole number"),
        (b"\xef\xbb\xbfq 0 d 1\n", "x:1: begins with a byte-order mark"),
        (b'\xef\xbb\xbf{"q_id": "q", "p_id": "d", "score": 1}\n', "x:1: begins with a byte-order mark"),
        (b"q 0 d 4294967296\n", "x:1: grade '4294967296' is out of range"),
        (b"q 0 d 1\nq 0 d 2\n", "x: query 'q' judges document 'd' twice, as 1 and 2"),
        (b"q 0 \xff 1\n", "x:1: is not valid UTF-8"),
        (b"q 0 a\0b 1\n", "x:1: holds a NUL character"),
        (b'{"q_id": "q", "p_id": "d", "score": 1.5}\n', "x:1: grade 1.5 is not a whole number"),
        (b'{"q_id": "q", "p_id": "d", "score": 9999999999}\n', r"x:1: grade 9999999999\.0 is out of range"),
        (b'{"q_id": "q", "p_id": "d", "score": "1"}\n', "x:1: field 'score': expected a number, got text"),
        (b'{"q_id": "q", "score": 1}\n', "x:1: field 'p_id' is missing"),
        (b'{"query-id": "q", "corpus-id": 3}\n', "x:1: field 'corpus-id': expected text, got a whole number"),
        (
            b'{"query-id": "q", "corpus-id": "d", "relevance": 0}\n',
            "x:1: field 'relevance' is not known, and there is no",
        ),
        (
            b'{"query-id": "q", "corpus-id": "d", "score": 0}\n{"query-id": "q", "corpus-id": "e"}',
            "x:2: field 'score' is m",
        ),
    ],
)
def test_broken_judgments(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_qrels(tmp_path / "x")


@pytest.mark.parametrize("line", ["q 1\t0\td\t1 \n", "q 1\td\t 1\r\n", "q 1\t0\td\t1.\n", "q 1\t0\td\t+1e0\n"])
def test_spaces_around_a_grade_between_tabs_are_no_part_of_it(tmp_path: Path, line: str) -> None:
    (tmp_path / "x").write_text(line)
    assert read_qrels(tmp_path / "x").of("q 1") == {"d": 1}


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\u2028", "\x85", "\x1c"])
def test_judgments_and_runs_agree_on_what_ends_an_id(tmp_path: Path, space: str) -> None:
    """A space beyond ASCII belongs to an id in both, as in trec_eval; judgments alone lost it, and scored 0."""
    (tmp_path / "qrels").write_bytes(f"q 0 a{space} 1\n{space} \n".encode())
    (tmp_path / "run").write_bytes(f"q Q0 a{space} 1 2.0 t\nq Q0 b 2 1.0 t\n".encode())
    qrels = read_qrels(tmp_path / "qrels")
    assert list(qrels) == [("q", f"a{space}", 1)]
    assert score(read_run(tmp_path / "run"), qrels).mean("nDCG@10") == 1


@pytest.mark.parametrize("query_id", ["qid", "query-id", "{", '{"a":1}'])
def test_an_id_may_look_like_a_header_or_like_json(tmp_path: Path, query_id: str) -> None:
    qrels = Qrels.from_judgments([(query_id, "d", 1)])
    write_qrels(qrels, tmp_path / "x")
    assert read_qrels(tmp_path / "x") == qrels


def test_whole_grades_may_be_written_as_floats(tmp_path: Path) -> None:
    for content in (b"q 0 d 1.0\n", b'{"q_id": "q", "p_id": "d", "score": 1.0}\n'):
        (tmp_path / "x").write_bytes(content)
        assert list(read_qrels(tmp_path / "x")) == [("q", "d", 1)]


@pytest.mark.parametrize("read", [read_run, read_qrels])
def test_files_that_are_not_there_or_end_too_early(tmp_path: Path, read: object) -> None:
    assert callable(read)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    plain = r"cannot be opened \(not a plain file\)"
    for name, message in (("absent", "no such file"), ("folder", plain), ("pipe", plain)):
        with pytest.raises(DataError, match=f"{name}: {message}"):
            read(tmp_path / name)
    packed = gzip.compress("".join(f"q Q0 d{i} 1 1 t\n" for i in range(999)).encode())
    (tmp_path / "x.gz").write_bytes(packed[:-50])
    with pytest.raises(DataError, match=r"x\.gz: ends too early: the compressed file is truncated"):
        read(tmp_path / "x.gz")


@pytest.mark.parametrize("bad", ["a b", "", "a\u2003b", "\n"])
def test_ids_that_trec_cannot_carry_leave_no_file(tmp_path: Path, bad: str) -> None:
    with pytest.raises(DataError, match="holds white space, which TREC files cannot carry"):
        write_run(Run.from_rankings({"q": [(bad, 1.0)]}), tmp_path / "run.gz")
    with pytest.raises(DataError, match="holds white space, which TREC files cannot carry"):
        write_qrels(Qrels.from_judgments([("q", bad, 1)]), tmp_path / "qrels")
    assert list(tmp_path.iterdir()) == []


NUMBERS = st.sampled_from(["1", "2.5", "-1e-3", "1_0", "inf", "nan", "1e999", "0x1"])
WORDS = st.sampled_from(["q1", "q2", "Q0", "d1", "é", "t", "\x1c"]) | NUMBERS
PLAIN = st.tuples(WORDS, WORDS, WORDS, WORDS, SCORES, st.just("t"))
LINES = st.lists(PLAIN | st.lists(WORDS, min_size=6, max_size=6) | st.lists(WORDS, max_size=7), max_size=5)


@given(
    LINES, st.sampled_from([" ", "\t", " \x0b", "\r "]), st.sampled_from(["\n", "\n\n", " \n", "\r\n"]), st.booleans()
)
def test_lines_are_read_in_c_as_in_python(lines: list[list[object]], space: str, end: str, broken: bool) -> None:
    data = end.join(space.join(map(str, line)) for line in lines).encode() + (b"\xff" if broken else b"")
    fast, slow = runs._Columns(["q2"]), runs._Columns(["q2"])
    taken = fast.take(data)
    assert taken == slow._take_slowly(data)
    if taken:
        assert (fast.queries, fast._documents, fast._tag) == (slow.queries, slow._documents, slow._tag)
        for mine, other in zip(fast._parts, slow._parts, strict=True):
            assert [column.tolist() for column in mine] == [column.tolist() for column in other]
            assert [column.dtype for column in mine] == [column.dtype for column in other]
