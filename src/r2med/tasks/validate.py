"""Is a task what it claims to be? Reads files line by line and lists what is wrong, errors and warnings apart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..core import DataError
from ..core.stores import Store, find, open_store, open_stream
from .formats import detect
from .formats.beir import qrels_file
from .formats.r2med import QRELS as R2MED_QRELS
from .jsonl import BeirQuery, BeirRecord, PlainQuery, PlainRecord, explain, uses_underscore_id
from .judgments import qrels_from_store
from .load import TaskRef
from .parts import Parts

EXAMPLES = 5
ABSURD_TEXT = 1_000_000
ABSURD_ID = 512

Level = Literal["error", "warning"]


class Finding(msgspec.Struct):
    """One kind of problem, with how often and where it was seen first."""

    level: Level
    code: str
    message: str
    count: int = 0
    examples: list[str] = msgspec.field(default_factory=list)


class Report(msgspec.Struct):
    """What a validation found."""

    task: str
    path: str
    layout: str
    queries: int
    documents: int
    judgments: int
    errors: list[Finding]
    warnings: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether the task can be trusted."""
        return not self.errors


class _Findings:
    def __init__(self) -> None:
        self._by_code: dict[str, Finding] = {}

    def add(self, level: Level, code: str, message: str, example: str) -> None:
        finding = self._by_code.setdefault(code, Finding(level, code, message, 0, []))
        finding.count += 1
        if len(finding.examples) < EXAMPLES:
            finding.examples.append(example)

    def of(self, level: Level) -> list[Finding]:
        return [f for f in self._by_code.values() if f.level == level]


class _TextChecks:
    """Checks that documents and queries share."""

    def __init__(self, kind: str, plural: str, findings: _Findings) -> None:
        self.kind, self.plural, self.findings = kind, plural, findings
        self.ids: set[str] = set()
        self._digests: set[bytes] = set()

    def see(self, place: str, identifier: str, text: str) -> None:
        add, kind, plural, where = self.findings.add, self.kind, self.plural, f"{place} ({identifier})"
        if identifier in self.ids:
            add("error", f"duplicate-{kind}-id", f"{kind} ids that stand more than once", where)
        self.ids.add(identifier)
        if not identifier.strip():
            add("error", f"empty-{kind}-id", f"{plural} without an id", place)
        elif identifier.split() != [identifier]:
            add("error", f"space-in-{kind}-id", f"{kind} ids with white space, which TREC files cannot carry", where)
        elif len(identifier) > ABSURD_ID:
            add("warning", f"long-{kind}-id", f"{kind} ids of over {ABSURD_ID} characters", place)
        if not text.strip():
            add("error", f"empty-{kind}", f"{plural} without text", where)
            return
        if "\0" in text:
            add("error", "nul", "texts that hold a NUL character", where)
        if len(text) > ABSURD_TEXT:
            add("warning", f"long-{kind}", f"{plural} of over {ABSURD_TEXT:,} characters", where)
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._digests:
            add("warning", f"duplicate-{kind}-text", f"{plural} whose text is an exact copy of an earlier one", where)
        self._digests.add(digest)


def validate(ref: TaskRef) -> Report:
    """Check one task."""
    store = open_store(ref.present())
    layout, _ = detect(store)
    findings = _Findings()
    documents, queries = _TextChecks("document", "documents", findings), _TextChecks("query", "queries", findings)
    if layout.name in ("r2med", "beir"):
        judgments = _validate_lines(store, layout.name, findings, documents, queries)
    else:
        judgments = _validate_parts(layout.read(store, ref.split), ref, findings, documents, queries)
        _check_manifest(ref, findings)
    if not documents.ids:
        findings.add("error", "no-documents", "corpus without documents", store.path.name)
    if not queries.ids:
        findings.add("error", "no-queries", "set of queries that is empty", store.path.name)
    return Report(
        task=ref.full_name,
        path=str(ref.path),
        layout=layout.name,
        queries=len(queries.ids),
        documents=len(documents.ids),
        judgments=judgments,
        errors=findings.of("error"),
        warnings=findings.of("warning"),
    )


def _validate_lines(
    store: Store, layout: str, findings: _Findings, documents: _TextChecks, queries: _TextChecks
) -> int:
    names = store.names()
    corpus = find(store, "corpus.jsonl", names=names)
    query_file = find(store, "query.jsonl" if layout == "r2med" else "queries.jsonl", names=names)
    assert corpus is not None
    assert query_file is not None
    _scan(store, corpus, (PlainRecord, BeirRecord), findings, documents.see)
    _scan(store, query_file, (PlainQuery, BeirQuery), findings, queries.see)
    qrels = qrels_file(names) if layout == "beir" else find(store, *R2MED_QRELS, names=names)
    if qrels is None:
        findings.add("error", "no-judgments", "file of judgments that is missing", str(store.path))
        return 0
    return _check_qrels(store, qrels, findings, documents.ids, queries.ids, strict_queries=layout == "r2med")


