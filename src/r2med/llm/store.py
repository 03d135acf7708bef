"""The generation store: every answer on disk the moment it arrives, so that none is ever paid for twice.

One file per method × model and server × prompts × sampling × task. A query whose line was torn is asked again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec

from ..cache.records import RecordFile, header_line, is_header, read_records, with_checksum
from ..core import DataError, fingerprint
from ..core.places import home
from ..core.untrusted import file_name
from ..http import TOO_LONG
from .decision import Decision
from .parsing import Parsed, Status, parse
from .protocol import Chat, Choice, FinishReason, Message, Reply, Request, Sampling

__all__ = [
    "Answers",
    "Generation",
    "GenerationStore",
    "StoreKey",
    "is_header",
    "read_header",
    "read_reply",
    "read_store",
    "reparse",
    "store_lines",
    "watch_answers",
]


LOCAL_TOO_LONG = "the embedded model takes"


class Generation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer to one prompt, as read: a line of the generation store."""

    query_id: str
    # The request's key.
    sample: int = 0
    # Which of the n answers.
    prompt_hash: str
    # Of the conversation as sent: the same query with other passages in its prompt is another call.
    status: Status
    # ok, truncated, empty, refused, unparsed; `failed` (no answer could be had) is never stored.
    final: str = ""
    # The text to use; empty where the chain of thought did not end.
    reasoning: str = ""
    apart: int = 0
    # How many characters of the reasoning the server itself set apart; the rest was found in `raw`.
    raw: str = ""
    # The answer, untouched.
    removed: tuple[str, ...] = ()
    # What cleaning took off `final`: preamble, label, fence, closing, tool-call.
    clean: bool = True
    # Whether chatter was looked for at all.
    finish_reason: FinishReason = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    # Both on the first sample of a call only: its answers are one bill.
    seconds: float = 0.0
    cost: float | None = None
    model: str = ""
    error: str = ""
    # Why it failed.
    prompt: tuple[Message, ...] = ()
    # Kept on request.
    extra: dict[str, object] = {}
    # What a method adds: searches, turns, evidence.

    @property
    def usable(self) -> bool:
        """Whether `final` may stand in for the query; otherwise the raw query does, and that is counted."""
        return bool(self.final) and self.status in ("ok", "truncated")

    @property
    def decision(self) -> Decision:
        """The tokens of the last number or verdict with their alternatives, where the server gave them."""
        return msgspec.convert(self.extra.get("decision", ()), Decision)

    @property
    def too_long(self) -> bool:
        """Whether it failed because the prompt did not fit into the model's context."""
        return self.status == "failed" and any(hint in self.error.lower() for hint in (*TOO_LONG, LOCAL_TOO_LONG))

    @property
    def unfinished(self) -> bool:
        """Whether there is reasoning without an answer: it was cut, or it never came to an end."""
        return not self.final and bool(self.reasoning) and self.status in ("truncated", "unparsed", "empty")

    @property
    def choice(self) -> Choice:
        """The answer as it came."""
        return Choice(self.raw, self.reasoning[: self.apart], self.finish_reason)


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

    def path(self, root: Path) -> Path:
        """The file below a folder: `method/llm/digest.jsonl`, or where another name of the same model has put it."""
        folder, name = root / file_name(self.method), f"{self.digest}.jsonl"
        own = folder / file_name(self.llm) / name
        if own.exists():
            return own
        return next(iter(sorted(folder.glob(f"*/{name}"))), own)


def read_reply(
    request: Request, reply: Reply, marking: str = "auto", *, clean: bool = True, keep_prompt: bool = False
) -> list[Generation]:
    """The answers of a reply, parsed, one per sample."""
    prompt_hash = request.prompt_hash
    generations = []
    for sample, choice in enumerate(reply.choices, request.sample):
        parsed = Parsed("failed") if reply.error else parse(choice, marking, clean=clean)
        first = sample == request.sample
        generations.append(
            Generation(
                query_id=request.key,
                sample=sample,
                prompt_hash=prompt_hash,
                status=parsed.status,
                final=parsed.final,
                reasoning=parsed.reasoning,
                apart=len(choice.reasoning.strip()),
                raw=choice.text,
                removed=parsed.removed,
                clean=clean,
                finish_reason=choice.finish_reason,
                prompt_tokens=reply.prompt_tokens if first else 0,
                completion_tokens=reply.completion_tokens if first else 0,
                seconds=reply.seconds if first else 0.0,
                cost=reply.cost if first or reply.cost is None else 0.0,
                model=reply.model,
                error=reply.error,
                prompt=request.messages if keep_prompt else (),
                extra=_extra(choice),
            )
        )
    return generations


