"""The running app: whom it talks to, what it never does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from r2med.cli.report import command as report
from r2med.cli.view import command as view
from r2med.cli.view import weights
from r2med.core import R2MedError
from r2med.report.web.security import Guard
from r2med.report.web.server import listen
from r2med.results.progress import ProgressFile, read_progress
from tests.report.conftest import Server

PAGES = ("/", "/board/mini", "/tradeoffs/mini", "/compare/mini", "/progress", "/task/mini/Biology", "/nothing")


def test_it_answers_with_a_strict_policy(server: Server) -> None:
    for path in (*PAGES, "/static/app.css", "/static/app.js", "/api/progress", "/table/mini?format=csv"):
        answer = server.get(path)
        assert answer.status == (404 if path == "/nothing" else 200), path
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        if path in PAGES:
            assert "<script>" not in answer.text
            assert " style=" not in answer.text
            assert " onclick=" not in answer.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1].evil", "a b"])
def test_other_hosts_are_refused(server: Server, host: str) -> None:
    answer = server.get("/", Host=host)
    assert answer.status in (400, 421)
    assert "Leaderboard" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1:9", "[::1]:80"])
def test_loopback_names_are_welcome(server: Server, host: str) -> None:
    assert server.get("/progress", Host=host).status == 200


def test_a_host_that_was_asked_for_is_welcome() -> None:
    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        return

    def welcome(host: str, named: str) -> bool:
        return Guard(nothing, host)._welcome({"headers": [(b"host", named.encode())]})

    assert welcome("192.168.0.7", "192.168.0.7:8642")
    assert not welcome("192.168.0.7", "evil.example")
    assert welcome("0.0.0.0", "my-machine.local:8642")
    assert welcome("fe80::1", "[fe80::1]:8642")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_there_is_nothing_to_send(server: Server, method: str) -> None:
    assert server.get("/", method=method).status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2f..%2fsite.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/task/..%2f..%2f/etc",
        "/board/..%2F..%2F..%2Fetc",
        "/system/mini/..%2F..%2Fbm25",
        "/document/mini/Biology/..%2F..%2Fetc%2Fpasswd",
        "/query/mini/..%2FBiology/x",
        "/board/%00",
        "/board/%ff%fe",
        "/query/mini/Biology/" + "x" * 9000,
        "/compare/mini?s=" + "y" * 9000,
        "/board/mini?measure=%00&sort=%3Cscript%3E",
    ],
)
def test_hostile_addresses_get_a_plain_no(server: Server, path: str) -> None:
    answer = server.get(path)
    assert answer.status in (400, 404)
    assert "root:" not in answer.text
    assert "def " not in answer.text
    assert "<script>" not in answer.text.replace('<script src="', "")
    assert "Traceback" not in answer.text


def test_progress_is_written_read_and_outlived(tmp_path: Path) -> None:
    assert read_progress(tmp_path) is None
    file = ProgressFile(tmp_path / "results")
    file.begin(3)
    file.step("bm25", "mini/Biology")
    state = read_progress(tmp_path / "results")
    assert state is not None
    assert state.running
    assert state.current is not None
    assert (state.current.system, state.current.task, state.done, state.total) == ("bm25", "mini/Biology", 0, 3)
    file.step("bm25", "mini/Biology", finished=True)
    file.end()
    state = read_progress(tmp_path / "results")
    assert state is not None
    assert not state.running
    assert state.current is None
    assert [(s.system, s.task) for s in state.finished] == [("bm25", "mini/Biology")]
    (tmp_path / "results" / ".progress.json").write_text("{")
    assert read_progress(tmp_path / "results") is None


def test_a_killed_run_does_not_look_alive(tmp_path: Path) -> None:
    code = "import sys, time; from r2med.results.progress import ProgressFile; p = ProgressFile(sys.argv[1])\n"
    code += "p.begin(2); p.step('a', 'b'); print('up', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    state = read_progress(tmp_path)
    assert state is not None
    assert state.running
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not state.running


def test_progress_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = ProgressFile(tmp_path / "file" / "inside")
    file.begin(1)
    file.step("a", "b")
    file.end()


def test_results_appear_while_a_run_goes_on(results: Path, tmp_path: Path, serve: Callable[..., Any]) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    with serve(folder) as server:
        assert "No results yet" in server.get("/").text
        file = ProgressFile(folder)
        file.begin(2)
        file.step("bm25", "mini/Biology")
        said = json.loads(server.get("/api/progress").text)
        assert said["running"]
        assert said["current"] == {"system": "bm25", "task": "mini/Biology"}
        assert "bm25" in server.get("/progress").text
        shutil.copytree(results / "bm25", folder / "bm25")
        file.step("bm25", "mini/Biology", finished=True)
        file.end()
        deadline = time.monotonic() + 10
        while "bm25" not in server.get("/board/mini?show=measured").text and time.monotonic() < deadline:
            time.sleep(0.2)
        assert "measured here" in server.get("/board/mini").text


@pytest.mark.parametrize(
    ("system", "count"),
    [
        ("bm25", 0),
        ("bm25:k1=1.2,b=0.75", 0),
        ("minilm", 22_713_216),
        ("bm25+minilm.rrf", 22_713_216),
        ("minilm:max_length=128+medcpt.weighted+msmarco-minilm@50", 22_713_216 + 109_482_240 + 33_360_385),
        ("hyde:gpt4+bm25", None),
        ("somebody/unknown", None),
    ],
)
def test_weights_come_from_the_cards(system: str, count: int | None) -> None:
    assert weights(system) == count


def test_a_taken_port_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(R2MedError, match=r"cannot listen on 127\.0\.0\.1 port"):
            listen("127.0.0.1", taken.getsockname()[1])


def test_interrupting_ends_it_well(results: Path) -> None:
    start = "from r2med.cli.view import command; command()"
    process = subprocess.Popen(
        [sys.executable, "-c", start, str(results), "--no-open", "--port", "0", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy(),
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(6)]
    assert json.loads("".join(lines))["url"].startswith("http://127.0.0.1:")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_bad_folders_are_one_line(tmp_path: Path) -> None:
    for command, arguments in ((view, ["nowhere"]), (report, ["nowhere", "--html", "x.html"])):
        with pytest.raises(R2MedError, match="no such folder of results"):
            CliRunner().invoke(command, arguments, catch_exceptions=False, standalone_mode=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(R2MedError, match="no results to report on"):
        CliRunner().invoke(
            report, [str(tmp_path / "empty"), "--html", str(tmp_path / "x.html")],
            catch_exceptions=False, standalone_mode=False,
        )  # fmt: skip
    assert not (tmp_path / "x.html").exists()
