"""The generation store: every answer on disk the moment it arrives, so that none is ever paid for twice.

One file per method × model and server × prompts × sampling × task. A query whose line was torn is asked again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec

from ..cache.records import (
    Call,
    RecordFile,
    SentCalls,
    claim_offset,
    header_line,
    is_header,
    read_records,
    with_checksum,
)
from ..core import DataError, UsageError, fingerprint
from ..core.budget import Account, Reused, known_sum
from ..core.files import home
from ..core.stores import gunzip
from ..core.untrusted import file_name
from .parsing import STATUSES, Generation, StatusOf, as_parsed, put_newest
from .protocol import Chat, Request, Sampling

__all__ = [
    "Answers",
    "GenerationStore",
    "StoreKey",
    "asked_again",
    "asked_since",
    "find_store",
    "is_header",
    "read_header",
    "read_store",
    "recorded_lines",
    "store_lines",
    "watch_answers",
]


class StoreKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What answers must share to lie in one file."""

    method: str
    llm: str
    # Name, for people.
    model: dict[str, object]
    # `Chat.describe()`.
    template: str
    # Hash of the prompt pack the prompts are made from.
    sampling: Sampling
    task: str
    # Fingerprint of the task.
    settings: dict[str, object] = {}
    # Anything else of the method that changes a prompt or an answer: the first-stage retriever, limits on searches.

    @classmethod
    def of(
        cls,
        method: str,
        chat: Chat,
        template: str,
        sampling: Sampling,
        task: str,
        settings: dict[str, object] | None = None,
    ) -> StoreKey:
        """The key for generating with `chat`."""
        return cls(
            method=method,
            llm=chat.name,
            model=chat.describe(),
            template=template,
            sampling=sampling,
            task=task,
            settings=settings or {},
        )

    @property
    def digest(self) -> str:
        """Fingerprint of everything that changes an answer; the display name and the warning are left out."""
        facts = msgspec.to_builtins(self)
        del facts["llm"]
        facts["model"].pop("warning", None)
        return fingerprint("generations", facts)

    @property
    def place(self) -> Path:
        """The file among those of this machine."""
        return self.path(home() / "generations")

    def path(self, root: Path) -> Path:
        """The file below a folder: `method/llm/digest.jsonl`, or where another name of the same model has put it."""
        own = root / file_name(self.method) / file_name(self.llm) / f"{self.digest}.jsonl"
        return own if own.exists() else find_store(self.method, self.digest, root) or own


def find_store(method: str, digest: str, root: Path | None = None) -> Path | None:
    """The file of a method and a key's digest, whatever its model is called; None where there is none."""
    folder = (root or home() / "generations") / file_name(method)
    return next(iter(sorted(folder.glob(f"*/{file_name(digest)}.jsonl"))), None)


class Retry(frozenset[str]):
    """Statuses of answers that shall be asked for again: each answer once by all who share this object."""

    asked: set[tuple[str, ...]]

    def __new__(cls, statuses: Iterable[str]) -> Retry:
        """A good answer cannot be asked for again."""
        made = super().__new__(cls, statuses)
        if wrong := sorted(made - set(STATUSES[1:])):
            raise UsageError(f"no answer that could be asked for again is {wrong[0]!r}: {', '.join(STATUSES[1:])}")
        made.asked = set()
        return made


Answers = dict[tuple[str, str], set[tuple[str, str]]]
"""Answers that were used: method and digest of a store, and of each answer the hash of its prompt and its mark."""
_watching: list[Answers] = []


