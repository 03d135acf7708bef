"""The loopback hub with its writing side: creating repositories, uploading large files and committing.

These are the calls that the real client makes (without Xet). Faults are set on the server and happen once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from tests.hub_server import Failure, Handler, Hub, Repository, Request, etag
from tests.serving import in_background

LARGE = (".parquet", ".gz")


class WritableHub(Hub):
    """Repositories that appear below `root`; `writers` says whose token may write to which organisation."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.RequestHandlerClass = WritingHandler
        self.root = root
        self.writers: dict[str, str] = {}
        self.private: set[str] = set()
        self.large: dict[str, bytes] = {}
        self.drop_next: str = ""
        self.hang: str = ""
        """Requests whose path holds this are never answered."""
        self.hanging, self.closing = threading.Event(), threading.Event()
        self.commits: list[dict[str, Any]] = []

    def drop(self, part: str) -> bool:
        """Whether this request's connection breaks, this one time."""
        if self.drop_next and self.drop_next in part:
            self.drop_next = ""
            return True
        return False


class WritingHandler(Handler):
    """Answers POST and PUT as the hub does."""

    server: WritableHub

    REPO = re.compile(r"/api/datasets/([^/]+/[^/]+)")
    PREUPLOAD = re.compile(r"/api/datasets/([^/]+/[^/]+)/preupload/([^/]+)")
    COMMIT = re.compile(r"/api/datasets/([^/]+/[^/]+)/commit/([^/]+)")
    PATHS = re.compile(r"/api/datasets/([^/]+/[^/]+)/paths-info/([^/]+)")
    TREE = re.compile(r"/api/datasets/([^/]+/[^/]+)/tree/([^/]+)(?:/(.+))?")
    BATCH = re.compile(r"/datasets/([^/]+/[^/]+)\.git/info/lfs/objects/batch")

    def do_POST(self) -> None:  # noqa: N802 (the base class's name)
        self._write()

    def do_PUT(self) -> None:  # noqa: N802
        self._write()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if (match := self.REPO.fullmatch(path)) and match[1] in self.server.datasets:
            self.server.note(Request(self.command, path, self.headers.get("Authorization"), None))
            repository = self.server.datasets[match[1]]
            self._json({"id": match[1], "sha": repository.commit, "private": match[1] in self.server.private})
        elif (match := self.TREE.fullmatch(path)) and match[3] and match[1] in self.server.datasets:
            self.server.note(Request(self.command, path, self.headers.get("Authorization"), None))
            files = self.server.datasets[match[1]].files()
            self._json([_listed(p, f) for p, f in files.items() if p.startswith(f"{match[3]}/")])
        else:
            super()._answer()

    def _write(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.note(Request(self.command, path, self.headers.get("Authorization"), None))
        body = self._body()
        if self.server.hang and self.server.hang in path:
            self.server.hanging.set()
            self.server.closing.wait()
        if self.server.drop(path):
            self.close_connection = True
            self.connection.close()
            return
        self._status = 200
        try:
            self._json(self._written(path, body), self._status)
        except Failure as failure:
            self._send(
                json.dumps({"error": str(failure)}).encode(),
                status=failure.status,
                headers={"X-Error-Code": failure.code, "X-Error-Message": str(failure)},
            )

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().strip(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _written(self, path: str, body: bytes) -> object:
        if (match := self.PATHS.fullmatch(path)) and match[1] in self.server.datasets:
            return self._look_up(match[1], body)
        if path.startswith("/large/"):  # the store behind the hub: the link itself is the permission
            return self._store(path.removeprefix("/large/"), body)
        who = self._who()
        if path == "/api/repos/create":
            return self._create(json.loads(body), who)
        if path == "/api/validate-yaml":
            return self._check_card(json.loads(body)["content"])
        for route, act in ((self.PREUPLOAD, self._preupload), (self.COMMIT, self._commit), (self.BATCH, self._batch)):
            if match := route.fullmatch(path):
                name = match[1]
                if name not in self.server.datasets:
                    raise Failure(404, "RepoNotFound", "Repository not found")
                self._may_write(name, who)
                return act(name, body)
        raise Failure(404, "", f"no route {path}")

    def _look_up(self, name: str, body: bytes) -> object:
        asked = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode()).get("paths", [])
        files = self.server.datasets[name].files()
        folders = {str(parent) for path in files for parent in Path(path).parents if str(parent) != "."}
        found: list[object] = [_listed(path, files[path]) for path in asked if path in files]
        return found + [{"type": "directory", "path": path, "oid": "0" * 40} for path in asked if path in folders]

    def _who(self) -> str:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.server.writers:
            raise Failure(401, "", "Invalid credentials in Authorization header")
        return token

    def _may_write(self, name: str, token: str) -> None:
        if self.server.writers[token] != name.partition("/")[0]:
            raise Failure(403, "", f"You don't have the rights to write to {name}")

    def _create(self, asked: dict[str, Any], who: str) -> object:
        name = f"{asked['organization']}/{asked['name']}"
        self._may_write(name, who)
        url = {"url": f"{self.server.url}/datasets/{name}"}
        if name in self.server.datasets:
            self._status = 409
            return {"error": "You already created this dataset repo", **url}
        folder = self.server.root / name
        folder.mkdir(parents=True)
        self.server.datasets[name] = Repository(folder, hashlib.sha1(name.encode()).hexdigest())
        if asked.get("visibility") == "private" or asked.get("private"):
            self.server.private.add(name)
        return url

    def _check_card(self, content: str) -> object:
        try:
            header = yaml.safe_load(content.split("---")[1])
        except (yaml.YAMLError, IndexError) as error:
            raise Failure(400, "", f"Invalid metadata: {error}") from None
        if not isinstance(header, dict) or "license" not in header:
            raise Failure(400, "", "no license")
        return {"errors": [], "warnings": []}

    def _preupload(self, name: str, body: bytes) -> object:
        present = self.server.datasets[name].files()
        files = []
        for file in json.loads(body)["files"]:
            mode = "lfs" if file["path"].endswith(LARGE) else "regular"
            there = present.get(file["path"])
            oid = (hashlib.sha256(there.read_bytes()).hexdigest() if mode == "lfs" else etag(there)) if there else None
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return {"files": files}

    def _batch(self, name: str, body: bytes) -> object:
        objects = []
        for wanted in json.loads(body)["objects"]:
            answer: dict[str, Any] = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.server.large:
                answer["actions"] = {"upload": {"href": f"{self.server.url}/large/{wanted['oid']}", "header": {}}}
            objects.append(answer)
        return {"transfer": "basic", "objects": objects}

    def _store(self, oid: str, body: bytes) -> object:
        if hashlib.sha256(body).hexdigest() != oid:
            raise Failure(400, "", "the content is not what its name says")
        self.server.large[oid] = body
        return {}

    def _commit(self, name: str, body: bytes) -> object:
        repository = self.server.datasets[name]
        lines = [json.loads(line) for line in body.splitlines()]
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                continue
            if line["key"] not in ("file", "lfsFile"):
                raise Failure(400, "", f"cannot {line['key']}")
            large = line["key"] == "lfsFile"
            data = self.server.large[value["oid"]] if large else base64.b64decode(value["content"])
            path = repository.folder / value["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.server.commits.append({"repo": name, "files": len(lines) - 1, **lines[0]["value"]})
        commit = hashlib.sha1(body).hexdigest()
        self.server.datasets[name] = repository._replace(commit=commit)
        return {"commitUrl": f"{self.server.url}/datasets/{name}/commit/{commit}", "commitOid": commit}

    def _json(self, answer: object, status: int = 200) -> None:
        self._send(json.dumps(answer).encode(), status=status, headers={"Content-Type": "application/json"})


def _listed(path: str, file: Path) -> dict[str, object]:
    return {"type": "file", "path": path, "size": file.stat().st_size, "oid": etag(file)}


@contextmanager
def writable_hub(root: Path) -> Iterator[WritableHub]:
    """A hub that takes uploads until the block ends."""
    with in_background(WritableHub(root)) as hub:
        yield hub
