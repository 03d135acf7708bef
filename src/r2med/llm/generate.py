"""Answers to requests: stored ones are reused, new ones are stored as they arrive."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator

from .protocol import Chat, Reply, Request
from .store import Generation, GenerationStore, read_reply, reparse

POLL = 0.2
# Seconds between looks at what another process is working on.


def generate(
    chat: Chat,
    requests: Iterable[Request],
    store: GenerationStore | None = None,
    *,
    clean: bool = True,
    keep_prompt: bool = False,
) -> Iterator[Generation]:
    """Answers to all requests, each when it is there: stored ones at once, new ones as they arrive.

    A request that cannot be answered gives one generation with status `failed`, which is not stored.
    """
    arrived: deque[list[Generation]] = deque()

    def keep(request: Request, reply: Reply) -> None:
        generations = read_reply(request, reply, chat.marking, clean=clean, keep_prompt=keep_prompt)
        if store is not None:
            store.append(generations)
            store.release(request)
        if reply.more:
            claims.rest.append(request.after(len(generations)))
        arrived.append(generations)

    def taken() -> Iterator[Generation]:
        while arrived:
            yield from (reparse(generation, chat.marking, clean=clean) for generation in arrived.popleft())

    claims = _Claims(store, arrived)
    try:
        while True:
            for _ in chat.complete(claims.unanswered(requests), keep):
                yield from taken()
            yield from taken()
            requests = [*claims.rest, *claims.elsewhere]
            if not requests:
                return
            if not claims.rest:
                time.sleep(POLL)
    finally:
        claims.release()


class _Claims:
    """Which requests this call of `generate` works on, and which another process has claimed."""

    def __init__(self, store: GenerationStore | None, arrived: deque[list[Generation]]) -> None:
        self._store, self._arrived = store, arrived
        self._mine: list[Request] = []
        self.elsewhere: list[Request] = []
        self.rest: list[Request] = []
        # Further answers to prompts whose first ones came in a call of their own.

    def unanswered(self, requests: Iterable[Request]) -> Iterator[Request]:
        """Requests without a stored answer that no other process has claimed."""
        self.elsewhere, self.rest = [], []
        for request in requests:
            if self._store is None:
                yield request
                continue
            self._store.refresh()
            found = self._store.begun(request)
            if found:
                self._arrived.append(found)
            if len(found) == request.sampling.n:
                continue
            wanted = request.after(len(found))
            if self._store.claim(wanted):
                self._mine.append(wanted)
                yield wanted
            else:
                self.elsewhere.append(wanted)

    def release(self) -> None:
        """End all claims, also of requests that failed."""
        if self._store is not None:
            for request in self._mine:
                self._store.release(request)
