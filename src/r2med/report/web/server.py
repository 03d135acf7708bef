"""Starting the app: a free port, connections with limits, the browser, and a clean end."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import webbrowser
from collections.abc import Callable
from typing import Any

from ...core import MissingExtra, R2MedError, UsageError
from ...core.portable import allow_open_files
from .app import ASGIApp
from .render import compile_templates
from .site import Site

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError:
    raise MissingExtra("the web app", "view") from None

REQUEST_SECONDS, ANSWER_SECONDS = 10.0, 120.0
"""How long a client may take to send a request, and an answer to be made and taken."""
MOST_CONNECTIONS = 1_000
PATIENCE = 1.0  # Seconds after which a connection without a request gives way to a new one where there are too many.
HOST, PORT, TRIED = "127.0.0.1", 8642, 20


class LimitedProtocol(H11Protocol):
    """One connection, with a deadline for what it waits for; of too many, the oldest idle one is closed."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline: Any = None
        self._sending = False
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
        taken = self._sending and not self.transport.get_write_buffer_size()
        if self._deadline is None or taken or self._answering:
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()  # begins with the next request where it is here already
        self._since = self.loop.time()
        if self._answering or self.transport.get_write_buffer_size():
            self._wait()
        else:
            self._stop_waiting()  # from here on, the server's own limit for kept connections counts

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _answering(self) -> bool:
        """Whether a whole request is here and its answer is not yet sent."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        """Close the connection unless the request, or the client's taking of the answer, is complete in time."""
        self._stop_waiting()
        self._sending = self._answering or self.transport.get_write_buffer_size() > 0
        seconds = ANSWER_SECONDS if self._sending else REQUEST_SECONDS
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        self._sending = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def listen(host: str, port: int | None) -> socket.socket:
    """A socket on the port asked for, or on the first free one from 8642 on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    wanted = range(PORT, PORT + TRIED) if port is None else [port]
    for number in wanted:
        opened = socket.socket(family, socket.SOCK_STREAM)
        # On Windows SO_REUSEADDR would let another program take the port while the app answers on it.
        opened.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR), 1)
        try:
            opened.bind((host, number))
            opened.listen(128)
        except OSError as error:
            opened.close()
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            raise UsageError(f"cannot listen on {host} port {number}: {error.strerror or error}") from None
        else:
            return opened
    raise UsageError(f"ports {PORT} to {PORT + TRIED - 1} are all taken; name another with --port")


def address(opened: socket.socket, host: str) -> str:
    """Where the app answers."""
    shown = {"0.0.0.0": HOST, "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{opened.getsockname()[1]}/"


def make_server(application: ASGIApp) -> Any:
    """An HTTP server with limits on what its clients may hold."""
    allow_open_files(2 * MOST_CONNECTIONS)
    settings = uvicorn.Config(
        application, http=LimitedProtocol, ws="none", lifespan="off", log_level="error", server_header=False
    )
    return uvicorn.Server(settings)


def warm_up(site: Site) -> None:
    """Make ready what the first page needs."""
    compile_templates()
    with contextlib.suppress(R2MedError):  # what goes wrong here goes wrong again on a page, which can say so
        site.warm()


def serve(
    application: ASGIApp,
    *,
    host: str = "",
    port: int | None = None,
    browser: bool = True,
    fragment: str = "",
    announce: Callable[[str], None] = lambda where: None,
    warm: Callable[[], None] = lambda: None,
) -> None:
    """Serve until interrupted; the browser is sent to the address with the `fragment`."""
    server = make_server(application)
    with contextlib.closing(listen(host or HOST, port)) as opened:
        where = address(opened, host or HOST)
        threading.Thread(target=warm, name="warm-up", daemon=True).start()
        announce(where)
        if browser:
            threading.Timer(0.5, webbrowser.open, [where + fragment]).start()
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[opened])
