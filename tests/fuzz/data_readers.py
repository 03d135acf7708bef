"""Readers of test collections, runs and judgments, in every layout and wrapping."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

from r2med.core.run import read_run
from r2med.core.spec import Content
from r2med.retrieve.stored import StoredRun, load_candidates
from r2med.scoring.holes import read_pool
from r2med.tasks import write_task
from r2med.tasks.audit import read_outside
from r2med.tasks.load import from_path
from r2med.tasks.records import read_qrels
from r2med.tasks.validate import validate
from tests.builders import CORPUS, QRELS, QUERIES, lines, load_path, r2med_folder, small_task
from tests.fuzz.cases import Case, Maker, from_file

RUN = b"".join(b"q%d Q0 d%d %d %.4f tag\n" % (q, d, d, 9.5 - d / 3) for q in range(3) for d in range(6))
TREC_QRELS = b"q1 0 d1 1\nq1 0 d2 0\nq2 0 d3 2\n"
TSV_QRELS = b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td 2\t1\n"
BEIR_QRELS = b'{"query-id": "q1", "corpus-id": "d1", "score": 1}\n'
BEIR_CORPUS = lines([{"_id": d["id"], "title": "Greek β", "text": d["text"]} for d in CORPUS])
BEIR_QUERIES = lines([{"_id": q["id"], "text": q["text"], "answer": "fever"} for q in QUERIES])
TOPK = lines([{"id": "q1", "topk_pid": [["d1", 0.5], ["d2", 0.25]]}, {"id": "q2", "topk_pid": ["d1", "d2"]}])
POOL = b"task\tquery_id\tdoc_id\tgrade\tbest_rank\tsystems\tquery\tpassage\nmini/a\tq1\td1\t1\t3\tbm25, bge\tx\ty\n"


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def runs(suffix: str, pack: Callable[[bytes], bytes]) -> Maker:
    return lambda folder: from_file(folder / f"a.run{suffix}", [pack(RUN), pack(RUN[:90])], read_run)


def judgments(folder: Path) -> Case:
    return from_file(folder / "qrels.txt", [TREC_QRELS, TSV_QRELS, lines(QRELS), BEIR_QRELS], read_qrels)


def in_r2med_folder(name: str, seeds: list[bytes]) -> Maker:
    def make(folder: Path) -> Case:
        task = r2med_folder(folder / "task")
        return from_file(task / name, seeds, lambda _: load_path(task))

    return make


def in_beir_folder(name: str, seeds: list[bytes]) -> Maker:
    def make(folder: Path) -> Case:
        task = folder / "beir"
        (task / "qrels").mkdir(parents=True)
        (task / "corpus.jsonl").write_bytes(BEIR_CORPUS)
        (task / "queries.jsonl").write_bytes(BEIR_QUERIES)
        (task / "qrels" / "test.tsv").write_bytes(TSV_QRELS)
        return from_file(task / name, seeds, lambda _: load_path(task))

    return make


def compressed_corpus(suffix: str, pack: Callable[[bytes], bytes]) -> Maker:
    def make(folder: Path) -> Case:
        task = r2med_folder(folder / "task")
        (task / "corpus.jsonl").unlink()
        seeds = [pack(lines(CORPUS)), pack(lines(CORPUS)) + pack(lines(CORPUS[:1]))]
        return from_file(task / f"corpus.jsonl{suffix}", seeds, lambda _: load_path(task))

    return make


def archives(folder: Path) -> Case:
    r2med_folder(folder / "inside")
    seeds = []
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", method) as archive:
            for path in (folder / "inside").iterdir():
                archive.writestr(f"top/{path.name}", path.read_bytes())
        seeds.append(buffer.getvalue())
    return from_file(folder / "task.zip", seeds, load_path)


def parquet(layout: str, config: str) -> Maker:
    def make(folder: Path) -> Case:
        task = folder / layout
        write_task(small_task(), task, to=layout)
        (file,) = (p for p in task.rglob("*.parquet") if p.parent.name == config)
        return from_file(file, [file.read_bytes()], lambda _: load_path(task))

    return make


def validation(folder: Path) -> Case:
    task = r2med_folder(folder / "task")
    return from_file(task / "corpus.jsonl", [lines(CORPUS)], lambda _: [validate(ref) for ref in from_path(task)])


def candidates(folder: Path) -> Case:
    task = small_task()

    def read(path: Path) -> object:
        stored = StoredRun(Content.of(path))
        stored.describe()
        return load_candidates(path, task), stored.retrieve(task)

    return from_file(folder / "bm25.jsonl", [TOPK, RUN.replace(b"q0", b"q1")], read)


def pools(suffix: str) -> Maker:
    seeds = {
        ".tsv": [POOL],
        ".jsonl": [lines([{"task": "mini@1/a", "query_id": "q1", "doc_id": "d1", "grade": 1, "best_rank": 1}])],
    }
    return lambda folder: from_file(folder / f"pool{suffix}", seeds[suffix], read_pool)


def outside(suffix: str) -> Maker:
    text = "a training example of ten words or more that somebody once wrote down"
    seeds = [lines([{"q": text, "more": [{"text": text}]}]), f"{text}\t{text}\n".encode()]
    return lambda folder: from_file(folder / f"train{suffix}", seeds, read_outside)


DATA: dict[str, Maker] = {
    "TREC run": runs("", bytes),
    "TREC run .gz": runs(".gz", packed),
    "TREC run .zst": runs(".zst", zstd),
    "judgments": judgments,
    "R2MED corpus.jsonl": in_r2med_folder("corpus.jsonl", [lines(CORPUS), BEIR_CORPUS]),
    "R2MED query.jsonl": in_r2med_folder("query.jsonl", [lines(QUERIES), BEIR_QUERIES]),
    "R2MED qrels.jsonl": in_r2med_folder("qrels.jsonl", [lines(QRELS), BEIR_QRELS, TREC_QRELS]),
    "BEIR corpus.jsonl": in_beir_folder("corpus.jsonl", [BEIR_CORPUS]),
    "BEIR queries.jsonl": in_beir_folder("queries.jsonl", [BEIR_QUERIES]),
    "BEIR qrels tsv": in_beir_folder("qrels/test.tsv", [TSV_QRELS, TREC_QRELS]),
    "corpus .gz": compressed_corpus(".gz", packed),
    "corpus .zst": compressed_corpus(".zst", zstd),
    "task zip": archives,
    "Nano parquet corpus": parquet("nano", "corpus"),
    "Nano parquet qrels": parquet("nano", "qrels"),
    "hub parquet queries": parquet("hub", "query"),
    "data validate": validation,
    "candidates": candidates,
    "label pool tsv": pools(".tsv"),
    "label pool jsonl": pools(".jsonl"),
    "audit material jsonl": outside(".jsonl"),
    "audit material tsv": outside(".tsv"),
}
