"""A small Hugging Face hub on loopback: enough of its API for the real client to download a model."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from tests.serving import in_background

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 64
# Bytes from which a file counts as large and is named by its SHA-256, as the hub does.


def etag(data: bytes) -> str:
    if len(data) >= LARGE:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()


def listed(data: bytes) -> dict[str, object]:
    """What the hub's list says of a file."""
    lfs = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return {"size": len(data), "blobId": etag(data)[:40], **({"lfs": lfs} if len(data) >= LARGE else {})}


class Hub(ThreadingHTTPServer):
    """Models by id, each a dict of files at one commit."""

    daemon_threads = True

    def __init__(self, models: dict[str, dict[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.models = models
        self.requests: list[str] = []
        self.gated = False
        self.lists_hashes = True
        self.served: dict[str, bytes] = {}
        # Contents that are sent instead of those the list names.
        self.etags: dict[str, str] = {}
        # What files are called instead of their hash.
        self.elsewhere = ""
        # The server that large files are fetched from, where the hub has one of its own for them.
        self.slow = ""
        # A file, or `api` for the list, that comes a byte at a time and never ends.
        self.spaces = 0
        # Megabytes of spaces before the list, packed where `packed`.
        self.packed = False
        self.dripping, self.closing = threading.Event(), threading.Event()
        self.prefix = ""
        # `datasets/` where what is served are datasets.
        self.tokens: list[str] = []
        # What each request was authorized with.

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that give up are part of the game."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Answers model info, file trees and files."""

    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path).lstrip("/")
        self.server.requests.append(f"{self.command} {path}")
        self.server.tokens.append(self.headers.get("Authorization", ""))
        if self.server.gated:
            self._send(403, b"{}", {"X-Error-Code": "GatedRepo"})
            return
        prefix = self.server.prefix
        for model, files in self.server.models.items():
            api, resolve = f"api/{prefix or 'models/'}{model}", f"{prefix}{model}/resolve/"
            if path.startswith(api):
                self._api(path.removeprefix(api).strip("/").split("/"), model, files)
                return
            if path.startswith(resolve):
                self._file(path.removeprefix(resolve).partition("/")[2], files)
                return
        self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def _api(self, rest: list[str], model: str, files: dict[str, bytes]) -> None:
        if len(rest) > 1 and rest[1] not in ("main", COMMIT) and not self.server.prefix:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif rest[0] == "tree":
            tree = [{"type": "file", "path": n, "size": len(d), "oid": etag(d)} for n, d in files.items()]
            self._send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"})
        else:
            siblings = [{"rfilename": n, **(listed(d) if self.server.lists_hashes else {})} for n, d in files.items()]
            info = {"id": model, "modelId": model, "sha": COMMIT, "siblings": siblings}
            self._list(json.dumps(info).encode())

    def _list(self, content: bytes) -> None:
        kind = {"Content-Type": "application/json"}
        if self.server.slow == "api":
            self._drip(kind)
            return
        content = b" " * (self.server.spaces << 20) + content
        if self.server.packed:
            self._send(200, gzip.compress(content, 1), {**kind, "Content-Encoding": "gzip"})
        else:
            self._send(200, content, kind)

    def _drip(self, headers: dict[str, str]) -> None:
        self.send_response(200)
        for key, value in {**headers, "Content-Length": str(1 << 30)}.items():
            self.send_header(key, value)
        self.end_headers()
        self.server.dripping.set()
        with suppress(OSError):
            while not self.server.closing.wait(0.05):
                self.wfile.write(b" ")
        self.close_connection = True

    def _file(self, name: str, files: dict[str, bytes]) -> None:
        if name not in files:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        data = self.server.served.get(name, files[name])
        if self.server.slow == name and self.command == "GET":
            self._drip({"ETag": f'"{etag(data)}"', "X-Repo-Commit": COMMIT})
            return
        if self.server.elsewhere and len(data) >= LARGE:
            linked = {"X-Linked-Etag": f'"{etag(data)}"', "X-Linked-Size": str(len(data)), "X-Repo-Commit": COMMIT}
            self._send(302, b"", {"Location": f"{self.server.elsewhere}{self.path}", **linked})
            return
        self._send(200, data, {"ETag": f'"{self.server.etags.get(name, etag(data))}"', "X-Repo-Commit": COMMIT})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@contextmanager
def serving(models: dict[str, dict[str, bytes]]) -> Iterator[Hub]:
    """A running hub."""
    with in_background(Hub(models)) as hub:
        yield hub
