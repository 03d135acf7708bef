"""Small judging projects, a real server in a process of its own, requests as a page sends them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import msgspec
import pytest

from r2med.core import Document, Query
from r2med.judge import Pooled, Project, Settings, create_project

WEB = ("browser", "desk", "hostile_passages", "kills", "server")
collect_ignore = [f"test_{name}.py" for name in WEB] if importlib.util.find_spec("uvicorn") is None else []

QUERIES = {
    "q1": "A man of 54 has crushing chest pain and an ST elevation. Which treatment comes first?",
    "q2": "Why does a child with sickle cell disease need penicillin?",
    "q3": "Which vitamin is lacking in scurvy?",
}
PASSAGES = {
    "d1": "Reperfusion comes first. In myocardial infarction with ST elevation, open the artery within 90 minutes.",
    "d2": "Chest pain has many causes. Reflux and muscle strain are common. Most are harmless.",
    "d3": "Aspirin is given at once. It lowers mortality of infarction by a quarter.",
    "d4": "The spleen fails early in sickle cell disease. Pneumococcal sepsis follows; penicillin prevents it.",
    "d5": "Vitamin C is needed for collagen. Without it gums bleed and wounds stay open: scurvy.",
}
GRADES = ("no help", "background", "a step", "answers it")


def make_project(
    folder: Path,
    queries: Mapping[str, str] = QUERIES,
    passages: Mapping[str, str] = PASSAGES,
    *,
    pool: Sequence[tuple[str, str]] | None = None,
    titles: Mapping[str, str] | None = None,
    **settings: Any,
) -> Project:
    pairs = [(q, d) for q in queries for d in passages] if pool is None else pool
    return create_project(
        folder,
        Settings(
            name=settings.pop("name", "Small"),
            grades=settings.pop("grades", GRADES),
            depth=10,
            source="nowhere",
            corpus_fingerprint="0",
            documents=len(passages),
            **settings,
        ),
        queries=[Query(i, t) for i, t in queries.items()],
        passages=[Document(i, t, (titles or {}).get(i, "")) for i, t in passages.items()],
        pool=[Pooled(query_id=q, doc_id=d, systems={"hidden-system": n + 41}) for n, (q, d) in enumerate(pairs)],
        runs={},
    )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def data(self) -> Any:
        return json.loads(self.text)


class Client(NamedTuple):
    """A judge with an address, asking as the page does."""

    url: str
    pid: int = 0

    @property
    def base(self) -> str:
        return self.url.partition("/#")[0]

    @property
    def secret(self) -> dict[str, str]:
        return dict(part.split("=", 1) for part in self.url.partition("#")[2].split("&"))

    def headers(self) -> dict[str, str]:
        name = unquote(self.secret["judge"])
        return {"Authorization": f"Bearer {self.secret['token']}", "X-Judge": quote(name)}

    def ask(self, path: str, body: Any = None, *, method: str = "", **headers: str) -> Answer:
        """`headers` replace those that the page sends; an empty one is left out."""
        sent = self.headers()
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else msgspec.json.encode(body)
            sent |= {"Content-Type": "application/json", "Origin": self.base, "Sec-Fetch-Site": "same-origin"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        kept = {name: value for name, value in sent.items() if value}
        request = urllib.request.Request(
            f"{self.base}{path}", data=data, method=method or ("POST" if data is not None else "GET"), headers=kept
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), error.read().decode())

    def save(self, name: str, **fields: Any) -> Answer:
        return self.ask("/api/save", {"id": name, **fields})


@contextmanager
def serving(project: Path, *arguments: str, **process: Any) -> Iterator[dict[str, Client]]:
    """The real command; gives each judge's client."""
    command = [sys.executable, "-m", "r2med", "judge", "serve", str(project), "--no-open", "--port", "0", "--json"]
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy(),
        **process,
    ) as started:  # fmt: skip
        assert started.stdout is not None
        assert started.stderr is not None
        try:
            document, seen = "", False
            while not seen and (line := started.stdout.readline()):
                document += line
                seen = line.startswith("}") or line.rstrip().endswith("]}")
            assert document, started.stderr.read()
            yield {judge["name"]: Client(judge["url"], started.pid) for judge in json.loads(document)["judges"]}
        finally:
            started.terminate()
            started.wait(20)


@pytest.fixture
def serve() -> Callable[..., Any]:
    return serving
