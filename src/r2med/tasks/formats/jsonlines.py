"""Layouts of JSON lines: the folder of the R2MED repository, and that of BEIR."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec

from ...core import DataError, Qrels, Query
from ...core.columns import grouped
from ...core.stores import SUFFIXES, Store, find, write_lines
from ...core.untrusted import component
from ..records import (
    BeirQuery,
    BeirRecord,
    PlainQuery,
    PlainRecord,
    encode_lines,
    line_of,
    qrels_from_store,
    read_documents,
    read_queries,
    read_records,
)
from . import METHODS, Expansion, Format, Parts, preferred, register

if TYPE_CHECKING:
    from ..validate import Checks

HYDOC_FILE = "query_with_hydoc.jsonl"
BEIR_QRELS = re.compile(
    r"(?:(?:qrels/)?(test|dev|validation|train|qrels)\.(?:tsv|jsonl|txt|qrels)|qrels/([^/@,]+)\.(?:tsv|jsonl))"
    r"(?:\.gz|\.zst)?"
)
"""Judgments of the usual splits, also beside the corpus; those of any other in the folder `qrels`."""


class HydocRecord(msgspec.Struct):
    """A line of R2MED's `query_with_hydoc.jsonl`."""

    id: str
    hy_doc: str | list[str]


class Files(NamedTuple):
    """The files of a task, compressed or not; judgments may be missing."""

    corpus: str
    queries: str
    qrels: str | None


class JsonLinesFormat(Format):
    """What the two layouts of JSON lines share."""

    query_file: ClassVar[str]
    usual_qrels: ClassVar[str]  # what to look for, in an error
    every_query_judged = True

    def qrels_file(self, names: list[str], split: str) -> str | None:
        """The file of judgments to use: that of a split, or the usual one."""
        raise NotImplementedError

    def qrels(self, store: Store, name: str) -> Qrels:
        """The judgments in a file."""
        return qrels_from_store(store, name)

    def files(self, names: list[str], split: str = "") -> Files | None:
        """The files of the task; None where the layout does not fit."""
        corpus, queries = only(names, "corpus.jsonl"), only(names, self.query_file)
        return Files(corpus, queries, self.qrels_file(names, split)) if corpus and queries else None

    def splits(self, names: list[str]) -> list[str]:
        return [""] if self.files(names) else []

    def has_task(self, names: list[str], split: str) -> bool:
        files = self.files(names)
        return files is not None and files.qrels is not None and not split

    def read(self, store: Store, split: str) -> Parts:
        files = self.files(store.names(), split)
        if files is None or files.qrels is None:
            raise DataError(f"has no {self.usual_qrels}", path=store.path)
        qrels = self.qrels(store, files.qrels)
        return Parts(read_queries(store, files.queries), read_documents(store, files.corpus), qrels)

    def expansions(self, store: Store, split: str) -> Iterator[Expansion]:
        for method, llm, name in _expansion_files(store.names()):
            texts: dict[str, tuple[str, ...]] = {}
            for number, record in read_records(store, name, HydocRecord):
                if record.id in texts:
                    raise DataError(f"query {record.id!r} stands twice", path=store.label(name), line=number)
                texts[record.id] = (record.hy_doc,) if isinstance(record.hy_doc, str) else tuple(record.hy_doc)
            yield Expansion(method, llm, texts)

    def validate(self, store: Store, split: str, checks: Checks) -> None:
        files = self.files(store.names(), split)
        assert files is not None
        checks.check_lines(store, files.corpus, (PlainRecord, BeirRecord), checks.documents)
        checks.check_lines(store, files.queries, (PlainQuery, BeirQuery), checks.queries)
        if files.qrels is None:
            checks.add("error", "no-judgments", "file of judgments that is missing", str(store.path))
            return
        try:
            qrels = self.qrels(store, files.qrels)
        except DataError as error:
            checks.add("error", "bad-judgments", "judgments that cannot be read", str(error))
            return
        checks.check_judgments(qrels, every_query_judged=self.every_query_judged)

    def place_of(self, store: Store, kind: str, identifier: str, occurrence: int) -> tuple[str, int | None]:
        files = self.files(store.names())
        assert files is not None
        name = files.corpus if kind == "document" else files.queries
        return store.label(name), line_of(store, name, identifier, occurrence=occurrence)


