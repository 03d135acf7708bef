"""A small Hugging Face hub on loopback: the part of its HTTP interface that the real client calls for datasets.

Repositories are folders of files. Faults are set on the server and happen once.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from tests.serving import in_background


class Request(NamedTuple):
    """One request as it came in."""

    method: str
    path: str
    authorization: str | None
    range: str | None


class Repository(NamedTuple):
    """A dataset at one commit."""

    folder: Path
    commit: str
    branches: tuple[str, ...] = ("main",)

    def files(self) -> dict[str, Path]:
        """Paths in the repository."""
        return {p.relative_to(self.folder).as_posix(): p for p in sorted(self.folder.rglob("*")) if p.is_file()}

    def knows(self, revision: str) -> bool:
        """Whether a branch or commit exists."""
        return revision in (self.commit, *self.branches)


class Failure(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Hub(ThreadingHTTPServer):
    """The server; `requests` is everything that was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.datasets: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.token: str | None = None
        self.break_after: dict[str, int] = {}
        self.replaced: dict[str, bytes] = {}
        """Content that is sent instead of a file's own; what is said of the file stays true."""
        self.outside: dict[str, bytes] = {}
        """Files of names that no repository can hold, in every listing."""
        self.honest_headers = True
        """Whether the headers of a replaced file still name the true content, as its metadata do."""
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """What HF_ENDPOINT should be."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, name: str, folder: Path, *, commit: str = "") -> Repository:
        """Serve the files of a folder as a dataset."""
        self.datasets[name] = Repository(folder, commit or hashlib.sha1(name.encode()).hexdigest())
        return self.datasets[name]

    def note(self, request: Request) -> None:
        """Remember a request."""
        with self._lock:
            self.requests.append(request)

    def contents(self) -> list[Request]:
        """The requests that fetched content of files."""
        return [r for r in self.requests if r.method == "GET" and "/resolve/" in r.path]

    def take_fault(self, path: str) -> int | None:
        """After how many bytes this file breaks off, this one time."""
        with self._lock:
            return self.break_after.pop(path, None)


class Handler(BaseHTTPRequestHandler):
    """Answers as the hub does."""

    protocol_version = "HTTP/1.1"
    server: Hub

    API = re.compile(r"/api/datasets/([^/]+/[^/]+)/(revision|tree)/([^/]+)")
    RESOLVE = re.compile(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        authorization = self.headers.get("Authorization")
        self.server.note(Request(self.command, path, authorization, self.headers.get("Range")))
        try:
            if self.server.token and authorization != f"Bearer {self.server.token}":
                raise Failure(401, "", "Invalid username or password.")  # noqa: TRY301
            if match := self.API.fullmatch(path):
                self._api(*match.groups())
            elif match := self.RESOLVE.fullmatch(path):
                self._resolve(*match.groups())
            else:
                raise Failure(404, "", f"no route {path}")  # noqa: TRY301
        except Failure as failure:
            self._send(
                json.dumps({"error": str(failure)}).encode(),
                status=failure.status,
                headers={"X-Error-Code": failure.code, "X-Error-Message": str(failure)},
            )

    def _repository(self, name: str, revision: str) -> Repository:
        repository = self.server.datasets.get(name)
        if repository is None:
            raise Failure(404, "RepoNotFound", "Repository not found")
        if not repository.knows(revision):
            raise Failure(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repository

    def _api(self, name: str, kind: str, revision: str) -> None:
        repository, outside = self._repository(name, revision), self.server.outside
        if kind == "revision":
            answer: object = {
                "id": name,
                "sha": repository.commit,
                "private": False,
                "gated": False,
                "tags": [],
                "siblings": [sibling(path, file) for path, file in repository.files().items()]
                + [{"rfilename": path, "size": len(data), "blobId": blob_id(data)} for path, data in outside.items()],
            }
        else:
            answer = [
                {"type": "file", "path": path, "size": file.stat().st_size, "oid": etag(file)}
                for path, file in repository.files().items()
            ] + [
                {"type": "file", "path": path, "size": len(data), "oid": blob_id(data)}
                for path, data in outside.items()
            ]
        self._send(json.dumps(answer).encode(), headers={"Content-Type": "application/json"})

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repository = self._repository(name, revision)
        file = repository.files().get(path)
        if file is None and path not in self.server.outside:
            raise Failure(404, "EntryNotFound", "Entry not found")
        data = self.server.outside.get(path) or self.server.replaced.get(path) or (file.read_bytes() if file else b"")
        named = etag(file) if file and self.server.honest_headers else blob_id(data)
        headers = {"ETag": f'"{named}"', "X-Repo-Commit": repository.commit, "Accept-Ranges": "bytes"}
        status = 200
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(match[1]), int(match[2] or len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            data, status = data[first : last + 1], 206
        keep = self.server.take_fault(path) if self.command == "GET" else None
        self._send(data, status=status, headers=headers, break_after=keep)

    def _send(
        self, body: bytes, *, status: int = 200, headers: dict[str, str] | None = None, break_after: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:break_after])
        if break_after is not None:
            self.wfile.flush()
            self.close_connection = True


def etag(file: Path) -> str:
    """How the hub calls a file's content: a large one (here: parquet) by its SHA-256, others as git does."""
    data = file.read_bytes()
    return hashlib.sha256(data).hexdigest() if file.suffix == ".parquet" else blob_id(data)


def blob_id(data: bytes) -> str:
    """The id of a blob, as git computes it."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sibling(path: str, file: Path) -> dict[str, object]:
    """What the hub says of a file."""
    size = file.stat().st_size
    stated: dict[str, object] = {"rfilename": path, "size": size, "blobId": etag(file)}
    if file.suffix == ".parquet":
        stated |= {"blobId": blob_id(b"a pointer"), "lfs": {"sha256": etag(file), "size": size, "pointerSize": 130}}
    return stated


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub that serves until the block ends."""
    with in_background(Hub()) as hub:
        yield hub
