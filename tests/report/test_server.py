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

from r2med.api.publish import facts_of
from r2med.cli.browse import report, view
from r2med.core import R2MedError
from r2med.pipeline.system import SystemSpec
from r2med.report.costs import models_of
from r2med.report.web.app import Guard
from r2med.report.web.server import listen
from r2med.results import SystemInfo
from r2med.results.schema import ProgressFile
from tests.report.conftest import Server

PAGES = ("/", "/board/mini@1", "/tradeoffs/mini@1", "/compare/mini@1", "/progress", "/task/mini@1/Biology", "/nothing")


def test_it_answers_with_a_strict_policy(server: Server) -> None:
    for path in (*PAGES, "/static/app.css", "/static/app.js", "/api/progress", "/table/mini@1?format=csv"):
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

    def welcome(host: str, named: str, *allowed: str) -> bool:
        return Guard(nothing, host, allowed)._welcome({"headers": [(b"host", named.encode())]})

    assert welcome("192.168.0.7", "192.168.0.7:8642")
    assert not welcome("192.168.0.7", "evil.example")
    assert welcome("fe80::1", "[fe80::1]:8642")
    assert welcome("", "results.example:1", "Results.example")
    assert not welcome("", "192.168.0.7")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_listening_everywhere_does_not_switch_the_check_off(host: str) -> None:
    """Any name was welcome, so a page of the web could have its own resolve to this machine."""

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        return

    guard = Guard(nothing, host, ["my-machine.local"])

    def welcome(named: str) -> bool:
        return guard._welcome({"headers": [(b"host", named.encode())]})

    own = socket.gethostname()
    for named in (
        "192.168.0.7:8642",
        "[fe80::1]:8642",
        "127.0.0.1",
        "localhost",
        own,
        f"{own}.local:80",
        "My-Machine.local",
    ):
        assert welcome(named), named
    for named in ("evil.example", "evil.example:8642", "192.168.0.7.evil.example", "0x7f.1", ""):
        assert not welcome(named), named


def test_a_running_app_answers_to_names_that_were_allowed(results: Path, serve: Callable[..., Any]) -> None:
    with serve(results, "--host", "0.0.0.0", "--allow-host", "results.example") as server:
        assert server.get("/progress", Host="results.example:80").status == 200
        refused = server.get("/progress", Host="evil.example")
        assert refused.status == 421
        assert "--allow-host" in refused.text


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
        "/system/mini@1/..%2F..%2Fbm25",
        "/document/mini@1/Biology/..%2F..%2Fetc%2Fpasswd",
        "/query/mini@1/..%2FBiology/x",
        "/board/%00",
        "/board/%ff%fe",
        "/query/mini@1/Biology/" + "x" * 9000,
        "/compare/mini@1?s=" + "y" * 9000,
        "/board/mini@1?measure=%00&sort=%3Cscript%3E",
    ],
)
def test_hostile_addresses_get_a_plain_no(server: Server, path: str) -> None:
    answer = server.get(path)
    assert answer.status in (400, 404)
    assert "root:" not in answer.text
    assert "def " not in answer.text
    assert "<script>" not in answer.text.replace('<script src="', "")
    assert "Traceback" not in answer.text


def test_results_appear_while_a_run_goes_on(results: Path, tmp_path: Path, serve: Callable[..., Any]) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    with serve(folder) as server:
        assert "No results yet" in server.get("/").text
        file = ProgressFile(folder)
        file.begin(2)
        file.step("bm25", "mini@1/Biology")
        said = json.loads(server.get("/api/progress").text)
        assert said["running"]
        assert said["current"] == {"system": "bm25", "task": "mini@1/Biology"}
        assert "bm25" in server.get("/progress").text
        shutil.copytree(results / "bm25", folder / "bm25")
        file.step("bm25", "mini@1/Biology", finished=True)
        file.end()
        deadline = time.monotonic() + 10
        while "bm25" not in server.get("/board/mini@1?show=measured").text and time.monotonic() < deadline:
            time.sleep(0.2)
        assert "measured here" in server.get("/board/mini@1").text


@pytest.mark.parametrize(
    ("parts", "count"),
    [
        (["bm25"], 0),
        (["minilm"], 22_713_216),
        (["bm25", "minilm"], 22_713_216),
        (["minilm", "medcpt", "msmarco-minilm"], 22_713_216 + 109_482_240 + 33_360_385),
        (["bm25", "rm3", "minilm", "vector-average"], 22_713_216),
        (["bm25", "bge-small", "neighbours"], 33_400_000),
        (["bm25", "maxsim"], 33_400_000),
        (["bm25", "hyde"], None),
        (["somebody/unknown"], None),
    ],
)
def test_weights_come_from_the_cards(parts: list[str], count: int | None) -> None:
    assert facts_of(parts).parameters == count


def test_licences_come_from_the_cards_too() -> None:
    assert facts_of(["bm25"]).terms == "none"
    assert facts_of(["bm25", "bge-small", "neighbours"])[2:4] == ("MIT", "open")
    assert facts_of(["bge-small", "gpt4"]).terms == "proprietary"
    assert facts_of(["bge-small", "somebody/unknown"])[2:4] == ("", "unknown")


def test_the_parts_of_a_system_are_those_of_its_spec() -> None:
    spec = SystemSpec.parse("hyde:gpt4+minilm:max_length=128+medcpt.rrf+msmarco-minilm@50")
    info = SystemInfo(name="a name that says nothing", kind="reranked", description={}, spec=spec.data())
    assert models_of(info) == ["minilm", "medcpt", "gpt4", "msmarco-minilm"]
    spec = SystemSpec.parse("hyde:openai:served+bm25+minilm.rrf+maxsim:model=minilm@50")
    info = SystemInfo(name="a name that says nothing", kind="reranked", description={}, spec=spec.data())
    assert models_of(info) == ["bm25", "minilm", "served"]
    assert models_of(SystemInfo(name="minilm", kind="dense", description={})) == ["minilm"]
    searching = SystemSpec.parse("lamer:gpt4,retriever=e5:max_length=64+bm25")
    info = SystemInfo(name=str(searching), kind="expanded", description={}, spec=searching.data())
    assert models_of(info) == ["bm25", "gpt4", "e5"]  # what an expander searches with was left out


def test_a_taken_port_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(R2MedError, match=r"cannot listen on 127\.0\.0\.1 port"):
            listen("127.0.0.1", taken.getsockname()[1])


def test_interrupting_ends_it_well(results: Path) -> None:
    start = "from r2med.cli.browse import view; view()"
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
