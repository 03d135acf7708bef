"""Starting the app: a free port, the browser, and a clean end."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterable
from typing import Any

from ...core import MissingExtra, R2MedError, UsageError
from .app import create_app
from .guard import Application
from .render import compile_templates
from .site import Site

HOST, PORT, TRIED = "127.0.0.1", 8642, 20


def listen(host: str, port: int | None) -> socket.socket:
    """A socket on the port asked for, or on the first free one from 8642 on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    wanted = range(PORT, PORT + TRIED) if port is None else [port]
    for number in wanted:
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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


def make_server(application: Application) -> Any:
    """An HTTP server with limits on what its clients may hold."""
    try:
        import uvicorn

        from .connections import LimitedProtocol, allow_connections
    except ImportError:
        raise MissingExtra("the web app", "view") from None
    allow_connections()
    settings = uvicorn.Config(
        application, http=LimitedProtocol, ws="none", lifespan="off", log_level="error", server_header=False
    )
    return uvicorn.Server(settings)


def serve(
    site: Site,
    *,
    host: str = "",
    allowed: Iterable[str] = (),
    port: int | None = None,
    browser: bool = True,
    announce: Callable[[str], None] = lambda where: None,
) -> None:
    """Serve until interrupted."""
    server = make_server(create_app(site, host=host, allowed=allowed))
    with contextlib.closing(listen(host or HOST, port)) as opened:
        where = address(opened, host or HOST)
        threading.Thread(target=_warm, args=[site], name="warm-up", daemon=True).start()
        announce(where)
        if browser:
            threading.Timer(0.5, webbrowser.open, [where]).start()
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[opened])


def _warm(site: Site) -> None:
    """What goes wrong here goes wrong again on a page, which can say so."""
    compile_templates()
    with contextlib.suppress(R2MedError):
        site.warm()
