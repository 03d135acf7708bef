"""The judging server with 500 queries × 60 passages: CPU of the server per page and per judgment saved.

Texts are made up, the server is real: a process of its own, asked over loopback as the page asks it. Half of the
judgments are there when it starts. Waiting for the disk costs no CPU; it is measured apart, and depends on the disk.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import english_like, report

from r2med.core import Document, Query
from r2med.judge import Entry, Pooled, Settings, create_project
from r2med.judge.journal import now
from r2med.judge.server import OWN, SHARED

QUERIES, PASSAGES, STARTS, SAVES = 500, 60, 3, 200


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        make(root)
        sys.exit(0 if measure(root) else 1)


def make(root: Path) -> None:
    """A project and the first half of a judge's work."""
    rng = np.random.default_rng(0)
    texts = english_like(rng, 20_000, 220)
    queries = [Query(f"q{i:03d}", " ".join(texts[i].split()[:60])) for i in range(QUERIES)]
    drawn = [rng.choice(len(texts), PASSAGES, replace=False) for _ in queries]
    used = sorted({int(d) for of_query in drawn for d in of_query})
    pool = [
        Pooled(query_id=query.id, doc_id=f"d{d:05d}", systems={"bm25": rank + 1})
        for query, docs in zip(queries, drawn, strict=True)
        for rank, d in enumerate(docs)
    ]
    project = create_project(
        root,
        Settings(name="Speed", depth=20, source="made up", corpus_fingerprint="0", documents=len(texts)),
        queries=queries,
        passages=[Document(f"d{d:05d}", texts[d], f"Title of {d}") for d in used],
        pool=pool,
        runs={},
    )
    half = pool[: len(pool) // 2]
    journal = project.journal("Ada")
    journal.append(
        Entry(id=f"entry-{n:06d}", at=now(), query_id=p.query_id, doc_id=p.doc_id, grade=n % 4, reason="a short reason")
        for n, p in enumerate(half)
    )
    journal.close()


class Asked:
    """A server that was started, asked as the page asks it."""

    def __init__(self, root: Path) -> None:
        options = ["--judge", "Ada", "--no-open", "--port", "0"]
        command = [sys.executable, "-m", "r2med", "judge", "serve", str(root), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        address = self.process.stdout.readline().strip()
        self.base, _, fragment = address.partition("/#")
        token = dict(part.split("=") for part in fragment.split("&"))["token"]
        self.headers = {"Authorization": f"Bearer {token}", "X-Judge": "Ada", "Origin": self.base}
        before = -1.0
        while self.cpu() - before > 0.01:  # what is made ready in the background
            before = self.cpu()
            time.sleep(0.5)

    def cpu(self) -> float:
        """Seconds of CPU of all threads."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(path.read_text().split()[0]) for path in tasks) / 1e9

    def get(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = self.headers | ({"Content-Type": "application/json"} if body is not None else {})
        request = urllib.request.Request(self.base + path, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def milliseconds(self, work: Callable[..., object], *given: object) -> float:
        """CPU of the server while something is asked of it."""
        before = self.cpu()
        work(*given)
        return 1000 * (self.cpu() - before)

    def page(self, number: int) -> float:
        """All that a browser asks for when the page is opened."""
        static = [f"/static/{name}" for name in (*OWN, *SHARED) if name != "judge.html"]
        paths = ["/", *static, "/api/project", f"/api/query/{number}"]
        return self.milliseconds(lambda: [self.get(path) for path in paths])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def measure(root: Path) -> bool:
    first, later, started = [], [], []
    for _ in range(STARTS):
        server = Asked(root)
        started.append(server.cpu())
        first.append(server.page(QUERIES // 2))
        later += [server.milliseconds(server.get, f"/api/query/{n}") for n in range(300, 320)]
        server.stop()
    server = Asked(root)
    page = json.loads(server.get("/api/query/400"))
    documents = [passage["doc_id"] for passage in page["passages"]]
    replaced: dict[str, str] = {}

    def save(number: int) -> None:
        doc_id, name = documents[number % len(documents)], f"saved-{number:06d}"
        entry = {"id": name, "query_id": page["query_id"], "doc_id": doc_id, "grade": number % 4, "seconds": 3.5}
        server.get("/api/save", entry | {"replaces": replaced.get(doc_id, ""), "reason": "a reason of usual length"})
        replaced[doc_id] = name

    begun = time.perf_counter()
    saves = [server.milliseconds(save, n) for n in range(SAVES)]
    wall = 1000 * (time.perf_counter() - begun) / SAVES
    server.stop()
    print(f"     ready after {statistics.median(started):.2f} s of CPU")
    print(f"     one query of 60 passages: {statistics.median(later):.1f} ms of server CPU")
    print(f"     from click to answer: {wall:.1f} ms a judgment, of which the disk: {fsync(root):.2f} ms")
    met = [
        report("first page after a start, ms of server CPU", statistics.median(first), 100, at_least=False),
        report("saving a judgment, ms of server CPU", statistics.median(saves), 20, at_least=False),
    ]
    return all(met)


def fsync(root: Path) -> float:
    """Milliseconds to put a short line on this disk."""
    times = []
    with (root / "line").open("ab", buffering=0) as stream:
        for _ in range(50):
            stream.write(b"x" * 200)
            begun = time.perf_counter()
            os.fsync(stream.fileno())
            times.append(1000 * (time.perf_counter() - begun))
    return statistics.median(times)


if __name__ == "__main__":
    main()
