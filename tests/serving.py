"""Real servers on loopback, for as long as a block lasts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from typing import TypeVar

Server = TypeVar("Server", bound=BaseServer)


@contextmanager
def in_background(server: Server) -> Iterator[Server]:
    """Serve from a thread; a server that has something to let go of first has a `closing` event."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        if isinstance(closing := getattr(server, "closing", None), threading.Event):
            closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
