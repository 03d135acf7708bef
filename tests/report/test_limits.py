"""The app under load and attack: half-sent requests, too many connections, answers nobody takes, huge tasks."""

from __future__ import annotations

import resource
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from r2med.core import Document, Documents, IdTable, Qrels, Query, Run, Task
from r2med.pipeline.stages import task_info
from r2med.report.web import server as connections
from r2med.report.web.app import create_app, respond
from r2med.report.web.render import PageRequest
from r2med.report.web.server import listen, make_server
from r2med.report.web.site import Site
from r2med.results import SCHEMA, ResultStore, SystemInfo, TaskResult
from r2med.scoring import STANDARD, Evaluation
from r2med.scoring.evaluation import ByMeasure
from r2med.tasks import write_task

HALF = b"GET /progress HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
LONG = 30.0  # seconds: longer than any of this takes, on any machine


class Running(NamedTuple):
    port: int
    open: Callable[[], int]

    def connect(self, data: bytes = b"") -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=LONG)
        made.sendall(data)
        return made

    def get(self, path: str = "/progress") -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=LONG) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


@contextmanager
def running(site: Site, *, send_buffer: int = 0) -> Iterator[Running]:
    """The real server on loopback, in a thread, so that its limits can be set."""
    opened, server = listen("127.0.0.1", 0), make_server(create_app(site))
    if send_buffer:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    try:
        yield Running(opened.getsockname()[1], lambda: len(server.server_state.connections))
    finally:
        server.should_exit = True
        thread.join(LONG)
        opened.close()


@pytest.fixture
def site(results: Path) -> Site:
    return Site([results])


