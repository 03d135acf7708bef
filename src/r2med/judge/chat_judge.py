"""A chat model as a judge: the project's question and scale in a prompt, an entry in its journal for each answer.

An answer is read strictly. No grade, two different ones, one outside the scale, an answer that was cut short, or one
that lacks what the project requires gives no grade: the entry says so, and the pair counts as skipped. A supporting
sentence that does not stand in the passage is dropped. Ids of entries come from what was asked, so that judging again
adds nothing; answers are kept in the generation store, so that none is paid for twice. An answer without a grade can be
asked for again: its entry is replaced, as a person's is who thinks again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..core import Document, Hasher, R2MedError, UsageError, fingerprint
from ..core.options import Progress
from ..core.untrusted import printable
from ..llm import (
    Chat,
    Cost,
    Generation,
    GenerationStore,
    Request,
    StatusOf,
    StoreKey,
    generate,
    plan_requests,
    unless_read,
)
from ..llm.protocol import built_in, fill, read_prompt
from ..rerank.asking import sampling_for
from . import Project, Settings
from .journal import Entry, Header, Journal, Slot, now, read_header

PREFIX = "llm:"
KEPT = 4000
"""Characters of an answer, a reason or a sentence that an entry keeps; the store has the whole."""
_LABEL = re.compile(r"[\s>*#_`\"'-]*\b(grade|reason|support)\b[\s*_`\"']*[:=]", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)?")
_ALONE = re.compile(r"[\s*_`\"'\[(]*([-+]?\d+)[\s*_`\"'\]).]*")
_QUOTES = " \t\n\"'`*_“”„‘’«»"
_UNREAD = {"truncated": "cut short", "empty": "no answer", "refused": "refused", "unparsed": "no answer"}


class Answer(NamedTuple):
    """What an answer says; `problem` is why it gives no grade."""

    grade: int | None
    reason: str = ""
    support: str = ""
    problem: str = ""
    support_dropped: bool = False


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """What a chat model has judged so far, all its runs taken together."""

    judge: str
    spec: str
    pooled: int
    graded: int
    without_grade: dict[str, int]  # answers that gave no grade, by reason
    support_dropped: int
    left: int  # pairs without an answer: not asked yet, or the call failed
    failed: int  # calls of this run that got no answer
    first_error: str
    finished: bool
    usage: dict[str, Any]  # what was asked this time: calls, tokens, dollars, retries, rate limits
    lost_calls: int  # calls of all runs whose answer a killed process never got
    journal: str
    store: str
    warning: str
    stopped: str  # what ended this run early, or empty
    exit_code: int


class ChatJudge:
    """Judges the pool of a project with a chat model, under a name of its own."""

    def __init__(
        self, project: Project, chat: Chat, name: str, *, prompt: Path | None = None, retry: Collection[str] = ()
    ) -> None:
        if not name.startswith(PREFIX):
            raise UsageError(f"the name of an LLM judge begins with {PREFIX}, as in {PREFIX}gpt4")
        self.project, self.chat, self.name, self.retry = project, chat, name, retry
        gaps = ("query", "passage")
        self.prompt = read_prompt(prompt, gaps=gaps) if prompt else built_in("r2med.judge", "grade", gaps=gaps)
        self.first = built_in("r2med.judge", "answer")
        self.sampling = sampling_for(chat, self.prompt, None)
        settings = project.settings
        self.asked = {
            "question": settings.question,
            "grades": "\n".join(f"{grade}: {meaning}" for grade, meaning in enumerate(settings.grades)),
            "form": _form(settings),
        }
        prompts = {"prompt": self.prompt.hash, "first": self.first.hash}
        template = fingerprint("prompt of a judge", {**self.asked, **prompts})
        self.key = StoreKey.of("judge", chat, template, self.sampling, "pairs")
        self._header = Header(project=project.identity, judge=name, kind="llm", spec=chat.name)
        self._check_journal()

    def _check_journal(self) -> None:
        """Refuse a journal of this name that another model, or another prompt, has written."""
        path = self.project.journal_path(self.name)
        if not path.exists():
            return
        header = read_header(path)
        other = f"{printable(self.name)} has judged here"
        if header.project == self._header.project and header != self._header:
            raise UsageError(f"{other} as {header.kind} {printable(header.spec)}: give this judge another name")
        with_journal = self._journal(read_only=True)
        try:
            prompts = {entry.details.get("prompt") for entry in with_journal.entries()}
        finally:
            with_journal.close()
        if prompts - {self.key.digest}:
            raise UsageError(f"{other} with another prompt or sampling: give this judge another name")

    def _journal(self, *, read_only: bool = False) -> Journal:
        return Journal(self.project.journal_path(self.name), self._header, read_only=read_only)

    def _slots(self, limit: int | None = None) -> Iterator[Slot]:
        """What there is to judge, in this judge's own order."""
        for query_id in list(self.project.queries)[:limit]:
            shown = ["", *(pooled.doc_id for pooled in self.project.shown_to(self.name, query_id))]
            for doc_id in shown if self.project.settings.answer_first else shown[1:]:
                yield query_id, doc_id

    def requests(self, journal: Journal, store: GenerationStore, limit: int | None = None) -> dict[Request, list[Slot]]:
        """What is asked about all that has no entry yet, or one to be replaced; equal texts are asked about once."""
        found: dict[str, tuple[Request, list[Slot]]] = {}
        for slot in self._slots(limit):
            entry, request = journal.current(*slot), self._request(*slot)
            if entry is None or self._outdated(entry, request, store):
                found.setdefault(request.key, (request, []))[1].append(slot)
        return dict(found.values())

    def _outdated(self, entry: Entry, request: Request, store: GenerationStore) -> bool:
        """Whether an entry without a grade is asked for again, or was since: projects share answers to equal texts."""
        if entry.grade is not None or entry.answer:
            return False
        stored = store.begun(request)
        if not stored:
            return entry.details.get("status") in self.retry
        again = store.divided(request, lambda answer: self._status(answer, entry.doc_id))[1]
        return bool(again) or stored[0].raw[:KEPT] != entry.details.get("answer")

    def _request(self, query_id: str, doc_id: str) -> Request:
        query = self.project.queries[query_id].text
        passage = self.project.passages[doc_id].contents if doc_id else None
        hasher = Hasher("judged pair")
        hasher.texts((query,) if passage is None else (query, passage))
        if passage is None:
            return Request(self.first.messages(query=query), self.sampling, hasher.digest())
        messages = self.prompt.messages(query=query, passage=passage, **self.asked)
        return Request(messages, self.sampling, hasher.digest())

    def plan(self, *, limit: int | None = None) -> Cost:
        """What judging would take at most; nothing is asked or written."""
        journal = self._journal(read_only=True)
        try:
            with GenerationStore(self.key, read_only=True, retry=self.retry) as store:
                wanted = self.requests(journal, store, limit)
                return plan_requests(self.chat, list(wanted), store, self._status_by(wanted))
        finally:
            journal.close()

    def run(self, *, limit: int | None = None, on_progress: Progress | None = None) -> Judging:
        """Ask what was never answered, or is asked for again, and write it down; with `limit`, about the first queries.

        What ends all work, such as a spent budget or a refused key, is told in `stopped`: what was answered by then is
        in the journal.
        """
        journal = self._journal()
        stopped: R2MedError | None = None
        errors: list[str] = []
        try:
            with GenerationStore(self.key, retry=self.retry) as store:
                try:
                    self._ask(journal, store, limit, errors, on_progress)
                except R2MedError as error:
                    stopped = error
                judged = all(journal.current(*slot) is not None for slot in self._slots())
                if judged and not stopped and not journal.finished:
                    details = {"prompt": self.key.digest}
                    journal.save(Entry(id=self._id("", ""), at=now(), finished=True, details=details))
                return self._state(journal, store, errors, stopped)
        finally:
            journal.close()

    def _ask(
        self,
        journal: Journal,
        store: GenerationStore,
        limit: int | None,
        errors: list[str],
        on_progress: Progress | None,
    ) -> None:
        wanted = self.requests(journal, store, limit)
        slots = {request.key: pairs for request, pairs in wanted.items()}
        arriving = generate(self.chat, wanted, store, clean=False, status=self._status_by(wanted))
        for done, answer in enumerate(arriving, start=1):
            if answer.status == "failed":
                errors.append(answer.error)
            else:
                self._write(journal, slots[answer.query_id], answer)
            if on_progress:
                on_progress(done, len(wanted))

    def _write(self, journal: Journal, slots: Iterable[Slot], answer: Generation) -> None:
        journal.refresh()
        for query_id, doc_id in slots:
            current = journal.current(query_id, doc_id)
            entry = self._entry(query_id, doc_id, answer, current)
            if current is not None and (current.grade is not None or current.details == entry.details):
                continue  # written by another process meanwhile, or the model said the same again
            if entry.grade is not None:
                self.project.check_entry(entry)
            journal.save(entry)

    def _status_by(self, wanted: Mapping[Request, Sequence[Slot]]) -> StatusOf:
        """What answers to requests are worth; those of one request are about equal texts."""
        docs = {request.key: slots[0][1] for request, slots in wanted.items()}
        return lambda answer: self._status(answer, docs[answer.query_id])

    def _status(self, answer: Generation, doc_id: str) -> str:
        """What an answer is worth: one about a passage is of no use without a grade."""
        return unless_read(answer, not doc_id or self._read(answer, doc_id).grade is not None)

    def _read(self, answer: Generation, doc_id: str) -> Answer:
        if answer.status != "ok":
            return Answer(None, problem=_UNREAD.get(answer.status, "no answer"))
        return read_answer(answer.final, self.project.settings, self.project.passages[doc_id])

    def _entry(self, query_id: str, doc_id: str, answer: Generation, current: Entry | None) -> Entry:
        """The entry of an answer in place of the one that stands there, if any."""
        details = {"prompt": self.key.digest, "model": answer.model, "answer": answer.raw[:KEPT]}
        base = Entry(
            id=self._id(query_id, doc_id, *(() if current is None else (current.id, answer.raw))), at=now(),
            query_id=query_id, doc_id=doc_id, seconds=answer.seconds, replaces=current.id if current else "",
            details=details,
        )  # fmt: skip
        status = self._status(answer, doc_id)
        details |= {"status": status} if status != "ok" else {}
        if not doc_id:
            return msgspec.structs.replace(base, answer=answer.final[:KEPT])
        read = self._read(answer, doc_id)
        details |= {"problem": read.problem} if read.problem else {}
        details |= {"support": "dropped"} if read.support_dropped else {}
        return msgspec.structs.replace(
            base, grade=read.grade, skipped=read.grade is None, reason=read.reason, support=read.support
        )

    def _id(self, *facts: str) -> str:
        return fingerprint("entry of a judge", [self.key.digest, *facts])[:32]

    def _state(
        self, journal: Journal, store: GenerationStore, errors: list[str], stopped: R2MedError | None
    ) -> Judging:
        entries = [entry for entry in journal.entries() if entry.doc_id]
        pooled = sum(map(len, self.project.pool.values()))
        return Judging(
            judge=self.name,
            spec=self.chat.name,
            pooled=pooled,
            graded=sum(entry.grade is not None for entry in entries),
            without_grade=dict(sorted(Counter(e.details["problem"] for e in entries if e.grade is None).items())),
            support_dropped=sum(entry.details.get("support") == "dropped" for entry in entries),
            left=pooled - len(entries),
            failed=len(errors),
            first_error=errors[0] if errors else "",
            finished=journal.finished,
            usage=self.chat.usage.snapshot(),
            lost_calls=store.lost_calls(),
            journal=str(journal.path),
            store=str(store.path),
            warning=self.chat.warning,
            stopped=str(stopped) if stopped else "",
            exit_code=stopped.exit_code if stopped else 0,
        )


