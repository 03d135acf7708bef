from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

import r2med
from r2med.core import DataError, Unavailable
from r2med.tasks import resolve, write_task
from r2med.tasks.load import from_path
from r2med.tasks.validate import ABSURD_ID, ABSURD_TEXT, EXAMPLES, Report, lines, validate
from tests.builders import CORPUS, QUERIES, r2med_folder, small_task
from tests.builders import lines as jsonl


def report_of(path: Path) -> Report:
    (ref,) = from_path(path)
    return validate(ref)


def found(report: Report) -> dict[str, tuple[str, int]]:
    return {f.code: (f.level, f.count) for f in (*report.errors, *report.warnings)}


def test_a_good_task_has_no_findings(tmp_path: Path) -> None:
    for layout in ("r2med", "beir", "hub", "mteb", "nano"):
        write_task(small_task(), tmp_path / layout, to=layout)
        report = report_of(tmp_path / layout)
        assert report.ok
        assert found(report) == {}
        assert (report.queries, report.documents, report.judgments, report.layout) == (2, 3, 4, layout)


def documents(*records: object) -> bytes:
    return jsonl([*CORPUS, *records])


@pytest.mark.parametrize(
    ("corpus", "findings"),
    [
        (
            documents(CORPUS[0], CORPUS[0]),
            {"duplicate-document-id": ("error", 2), "duplicate-document-text": ("warning", 2)},
        ),
        (documents({"id": "d3", "text": "one"}), {"duplicate-document-text": ("warning", 1)}),
        (documents({"id": "d3", "text": ""}, {"id": "d4", "text": " \n"}), {"empty-document": ("error", 2)}),
        (documents({"id": "", "text": "x"}, {"id": " ", "text": "y"}), {"empty-document-id": ("error", 2)}),
        (documents({"id": "d 3", "text": "x"}, {"id": "d4\n", "text": "y"}), {"space-in-document-id": ("error", 2)}),
        (documents({"id": "d3", "text": "a\0b"}), {"nul": ("error", 1)}),
        (documents() + b'{"id": "d3", "text": "a\0b"}\n', {"nul": ("error", 1)}),
        (b'\xef\xbb\xbf{"id": "d3", "text": "x"}\n' + documents(), {"byte-order-mark": ("error", 1)}),
        (documents() + b'{"id": "d3", "text": "caf\xe9"}\n', {"bad-utf8": ("error", 1)}),
        (documents() + b'{"id": "d3", "text": "\\ud800"}\n' * 2, {"lone-surrogate": ("error", 2)}),
        (documents() + b'{"id": "d3"\n{]\n', {"broken-json": ("error", 2)}),
        (documents({"id": 3, "text": "x"}, {"id": "x", "text": 3}), {"wrong-type": ("error", 2)}),
        (documents({"id": "d3"}), {"missing-field": ("error", 1)}),
        (documents({"id": "x" * (ABSURD_ID + 1), "text": "x"}), {"long-document-id": ("warning", 1)}),
        (documents({"id": "d3", "text": "x" * (ABSURD_TEXT + 1)}), {"long-document": ("warning", 1)}),
        (b'{"id": "d1", "text": "x", "y": ' + b"[" * 100_000 + b"\n" + documents(), {"broken-json": ("error", 1)}),
    ],
)
def test_findings_in_the_corpus(tmp_path: Path, corpus: bytes, findings: dict[str, tuple[str, int]]) -> None:
    report = report_of(r2med_folder(tmp_path, corpus=corpus))
    assert found(report) == findings
    assert report.ok == all(level == "warning" for level, _ in findings.values())


@pytest.mark.parametrize(
    ("queries", "qrels", "findings"),
    [
        (
            jsonl(QUERIES + QUERIES[:1]),
            None,
            {"duplicate-query-id": ("error", 1), "duplicate-query-text": ("warning", 1)},
        ),
        (jsonl([*QUERIES, {"id": "q3", "text": "x"}]), None, {"query-without-positive": ("error", 1)}),
        (jsonl([{"id": "q1", "text": ""}, QUERIES[1]]), None, {"empty-query": ("error", 1)}),
        (
            None,
            b"q1 0 d1 1\nq2 0 d2 1\nq3 0 d1 1\nq1 0 d9 0\n",
            {"judgment-of-missing-query": ("error", 1), "judgment-of-missing-document": ("error", 1)},
        ),
        (None, b"q1 0 d1 0\nq2 0 d2 -1\n", {"query-without-positive": ("error", 2), "negative-grade": ("warning", 1)}),
        (None, b"q1 0 d1 1\nq1 0 d1 2\n", {"bad-judgments": ("error", 1)}),
        (None, b"", {"bad-judgments": ("error", 1)}),
        (b"", b"q1 0 d1 1\n", {"no-queries": ("error", 1), "judgment-of-missing-query": ("error", 1)}),
    ],
)
def test_findings_in_queries_and_judgments(
    tmp_path: Path, queries: bytes | None, qrels: bytes | None, findings: dict[str, tuple[str, int]]
) -> None:
    assert found(report_of(r2med_folder(tmp_path, queries=queries, qrels=qrels))) == findings


def test_an_empty_corpus(tmp_path: Path) -> None:
    report = report_of(r2med_folder(tmp_path, corpus=b""))
    assert found(report) == {"no-documents": ("error", 1), "judgment-of-missing-document": ("error", 2)}


