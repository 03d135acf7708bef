"""Small files that unpack to gigabytes: refused in time, in bounded memory, wherever they are read."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.builders import lines, r2med_folder
from tests.faults.runs import linked_home
from tests.retrieve.encoders.weights import real_model

MEGABYTE = 1 << 20
SIZE = 600 * MEGABYTE
MEMORY = 450 * MEGABYTE
"""Over what the process has before it reads."""
READ = """
import resource, sys
from pathlib import Path
from r2med.core import R2MedError
from r2med.core.run import read_run
from r2med.llm import Replay
from r2med.retrieve.stored import read_topk
from r2med.tasks.load import from_path
{prepare}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    {read}
except R2MedError as error:
    print(type(error).__name__, error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def peak(path: Path, read: str, prepare: str = "") -> tuple[str, int]:
    """What a process says that reads a file, and the memory it took."""
    code = READ.format(read=read, prepare=prepare)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    *said, used = done.stdout.strip().splitlines()
    return " ".join(said), int(used)


@pytest.fixture(scope="module")
def gzip_bomb() -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as stream:
        for _ in range(SIZE // (8 * MEGABYTE)):
            stream.write(bytes(8 * MEGABYTE))
    return buffer.getvalue()


def zstd_bomb() -> bytes:
    zstandard = pytest.importorskip("zstandard", reason="the extra `zstd` is not installed")
    packer = zstandard.ZstdCompressor().compressobj()
    return b"".join([*(packer.compress(bytes(8 * MEGABYTE)) for _ in range(SIZE // (8 * MEGABYTE))), packer.flush()])


@pytest.mark.parametrize(
    ("name", "read"),
    [
        pytest.param("bomb.run.gz", "read_run(Path(sys.argv[1]))", marks=pytest.mark.faults),
        pytest.param("bomb.jsonl.gz", "read_topk(Path(sys.argv[1]))", marks=pytest.mark.faults),
        ("bomb.jsonl", "Replay.from_file(Path(sys.argv[1]))"),
    ],
)
def test_a_gzip_bomb(tmp_path: Path, gzip_bomb: bytes, name: str, read: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip_bomb)
    said, used = peak(path, read)
    assert said.startswith("HostileData")
    assert "out of all proportion" in said
    assert used < MEMORY


def test_a_zstd_bomb(tmp_path: Path) -> None:
    task = r2med_folder(tmp_path / "task")
    (task / "corpus.jsonl").unlink()
    (task / "corpus.jsonl.zst").write_bytes(zstd_bomb())
    assert (task / "corpus.jsonl.zst").stat().st_size < MEGABYTE
    said, used = peak(task, "[ref.load() for ref in from_path(Path(sys.argv[1]))]")
    assert said.startswith("HostileData")
    assert used < MEMORY


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, pytest.param(zipfile.ZIP_LZMA, marks=pytest.mark.faults)]
)
def test_a_zip_bomb(tmp_path: Path, method: int) -> None:
    """A kilobyte of bzip2 used to take twice its gigabytes before it was refused, LZMA likewise."""
    path = tmp_path / "task.zip"
    r2med_folder(tmp_path / "task")
    with zipfile.ZipFile(path, "w", method) as archive:
        for file in (tmp_path / "task").iterdir():
            if file.name != "corpus.jsonl":
                archive.write(file, file.name)
        with archive.open("corpus.jsonl", "w", force_zip64=True) as member:
            for _ in range(SIZE // (8 * MEGABYTE)):
                member.write(bytes(8 * MEGABYTE))
    assert path.stat().st_size < MEGABYTE
    said, used = peak(path, "[ref.load() for ref in from_path(Path(sys.argv[1]))]")
    assert said.startswith("HostileData" if method == zipfile.ZIP_DEFLATED else "DataError"), said
    assert used < MEMORY


def test_a_parquet_bomb(tmp_path: Path) -> None:
    """One long text, named a thousand times by a dictionary: kilobytes on disk, gigabytes as a column."""
    pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    import pyarrow.parquet as pq

    from r2med.tasks import write_task
    from tests.builders import small_task

    write_task(small_task(), tmp_path / "nano", to="nano")
    (corpus,) = (tmp_path / "nano" / "corpus").glob("*.parquet")
    count, text = SIZE // (2 * MEGABYTE), "x" * (2 * MEGABYTE)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))
    table = pa.table({"_id": [f"d{i}" for i in range(count)], "text": texts})
    pq.write_table(table, corpus, compression="zstd", dictionary_pagesize_limit=64 * MEGABYTE, store_schema=False)
    assert corpus.stat().st_size < MEGABYTE
    load = "[ref.load() for ref in from_path(Path(sys.argv[1]))]"
    said, used = peak(tmp_path / "nano", load, prepare="import pyarrow.parquet")
    assert said.startswith("HostileData"), said
    assert used < MEMORY


def varint(number: int, length: int = 0) -> bytes:
    """A number as parquet's footer holds it, in at least so many bytes."""
    rest, out = number << 1, bytearray()
    while rest or len(out) < max(length, 1):
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(out[:-1]) + bytes([out[-1] & 0x7F])


def test_a_parquet_that_lies_about_its_size(tmp_path: Path) -> None:
    """A footer that claims a hundred bytes: what comes is counted, not what was promised."""
    pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    import pyarrow.parquet as pq

    from r2med.core import HostileData
    from r2med.tasks import write_task
    from r2med.tasks.load import from_path
    from tests.builders import small_task

    write_task(small_task(), tmp_path / "nano", to="nano")
    (corpus,) = (tmp_path / "nano" / "corpus").glob("*.parquet")
    table = pa.table({"_id": ["d1", "d2", "d3"], "text": ["x" * (30 * MEGABYTE)] * 3})
    pq.write_table(table, corpus, compression="zstd", use_dictionary=False, store_schema=False, write_statistics=False)
    group, data = pq.ParquetFile(corpus).metadata.row_group(0), corpus.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    said = data[footer:]
    for size in (group.total_byte_size, *(group.column(i).total_uncompressed_size for i in range(2))):
        said = said.replace(varint(size), varint(30, len(varint(size))))
    corpus.write_bytes(data[:footer] + said)
    assert pq.ParquetFile(corpus).metadata.row_group(0).total_byte_size == 30
    with pytest.raises(HostileData, match="out of all proportion"):
        [ref.load() for ref in from_path(tmp_path / "nano")]


LONG = """
import resource, sys
from r2med.core.options import Options
from r2med.pipeline import Builder
from r2med.tasks.load import from_path
from pathlib import Path
(ref,) = from_path(Path(sys.argv[1]))
task = ref.load()
builder = Builder(Options(cache=False, threads=1))
first = builder.retriever("bm25").retrieve(task)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if sys.argv[2] == "run":
    notes = builder.retriever("bge-small:max_length=64").retrieve(task).notes["truncation"]["document"]
    assert notes["texts_cut"] == 1, notes
else:
    notes = builder.reranker("msmarco-minilm:max_length=64@3").rerank(task, first, 3).notes["rerank"]["truncation"]
    assert notes["documents_cut"] >= 1, notes
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.parametrize("kind", ["run", "rerank"])
def test_a_document_of_fifty_megabytes(tmp_path: Path, kind: str) -> None:
    """It used to be tokenized whole before it was cut to 64 tokens: 12 GB."""
    for name in ("bge-small", "msmarco-minilm"):
        real_model(name, "model.onnx")
    home = linked_home(tmp_path / "home")
    huge = lines([{"id": "d1", "text": "one fever " * (50 * MEGABYTE // 10)}, {"id": "d2", "text": "two"}])
    queries = lines([{"id": "q1", "text": "one"}, {"id": "q2", "text": "two"}])
    task = r2med_folder(tmp_path / "task", corpus=huge, queries=queries)
    done = subprocess.run(
        [sys.executable, "-c", LONG, str(task), kind], env={**os.environ, "R2MED_HOME": str(home)},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 600 * MEGABYTE


STARVED = """
import resource, sys
import r2med.api.experiments, r2med.cli.score
from r2med.cli import main
def data() -> int:
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmData")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (data() + (10 << 20), resource.RLIM_INFINITY))
sys.argv = ["r2med", "score", *sys.argv[1:]]
sys.exit(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of data memory are Linux's")
def test_too_little_memory_is_one_line(tmp_path: Path) -> None:
    """A run of half a million lines, in a process that may not have what it takes."""
    line = "q{0} Q0 d{1} 1 {1} tag\n"
    (tmp_path / "a.run").write_text("".join(line.format(q, d) for q in range(500) for d in range(1000)))
    (tmp_path / "qrels").write_text("q1 0 d1 1\n")
    done = subprocess.run(
        [sys.executable, "-c", STARVED, str(tmp_path / "a.run"), str(tmp_path / "qrels")],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("r2med: not enough memory")
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_an_object_of_ones_own_that_takes_all_memory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "hungry.py").write_text(
        "class Hungry:\n    def encode(self, texts, **options):\n        return bytearray(1 << 60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "r2med", "run", "-t", "mini@1/Biology", "-r", "hungry:Hungry"], cwd=tmp_path,
        env={**os.environ, "R2MED_HOME": str(tmp_path / "home")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("r2med: hungry:Hungry failed on documents ")
    assert done.stderr.endswith("(MemoryError)\n")
    assert len(done.stderr.splitlines()) == 1, done.stderr