@contextmanager
def watch_answers() -> Iterator[Answers]:
    """Collect which answers of which stores are used while the block runs, in whichever thread: stored or new ones."""
    used: Answers = {}
    _watching.append(used)
    try:
        yield used
    finally:
        _watching[:] = [other for other in _watching if other is not used]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file."""

    schema: int
    key: StoreKey


class GenerationStore(RecordFile[Generation]):
    """All answers of one key, in memory and on disk.

    Answers of the statuses in `retry` count as missing, once, whatever comes: each is asked for again, and the new
    answer takes the place of the old one, which stays in the file.
    """

    def __init__(
        self, key: StoreKey, folder: Path | None = None, *, read_only: bool = False, retry: Collection[str] = ()
    ) -> None:
        """Open the file; `read_only` makes none and writes nothing, for a look at what is there."""
        self.key = key
        self._name = (key.method, key.digest)
        self._new, self._reused = list[Generation](), list[Generation]()
        """Answers that were handed out: of calls that were made, and those that were stored."""
        self.worth: Counter[str] = Counter()
        """How many of them were of which worth to the method that asked."""
        self._retry = retry if isinstance(retry, Retry) else Retry(retry)
        self._since = 0.0
        self._looked: set[int] = set()
        """Where requests that were looked for are claimed."""
        self._found: dict[tuple[str, str], dict[int, Generation]] = {}
        path = key.path(folder) if folder else key.place
        self._sent = SentCalls(path.with_suffix(".sent"))
        super().__init__(path, Generation, key, read_only=read_only)

    def __enter__(self) -> GenerationStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the files; claims end here."""
        self._sent.close()
        super().close()

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))

    def __iter__(self) -> Iterator[Generation]:
        with self._lock:
            return iter([g for samples in self._found.values() for g in samples.values()])

    def add(self, record: Generation) -> None:
        """Take in an answer. The first one stays, unless it was asked for again."""
        put_newest(self._found.setdefault((record.query_id, record.prompt_hash), {}), record)

    def append(self, records: Iterable[Generation]) -> None:
        """Put answers on disk. Failed ones are left out, so that they are tried again."""
        kept = [g for g in records if g.status != "failed"]
        super().append(kept)
        self._note(kept)

    def keep(self, request: Request, records: Iterable[Generation]) -> None:
        """Put what a loop of calls came to on disk, unless it is there."""
        if found := self.begun(request):
            self._note(found)
        else:
            self.append(records)

    def _note(self, answers: Collection[Generation]) -> None:
        """Tell those who watch which answers are used."""
        for used in tuple(_watching):
            used.setdefault(self._name, set()).update((answer.prompt_hash, answer.mark) for answer in answers)

    def statuses(self) -> Counter[str]:
        """Answers by status."""
        return Counter(generation.status for generation in self)

    def begun(self, request: Request) -> list[Generation]:
        """The first answers to a request, as many as are here without a gap."""
        with self._lock:
            prompt = request.prompt_hash
            samples = self._found.get((request.key, prompt), {})
            wanted = range(request.sample, request.sample + request.sampling.n)
            return [samples[i] for i in takewhile(lambda i: i in samples and samples[i].again >= request.again, wanted)]

    def get(self, request: Request) -> list[Generation] | None:
        """The answers to a request if all of them are here."""
        found = self.begun(request)
        return found if len(found) == request.sampling.n else None

    def held(self, request: Request) -> int:
        """How many answers there are to the prompt of a request."""
        with self._lock:
            return len(self._found.get((request.key, request.prompt_hash), {}))

    def divided(self, request: Request, status: StatusOf = as_parsed) -> tuple[list[Generation], list[Request]]:
        """The answers to a request that are here and wanted, and the requests that are left to make."""
        self._looked.add(claim_offset((request.key, request.prompt_hash)))
        found = self.begun(request)
        retried = (g for g in found if self._retry and self._place(g) not in self._retry.asked)
        unwanted = [g for g in retried if status(g) in self._retry]
        left = [request.repeated(g.sample, g.again + 1) for g in unwanted]
        if len(found) < request.sampling.n:
            left.append(request.after(len(found)))
        return [g for g in found if g not in unwanted], left

    def _place(self, answer: Generation) -> tuple[str, ...]:
        return str(self.path), answer.query_id, answer.prompt_hash, str(answer.sample)

    def reuse(self, answers: Collection[Generation]) -> None:
        """Count stored answers that are handed out."""
        self._note(answers)
        self._reused += answers

    @property
    def hits(self) -> int:
        """How many stored answers were handed out."""
        return len(self._reused)

    @property
    def reused(self) -> Account:
        """What all answers took that were handed out, and what of that stored ones saved."""
        saved = known_sum(answer.elapsed for answer in self._reused)
        made = sum(answer.elapsed or 0.0 for answer in self._new)
        return {str(self.path): Reused(None if saved is None else saved + made, saved)}

    def bill(self) -> dict[str, Any]:
        """Tokens, dollars, trouble and worth of all answers that were handed out, stored or new."""
        answers = [*self._new, *self._reused]
        cost = known_sum(answer.cost for answer in answers)
        counted = ("prompt_tokens", "completion_tokens", "retries", "rate_limits")
        counts = {name: sum(getattr(answer, name) for answer in answers) for name in counted}
        return {
            "generations": dict(sorted(self.worth.items())),
            **counts,
            "cost": None if cost is None else round(cost, 6),
            "lost_calls": self.lost_calls(self._looked),
        }

    def claim(self, request: Request) -> bool:
        """Whether this process may work on a request: False while another one does, or when one just has."""
        with self._lock:
            alone = not self._claimed
            if not self.claim_place((request.key, request.prompt_hash)):
                return False
            self.refresh()
            if self.begun(request):  # answered between the caller's look and this claim
                self.release(request)
                return False
            if alone:
                self._since = time.perf_counter()
            return True

    def release(self, request: Request) -> None:
        """End a claim."""
        self.release_place((request.key, request.prompt_hash))

    def send(self, request: Request) -> None:
        """Note that a claimed request goes out."""
        self._sent.send(_call(request.key, request.prompt_hash, request.sample))

    def answer(self, request: Request, answers: list[Generation]) -> list[Generation]:
        """Keep the answers of a call and end its claim; says what counts.

        An answer that failed when it was asked for again leaves what was there.
        """
        with self._lock:
            now = time.perf_counter()
            elapsed, self._since = now - self._since, now
            timed = [msgspec.structs.replace(g, elapsed=0.0 if i else elapsed) for i, g in enumerate(answers)]
        self.append(timed)
        self._sent.settle(_call(request.key, request.prompt_hash, request.sample))
        self.release(request)
        with self._lock:
            if request.again:
                self._retry.asked.update(map(self._place, timed))
                if timed[0].status == "failed":
                    kept = self.begun(msgspec.structs.replace(request, again=0))
                    self.reuse(kept)
                    return kept
            self._new += timed
            return timed

    def settle(self, request: Request | None = None) -> None:
        """Note that a call ended with an error; without one, that none of this process is under way any more."""
        if request is None:
            self._sent.settle_all()
        else:
            self._sent.settle(_call(request.key, request.prompt_hash, request.sample))

    def lost_calls(self, among: Collection[int] | None = None) -> int:
        """Calls that went out and whose answer never came here, because their process was killed or interrupted."""
        stored = {_call(g.query_id, g.prompt_hash, g.sample) for g in self}
        return self._sent.lost(stored, self.is_claimed, among)