def _scan(
    store: Store,
    name: str,
    spellings: tuple[type[Any], type[Any]],
    findings: _Findings,
    see: Callable[[str, str, str], None],
) -> None:
    file = Path(name).name
    try:
        decode = msgspec.json.Decoder(spellings[uses_underscore_id(store, name)]).decode
        with open_stream(store, name) as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    item = decode(line)
                except (ValueError, RecursionError) as error:
                    if not line.isspace():
                        reason = explain(line, error)
                        findings.add("error", _code(reason), "lines that cannot be read", f"{file}:{number}: {reason}")
                    continue
                see(f"{file}:{number}", item.id, item.text)
    except DataError as error:
        findings.add("error", "unreadable-file", "files that cannot be read to their end", str(error))


def _code(reason: str) -> str:
    for words, code in (
        ("byte-order", "byte-order-mark"),
        ("UTF-8", "bad-utf8"),
        ("surrogate", "lone-surrogate"),
        ("NUL", "nul"),
        ("broken JSON", "broken-json"),
    ):
        if words in reason:
            return code
    return "missing-field" if "missing" in reason else "wrong-type"


def _check_qrels(
    store: Store, name: str, findings: _Findings, doc_ids: set[str], query_ids: set[str], *, strict_queries: bool
) -> int:
    try:
        qrels = qrels_from_store(store, name)
    except DataError as error:
        findings.add("error", "bad-judgments", "judgments that cannot be read", str(error))
        return 0
    check_judgments(qrels, findings.add, doc_ids, query_ids, strict_queries=strict_queries)
    return len(qrels)


def check_judgments(
    judgments: Iterable[tuple[str, str, int]],
    add: Callable[[Level, str, str, str], None],
    doc_ids: set[str],
    query_ids: set[str],
    *,
    strict_queries: bool,
) -> None:
    """Judgments against the documents and queries they name."""
    positive: set[str] = set()
    judged: set[str] = set()
    for query_id, doc_id, grade in judgments:
        where = f"{query_id} → {doc_id}"
        judged.add(query_id)
        if query_id not in query_ids:
            add("error", "judgment-of-missing-query", "judgments that name a query that is not there", where)
        if doc_id not in doc_ids:
            add("error", "judgment-of-missing-document", "judgments that name a document that is not there", where)
        if grade < 0:
            add("warning", "negative-grade", "judgments with a grade below zero", where)
        elif grade > 0:
            positive.add(query_id)
    # BEIR keeps queries of other splits in the same file; elsewhere a query without judgments is a mistake.
    for query_id in sorted(query_ids - positive if strict_queries else (query_ids & judged) - positive):
        add("error", "query-without-positive", "queries without a positive judgment", query_id)


def _validate_parts(
    parts: Parts, ref: TaskRef, findings: _Findings, documents: _TextChecks, queries: _TextChecks
) -> int:
    for index, document in enumerate(parts.documents, start=1):
        documents.see(f"corpus row {index}", document.id, document.text)
    for index, query in enumerate(parts.queries, start=1):
        queries.see(f"queries row {index}", query.id, query.text)
    check_judgments(parts.qrels, findings.add, documents.ids, queries.ids, strict_queries=True)
    return len(parts.qrels)


def _check_manifest(ref: TaskRef, findings: _Findings) -> None:
    """A Nano folder that we built says what its files were."""
    from .nano.manifest import changed_files, read_manifest

    folder = ref.present()
    manifest = read_manifest(folder) if folder.is_dir() else None
    if manifest is not None and ref.split in manifest.tasks:
        for name in changed_files(folder, manifest, ref.split):
            findings.add("error", "changed-file", "files that are not what manifest.json says they were", name)


def lines(report: Report) -> Iterator[str]:
    """The report for a terminal."""
    verdict = "ok" if report.ok else f"{len(report.errors)} kind{'s' * (len(report.errors) > 1)} of error"
    counts = f"{report.queries:,} queries, {report.documents:,} documents, {report.judgments:,} judgments"
    yield f"{report.task}: {verdict} ({counts}; layout {report.layout})"
    for finding in (*report.errors, *report.warnings):
        yield f"  {finding.level}: {finding.count:,} {finding.message}"
        for example in finding.examples[:3]:
            yield f"    {example}"
