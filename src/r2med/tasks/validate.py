"""Validation of a task: what is wrong with it, errors and warnings apart."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..core.stores import open_store
from ..core.untrusted import printable
from .checks import Checks, Finding
from .formats import detect
from .load import TaskRef
from .nano.folder import changed_files, read_manifest


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
    store = open_store(ref.present())
    layout, _ = detect(store)
    checks = Checks()
    layout.validate(store, ref.split, checks)
    manifest = read_manifest(store.path) if layout.holds_several and store.path.is_dir() else None
    if manifest is not None and ref.split in manifest.tasks:
        for name in changed_files(store.path, manifest, ref.split):
            checks.add("error", "changed-file", "files that are not what manifest.json says they were", name)
    if not checks.documents.ids:
        checks.add("error", "no-documents", "corpus without documents", store.path.name)
    if not checks.queries.ids:
        checks.add("error", "no-queries", "set of queries that is empty", store.path.name)
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
    yield from map(printable, _lines(report))


def _lines(report: Report) -> Iterator[str]:
    verdict = "ok" if report.ok else f"{len(report.errors)} kind{'s' * (len(report.errors) > 1)} of error"
    counts = f"{report.queries:,} queries, {report.documents:,} documents, {report.judgments:,} judgments"
    yield f"{report.task}: {verdict} ({counts}; layout {report.layout})"
    for finding in (*report.errors, *report.warnings):
        yield f"  {finding.level}: {finding.count:,} {finding.message}"
        for example in finding.examples[:3]:
            yield f"    {example}"
