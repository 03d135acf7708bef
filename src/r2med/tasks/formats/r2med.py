"""R2MED's own folder: `corpus.jsonl`, `query.jsonl`, `qrels.jsonl` or `qrels.txt`, and expansions beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...core import DataError, Query
from ...core.compression import write_lines
from ...core.stores import Store, find
from ..jsonl import BeirQuery, PlainQuery, encode_lines, read_documents, read_records, uses_underscore_id
from ..judgments import qrels_from_store
from ..parts import Expansion, Parts, expansion_files, read_hydoc

QRELS = ("qrels.jsonl", "qrels.txt", "qrels.tsv", "qrels")


def read_queries(store: Store, name: str) -> tuple[Query, ...]:
    """Queries of either spelling (`id` or `_id`)."""
    record: type[PlainQuery | BeirQuery] = BeirQuery if uses_underscore_id(store, name) else PlainQuery
    return tuple(
        Query(q.id, q.text, q.answer or None, q.body_system or None) for _, q in read_records(store, name, record)
    )


class R2MedFormat:
    """The layout of the R2MED repository and of its hub datasets."""

    name = "r2med"
    summary = "corpus.jsonl, query.jsonl, qrels.jsonl (or qrels.txt)"

    def splits(self, names: list[str]) -> list[str]:
        plain = {n.removesuffix(".gz").removesuffix(".zst") for n in names}
        return [""] if {"corpus.jsonl", "query.jsonl"} <= plain else []

    def read(self, store: Store, split: str) -> Parts:
        names = store.names()
        corpus, query = find(store, "corpus.jsonl", names=names), find(store, "query.jsonl", names=names)
        qrels = find(store, *QRELS, names=names)
        if corpus is None or query is None or qrels is None:
            raise DataError("has no qrels.jsonl or qrels.txt", path=store.path)
        return Parts(read_queries(store, query), read_documents(store, corpus), qrels_from_store(store, qrels))

    def expansions(self, store: Store, split: str) -> Iterator[Expansion]:
        for method, llm, name in expansion_files(store.names()):
            yield read_hydoc(store, name, method, llm)

    def write(self, parts: Parts, folder: Path, *, split: str, compress: str, expansions: list[Expansion]) -> None:
        positives: dict[str, list[str]] = {}
        for judgment in parts.qrels:
            if judgment.grade > 0:
                positives.setdefault(judgment.query_id, []).append(judgment.doc_id)

        def query_record(query: Query) -> dict[str, object]:
            record: dict[str, object] = {"id": query.id, "text": query.text, "doc_id": positives.get(query.id, [])}
            return record | {k: v for k, v in (("answer", query.answer), ("body_system", query.body_system)) if v}

        corpus = ({"id": d.id, "text": d.text} | ({"title": d.title} if d.title else {}) for d in parts.documents)
        qrels = ({"q_id": q, "p_id": d, "score": g} for q, d, g in parts.qrels)
        write_lines(folder, "corpus.jsonl", encode_lines(corpus), compress=compress)
        write_lines(folder, "query.jsonl", encode_lines(map(query_record, parts.queries)), compress=compress)
        write_lines(folder, "qrels.jsonl", encode_lines(qrels), compress=compress)
        texts = {q.id: q.text for q in parts.queries}
        for method, llm, generated in expansions:
            records = (
                {
                    "id": query_id,
                    "text": texts.get(query_id, ""),
                    "hy_doc": hydocs[0] if len(hydocs) == 1 else hydocs,
                    "doc_id": positives.get(query_id, []),
                }
                for query_id, hydocs in generated.items()
            )
            write_lines(folder, f"{method}/{llm}/query_with_hydoc.jsonl", encode_lines(records), compress=compress)
