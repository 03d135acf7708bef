"""A real HTTP server on loopback that embeds by hashing, and misbehaves as told."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from tests.serving import in_background

DIMENSION = 8
LIMIT = 50  # tokens: words of a text


def vector(text: str) -> list[float]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
    return [float(v) for v in np.random.default_rng(seed).standard_normal(DIMENSION)]


class Server(ThreadingHTTPServer):
    """Keeps what it was asked; takes the next misbehaviour from `script` before each answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[str] = []
        self.limit = LIMIT
        self.usage: str | None = None
        # JSON to say instead of the tokens that were counted.
        self.bodies: list[dict[str, Any]] = []
        self.headers_seen: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.times: list[float] = []
        self.at_once = self.most_at_once = 0
        self.together = 0
        # Nothing is answered before so many requests were there at once.
        self.closing = threading.Event()
        self.lock = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with server.lock:
            server.bodies.append(body)
            server.paths.append(self.path)
            server.times.append(time.monotonic())
            server.headers_seen.append({k.lower(): v for k, v in self.headers.items()})
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
            trouble = server.script.pop(0) if server.script else ""
            server.lock.notify_all()
            server.lock.wait_for(lambda: server.closing.is_set() or server.most_at_once >= server.together)
        try:
            self.answer(body, trouble)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            with server.lock:
                server.at_once -= 1

    def answer(self, body: dict[str, Any], trouble: str) -> None:  # noqa: C901 - a list of troubles
        texts = body["input"]
        if trouble.startswith("429"):
            self.reply(429, {"error": {"message": "slow down"}}, {"Retry-After": trouble.partition(" ")[2] or "0.05"})
        elif trouble == "500":
            self.reply(500, {"error": "oops"})
        elif trouble == "hang":
            self.server.closing.wait(60)
            self.close_connection = True
        elif trouble == "html":
            self.reply(200, "<html>Welcome to the hotel</html>", {"Content-Type": "text/html"})
        elif trouble == "401":
            self.reply(401, {"error": {"message": f"bad key {self.headers['authorization']}"}})
        elif trouble == "400":
            self.reply(400, {"error": {"message": f"no such model; key {self.headers['authorization']}"}})
        elif trouble == "count":
            self.good(texts[:-1])
        elif trouble == "nan":
            self.reply(200, '{"data": [' + ", ".join(['{"index": 0, "embedding": [NaN]}'] * len(texts)) + "]}")
        elif trouble == "null":
            self.reply(200, {"data": [{"index": i, "embedding": [None] * DIMENSION} for i in range(len(texts))]})
        elif any(len(t.split()) > self.server.limit for t in texts):
            self.reply(
                400, {"error": {"message": f"This model's maximum context length is {self.server.limit} tokens"}}
            )
        else:
            self.good(texts)

    def good(self, texts: list[str]) -> None:
        data = [{"index": i, "embedding": vector(t)} for i, t in enumerate(texts)]
        usage: Any = {"total_tokens": sum(len(t.split()) for t in texts)}
        if self.server.usage is not None:
            usage = json.loads(self.server.usage)
        self.reply(200, {"data": data[::-1], "usage": usage})

    def reply(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serving() -> Iterator[Server]:
    with in_background(Server()) as server:
        try:
            yield server
        finally:
            server.closing.set()
            with server.lock:
                server.lock.notify_all()
