"""Parquet with one folder per config and one file per split: the hub's R2MED datasets, MTEB's re-upload, NanoR2MED."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from ...core import DataError, Documents, Hit, IdTable, Judgment, Qrels, Query, Run, UsageError
from ...core.stores import Store
from ...core.untrusted import component
from . import METHODS, Expansion, Format, Parts, preferred, register
from .arrow import ArrowTable, arrow_column, column_names, pyarrow, read_parquet, write_parquet

MANIFEST = "manifest.json"
SHARD = re.compile(r"([^/]+)/([^/]+?)(?:-\d{5}-of-\d{5})?\.parquet")
GENERIC_SPLITS = {"test", "corpus", "queries", "default", "dev", "train", "validation"}
"""Splits that are no task's name."""
OWN_CONFIGS = ("corpus", "query", "queries", "qrels", "default")
"""Configs of the task itself; others hold generated texts or candidates."""


class ParquetFormat(Format):
    """What the three layouts share; they differ in what they call things."""

    queries: ClassVar[str] = "queries"
    id: ClassVar[str] = "_id"
    query_id: ClassVar[str] = "query-id"
    corpus_id: ClassVar[str] = "corpus-id"
    always_graded: ClassVar[bool] = True
    holds_expansions = False

    def split_of(self, config: str, split: str, judged: str) -> str:
        """The split that the config of a new task is written as; `judged` is that of its judgments."""
        return judged if config == "qrels" or judged == "test" else config

    def splits(self, names: list[str]) -> list[str]:
        found = shards(names)
        if not {"corpus", self.queries} <= found.keys() or not ({"qrels", "default"} & found.keys()):
            return []
        return self._tasks(found)

    def _tasks(self, found: dict[str, dict[str, list[str]]]) -> list[str]:
        return [""] if set(found[self.queries]) <= GENERIC_SPLITS | {"query"} else []

    def judgment_splits(self, names: list[str]) -> list[str]:
        found = shards(names)
        return [] if self.holds_several else preferred(found.get(judgments_in(found), ()))

    def _table(
        self, store: Store, config: str, split: str, columns: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> ArrowTable:
        found = shards(store.names(), store.path).get(config, {})
        if not self.holds_several and split not in found and (not split or len(found) == 1):
            split = next(iter(preferred(found)), "")  # texts that all splits of the judgments share
        if split not in found:
            raise DataError(f"config {config!r} has no split {split!r}", path=store.path)
        return read_parquet(store, found[split], columns, optional)

    def read(self, store: Store, split: str) -> Parts:
        corpus = self._table(store, "corpus", split, (self.id, "text"), ("title",))
        titles = corpus.texts("title", nulls=True) if corpus.has("title") else None
        documents = Documents(IdTable(corpus.texts(self.id)), corpus.texts("text"), titles)
        asked = self._table(store, self.queries, split, (self.id, "text"), ("answer", "body_system"))
        columns = (asked.texts(self.id), asked.texts("text"), *map(asked.optional_texts, ("answer", "body_system")))
        queries = tuple(map(Query, *columns))
        found = shards(store.names())
        judged = self._table(store, judgments_in(found), split, (self.query_id, self.corpus_id), ("score",))
        judgments = map(Judgment, judged.texts(self.query_id), judged.texts(self.corpus_id), judged.grades("score"))
        try:
            qrels = Qrels.from_judgments(judgments)
        except DataError as error:
            raise DataError(error.message, path=judged.label) from None
        if len(self.judgment_splits(store.names())) > 1 and len(found[self.queries]) == 1:
            queries = tuple(q for q in queries if q.id in qrels.query_ids)  # one file holds those of all splits
        return Parts(queries, documents, qrels)

    def write(self, parts: Parts, folder: Path, *, split: str, compress: str, expansions: list[Expansion]) -> None:
        if compress != "none":
            raise UsageError(f"parquet is compressed inside; {compress!r} cannot be asked for")
        pa = pyarrow()

        def save(config: str, columns: dict[str, Any]) -> None:
            write_parquet(folder, config, self.split_of(config, split, parts.judged), columns)

        documents = parts.documents
        corpus = {self.id: pa.array(documents.ids, pa.string()), "text": arrow_column(documents.texts)}
        if documents.titles is not None:
            corpus["title"] = arrow_column(documents.titles)
        save("corpus", corpus)
        queries: dict[str, Any] = {self.id: [q.id for q in parts.queries], "text": [q.text for q in parts.queries]}
        for field in ("answer", "body_system"):
            values = [getattr(q, field) for q in parts.queries]
            if any(values):
                queries[field] = pa.array(values, pa.string())
        save(self.queries, queries)
        judgments = list(parts.qrels)
        qrels: dict[str, Any] = {
            self.query_id: pa.array([j.query_id for j in judgments], pa.string()),
            self.corpus_id: pa.array([j.doc_id for j in judgments], pa.string()),
        }
        if self.always_graded or any(j.grade != 1 for j in judgments):
            qrels["score"] = pa.array([j.grade for j in judgments], pa.int32())
        save("qrels", qrels)


@register
class HubFormat(ParquetFormat):
    """`R2MED/<Task>` on the hub, with one config per expansion method and one split per model."""

    name = "hub"
    summary = "parquet configs corpus, query, qrels (R2MED/<Task> on the hub)"
    rank = 3
    queries, id, query_id, corpus_id = "query", "id", "q_id", "p_id"
    holds_expansions = True

    def split_of(self, config: str, split: str, judged: str) -> str:
        return config

    def expansions(self, store: Store, split: str) -> Iterator[Expansion]:
        found = [(m, llm, files) for m, of in shards(store.names(), store.path).items() for llm, files in of.items()]
        for method, llm, files in found:
            if method not in METHODS and (method in OWN_CONFIGS or "hy_doc" not in column_names(store, files[0])):
                continue
            table = read_parquet(store, files, ("id", "hy_doc"))
            ids = IdTable(table.texts("id"))
            if repeated := ids.duplicates():
                raise DataError(f"query {repeated[0]!r} stands twice", path=table.label)
            yield Expansion(method, llm, dict(zip(ids, table.text_lists("hy_doc"), strict=True)))

    def write(self, parts: Parts, folder: Path, *, split: str, compress: str, expansions: list[Expansion]) -> None:
        super().write(parts, folder, split=split, compress=compress, expansions=expansions)
        for method, llm, texts in expansions:
            several = any(len(hydocs) != 1 for hydocs in texts.values())
            column = [list(hydocs) if several else hydocs[0] for hydocs in texts.values()]
            write_parquet(folder, method, llm.replace("-", "_"), {"id": list(texts), "hy_doc": column})


@register
class MtebFormat(ParquetFormat):
    """MTEB's re-upload of the tasks."""

    name = "mteb"
    summary = "parquet configs corpus, queries, qrels with split test (MTEB's re-upload)"
    rank = 4


@register
class NanoFormat(ParquetFormat):
    """NanoR2MED: several tasks in one folder, each a split of every config."""

    name = "nano"
    summary = "parquet configs corpus, queries, qrels with the task as split (NanoR2MED)"
    rank = 5
    holds_several = True
    always_graded = False

    def candidates(self, store: Store, config: str, split: str, query_ids: IdTable, doc_ids: IdTable) -> Run:
        return read_candidates(store, config, split, query_ids, doc_ids)

    def split_of(self, config: str, split: str, judged: str) -> str:
        return split

    def _tasks(self, found: dict[str, dict[str, list[str]]]) -> list[str]:
        splits = sorted(found["queries"])
        return [] if set(splits) <= GENERIC_SPLITS else splits

    def has_task(self, names: list[str], split: str) -> bool:
        found = shards(names)
        return all(split in found.get(config, {}) for config in ("corpus", "queries", "qrels"))

    def hub_patterns(self, split: str) -> list[str]:
        return [f"*/{split}*.parquet", f"data/*/{split}*.parquet"]


def shards(names: list[str], place: Path | None = None) -> dict[str, dict[str, list[str]]]:
    """Files by config and split; `data/` is where the hub client puts the config without a name.

    Configs and splits become file names when the task is written again: one that cannot be is refused.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for name in sorted(names):
        inner = name.removeprefix("data/")
        if match := SHARD.fullmatch(inner if "/" in inner else f"default/{inner}" if inner != name else name):
            config, split = component(match[1], "config", path=place), component(match[2], "split", path=place)
            found.setdefault(config, {}).setdefault(split, []).append(name)
    return found


def judgments_in(found: dict[str, dict[str, list[str]]]) -> str:
    """The config of the judgments."""
    return "qrels" if "qrels" in found else "default"


def candidate_configs(store: Store, split: str) -> list[str]:
    """Configs of a Nano folder that hold ranked candidates of a task."""
    return [
        config
        for config, splits in shards(store.names(), store.path).items()
        if config not in OWN_CONFIGS and split in splits and "corpus-ids" in column_names(store, splits[split][0])
    ]


def split_columns(store: Store, split: str) -> dict[str, list[str]]:
    """The columns of a task's own configs, as the files have them."""
    found = shards(store.names(), store.path)
    return {config: column_names(store, splits[split][0])
            for config, splits in found.items() if config in OWN_CONFIGS and split in splits}  # fmt: skip


def read_candidates(store: Store, config: str, split: str, query_ids: IdTable, doc_ids: IdTable) -> Run:
    """Ranked candidates of a Nano config as a run; scores only say the order, for the files hold none.

    Lists of another task are refused: of queries or documents that this one does not have, or of the same ids in a
    file that is not the one built with the folder.
    """
    files = shards(store.names(), store.path).get(config, {}).get(split)
    if files is None:
        raise DataError(f"config {config!r} has no split {split!r}", path=store.path)
    check_unchanged(store, files)
    table = read_parquet(store, files, ("query-id", "corpus-ids"))
    listed = IdTable(table.texts("query-id"))
    if repeated := listed.duplicates():
        raise DataError(f"query {repeated[0]!r} stands twice", path=table.label)
    if unknown := next((query_id for query_id in listed if query_id not in query_ids), None):
        raise DataError(f"lists candidates of query {unknown!r}, which is none of the task's", path=table.label)
    rankings = {
        query_id: [Hit(doc_id, float(len(ids) - i)) for i, doc_id in enumerate(ids)]
        for query_id, ids in zip(listed, table.text_lists("corpus-ids"), strict=True)
    }
    try:
        return Run.from_rankings(rankings, doc_ids=doc_ids, name=config)
    except DataError as error:
        raise DataError(error.message, path=table.label) from None


class _Built(msgspec.Struct):
    """What a Nano folder's manifest says of its files: their SHA-256; another tool's may say nothing."""

    files: dict[str, str] = {}


def check_unchanged(store: Store, files: Iterable[str]) -> None:
    """Refuse files that are not those that the folder was built with, as far as it has a manifest that names them."""
    if MANIFEST not in store.names():
        return
    try:
        with store.open_raw(MANIFEST) as stream:
            built = msgspec.json.decode(stream.read(), type=_Built).files
    except (ValueError, RecursionError) as error:
        raise DataError(f"not a manifest of r2med ({error})", path=store.label(MANIFEST)) from None
    for name in files:
        with store.open_raw(name) as stream:
            digest = hashlib.sha256(stream.read()).hexdigest()
        if built.get(name, digest) != digest:
            raise DataError(f"is not the file that {MANIFEST} names: build the task again", path=store.label(name))


def write_candidates(run: Run, folder: Path, config: str, split: str) -> None:
    """Write a run's order as a Nano candidate config."""
    pa = pyarrow()
    lists = pa.array([[hit.doc_id for hit in hits] for _, hits in run], pa.list_(pa.string()))
    write_parquet(folder, config, split, {"query-id": list(run.query_ids), "corpus-ids": lists})
