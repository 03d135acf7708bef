"""Parquet with one folder per config and one file per split: the hub's R2MED datasets, MTEB's re-upload, NanoR2MED."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...core import DataError, Documents, Hit, IdTable, Judgment, Qrels, Query, Run, UsageError
from ...core.stores import Store
from ..parts import METHODS, Expansion, Parts, llm_name
from .arrow import ArrowTable, arrow_column, pyarrow, read_parquet, write_parquet

SHARD = re.compile(r"([^/]+)/(.+?)(?:-\d{5}-of-\d{5})?\.parquet")


class Dialect(NamedTuple):
    """What the three layouts call things."""

    name: str
    summary: str
    queries: str
    id: str
    query_id: str
    corpus_id: str
    corpus_split: str
    query_split: str
    qrels_split: str
    grades: bool


HUB = Dialect("hub", "parquet configs corpus, query, qrels (R2MED/<Task> on the hub)",
              "query", "id", "q_id", "p_id", "corpus", "query", "qrels", True)  # fmt: skip
MTEB = Dialect("mteb", "parquet configs corpus, queries, qrels with split test (MTEB's re-upload)",
               "queries", "_id", "query-id", "corpus-id", "test", "test", "test", True)  # fmt: skip
NANO = Dialect("nano", "parquet configs corpus, queries, qrels with the task as split (NanoR2MED)",
               "queries", "_id", "query-id", "corpus-id", "{split}", "{split}", "{split}", False)  # fmt: skip

GENERIC_SPLITS = {"test", "corpus", "queries", "default", "dev", "train", "validation"}


class ParquetFormat:
    """Reads and writes one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.name = dialect.name
        self.summary = dialect.summary

    def splits(self, names: list[str]) -> list[str]:
        found = _shards(names)
        if not {"corpus", self.dialect.queries} <= found.keys() or not ({"qrels", "default"} & found.keys()):
            return []
        query_splits = sorted(found[self.dialect.queries])
        if self.dialect is NANO:
            return [] if set(query_splits) <= GENERIC_SPLITS else query_splits
        return [""] if set(query_splits) <= GENERIC_SPLITS | {"query"} else []

    def _table(
        self, store: Store, config: str, split: str, columns: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> ArrowTable:
        shards = _shards(store.names()).get(config, {})
        wanted = split or ("test" if "test" in shards else next(iter(sorted(shards)), ""))
        if wanted not in shards:
            raise DataError(f"config {config!r} has no split {wanted!r}", path=store.path)
        return read_parquet(store, shards[wanted], columns, optional)

    def read(self, store: Store, split: str) -> Parts:
        d = self.dialect
        corpus = self._table(store, "corpus", split, (d.id, "text"), ("title",))
        titles = corpus.texts("title", nulls=True) if corpus.has("title") else None
        documents = Documents(IdTable(corpus.texts(d.id)), corpus.texts("text"), titles)
        asked = self._table(store, d.queries, split, (d.id, "text"), ("answer", "body_system"))
        columns = (asked.texts(d.id), asked.texts("text"), *map(asked.optional_texts, ("answer", "body_system")))
        queries = tuple(map(Query, *columns))
        judged_by = "qrels" if "qrels" in _shards(store.names()) else "default"
        judged = self._table(store, judged_by, split, (d.query_id, d.corpus_id), ("score",))
        judgments = map(Judgment, judged.texts(d.query_id), judged.texts(d.corpus_id), judged.grades("score"))
        try:
            return Parts(queries, documents, Qrels.from_judgments(judgments))
        except DataError as error:
            raise DataError(error.message, path=judged.label) from None

    def expansions(self, store: Store, split: str) -> Iterator[Expansion]:
        for method, by_llm in _shards(store.names()).items() if self.dialect is HUB else ():
            for llm, files in by_llm.items() if method in METHODS else ():
                table = read_parquet(store, files, ("id", "hy_doc"))
                ids = IdTable(table.texts("id"))
                if repeated := ids.duplicates():
                    raise DataError(f"query {repeated[0]!r} stands twice", path=table.label)
                yield Expansion(method, llm_name(llm), dict(zip(ids, table.text_lists("hy_doc"), strict=True)))

    def write(self, parts: Parts, folder: Path, *, split: str, compress: str, expansions: list[Expansion]) -> None:
        if compress != "none":
            raise UsageError(f"parquet is compressed inside; {compress!r} cannot be asked for")
        pa = pyarrow()
        d, documents = self.dialect, parts.documents

        def save(config: str, split_name: str, columns: dict[str, Any]) -> None:
            write_parquet(folder, config, split_name.replace("{split}", split or "test"), columns)

        corpus = {d.id: pa.array(documents.ids, pa.string()), "text": arrow_column(documents.texts)}
        if documents.titles is not None:
            corpus["title"] = arrow_column(documents.titles)
        save("corpus", d.corpus_split, corpus)
        queries: dict[str, Any] = {d.id: [q.id for q in parts.queries], "text": [q.text for q in parts.queries]}
        for field in ("answer", "body_system"):
            values = [getattr(q, field) for q in parts.queries]
            if any(values):
                queries[field] = pa.array(values, pa.string())
        save(d.queries, d.query_split, queries)
        judgments = list(parts.qrels)
        qrels: dict[str, Any] = {
            d.query_id: pa.array([j.query_id for j in judgments], pa.string()),
            d.corpus_id: pa.array([j.doc_id for j in judgments], pa.string()),
        }
        if d.grades or any(j.grade != 1 for j in judgments):
            qrels["score"] = pa.array([j.grade for j in judgments], pa.int32())
        save("qrels", d.qrels_split, qrels)
        for method, llm, generated in expansions if d is HUB else ():
            several = any(len(hydocs) != 1 for hydocs in generated.values())
            hydoc_column = [list(h) if several else h[0] for h in generated.values()]
            save(method, llm.replace("-", "_"), {"id": list(generated), "hy_doc": hydoc_column})


def candidate_configs(store: Store) -> list[str]:
    """Configs of a Nano folder that hold ranked candidates."""
    return [c for c in _shards(store.names()) if c not in ("corpus", "queries", "qrels", "default", *METHODS)]


def read_candidates(store: Store, config: str, split: str, doc_ids: IdTable) -> Run:
    """Ranked candidates of a Nano config as a run; scores only say the order, for the files hold none."""
    shards = _shards(store.names())
    if split not in shards.get(config, {}):
        raise DataError(f"config {config!r} has no split {split!r}", path=store.path)
    table = read_parquet(store, shards[config][split], ("query-id", "corpus-ids"))
    query_ids = IdTable(table.texts("query-id"))
    if repeated := query_ids.duplicates():
        raise DataError(f"query {repeated[0]!r} stands twice", path=table.label)
    rankings = {
        query_id: [Hit(doc_id, float(len(ids) - i)) for i, doc_id in enumerate(ids)]
        for query_id, ids in zip(query_ids, table.text_lists("corpus-ids"), strict=True)
    }
    try:
        return Run.from_rankings(rankings, doc_ids=doc_ids, name=config)
    except DataError as error:
        raise DataError(error.message, path=table.label) from None


def write_candidates(run: Run, folder: Path, config: str, split: str) -> None:
    """Write a run's order as a Nano candidate config."""
    pa = pyarrow()
    lists = pa.array([[hit.doc_id for hit in hits] for _, hits in run], pa.list_(pa.string()))
    write_parquet(folder, config, split, {"query-id": list(run.query_ids), "corpus-ids": lists})


def _shards(names: list[str]) -> dict[str, dict[str, list[str]]]:
    """Files by config and split; `data/` is where the hub client puts the config without a name."""
    found: dict[str, dict[str, list[str]]] = {}
    for name in sorted(names):
        inner = name.removeprefix("data/")
        if match := SHARD.fullmatch(inner if "/" in inner else f"default/{inner}" if inner != name else name):
            found.setdefault(match[1], {}).setdefault(match[2], []).append(name)
    return found
