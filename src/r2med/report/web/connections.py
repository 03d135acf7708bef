"""Connections with limits: a client that sends half a request, or never takes its answer, cannot keep one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS, ANSWER_SECONDS = 10.0, 120.0
"""How long a client may take to send a request, and an answer to be made and taken."""
MOST_CONNECTIONS = 1_000
PATIENCE = 1.0
"""Seconds after which a connection without a request gives way to a new one where there are too many."""


def allow_connections() -> None:
    """Let this process open as many files as connections may need, where the machine permits it."""
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 2 * MOST_CONNECTIONS
        if soft != resource.RLIM_INFINITY and soft < wanted:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class LimitedProtocol(H11Protocol):
    """One connection, with a deadline for what it waits for; of too many, the oldest idle one is closed."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline: Any = None
        self._since = self.loop.time()
        self._wait()
        if len(self.connections) > MOST_CONNECTIONS:
            others = [c for c in self.connections if isinstance(c, LimitedProtocol) and not c.transport.is_closing()]
            idle = [c for c in others if not c._answering]
            oldest = min(idle, key=lambda c: c._since, default=self)
            if len(others) > MOST_CONNECTIONS:
                (oldest if self._since - oldest._since >= PATIENCE else self).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._deadline is None or self._answering:
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._stop_waiting()  # from here on, the server's own limit for kept connections counts
        self._since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _answering(self) -> bool:
        """Whether a whole request is here and its answer is not yet sent."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._stop_waiting()
        seconds = ANSWER_SECONDS if self._answering else REQUEST_SECONDS
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