def test_no_judgments(tmp_path: Path) -> None:
    (r2med_folder(tmp_path) / "qrels.jsonl").unlink()
    assert found(report_of(tmp_path)) == {"no-judgments": ("error", 1)}


def test_a_truncated_file_is_a_finding_beside_the_others(tmp_path: Path) -> None:
    many = jsonl({"id": f"d{i}", "text": f"text {i * 7919 % 1000} {i}"} for i in range(20_000))
    folder = r2med_folder(tmp_path, corpus=b"")
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(b"{\n" + many)[:-2000])
    report = report_of(folder)
    assert {f.code for f in report.errors} == {"broken-json", "unreadable-file"}
    assert 0 < report.documents < 20_000
    assert "corpus.jsonl.gz: ends too early" in report.errors[1].examples[0]


def test_examples_name_file_and_line_and_are_few(tmp_path: Path) -> None:
    report = report_of(r2med_folder(tmp_path, corpus=jsonl(CORPUS) + b"{\n" * 20))
    (finding,) = report.errors
    assert finding.count == 20
    assert len(finding.examples) == EXAMPLES
    assert finding.examples[0] == "corpus.jsonl:3: broken JSON: the line ends too early"


def test_the_splits_of_beir(tmp_path: Path) -> None:
    write_task(small_task(), tmp_path, to="beir")
    queries = tmp_path / "queries.jsonl"
    queries.write_bytes(queries.read_bytes() + b'{"_id": "q3", "text": "of another split"}\n')
    (tmp_path / "qrels" / "dev.tsv").write_text("q3\td9\t1\n")
    report = report_of(tmp_path)
    assert report.ok, "queries and judgments of other splits are not the task's"
    assert report.judgments == 4


def test_parquet_rows_are_looked_at(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_task(small_task(), tmp_path, to="hub")
    table = pa.table({"id": ["d1", "d1", "d2", "d3"], "text": ["a", "a", "", "b\0"]})
    pq.write_table(table, tmp_path / "corpus" / "corpus-00000-of-00001.parquet")
    report = report_of(tmp_path)
    assert found(report) == {
        "duplicate-document-id": ("error", 1),
        "duplicate-document-text": ("warning", 1),
        "empty-document": ("error", 1),
        "nul": ("error", 1),
    }
    assert report.errors[0].examples == ["corpus row 2 (d1)"]
    (tmp_path / "corpus" / "corpus-00000-of-00001.parquet").write_bytes(b"garbage")
    with pytest.raises(DataError, match="not a readable parquet file"):
        report_of(tmp_path)


def test_a_task_that_is_not_here() -> None:
    (ref,) = resolve("r2med/Biology")
    with pytest.raises(Unavailable, match="r2med/Biology is not on this machine: r2med data download r2med/Biology"):
        validate(ref)


def test_the_report_as_lines(tmp_path: Path) -> None:
    report = report_of(
        r2med_folder(tmp_path / "task", corpus=documents({"id": "d3", "text": ""}, {"id": "d4", "text": "one"}))
    )
    assert list(lines(report)) == [
        "task: 1 kind of error (2 queries, 4 documents, 2 judgments; layout r2med)",
        "  error: 1 documents without text",
        "    corpus.jsonl:3 (d3)",
        "  warning: 1 documents whose text is an exact copy of an earlier one",
        "    corpus.jsonl:4 (d4)",
    ]
    assert next(lines(report_of(r2med_folder(tmp_path / "good")))).startswith("good: ok (2 queries")


def test_the_report_cannot_drive_a_terminal(tmp_path: Path) -> None:
    corpus = documents({"id": "d\x1b[2J", "text": ""}, {"id": "d\u202e", "text": ""})
    shown = "\n".join(lines(report_of(r2med_folder(tmp_path, corpus=corpus))))
    assert "corpus.jsonl:3 (d\\x1b[2J)" in shown
    assert not {"\x1b", "\u202e"} & set(shown)


@pytest.mark.parametrize("layout", ["r2med"])
def test_sixty_thousand_documents_are_streamed(tmp_path: Path, layout: str) -> None:
    folder = r2med_folder(tmp_path)
    padding = "word " * 200
    with (folder / "corpus.jsonl").open("w") as stream:
        for i in range(60_000):
            stream.write(f'{{"id": "d{i}", "text": "{padding}{i}"}}\n')
    size = (folder / "corpus.jsonl").stat().st_size
    tracemalloc.start()
    report = report_of(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (report.ok, report.documents) == (True, 60_000)
    assert peak < size / 3, f"{peak >> 20} MiB for {size >> 20} MiB of corpus"


def test_what_loading_refuses_is_not_valid(tmp_path: Path) -> None:
    """A NUL in a title, and a task that is another one by now, were called ok."""
    folder = r2med_folder(tmp_path / "task")
    r2med.add_collection("mine", folder)
    (ref,) = resolve("mine/task")
    assert validate(ref).ok
    corpus = (folder / "corpus.jsonl").read_text()
    (folder / "corpus.jsonl").write_text(corpus + '{"id": "new", "text": "one more"}\n')
    (finding,) = validate(ref).errors
    assert (finding.code, "has changed since it became mine/task" in finding.examples[0]) == ("refused", True)
    (folder / "corpus.jsonl").write_text(corpus + '{"id": "new", "text": "one more", "title": "a\\u0000b"}\n')
    assert found(report_of(folder)) == {"nul": ("error", 1)}
