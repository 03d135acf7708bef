"""Answers to requests: stored ones are reused, new ones are stored as they arrive."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ..core import R2MedError
from ..core.parallel import STOP
from .parsing import Generation, Parsed, StatusOf, as_parsed, parse
from .protocol import Chat, Choice, Message, Reply, Request
from .store import GenerationStore

POLL = 0.2
# Seconds between looks at what another process is working on.


def generate(
    chat: Chat,
    requests: Iterable[Request],
    store: GenerationStore | None = None,
    *,
    clean: bool = True,
    keep_prompt: bool = False,
    status: StatusOf = as_parsed,
) -> Iterator[Generation]:
    """Answers to all requests, each when it is there: stored ones at once, new ones as they arrive.

    `requests` may be a `Feed` that whoever takes the answers fills. `status` says what an answer is worth to its
    method, which may not be able to read it: by that it is counted, and asked for again.

    A request that cannot be answered gives one generation with status `failed`, which is not stored.
    """
    with _Work(chat, requests, store, status, clean=clean, keep_prompt=keep_prompt) as work:
        while True:
            for _ in chat.complete(work, work.keep, None if store is None else store.send):
                yield from work.taken()
            yield from work.taken()
            if not work.again():
                return
            if work.waits:
                time.sleep(POLL)


class _Work:
    """The requests without a stored answer that no other process has claimed, one by one, and answers that are there.

    Like a `Feed`, it may end and go on: requests that depend on answers come when those have been handed out.
    """

    def __init__(
        self,
        chat: Chat,
        requests: Iterable[Request],
        store: GenerationStore | None,
        status: StatusOf,
        *,
        clean: bool,
        keep_prompt: bool,
    ) -> None:
        self._chat, self._requests, self._store, self._status = chat, iter(requests), store, status
        self._clean, self._keep_prompt = clean, keep_prompt
        self._arrived: deque[list[Generation]] = deque()
        self._mine: list[Request] = []
        self._repeated: deque[Request] = deque()
        self._elsewhere: list[Request] = []  # claimed by another process
        self._rest: list[Request] = []
        # Further answers to prompts whose first ones came in a call of their own.
        self._looked = False  # whether a request was looked at since `again`
        self.waits = False  # whether all that is left is with another process

    def keep(self, request: Request, reply: Reply) -> None:
        """Take the answers of a call, in whatever thread they arrive."""
        read = {"clean": self._clean, "keep_prompt": self._keep_prompt}
        generations = read_reply(request, reply, self._chat.marking, **read)
        if self._store is not None:
            generations = self._store.answer(request, generations)
        if reply.more:
            self._rest.append(request.after(len(generations)))
        self._arrived.append(generations)

    def taken(self) -> Iterator[Generation]:
        """The answers that have arrived, counted by what they are worth."""
        while self._arrived:
            for generation in map(self._reparsed, self._arrived.popleft()):
                if self._store is not None:
                    self._store.worth[self._status(generation)] += 1
                yield generation

    def _reparsed(self, generation: Generation) -> Generation:
        return reparse(generation, self._chat.marking, clean=self._clean)

    def again(self) -> bool:
        """Begin anew with what is left, if anything is."""
        self.waits = bool(self._elsewhere) and not self._rest
        self._repeated.extend((*self._rest, *self._elsewhere))
        self._rest, self._elsewhere = [], []
        looked, self._looked = self._looked, False
        return bool(self._repeated) or looked

    def __iter__(self) -> _Work:
        return self

    def __next__(self) -> Request:
        while True:
            request = self._repeated.popleft() if self._repeated else next(self._requests)
            self._looked = True
            if self._store is None:
                return request
            self._store.refresh()
            found, left = self._store.divided(request, lambda answer: self._status(self._reparsed(answer)))
            if found:
                self._store.reuse(found)
                self._arrived.append(found)
            if not left:
                continue
            wanted, *others = left
            self._repeated.extendleft(reversed(others))
            if self._store.claim(wanted):
                self._mine.append(wanted)
                return wanted
            self._elsewhere.append(wanted)

    def __enter__(self) -> _Work:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """End all claims, also of requests that failed; a call that was interrupted never comes back."""
        if self._store is None:
            return
        if isinstance(error, R2MedError) and not STOP.is_set():
            self._store.settle()
        for request in self._mine:
            self._store.release(request)


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
                retries=reply.retries if first else 0,
                rate_limits=reply.rate_limits if first else 0,
                again=request.again,
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


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What generating would take, before anything is spent."""

    calls: int = 0
    # Calls that are not in the store yet; for an agent the most it may make.
    stored: int = 0
    # Calls that were paid for before.
    prompt_tokens: int = 0
    completion_tokens: int = 0
    # At most.
    cost: float | None = 0.0
    # Dollars at most; None where no price is known.
    store: str = ""
    # Where generations are kept.
    first_prompt: str = ""
    # As it would be sent.


def plan_requests(
    chat: Chat, requests: Sequence[Request], store: GenerationStore, status: StatusOf = as_parsed
) -> Cost:
    """What the requests that are not in the store will take at most."""
    left = [store.divided(request, status)[1] for request in requests]
    estimates = [chat.estimate(request) for of_one in left for request in of_one]
    costs = [e.cost for e in estimates]
    return Cost(
        calls=sum(e.calls for e in estimates),
        stored=sum(not of_one for of_one in left),
        prompt_tokens=sum(e.prompt_tokens for e in estimates),
        completion_tokens=sum(e.completion_tokens for e in estimates),
        cost=None if None in costs else sum(c for c in costs if c is not None),
        store=str(store.path),
        first_prompt=as_text(requests[0].messages) if requests else "",
    )


def as_text(messages: Iterable[Message]) -> str:
    """A conversation for people to read."""
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)