def closed(connection: socket.socket) -> bool:
    """Whether the server has closed a connection, or does so within the time-out."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + LONG
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


def test_half_a_request_does_not_keep_a_connection(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-sent requests never timed out; fifteen hundred of them stopped the app."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.5)
    with running(site) as server, ExitStack() as stack:
        waiting = [stack.enter_context(server.connect(data)) for data in (b"", b"G", HALF, HALF + b"y" * 2000)]
        assert server.get() == 200
        assert all(closed(connection) for connection in waiting)
        kept = stack.enter_context(server.connect(b"GET /progress HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        assert kept.recv(12) == b"HTTP/1.1 200"
        kept.sendall(HALF)  # a second request on the same connection, and only half of it
        while (data := kept.recv(1 << 16)) not in (b"",):
            assert data
        assert server.get() == 200


def test_a_client_that_sends_a_byte_now_and_then_is_not_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.5)
    with running(site) as server, server.connect(HALF) as slow:
        slow.settimeout(0.05)
        begun, over = time.monotonic(), False
        while not over and time.monotonic() - begun < LONG:
            try:
                slow.sendall(b"z")
                over = slow.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                over = True
        assert over


@pytest.mark.parametrize("requests", [1, 2, 60])
def test_an_answer_that_nobody_takes_does_not_keep_a_connection(
    site: Site, monkeypatch: pytest.MonkeyPatch, requests: int
) -> None:
    """Requests sent at once had no deadline from the second on, nor had an answer whose end waited in a buffer."""
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.5)
    page = b"GET /query/mini@1/Biology/Biology-q01 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running(site, send_buffer=4096) as server, ExitStack() as stack:
        deaf = stack.enter_context(socket.socket())
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # less than a page, on both sides
        deaf.connect(("127.0.0.1", server.port))
        deaf.sendall(page * requests)
        assert deaf.recv(1)  # the answer has begun, and no more of it is taken
        assert eventually(lambda: server.open() == 0)
        assert server.get() == 200


def test_too_many_connections_cost_the_oldest_idle_ones(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 40)
    monkeypatch.setattr(connections, "PATIENCE", 0.0)
    with running(site) as server, ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(server.connect(HALF))
        for _ in range(5):
            assert server.get() == 200
        assert eventually(lambda: server.open() <= 41)


def test_fifteen_hundred_half_requests_do_not_stop_the_app(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("this machine allows too few open files")
    monkeypatch.setattr(connections, "PATIENCE", 0.0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    try:
        with running(site) as server, ExitStack() as stack:
            for _ in range(1500):
                stack.enter_context(server.connect(HALF))
            assert server.get("/board/mini") == 200
            assert eventually(lambda: server.open() <= connections.MOST_CONNECTIONS + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_many_at_once_are_all_answered(site: Site) -> None:
    """A limit for idle connections takes nothing from those that ask for something."""
    with running(site) as server:
        statuses = list[int]()
        threads = [threading.Thread(target=lambda: statuses.append(server.get())) for _ in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert statuses == [200] * 100


QUERIES, DOCUMENTS = 200_000, 300


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task of 200,000 queries and the results of two systems on it; texts and scores are made up."""
    folder = tmp_path_factory.mktemp("large")
    ids = [f"q{i:06d}" for i in range(QUERIES)]
    rng = np.random.default_rng(0)
    relevant = rng.integers(0, DOCUMENTS, QUERIES).tolist()
    task = Task(
        "large",
        tuple(Query(i, f"fever number {i} and some more words") for i in ids),
        Documents.of(Document(f"d{i}", f"passage {i} about fever and cough") for i in range(DOCUMENTS)),
        Qrels.from_judgments((q, f"d{d}", 1) for q, d in zip(ids, relevant, strict=True)),
    )
    write_task(task, folder / "large", to="r2med")
    store = ResultStore(folder / "results")
    for name in ("one", "two"):
        docs = np.stack([rng.permutation(DOCUMENTS)[:5] for _ in range(1000)]).astype(np.int32)
        scores = np.tile(np.linspace(1, 0.5, 5, dtype=np.float32), (QUERIES, 1))
        run = Run(IdTable(ids), task.documents.ids, np.tile(docs, (QUERIES // 1000, 1)), scores, name=name)
        columns = ByMeasure({m: rng.random(QUERIES).round(3) for m in STANDARD[:12]})
        evaluation = Evaluation(task.qrels.query_ids, columns, (), 0, {})
        result = TaskResult(
            schema=SCHEMA, fingerprint="0" * 32, system=SystemInfo(name=name, kind="dense", description={}),
            task=task_info(task), measures=evaluation.means.by_key(), depth=5, missing_queries=0,
            queries_without_positives=0, seconds={"retrieve": 1.0},
        )  # fmt: skip
        store.write(result, run, evaluation)
    return folder


@pytest.mark.slow
def test_a_task_of_two_hundred_thousand_queries(large: Path) -> None:
    """An unknown query took twelve seconds and the task page hours: the run was scanned for every query."""
    site = Site([large / "results"], task_folders=[large / "large"])
    site.wait = None  # until intervals, comparisons and facts are there, as in a server that has been up for a while
    paths = {
        "board": "/board/own",
        "trade-offs": "/tradeoffs/own",
        "task": "/task/own/large",
        "further down": "/task/own/large?from=150000",
        "query": "/query/own/large/q123456",
        "by difference": "/query/own/large/q000001?order=diff&scope=all",
        "no such query": "/query/own/large/q9999999",
        "nothing like it": "/query/own/large/" + "x" * 500,
        "compare": "/compare/own",
        "everything": "/compare/own?show=all",
        "system": "/system/own/one",
        "document": "/document/own/large/d7?query=q000007",
    }
    answers = {}
    for path in paths.values():
        respond(site, PageRequest.from_url(path))
    site.wait = 0.25
    for name, path in paths.items():
        begun = time.process_time()
        answer = respond(site, PageRequest.from_url(path))
        answers[name] = time.process_time() - begun
        assert answer.status_code == (404 if "no" in name.split()[0] else 200), (name, answer.body[-300:])
        assert len(answer.body) < 3_000_000
    text = bytes(respond(site, PageRequest.from_url(paths["no such query"])).body).decode()
    assert "did you mean q9" in text or "unknown query" in text
    assert max(answers.values()) < 0.5, answers
