"""Broken and hostile files: one clear line that names file and place, and nothing half-written."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from r2med.core import DataError, HostileData, UnknownName
from r2med.tasks import convert, load, resolve, write_task
from r2med.tasks.load import from_path
from tests.builders import CORPUS, QUERIES, lines, load_path, r2med_folder, small_task

MEGABYTE = 1 << 20
GOOD = lines(CORPUS)


def refused(path: Path, message: str, *, error: type[DataError] = DataError) -> None:
    """Loading and converting both say `message`, in one line; converting leaves nothing behind."""
    out = path.parent / "converted"
    for attempt in (lambda: load_path(path), lambda: convert(from_path(path), out, to="beir")):
        with pytest.raises(error, match=message) as caught:
            attempt()
        assert str(caught.value).startswith(str(path))
        assert len(str(caught.value).splitlines()) == 1
    assert not [p for p in path.parent.iterdir() if "converted" in p.name]


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        (GOOD + b'{"id": "d3", "text": "th', r"corpus\.jsonl:3: broken JSON: the line ends too early"),
        (b"\n\n" + GOOD + b'{"id": "d3" "text": ""}\n', r"corpus\.jsonl:5: broken JSON: "),
        (b"not json\n", r"corpus\.jsonl:1: broken JSON"),
        (GOOD + b'{"id": "d3", "text": "x"} trailing\n', r"corpus\.jsonl:3: broken JSON: trailing characters"),
        (GOOD + b'["d3", "x"]\n', r"corpus\.jsonl:3: expected an object, got a list"),
        (GOOD + b'{"id": 3, "text": "x"}\n', r"corpus\.jsonl:3: field 'id': expected text, got a whole number"),
        (GOOD + b'{"id": "d3", "text": null}\n', r"corpus\.jsonl:3: field 'text': expected text, got null"),
        (GOOD + b'{"id": "d3", "text": ["x"]}\n', r"corpus\.jsonl:3: field 'text': expected text, got a list"),
        (GOOD + b'{"id": "d3"}\n', r"corpus\.jsonl:3: field 'text' is missing"),
        (GOOD + b'{"_id": "d3", "text": "x"}\n', r"corpus\.jsonl:3: field 'id' is missing"),
        (GOOD + b'{"id": "d3", "text": "\\ud800"}\n', r"corpus\.jsonl:3: holds a lone surrogate"),
        (GOOD + b'{"id": "d3", "text": "\\udc00\\ud800 x"}\n', r"corpus\.jsonl:3: holds a lone surrogate"),
        (GOOD + b'{"id": "d3", "text": "\xed\xa0\x80"}\n', r"corpus\.jsonl:3: is not valid UTF-8"),
        (GOOD + b'{"id": "d3", "text": "caf\xe9"}\n', r"corpus\.jsonl:3: is not valid UTF-8"),
        (GOOD + b'{"id": "d3", "text": "a\\u0000b"}\n', r"corpus\.jsonl:3: document 'd3' holds a NUL character"),
        (GOOD + b'{"id": "d3", "text": "a\0b"}\n', r"corpus\.jsonl:3: holds a NUL character"),
        (GOOD + b'{"id": "d3", "text": "", "title": "\\u0000"}\n', r"corpus\.jsonl:3: document 'd3' holds a NUL"),
        (b"\n" + GOOD + GOOD, r"corpus\.jsonl:4: document id 'd1' stands 2 times"),
        (GOOD + b'{"id": "d3", "text": "x", "y": ' + b"[" * 100_000 + b"\n", r"corpus\.jsonl:3: broken JSON: nested"),
        (b"", "there are no documents"),
        (b" \n\n", "there are no documents"),
        (b'\xef\xbb\xbf{"id": "d1", "text": "x"}\n', r"corpus\.jsonl:1: begins with a byte-order mark"),
    ],
)
def test_a_broken_corpus(tmp_path: Path, corpus: bytes, message: str) -> None:
    refused(r2med_folder(tmp_path / "task", corpus=corpus), message)


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (lines(QUERIES) + b"{\n", r"query\.jsonl:3: broken JSON"),
        (lines([*QUERIES, QUERIES[1]]), r"query\.jsonl:3: query id 'q2' stands 2 times"),
        (b'{"id": "q1", "text": "a\\u0000"}\n', r"query\.jsonl:1: query 'q1' holds a NUL character"),
        (b'{"id": "q1", "text": "a", "answer": 3}\n', r"query\.jsonl:1: field 'answer': expected text"),
        (b"", "there are no queries"),
    ],
)
def test_broken_queries(tmp_path: Path, queries: bytes, message: str) -> None:
    refused(r2med_folder(tmp_path / "task", queries=queries), message)


@pytest.mark.parametrize(
    ("qrels", "message"),
    [
        (b"", r"qrels\.jsonl: holds no judgments"),
        (b'{"q_id": "q1", "p_id": "d1", "score": 1.5}\n', r"qrels\.jsonl:1: grade 1\.5 is not a whole number"),
        (b"q1 0 d1 1\nq1 0 d1 2\n", r"qrels\.jsonl: query 'q1' judges document 'd1' twice, as 1 and 2"),
    ],
)
def test_broken_judgments(tmp_path: Path, qrels: bytes, message: str) -> None:
    refused(r2med_folder(tmp_path / "task", qrels=qrels), message)


def test_things_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such folder or file"):
        load(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="nowhere: no such folder or file"):
        load(tmp_path / "nowhere")
    with pytest.raises(UnknownName, match="unknown task 'nano/Biolog'; did you mean nano/Biology"):
        resolve("nano/Biolog")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file: is neither a folder nor a \.zip"):
        load(tmp_path / "file")
    with pytest.raises(DataError, match=r"is in no layout r2med knows \(r2med: corpus\.jsonl, .*; it holds file$"):
        load(tmp_path)
    folder = r2med_folder(tmp_path / "task")
    (folder / "qrels.jsonl").unlink()
    refused(folder, r"task: has no qrels\.jsonl or qrels\.txt")


def test_a_folder_where_a_file_should_be(tmp_path: Path) -> None:
    folder = r2med_folder(tmp_path / "task")
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus.jsonl").mkdir()
    refused(folder, "is in no layout r2med knows")


def repacked(folder: Path, pack: Callable[[bytes], bytes], suffix: str) -> Path:
    corpus = folder / "corpus.jsonl"
    (folder / f"corpus.jsonl{suffix}").write_bytes(pack(corpus.read_bytes()))
    corpus.unlink()
    return folder


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


MANY = lines({"id": f"d{i}", "text": f"text number {i * 7919 % 1000} of {i}"} for i in range(3000))


@pytest.mark.parametrize(
    ("suffix", "pack", "message"),
    [
        (".gz", lambda b: gzip.compress(b)[:-400], "ends too early: the compressed file is truncated"),
        (".gz", lambda b: gzip.compress(b)[:-4], "ends too early: the compressed file is truncated"),
        (".gz", lambda b: gzip.compress(b)[:5], "ends too early: the compressed file is truncated"),
        (".gz", lambda b: flipped(gzip.compress(b), -6), r"broken compressed data \(CRC check failed"),
        (".gz", lambda b: flipped(gzip.compress(b), 5000), r"broken compressed data \(|broken JSON|UTF-8|NUL"),
        (".gz", lambda b: b, r"broken compressed data \(Not a gzipped file"),
        (".gz", lambda b: gzip.compress(b) + b"garbage", r"broken compressed data \(Not a gzipped file"),
        (".zst", lambda b: zstandard.compress(b)[:-400], "ends too early: the compressed file is truncated"),
        (".zst", lambda b: zstandard.compress(b)[:3], "ends too early: the compressed file is truncated"),
        (".zst", lambda b: flipped(zstandard.ZstdCompressor(write_checksum=True).compress(b), -2), "broken compressed"),
        (".zst", lambda b: b, r"broken compressed data \("),
        (".zst", lambda b: zstandard.compress(b) + b"garbage", r"broken compressed data \("),
        (".gz", lambda _: b"", "there are no documents"),
        (".zst", lambda _: b"", "there are no documents"),
    ],
)
def test_broken_compression(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes], message: str) -> None:
    folder = repacked(r2med_folder(tmp_path / "task", corpus=MANY), pack, suffix)
    refused(folder, message)


def test_several_frames_are_one_file(tmp_path: Path) -> None:
    first, second = (lines([record]) for record in CORPUS)
    for suffix, pack in ((".gz", gzip.compress), (".zst", zstandard.compress)):
        folder = repacked(r2med_folder(tmp_path / suffix), lambda _, pack=pack: pack(first) + pack(second), suffix)  # type: ignore[misc]
        assert len(load_path(folder).documents) == 2


def zip_with(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def task_members(folder: Path) -> dict[str, bytes]:
    r2med_folder(folder)
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/etc/evil", "C:/evil", "C:\\evil", "..\\evil", "\\\\host\\evil"]
)
def test_a_zip_that_names_files_outside_itself(tmp_path: Path, name: str) -> None:
    path = zip_with(tmp_path / "t.zip", task_members(tmp_path / "task") | {name: b"x"})
    refused(path, r"t\.zip: names a file outside itself: ", error=HostileData)


def test_a_zip_with_odd_names_is_read(tmp_path: Path) -> None:
    path = zip_with(tmp_path / "t.zip", task_members(tmp_path / "task") | {".": b"x", "note: this": b""})
    with pytest.raises(HostileData, match="'note: this'"):
        load_path(path)
    path = zip_with(tmp_path / "u.zip", task_members(tmp_path / "task") | {".": b"x", "./x": b""})
    assert len(load_path(path).documents) == 2


def zeros(stream: io.BufferedIOBase, megabytes: int) -> None:
    block = bytes(4 * MEGABYTE)
    for _ in range(megabytes // 4):
        stream.write(block)


@pytest.fixture(scope="module")
def gzip_bomb() -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as stream:
        zeros(stream, 400)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["zip", "gz", "gz in zip"])
def test_a_bomb_is_refused_before_it_goes_off(tmp_path: Path, gzip_bomb: bytes, kind: str) -> None:
    members = task_members(tmp_path / "task")
    path = tmp_path / ("task" if kind == "gz" else "t.zip")
    if kind == "zip":
        del members["corpus.jsonl"]
        zip_with(path, members)
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("corpus.jsonl", "w") as stream:
            zeros(stream, 400)  # type: ignore[arg-type]
    elif kind == "gz":
        repacked(path, lambda _: gzip_bomb, ".gz")
    else:
        del members["corpus.jsonl"]
        zip_with(path, members | {"corpus.jsonl.gz": gzip_bomb})
    assert sum(p.stat().st_size for p in ([path] if path.is_file() else path.iterdir())) < MEGABYTE
    tracemalloc.start()
    with pytest.raises(HostileData, match=r"corpus\.jsonl(\.gz)?: unpacks to over \d+ MiB, out of all proportion"):
        load_path(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 250 * MEGABYTE


def test_a_zip_that_lies_about_its_sizes(tmp_path: Path, gzip_bomb: bytes) -> None:
    members = task_members(tmp_path / "task")
    del members["corpus.jsonl"]
    path = zip_with(tmp_path / "t.zip", members | {"corpus.jsonl.gz": gzip_bomb})
    info = zipfile.ZipFile(path).getinfo("corpus.jsonl.gz")
    data = path.read_bytes()
    claimed = (1 << 31).to_bytes(4, "little")
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"corpus.jsonl.gz"))
    assert int.from_bytes(data[at + 24 : at + 28], "little") == info.file_size
    path.write_bytes(data[: at + 24] + claimed + data[at + 28 :])
    refused(path, r"corpus\.jsonl\.gz: ")


def test_an_encrypted_zip(tmp_path: Path) -> None:
    data = bytearray(zip_with(tmp_path / "t.zip", task_members(tmp_path / "task")).read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(signature)
        while at >= 0:
            data[at + flags] |= 1
            at = data.find(signature, at + 4)
    (tmp_path / "t.zip").write_bytes(data)
    refused(tmp_path / "t.zip", r"t\.zip!\w+\.jsonl: is encrypted")


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x05\x06" + b"\xff" * 18])
def test_a_file_that_is_no_zip(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.zip").write_bytes(content)
    refused(tmp_path / "t.zip", r"t\.zip: (not a readable zip file|lists more files)|is in no layout")


def test_a_damaged_zip(tmp_path: Path) -> None:
    path = zip_with(tmp_path / "t.zip", task_members(tmp_path / "task") | {"corpus.jsonl": MANY})
    data = path.read_bytes()
    path.write_bytes(flipped(data, len(data) // 2))
    refused(path, r"t\.zip!corpus\.jsonl:?.*(broken compressed data|broken JSON|UTF-8|NUL)")
    path.write_bytes(data[: len(data) // 2])
    refused(path, r"t\.zip: not a readable zip file")


def test_a_destination_that_is_taken_is_kept(tmp_path: Path) -> None:
    write_task(small_task(), tmp_path / "a", to="r2med")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").write_text("precious")
    with pytest.raises(DataError, match="b: already exists and is not an empty folder"):
        convert(from_path(tmp_path / "a"), tmp_path / "b", to="beir")
    assert [p.name for p in (tmp_path / "b").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id": "q1"}\n', r"query_with_hydoc\.jsonl:1: field 'hy_doc' is missing"),
        (b'{"id": "q1", "hy_doc": 3}\n', r"query_with_hydoc\.jsonl:1: field 'hy_doc': expected"),
        (b'{"id": "q1", "hy_doc": "a"}\n' * 2, r"query_with_hydoc\.jsonl:2: query 'q1' stands twice"),
    ],
)
def test_broken_expansions(tmp_path: Path, content: bytes, message: str) -> None:
    folder = r2med_folder(tmp_path / "task")
    (folder / "hyde" / "gpt4").mkdir(parents=True)
    (folder / "hyde" / "gpt4" / "query_with_hydoc.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message):
        convert(from_path(folder), tmp_path / "out", to="hub")
    assert not (tmp_path / "out").exists()
