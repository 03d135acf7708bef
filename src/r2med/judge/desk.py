"""What one judge sees and writes: the queries with their progress, one query with its passages, and entries.

Neither systems nor ranks are in what a judge is shown. An adjudicator sees the passages on which judges differ and
that the project's rule leaves open, with grades and reasons but without names, once all judges of a query have
finished.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from ..core import UnknownName, UsageError
from ..report.web.render import matching_words, terms_of
from . import Asked, Pooled, Project, Settings
from .final import by_rule
from .journal import Entry, Journal, JudgeKind, Slot, now

FIRST_PIECE, PIECE = 6_000, 50_000  # characters of a passage that are shown at once, and that are added on request
LONGEST = 100_000
Line = Annotated[str, Meta(max_length=LONGEST)]


class Finished(UsageError):
    """A judge who has finished wants to change something."""


class Sent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry as a page sends it; the time is added here."""

    id: Annotated[str, Meta(pattern=r"^[0-9a-zA-Z-]{8,64}\Z")]
    query_id: str = ""
    doc_id: str = ""
    grade: int | None = None
    skipped: bool = False
    reason: Line = ""
    support: Line = ""
    note: Line = ""
    answer: Line = ""
    finished: bool = False
    seconds: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    replaces: str = ""


class Judgment(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge gave, as an adjudicator sees it; the number stands for the name."""

    judge: int
    grade: int
    reason: str = ""
    support: str = ""
    note: str = ""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a passage; `next` is where the rest begins, or nothing where this is the end."""

    text: str
    next: int | None
    words: list[str]  # of this part, that the query has too


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A passage on the page of a query."""

    doc_id: str
    title: str
    piece: Piece
    length: int
    entry: Entry | None
    judgments: list[Judgment]


class QueryPage(msgspec.Struct, frozen=True, kw_only=True):
    """A query with what is judged for it. Passages come once the query is answered, where that is asked first."""

    number: int
    query_id: str
    text: str
    answer: Entry | None
    answer_needed: bool
    passages: list[Passage]


class QueryProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a judge is with a query."""

    number: int
    query_id: str
    passages: int
    graded: int
    skipped: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge is asked, and how far it is done."""

    project: str
    description: str
    judge: str
    kind: JudgeKind
    question: str
    grades: tuple[str, ...]
    reason: Asked
    support: Asked
    answer_first: bool
    terms: tuple[str, ...]
    closing: Entry | None  # the entry with which the judge finished
    waiting: list[str]  # judges who have not finished, for an adjudicator
    queries: list[QueryProgress]


class Disputes(NamedTuple):
    """Pairs on which judges who have finished differ, and the judges who have not finished."""

    pairs: dict[Slot, list[Judgment]]
    waiting: list[str]


class Desk:
    """The place of one judge. May be used from several threads."""

    def __init__(self, project: Project, judge: str, kind: JudgeKind = "person") -> None:
        self.project, self.judge, self.kind = project, judge, kind
        self._lock = threading.RLock()
        self._journal = project.journal(judge, kind)
        self._query_ids = list(project.queries)
        self._disputes: tuple[object, Disputes] | None = None

    def overview(self) -> Overview:
        """What is asked, and the progress of every query that has something to judge."""
        settings, journal = self.project.settings, self._current()
        disputes = self._disputed()
        graded: dict[str, int] = defaultdict(int)
        skipped: dict[str, int] = defaultdict(int)
        for entry in journal.entries():
            graded[entry.query_id] += entry.grade is not None
            skipped[entry.query_id] += entry.skipped
        queries = [
            QueryProgress(
                number=number, query_id=query_id, passages=len(shown), graded=graded[query_id],
                skipped=skipped[query_id],
            )
            for number, query_id in enumerate(self._query_ids)
            if (shown := self._pooled(query_id, disputes))
        ]  # fmt: skip
        return Overview(
            project=settings.name, description=settings.description, judge=self.judge,
            kind=self.kind, question=settings.question, grades=settings.grades, reason=settings.reason,
            support=settings.support, answer_first=settings.answer_first and self.kind == "person",
            terms=settings.terms, closing=journal.current() if journal.finished else None,
            waiting=disputes.waiting if disputes else [], queries=queries,
        )  # fmt: skip

    def query(self, number: int) -> QueryPage:
        """A query and its passages, in the order of this judge."""
        query = self.project.queries[self._id_of(number)]
        journal = self._current()
        needed, disputes = self._answer_needed(query.id, journal), self._disputed()
        shown = [] if needed else self._shown(query.id, disputes)
        passages = [
            Passage(
                doc_id=pooled.doc_id,
                title=(document := self.project.passages[pooled.doc_id]).title,
                piece=self._piece(query.text, document.text, 0, FIRST_PIECE),
                length=len(document.text),
                entry=journal.current(query.id, pooled.doc_id),
                judgments=disputes.pairs[query.id, pooled.doc_id] if disputes else [],
            )
            for pooled in shown
        ]
        return QueryPage(
            number=number, query_id=query.id, text=query.text, answer=journal.current(query.id), answer_needed=needed,
            passages=passages,
        )  # fmt: skip

    def more(self, number: int, place: int, start: int) -> Piece:
        """More of a long passage, which is the one at `place` in the order of this judge."""
        query = self.project.queries[self._id_of(number)]
        shown = [] if self._answer_needed(query.id, self._current()) else self._shown(query.id, self._disputed())
        if not 0 <= place < len(shown):
            raise UnknownName("passage", str(place), ())
        return self._piece(query.text, self.project.passages[shown[place].doc_id].text, start, PIECE)

    def save(self, sent: Sent) -> Entry:
        """Put an entry on disk; one that was sent before is there once."""
        entry = Entry(at=now(), **msgspec.structs.asdict(sent))
        with self._lock:
            while True:
                journal = self._current()
                if not journal.holds(entry.id):
                    self._check(entry, journal)
                saved = journal.save(entry)
                if not journal.replaced:
                    return saved

    def close(self) -> None:
        """Give back the journal."""
        self._journal.close()

    def _check(self, entry: Entry, journal: Journal) -> None:
        """Refuse what a page may not write."""
        if journal.finished:
            raise Finished("you have finished: your judgments stand as they are")
        if entry.finished != (entry.slot == ("", "")):
            raise UsageError("only the whole project can be finished")
        if entry.skipped and entry.grade is not None:
            raise UsageError("a passage is graded or skipped, not both")
        self.project.check_entry(entry)
        disputes = self._disputed()
        if entry.doc_id and disputes and entry.slot not in disputes.pairs:
            raise UsageError("judges do not differ on this passage")
        if entry.doc_id and self._answer_needed(entry.query_id, journal):
            raise UsageError("this project asks for your own answer before any passage")
        given = journal.current(entry.query_id)
        if entry.query_id and not entry.doc_id and given and given.answer and entry.answer != given.answer:
            raise UsageError("the answer was given before the passages were shown, and stays")

    def _answer_needed(self, query_id: str, journal: Journal) -> bool:
        if not self.project.settings.answer_first or self.kind != "person":
            return False
        given = journal.current(query_id)
        return given is None or not given.answer.strip()

    def _current(self) -> Journal:
        """The journal with what others have written into it; opened again where the file was replaced."""
        with self._lock:
            if self._journal.replaced:
                opened = self.project.journal(self.judge, self.kind)
                self._journal.close()
                self._journal = opened
            self._journal.refresh()
            return self._journal

    def _id_of(self, number: int) -> str:
        if not 0 <= number < len(self._query_ids):
            raise UnknownName("query", str(number), ())
        return self._query_ids[number]

    def _pooled(self, query_id: str, disputes: Disputes | None) -> list[Pooled]:
        pooled = self.project.pool[query_id]
        return [p for p in pooled if (query_id, p.doc_id) in disputes.pairs] if disputes else pooled

    def _shown(self, query_id: str, disputes: Disputes | None) -> list[Pooled]:
        kept = {p.doc_id for p in self._pooled(query_id, disputes)}
        return [p for p in self.project.shown_to(self.judge, query_id) if p.doc_id in kept]

    @staticmethod
    def _piece(query: str, text: str, start: int, most: int) -> Piece:
        part = text[start : start + most]
        if start + most < len(text) and len(short := part.rstrip().rsplit(None, 1)[0]) > most // 2:
            part = short
        end = start + len(part)
        return Piece(text=part, next=end if end < len(text) else None, words=_shared(part, query))

    def _disputed(self) -> Disputes | None:
        """What an adjudicator decides, read again when a journal of another has changed; nothing for a judge."""
        if self.kind != "adjudicator":
            return None
        own = self._journal.path
        paths = sorted(path for path in own.parent.glob("*.jsonl") if path != own)
        seen = [(path.name, (stat := path.stat()).st_ino, stat.st_size, stat.st_mtime_ns) for path in paths]
        with self._lock:
            if self._disputes is None or self._disputes[0] != seen:
                self._disputes = (seen, find_disputes(self.project))
            return self._disputes[1]


def find_disputes(project: Project) -> Disputes:
    """Pairs that judges who count graded unlike and the rule leaves open, of queries whose judges have all finished."""
    given: dict[Slot, list[Judgment]] = defaultdict(list)
    unfinished, waiting = set[str](), list[str]()
    journals = project.journals("person", "llm") if project.settings.llm_counts else project.journals("person")
    number = 0
    for number, journal in enumerate(journals, start=1):
        with closing(journal):
            if not journal.finished:
                waiting.append(journal.header.judge)
                unfinished.update(entry.query_id for entry in journal.entries())
            for entry in journal.entries():
                if entry.grade is not None:
                    given[entry.slot].append(
                        Judgment(
                            judge=number, grade=entry.grade, reason=entry.reason, support=entry.support, note=entry.note
                        )
                    )
    for pooled in (p for pool in project.pool.values() for p in pool if project.settings.known_counts):
        if pooled.known is not None:
            given[pooled.query_id, pooled.doc_id].append(Judgment(judge=number + 1, grade=pooled.known))
    pairs = {
        slot: judgments
        for slot, judgments in given.items()
        if slot[0] not in unfinished and _left_open(project.settings, [judgment.grade for judgment in judgments])
    }
    return Disputes(pairs, waiting)


def _left_open(settings: Settings, grades: Sequence[int]) -> bool:
    """Whether grades differ and only an adjudicator can decide."""
    return len(set(grades)) > 1 and (len(grades) < settings.judges_per_pair or by_rule(grades, settings.rule) is None)


@lru_cache(maxsize=1 << 12)
def _shared(text: str, query: str) -> list[str]:
    return sorted(matching_words(text, _terms(query)))


@lru_cache(maxsize=1 << 10)
def _terms(query: str) -> frozenset[str]:
    return terms_of(query)
