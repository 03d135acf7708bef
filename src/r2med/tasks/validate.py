"""Validation of a task: what is wrong with it, errors and warnings apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..core import DataError
from ..core.stores import Store, open_stream
from ..core.untrusted import printable
from .formats import detect
from .load import TaskRef
from .nano.folder import changed_files, read_manifest
from .records import explain, uses_underscore_id

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


class Checks:
    """Takes what a layout finds in its files, one record at a time, and collects the findings."""

    def __init__(self) -> None:
        self.documents = TextChecks("document", "documents", self)
        self.queries = TextChecks("query", "queries", self)
        self.judgments = 0
        self._findings: dict[str, Finding] = {}

    def add(self, level: Level, code: str, message: str, example: str) -> None:
        """Count one problem; the first few are quoted."""
        finding = self._findings.setdefault(code, Finding(level, code, message))
        finding.count += 1
        if len(finding.examples) < EXAMPLES:
            finding.examples.append(example)

    def of(self, level: Level) -> list[Finding]:
        """The findings of one level."""
        return [f for f in self._findings.values() if f.level == level]

    def check_lines(self, store: Store, name: str, spellings: tuple[type[Any], type[Any]], texts: TextChecks) -> None:
        """Look through a file of JSON lines whose ids are called `id` or `_id`; a broken line is a finding."""
        file = Path(name).name
        try:
            decode = msgspec.json.Decoder(spellings[uses_underscore_id(store, name)]).decode
            with open_stream(store, name) as stream:
                for number, line in enumerate(stream, start=1):
                    try:
                        item = decode(line)
                    except (ValueError, RecursionError) as error:
                        if not line.isspace():
                            code, reason = explain(line, error)
                            self.add("error", code, "lines that cannot be read", f"{file}:{number}: {reason}")
                        continue
                    texts.check(f"{file}:{number}", item.id, item.text, getattr(item, "title", ""))
        except DataError as error:
            self.add("error", "unreadable-file", "files that cannot be read to their end", str(error))

    def check_judgments(self, judgments: Iterable[tuple[str, str, int]], *, every_query_judged: bool = True) -> None:
        """Compare judgments with the documents and queries they name."""
        positive: set[str] = set()
        judged: set[str] = set()
        for query_id, doc_id, grade in judgments:
            where = f"{query_id} → {doc_id}"
            self.judgments += 1
            judged.add(query_id)
            if query_id not in self.queries.ids:
                self.add("error", "judgment-of-missing-query", "judgments that name a query that is not there", where)
            if doc_id not in self.documents.ids:
                message = "judgments that name a document that is not there"
                self.add("error", "judgment-of-missing-document", message, where)
            if grade < 0:
                self.add("warning", "negative-grade", "judgments with a grade below zero", where)
            elif grade > 0:
                positive.add(query_id)
        expected = self.queries.ids if every_query_judged else self.queries.ids & judged
        for query_id in sorted(expected - positive):
            self.add("error", "query-without-positive", "queries without a positive judgment", query_id)


class TextChecks:
    """Checks that documents and queries share."""

    def __init__(self, kind: str, plural: str, checks: Checks) -> None:
        self.kind, self.plural, self.checks = kind, plural, checks
        self.ids: set[str] = set()
        self._digests: set[bytes] = set()

    def check(self, place: str, identifier: str, text: str, title: str | None = "") -> None:
        """Look at one document or query; only documents have a title."""
        add, kind, plural, where = self.checks.add, self.kind, self.plural, f"{place} ({identifier})"
        if identifier in self.ids:
            add("error", f"duplicate-{kind}-id", f"{kind} ids that stand more than once", where)
        self.ids.add(identifier)
        if not identifier.strip():
            add("error", f"empty-{kind}-id", f"{plural} without an id", place)
        elif identifier.split() != [identifier]:
            add("error", f"space-in-{kind}-id", f"{kind} ids with white space, which TREC files cannot carry", where)
        elif len(identifier) > ABSURD_ID:
            add("warning", f"long-{kind}-id", f"{kind} ids of over {ABSURD_ID} characters", place)
        if "\0" in text or "\0" in (title or ""):
            add("error", "nul", "texts that hold a NUL character", where)
        if not text.strip():
            add("error", f"empty-{kind}", f"{plural} without text", where)
            return
        if len(text) > ABSURD_TEXT:
            add("warning", f"long-{kind}", f"{plural} of over {ABSURD_TEXT:,} characters", where)
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._digests:
            add("warning", f"duplicate-{kind}-text", f"{plural} whose text is an exact copy of an earlier one", where)
        self._digests.add(digest)


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


def validate(ref: TaskRef) -> Report:
    """Check one task."""
    store = ref.store()
    layout, _ = detect(store)
    checks = Checks()
    layout.validate(store, ref.split or ref.judged, checks)
    manifest = read_manifest(store.path) if layout.holds_several and store.path.is_dir() else None
    if manifest is not None and ref.split in manifest.tasks:
        for name in changed_files(store.path, manifest, ref.split):
            checks.add("error", "changed-file", "files that are not what manifest.json says they were", name)
    if not checks.documents.ids:
        checks.add("error", "no-documents", "corpus without documents", store.path.name)
    if not checks.queries.ids:
        checks.add("error", "no-queries", "set of queries that is empty", store.path.name)
    if (ref.entry or ref.fingerprint) and not checks.of("error"):  # a name promises what it stands for
        try:
            ref.load()
        except DataError as error:
            checks.add("error", "refused", "task that is refused when it is loaded", str(error))
    return Report(
        task=ref.full_name,
        path=str(ref.path),
        layout=layout.name,
        queries=len(checks.queries.ids),
        documents=len(checks.documents.ids),
        judgments=checks.judgments,
        errors=checks.of("error"),
        warnings=checks.of("warning"),
    )


def lines(report: Report) -> Iterator[str]:
    """The report for a terminal."""
    verdict = "ok" if report.ok else f"{len(report.errors)} kind{'s' * (len(report.errors) > 1)} of error"
    counts = f"{report.queries:,} queries, {report.documents:,} documents, {report.judgments:,} judgments"
    yield printable(f"{report.task}: {verdict} ({counts}; layout {report.layout})")
    for finding in (*report.errors, *report.warnings):
        yield printable(f"  {finding.level}: {finding.count:,} {finding.message}")
        yield from (printable(f"    {example}") for example in finding.examples[:3])
