"""The findings of an audit as data, ready for JSON."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

EXAMPLES = 5

# Where the evidence of a kind of flag lies: in the texts, or in the ids alone. A system that reads texts only cannot
# profit from an id; a pipeline that filters by id, or a person who reads one, can.
_OF_TEXTS = ("query-in-document", "document-in-query", "duplicate-query", "unjudged-copy")
_FROM_OUTSIDE = ("query-in-training", "positive-in-training", "few-shot")
LEVELS = dict.fromkeys(_OF_TEXTS + _FROM_OUTSIDE, "text") | dict.fromkeys(("same-article", "same-id", "slug"), "id")


class Flag(msgspec.Struct):
    """One query, one kind of finding, and the evidence."""

    query: str
    kind: str
    level: str
    evidence: str
    value: float | None = None
    count: int = 1
    others: list[str] = msgspec.field(default_factory=list)


class CopyCount(msgspec.Struct):
    """Groups of documents that are copies of each other."""

    groups: int
    documents: int
    examples: list[list[str]]


class TaskAudit(msgspec.Struct):
    """The findings about one task."""

    task: str
    fingerprint: str
    queries: int
    documents: int
    positives: int
    flagged_queries: int
    by_kind: dict[str, int]
    flags: list[Flag]
    exact_copies: CopyCount
    near_copies: CopyCount
    notes: list[str]

    def flagged(self, kind: str = "", level: str = "") -> set[str]:
        """Queries with a flag: of one kind, of one level, or any."""
        return {f.query for f in self.flags if (not kind or f.kind == kind) and (not level or f.level == level)}

    def lines(self) -> Iterator[str]:
        """The findings for a terminal, with one example of each kind."""
        yield f"{self.task}: {self.flagged_queries:,} of {self.queries:,} queries flagged"
        for kind, count in self.by_kind.items():
            first = next(flag for flag in self.flags if flag.kind == kind)
            yield f"  {kind}: {count:,}, e.g. {first.query}: {first.evidence} ({first.others[0]})"
        for title, copies in (("exact", self.exact_copies), ("near", self.near_copies)):
            number = f"{copies.documents:,} documents in {copies.groups:,} groups" if copies.documents else "none"
            yield f"  {title} copies: {number}"
        yield from (f"  {note}" for note in self.notes)


class SharedTexts(msgspec.Struct):
    """Texts that two tasks share."""

    tasks: tuple[str, str]
    documents_exact: int
    documents_near: int
    queries: int
    examples: list[str]


class AuditReport(msgspec.Struct):
    """A whole audit."""

    settings: dict[str, float | int | str]
    tasks: list[TaskAudit]
    across: list[SharedTexts]


class Subset(msgspec.Struct, kw_only=True):
    """The scores over some of the queries; none where no query is left."""

    left_out: int
    queries: int
    measures: dict[str, float] | None
    ndcg_at_10_interval: tuple[float, float] | None


class SystemAudit(msgspec.Struct, kw_only=True):
    """A system's scores over all queries, and without those flagged: at all, by level, by kind."""

    system: str
    all: Subset
    without: dict[str, Subset]


class FlagList:
    """Collects flags: one per query and kind, with the first few of what it matched."""

    def __init__(self) -> None:
        self._flags: dict[tuple[str, str], Flag] = {}

    def add(self, query: str, kind: str, evidence: str, other: str, value: float | None = None) -> None:
        """Note a match; the strongest one keeps its evidence and stands first among what was matched."""
        flag = self._flags.setdefault((query, kind), Flag(query, kind, LEVELS[kind], evidence, value, 0))
        flag.count += 1
        if value is not None and (flag.value is None or value > flag.value):
            flag.value, flag.evidence = value, evidence
            flag.others.insert(0, other)
        else:
            flag.others.append(other)
        del flag.others[EXAMPLES:]

    def all(self, order: dict[str, int]) -> list[Flag]:
        """All flags, by query and kind."""
        kinds = list(LEVELS)
        return sorted(self._flags.values(), key=lambda f: (order[f.query], kinds.index(f.kind)))