def _extra(choice: Choice) -> dict[str, object]:
    """Log-probabilities, where the server gave them."""
    given = {"first_token": choice.first_token, "decision": choice.decision}
    return {name: _lists(value) for name, value in given.items() if value}


def _lists(value: Any) -> Any:
    """Tuples as the lists that a file gives back."""
    return [_lists(part) for part in value] if isinstance(value, tuple) else value


def reparse(generation: Generation, marking: str, *, clean: bool) -> Generation:
    """A stored answer parsed with another `clean` setting; nothing is generated again."""
    if generation.clean == clean:
        return generation
    parsed = parse(generation.choice, marking, clean=clean)
    return msgspec.structs.replace(
        generation, status=parsed.status, final=parsed.final, removed=parsed.removed, clean=clean
    )


Answers = dict[tuple[str, str], set[str]]
"""Answers that were used: the method and the digest of a store's key, and the hashes of the prompts answered."""
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
    """All answers of one key, in memory and on disk."""

    def __init__(self, key: StoreKey, folder: Path | None = None, *, read_only: bool = False) -> None:
        """Open the file; `read_only` makes none and writes nothing, for a look at what is there."""
        self.key = key
        self._name = (key.method, key.digest)
        self._found: dict[tuple[str, str], dict[int, Generation]] = {}
        super().__init__(key.path(folder or home() / "generations"), Generation, key, read_only=read_only)

    def __enter__(self) -> GenerationStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))

    def __iter__(self) -> Iterator[Generation]:
        with self._lock:
            return iter([g for samples in self._found.values() for g in samples.values()])

    def add(self, record: Generation) -> None:
        """Take in an answer. The first one stays: results that were made from it stay reproducible."""
        self._found.setdefault((record.query_id, record.prompt_hash), {}).setdefault(record.sample, record)

    def append(self, records: Iterable[Generation]) -> None:
        """Put answers on disk. Failed ones are left out, so that they are tried again."""
        kept = [g for g in records if g.status != "failed"]
        super().append(kept)
        self._note(g.prompt_hash for g in kept)

    def _note(self, prompts: Iterable[str]) -> None:
        for used in tuple(_watching):
            used.setdefault(self._name, set()).update(prompts)

    def statuses(self) -> Counter[str]:
        """Answers by status."""
        return Counter(generation.status for generation in self)

    def begun(self, request: Request) -> list[Generation]:
        """The first answers to a request, as many as are here without a gap."""
        with self._lock:
            prompt = request.prompt_hash
            samples = self._found.get((request.key, prompt), {})
            wanted = range(request.sample, request.sample + request.sampling.n)
            found = [samples[i] for i in takewhile(samples.__contains__, wanted)]
            self._note([prompt] if found else ())
            return found

    def get(self, request: Request) -> list[Generation] | None:
        """The answers to a request if all of them are here."""
        found = self.begun(request)
        return found if len(found) == request.sampling.n else None

    def claim(self, request: Request) -> bool:
        """Whether this process may work on a request: False while another one does, or when one just has."""
        with self._lock:
            if not self.claim_place((request.key, request.prompt_hash)):
                return False
            self.refresh()
            if self.begun(request):  # answered between the caller's look and this claim
                self.release(request)
                return False
            return True

    def release(self, request: Request) -> None:
        """End a claim."""
        self.release_place((request.key, request.prompt_hash))


def read_store(path: Path) -> tuple[StoreKey, list[Generation], int]:
    """A file's key, its answers and how many lines could not be read."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None
    generations, bad = read_records(lines[1:], Generation)
    return read_header(path, lines[0]).key, generations, bad


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