def _form(settings: Settings) -> str:
    """The lines that an answer has."""
    pieces: list[tuple[str, bool]] = [
        ("reason", settings.reason != "no"), ("support", settings.support != "no"), ("form", True)
    ]  # fmt: skip
    texts = [built_in("r2med.judge", name, gaps=()).user for name, wanted in pieces if wanted]
    return fill("\n".join(texts), highest=str(len(settings.grades) - 1))


def read_answer(text: str, settings: Settings, passage: Document) -> Answer:
    """The grade, reason and supporting sentence that an answer states."""
    fields = _fields(text)
    grade, problem = _grade(text, fields["grade"], len(settings.grades))
    if grade is None:
        return Answer(None, problem=problem)
    reason = " ".join(fields["reason"])[:KEPT].strip() if settings.reason != "no" else ""
    if settings.reason == "required" and not reason:
        return Answer(None, problem="no reason")
    if settings.support == "no" or grade == 0:
        return Answer(grade, reason)
    said = " ".join(fields["support"]).strip(_QUOTES)
    support = standing_in(passage.contents, said)
    if settings.support == "required" and not support:
        return Answer(None, problem="no supporting sentence")
    return Answer(grade, reason, support, support_dropped=bool(said) and not support)


def _fields(text: str) -> dict[str, list[str]]:
    """What stands behind each label; a reason or a sentence goes on till the next label, a grade ends with its line."""
    found: dict[str, list[str]] = {"grade": [], "reason": [], "support": []}
    current = ""
    for line in text.splitlines():
        if label := _LABEL.match(line):
            current = label[1].lower()
            found[current].append(line[label.end() :].strip())
        elif current in ("reason", "support"):
            found[current].append(line.strip())
    return found


def _grade(text: str, lines: list[str], scale: int) -> tuple[int | None, str]:
    """The one grade that all lines with that label state, or why there is none."""
    on_scale = {str(grade): grade for grade in range(scale)}
    numbers = {number for line in lines for number in _NUMBER.findall(line)}
    if not lines and (alone := _ALONE.fullmatch(text)):
        numbers = {alone[1]}
    if not numbers:
        return None, "no grade"
    if len(numbers) > 1:
        return None, "two grades"
    grade = on_scale.get(numbers.pop())
    return grade, "" if grade is not None else "outside the scale"


def standing_in(passage: str, sentence: str) -> str:
    """A sentence as it stands in a passage, white space aside; empty where it does not."""
    words = sentence.split()
    if not words or sum(map(len, words)) > len(passage):
        return ""
    found = re.search(r"\s+".join(map(re.escape, words)), passage)
    return found[0] if found else ""