def _call(key: str, prompt_hash: str, sample: int) -> Call:
    return Call(claim_offset((key, prompt_hash)), sample)


def asked_again(path: Path) -> frozenset[tuple[str, str]]:
    """The answers in a file that took the place of others, each as the hash of its prompt and its mark."""
    try:
        now = path.stat()
        return _asked_again(path, now.st_ino, now.st_size, now.st_mtime_ns)
    except OSError:
        return frozenset()


@lru_cache(maxsize=128)
def _asked_again(path: Path, *state: int) -> frozenset[tuple[str, str]]:
    """The same, read once for each state of the file: many results are made from the answers of one store."""
    del state
    with path.open("rb") as stream:
        lines = [line for line in stream if b'"again":' in line]
    newest: dict[tuple[str, str], dict[int, Generation]] = {}
    for answer in read_records(lines, Generation)[0]:
        put_newest(newest.setdefault((answer.query_id, answer.prompt_hash), {}), answer)
    return frozenset((g.prompt_hash, g.mark) for samples in newest.values() for g in samples.values())


def asked_since(method: str, digest: str, prompts: Collection[str], marks: Collection[str]) -> bool:
    """Whether one of some prompts has a newer answer here than those that were used, which are known by their marks."""
    path = find_store(method, digest)
    marked = set(marks)
    newer = {prompt for prompt, mark in asked_again(path) if mark not in marked} if path is not None else set()
    return not newer.isdisjoint(prompts)


def read_store(path: Path) -> tuple[StoreKey, list[Generation], int]:
    """A file's key, its answers and how many lines could not be read."""
    lines = recorded_lines(path)
    generations, bad = read_records(lines[1:], Generation)
    return read_header(path, lines[0] if lines else b"").key, generations, bad


def recorded_lines(path: Path) -> list[bytes]:
    """The lines of a file of recorded answers, compressed with gzip or not."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None
    if raw[:2] == b"\x1f\x8b":
        raw = gunzip(raw, str(path))
    return [line for line in raw.split(b"\n") if line.strip()]


def store_lines(key: StoreKey, records: Iterable[Generation]) -> Iterator[bytes]:
    """The lines of a file that holds these answers."""
    yield header_line(key)
    yield from map(with_checksum, records)


def read_header(path: Path, line: bytes) -> Header:
    """The first line of a file."""
    try:
        return msgspec.json.decode(line, type=Header)
    except (ValueError, RecursionError):
        raise DataError("is not a generation store", path=path, line=1) from None