@register
class R2MedFormat(JsonLinesFormat):
    """The layout of the R2MED repository and of its hub datasets."""

    name = "r2med"
    summary = "corpus.jsonl, query.jsonl, qrels.jsonl (or qrels.txt)"
    rank = 1
    query_file = "query.jsonl"
    usual_qrels = "qrels.jsonl or qrels.txt"
    qrels_files = ("qrels.jsonl", "qrels.txt", "qrels.tsv", "qrels")

    def files(self, names: list[str], split: str = "") -> Files | None:
        found = super().files(names, split)
        if found and (other := find(names, BeirFormat.query_file)):
            raise DataError(f"{found.queries} and {other} are the queries of two layouts: keep one")
        return found

    def qrels_file(self, names: list[str], split: str) -> str | None:
        return only(names, *self.qrels_files)

    def qrels(self, store: Store, name: str) -> Qrels:
        found, names = super().qrels(store, name), store.names()
        for other in (stored for wanted in self.qrels_files if (stored := find(names, wanted)) not in (None, name)):
            if qrels_from_store(store, other) != found:
                raise DataError(f"{name} and {other} hold different judgments: keep one", path=store.path)
        return found

    def write(self, parts: Parts, folder: Path, *, split: str, compress: str, expansions: list[Expansion]) -> None:
        positives = grouped((query_id, doc_id) for query_id, doc_id, grade in parts.qrels if grade > 0)

        def save(name: str, records: Iterable[object]) -> None:
            write_lines(folder, name, encode_lines(records), compress=compress)

        save("corpus.jsonl", ({"id": d.id, "text": d.text} | _given(title=d.title) for d in parts.documents))
        asked = ({"id": q.id, "text": q.text, "doc_id": positives.get(q.id, [])} | _beside(q) for q in parts.queries)
        save("query.jsonl", asked)
        save("qrels.jsonl", ({"q_id": q, "p_id": d, "score": g} for q, d, g in parts.qrels))
        texts = {q.id: q.text for q in parts.queries}
        for name, generated in _hydoc_files(expansions):
            lines = (
                {"id": i, "text": texts.get(i, ""), "hy_doc": hydocs, "doc_id": positives.get(i, [])}
                for i, hydocs in generated.items()
            )
            save(name, lines)


@register
class BeirFormat(JsonLinesFormat):
    """The layout of BEIR's downloads and of many sets made after it."""

    name = "beir"
    summary = "corpus.jsonl, queries.jsonl, qrels/test.tsv"
    rank = 2
    query_file = "queries.jsonl"
    usual_qrels = "qrels/test.tsv"
    every_query_judged = False  # one file holds the queries of all splits

    def judgment_splits(self, names: list[str]) -> list[str]:
        return preferred(_beir_splits(names))

    def qrels_file(self, names: list[str], split: str) -> str | None:
        found = _beir_splits(names)
        return found.get(split or next(iter(preferred(found)), ""))

    def read(self, store: Store, split: str) -> Parts:
        parts = super().read(store, split)
        if len(_beir_splits(store.names())) < 2:
            return parts
        judged = tuple(q for q in parts.queries if q.id in parts.qrels.query_ids)
        return parts._replace(queries=judged)

    def write(self, parts: Parts, folder: Path, *, split: str, compress: str, expansions: list[Expansion]) -> None:
        def save(name: str, lines: Iterable[bytes]) -> None:
            write_lines(folder, name, lines, compress=compress)

        rows = (f"{_cell(query_id)}\t{_cell(doc_id)}\t{grade}\n" for query_id, doc_id, grade in parts.qrels)
        corpus = ({"_id": d.id, "title": d.title, "text": d.text} for d in parts.documents)
        save("corpus.jsonl", encode_lines(corpus))
        save("queries.jsonl", encode_lines({"_id": q.id, "text": q.text} | _beside(q) for q in parts.queries))
        name = f"qrels/{component(parts.judged, 'split', path=folder)}.tsv"
        save(name, map(str.encode, chain(["query-id\tcorpus-id\tscore\n"], rows)))
        for name, generated in _hydoc_files(expansions):
            save(name, encode_lines({"id": i, "hy_doc": hydocs} for i, hydocs in generated.items()))


def _given(**fields: str | None) -> dict[str, str]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value}


def _beside(query: Query) -> dict[str, str]:
    return _given(answer=query.answer, body_system=query.body_system)


def _expansion_files(names: list[str]) -> Iterator[tuple[str, str, str]]:
    """Method, model and name of each file of generated texts, in either of the two spellings in use."""
    for name in names:
        parts = name.removesuffix(".gz").removesuffix(".zst").split("/")
        if len(parts) == 3 and parts[2] == HYDOC_FILE:
            yield parts[0], parts[1], name
        elif len(parts) == 2 and parts[0] in METHODS and parts[1].endswith(".jsonl"):
            yield parts[0], parts[1].removesuffix(".jsonl"), name


def _hydoc_files(expansions: list[Expansion]) -> Iterator[tuple[str, dict[str, str | tuple[str, ...]]]]:
    """The file of each set of generated texts and what to write for each query: a text, or several."""
    for method, llm, texts in expansions:
        written = {i: hydocs[0] if len(hydocs) == 1 else hydocs for i, hydocs in texts.items()}
        yield f"{method}/{llm}/{HYDOC_FILE}", written


def only(names: list[str], *wanted: str) -> str | None:
    """The first of `wanted` that is among `names`, compressed or not; one that is there in two forms is refused."""
    found = find(names, *wanted)
    for name in wanted:
        if len(forms := [name + suffix for suffix in SUFFIXES if name + suffix in names]) > 1:
            raise DataError(f"{' and '.join(forms)} are one file in two forms: keep one")
    return found


def _beir_splits(names: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        if match := BEIR_QRELS.fullmatch(name):
            first = found.setdefault(split := match[1] or match[2], name)
            if first != name:
                raise DataError(f"{first} and {name} are both judgments of {split}: keep one")
    return found


def _cell(identifier: str) -> str:
    """An id as it stands in a file of judgments; BEIR's reader takes a quote at the beginning for no part of it."""
    odd = not identifier or identifier.strip() != identifier or identifier.startswith('"')
    if odd or any(c in identifier for c in "\t\r\n"):
        raise DataError(f"id {identifier!r} cannot stand in a tab-separated file; choose another format")
    return identifier
