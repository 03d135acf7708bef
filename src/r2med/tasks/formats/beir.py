"""BEIR's folder: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ...core import DataError
from ...core.compression import write_lines
from ...core.stores import Store, find
from ..jsonl import encode_lines, read_documents
from ..judgments import qrels_from_store
from ..parts import Expansion, Parts, expansion_files, read_hydoc
from .r2med import read_queries

QRELS = re.compile(r"(?:qrels/)?(test|dev|validation|train|qrels)\.(?:tsv|jsonl|txt|qrels)(?:\.gz|\.zst)?")
SPLIT_ORDER = ("test", "qrels", "dev", "validation", "train")


class BeirFormat:
    """The layout of BEIR's downloads and of many sets made after it."""

    name = "beir"
    summary = "corpus.jsonl, queries.jsonl, qrels/test.tsv"

    def splits(self, names: list[str]) -> list[str]:
        plain = {n.removesuffix(".gz").removesuffix(".zst") for n in names}
        return [""] if {"corpus.jsonl", "queries.jsonl"} <= plain else []

    def read(self, store: Store, split: str) -> Parts:
        names = store.names()
        corpus, queries = find(store, "corpus.jsonl", names=names), find(store, "queries.jsonl", names=names)
        qrels_name = qrels_file(names)
        if corpus is None or queries is None or qrels_name is None:
            raise DataError("has no qrels/test.tsv", path=store.path)
        qrels = qrels_from_store(store, qrels_name)
        asked = read_queries(store, queries)
        if len(_splits(names)) > 1:  # one file holds the queries of all splits: the judged ones are the task
            asked = tuple(q for q in asked if q.id in qrels.query_ids)
        return Parts(asked, read_documents(store, corpus), qrels)

    def expansions(self, store: Store, split: str) -> Iterator[Expansion]:
        for method, llm, name in expansion_files(store.names()):
            yield read_hydoc(store, name, method, llm)

    def write(self, parts: Parts, folder: Path, *, split: str, compress: str, expansions: list[Expansion]) -> None:
        corpus = ({"_id": d.id, "title": d.title, "text": d.text} for d in parts.documents)
        queries = (
            {"_id": q.id, "text": q.text}
            | {k: v for k, v in (("answer", q.answer), ("body_system", q.body_system)) if v}
            for q in parts.queries
        )
        write_lines(folder, "corpus.jsonl", encode_lines(corpus), compress=compress)
        write_lines(folder, "queries.jsonl", encode_lines(queries), compress=compress)
        rows = (f"{_cell(q)}\t{_cell(d)}\t{g}\n".encode() for q, d, g in parts.qrels)
        write_lines(folder, "qrels/test.tsv", _with_header(rows), compress=compress)
        for method, llm, generated in expansions:
            records = (
                {"id": query_id, "hy_doc": hydocs[0] if len(hydocs) == 1 else hydocs}
                for query_id, hydocs in generated.items()
            )
            write_lines(folder, f"{method}/{llm}/query_with_hydoc.jsonl", encode_lines(records), compress=compress)


def qrels_file(names: list[str]) -> str | None:
    """The judgments to use where a folder has several splits."""
    found = _splits(names)
    return next((found[s] for s in SPLIT_ORDER if s in found), None)


def _splits(names: list[str]) -> dict[str, str]:
    return {m[1]: name for name in names if (m := QRELS.fullmatch(name))}


def _with_header(rows: Iterator[bytes]) -> Iterator[bytes]:
    yield b"query-id\tcorpus-id\tscore\n"
    yield from rows


def _cell(identifier: str) -> str:
    if not identifier or identifier.strip() != identifier or any(c in identifier for c in "\t\r\n"):
        raise DataError(f"id {identifier!r} cannot stand in a tab-separated file; choose another format")
    return identifier
