"""The real judging server: whom it answers, what it refuses, and what it says then."""

from __future__ import annotations

import http.client
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from r2med.cli.judge import serve as command
from r2med.core import R2MedError
from r2med.judge import Project, open_project
from r2med.judge.server import OWN, JudgingApp
from r2med.report.web.app import MOST_BYTES
from tests.faults.mounts import tmpfs
from tests.judge.conftest import Client, make_project, serving

ENTRY = {"query_id": "q1", "doc_id": "d1", "grade": 2}
PATHS = ("/api/project", "/api/query/0", "/api/query/0/0?from=0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("served") / "project").folder


@pytest.fixture(scope="module")
def judges(folder: Path) -> Iterator[dict[str, Client]]:
    with serving(folder, "--judge", "Ada", "--judge", "Bo Ö", "--adjudicator", "Cy") as clients:
        yield clients


@pytest.fixture
def ada(judges: dict[str, Client]) -> Client:
    return judges["Ada"]


def entries(folder: Path) -> int:
    return sum(len(list(journal.entries())) for journal in open_project(folder).journals())


def test_every_answer_has_a_strict_policy(ada: Client) -> None:
    for path in ("/", "/nothing", *(f"/static/{name}" for name in OWN), *PATHS):
        answer = ada.ask(path)
        assert answer.status == (404 if path == "/nothing" else 200), path
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "unsafe" not in answer.headers["content-security-policy"]
        if path.startswith("/api"):
            assert answer.headers["cache-control"] == "no-store"
    page = ada.ask("/").text
    assert "<script>" not in page
    assert " style=" not in page
    assert " onclick=" not in page


def test_a_judgment_is_on_disk_when_it_is_answered(ada: Client, folder: Path) -> None:
    answer = ada.save("on-disk-1", **ENTRY | {"doc_id": "d5"})
    assert answer.status == 200
    assert answer.data["saved"]["grade"] == 2
    (journal,) = [j for j in open_project(folder).journals() if j.header.judge == "Ada"]
    assert journal.grades()["q1", "d5"] == 2
    assert ada.save("on-disk-1", **ENTRY | {"doc_id": "d5"}).data == answer.data
    conflict = ada.save("on-disk-2", **ENTRY | {"doc_id": "d5", "grade": 0})
    assert conflict.status == 409
    assert conflict.data["current"]["id"] == "on-disk-1"
    assert ada.save("on-disk-2", **ENTRY | {"doc_id": "d5", "grade": 0, "replaces": "on-disk-1"}).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": ""}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "none"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content_Type": "multipart/form-data; boundary=application/json"}, 415),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"X_Judge": ""}, 401),
        ({"X_Judge": "nobody"}, 401),
        ({"X_Judge": "%00"}, 401),
    ],
)
def test_writes_that_are_refused(ada: Client, folder: Path, headers: dict[str, str], status: int) -> None:
    before = entries(folder)
    answer = ada.ask("/api/save", {"id": "refused-1", **ENTRY}, **headers)
    assert answer.status == status
    said = answer.text if status == 421 else answer.data["error"]
    assert said.strip().endswith(".")
    assert "Traceback" not in said
    assert entries(folder) == before


@pytest.mark.parametrize("path", PATHS)
def test_reads_need_the_judges_own_token(judges: dict[str, Client], path: str) -> None:
    ada, bo = judges["Ada"], judges["Bo Ö"]
    assert ada.ask(path).status == bo.ask(path).status == 200
    assert ada.ask(path, Authorization="").status == 401
    assert ada.ask(path, X_Judge=bo.headers()["X-Judge"]).status == 401
    assert ada.ask(path, Authorization=bo.headers()["Authorization"]).status == 401
    assert ada.ask(path, Sec_Fetch_Site="cross-site").status == 403
    assert ada.ask(path, Host="evil.example").status == 421
    for refused in (ada.ask(path, Authorization=""), ada.ask(path, Sec_Fetch_Site="cross-site")):
        assert "Reperfusion" not in refused.text
        assert "access-control-allow-origin" not in {name.lower() for name in refused.headers}


def test_nobody_sees_another_judges_grades(judges: dict[str, Client]) -> None:
    secret = "a reason of Bo's that Ada must not read"
    assert judges["Bo Ö"].save("from-bo-1", **ENTRY, reason=secret).status == 200
    for name in ("Ada", "Cy"):
        for path in PATHS:
            assert secret not in judges[name].ask(path).text
    assert secret in judges["Bo Ö"].ask("/api/query/0").text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(ada: Client, method: str) -> None:
    assert ada.ask("/api/save", {"id": "refused-1", **ENTRY}, method=method).status == 405


@pytest.mark.parametrize("path", ["/", "/static/judge.js", "/api/project", "/api/query/0"])
def test_only_saving_takes_something(ada: Client, path: str) -> None:
    assert ada.ask(path, {"id": "refused-1", **ENTRY}).status in (404, 405)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"nonsense", b"\xff\xfe", b"[" * 100_000, b'{"id": "short"}', b'{"id": "../../etc/passwd"}',
        b'{"id": "line-break-1\\n"}',
        b'{"id": "unknown-field", "at": "1999", "query_id": "q1"}',
        b'{"id": "details-1", "query_id": "q1", "doc_id": "d1", "details": {"a": "b"}}',
        b'{"id": "grade-text", "query_id": "q1", "doc_id": "d1", "grade": "2"}',
        b'{"id": "grade-half", "query_id": "q1", "doc_id": "d1", "grade": 1.5}',
        b'{"id": "half-character", "query_id": "q1", "doc_id": "d1", "grade": 1, "reason": "\\ud800"}',
        b'{"id": "seconds-1", "query_id": "q1", "doc_id": "d1", "grade": 1, "seconds": -1}',
        b'{"id": "unknown-query", "query_id": "\\u0000", "doc_id": "d1", "grade": 1}',
    ],
)  # fmt: skip
def test_bodies_that_are_refused(ada: Client, folder: Path, body: bytes) -> None:
    before = entries(folder)
    answer = ada.ask("/api/save", body)
    assert answer.status == 400, answer
    assert "\n" not in answer.data["error"]
    assert entries(folder) == before


@pytest.mark.parametrize(
    "path",
    ["/api/query/3", "/api/query/-1", "/api/query/x", "/api/query/" + "9" * 50, "/api/query/0/99", "/api/query/0/0/0",
     "/api/", "/api/nothing", "/static/../server.py", "/static/..%2fserver.py", "/static/%00", "/static/", "//"],
)  # fmt: skip
def test_addresses_that_lead_nowhere(ada: Client, path: str) -> None:
    answer = ada.ask(path)
    assert answer.status == 404
    assert answer.data["error"].endswith((".", ")")) or "unknown" in answer.data["error"]


def raw(client: Client, headers: dict[str, str], parts: list[bytes]) -> tuple[int, str]:
    where = urlsplit(client.base)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    connection.putrequest("POST", "/api/save")
    own = {**client.headers(), "Origin": client.base, "Content-Type": "application/json", **headers}
    for name, value in own.items():
        connection.putheader(name, value)
    connection.endheaders()
    for part in parts:
        connection.send(b"%x\r\n%s\r\n" % (len(part), part))
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_a_body_that_is_too_long_is_not_read(ada: Client) -> None:
    status, said = raw(ada, {"Content-Length": str(MOST_BYTES + 1)}, [])
    assert status == 413
    assert "At most" in said
    status, _ = raw(ada, {"Transfer-Encoding": "chunked"}, [b" " * (1 << 16)] * 17)
    assert status == 413
    assert ada.ask("/api/project").status == 200


def test_the_largest_entry_is_taken(ada: Client) -> None:
    reason = "because " * 12_000
    assert ada.save("large-entry", **ENTRY | {"doc_id": "d4"}, reason=reason).status == 200
    assert ada.save("larger-entry", **ENTRY | {"doc_id": "d3"}, reason=reason * 2).status == 400


def test_a_code_lets_in_once(project: Project) -> None:
    app = JudgingApp(project, ["Ada"])
    fragment = app.one_time_fragment("Ada")
    assert fragment.startswith("#code=")
    code = fragment.removeprefix("#code=")
    assert json.loads(app._enter(code).body) == {"judge": "Ada", "token": app.tokens["Ada"]}
    with pytest.raises(Exception, match="lets in once"):
        app._enter(code)


def test_a_code_is_asked_for_as_strictly(ada: Client) -> None:
    assert ada.ask("/api/enter", {"code": "guess"}).status == 401
    assert ada.ask("/api/enter", {"code": "guess"}, Origin="http://evil.example").status == 403
    assert ada.ask("/api/enter").status == 405


def test_tokens_are_long_differ_and_are_new_each_time(judges: dict[str, Client], project: Project) -> None:
    tokens = [client.secret["token"] for client in judges.values()]
    assert len(set(tokens)) == 3
    assert min(map(len, tokens)) >= 43
    assert JudgingApp(project, ["Ada"]).tokens != JudgingApp(project, ["Ada"]).tokens


def test_the_token_is_printed_in_addresses_and_nowhere_else(project: Project) -> None:
    arguments = ["judge", "serve", str(project.folder), "--judge", "Ada", "--judge", "Bo", "--no-open", "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "r2med", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        clients = [Client(process.stdout.readline().strip()) for _ in range(2)]
        for client in clients:
            assert client.save(f"printed-{client.secret['judge']}", **ENTRY).status == 200
            client.ask("/nothing")
            client.ask("/api/save", b"{")
        process.terminate()
        out, errors = process.communicate(timeout=20)
    for client in clients:
        assert client.url.startswith("http://127.0.0.1:")
        assert client.secret["token"] not in out + errors
        kept = [path.read_text("utf-8") for path in project.folder.rglob("*") if path.is_file()]
        assert not any(client.secret["token"] in text for text in kept)
    assert "Ada (person):" in errors


def test_a_team_needs_names(project: Project) -> None:
    done = CliRunner().invoke(command, [str(project.folder), "--host", "0.0.0.0", "--no-open"])
    assert isinstance(done.exception, R2MedError)
    assert "--judge" in str(done.exception)


@pytest.mark.parametrize(
    "names", [("--judge", "Ada", "--judge", "Ada"), ("--judge", "Ada", "--adjudicator", "Ada"), ("--judge", "a\nb")]
)
def test_names_that_cannot_be(project: Project, names: tuple[str, ...]) -> None:
    done = CliRunner().invoke(command, [str(project.folder), *names, "--no-open"])
    assert isinstance(done.exception, R2MedError)
    assert "\n" not in str(done.exception)


def test_on_all_addresses_other_names_stay_out(project: Project, serve: Callable[..., Any]) -> None:
    options = ("--judge", "Ada", "--host", "0.0.0.0", "--allow-host", "team.example")
    with serve(project.folder, *options) as clients:
        assert clients["Ada"].url.startswith("http://team.example:")  # the name that others use
        ada = Client(clients["Ada"].url.replace("team.example", "127.0.0.1"))
        assert ada.ask("/api/project", Host="team.example").status == 200
        assert ada.ask("/api/project", Host="evil.example").status == 421
        allowed = {"Host": "team.example", "Origin": "http://team.example"}
        assert ada.ask("/api/save", {"id": "allowed-1", **ENTRY}, **allowed).status == 200
        wrong = {"Host": "team.example", "Origin": "http://evil.example"}
        assert ada.ask("/api/save", {"id": "allowed-2", **ENTRY}, **wrong).status == 403


def test_alone_the_judge_is_the_user(project: Project, serve: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setenv("LOGNAME", "someone")
    with serve(project.folder) as clients:
        assert list(clients) == ["someone"]


def full(client: Client, start: int = 0) -> int:
    """Save until the disk is full; gives how many judgments were acknowledged."""
    for number in range(start, start + 200):
        answer = client.save(f"filling-{number}", query_id=f"q{number}", doc_id="d1", grade=1, reason="x" * 5_000)
        if answer.status != 200:
            assert answer.status == 507
            assert "cannot be written" in answer.data["error"]
            return number
    raise AssertionError("the disk never was full")


def many_queries(folder: Path) -> Project:
    return make_project(folder, {f"q{i}": f"query {i}" for i in range(200)}, {"d1": "a passage"})


def test_a_full_disk_is_said_and_what_was_saved_stays(tmp_path: Path, serve: Callable[..., Any]) -> None:
    with tmpfs(tmp_path / "small", "256k") as disk:
        project = many_queries(tmp_path / "small" / "project")
        with serve(project.folder, "--judge", "Ada") as clients:
            count = full(clients["Ada"])
            assert len(project.journal("Ada").grades()) == count
            disk.remount("size=8m")
            again = {"query_id": f"q{count}", "doc_id": "d1", "grade": 1, "reason": "x" * 5_000}
            assert clients["Ada"].save(f"filling-{count}", **again).status == 200
        assert len(project.journal("Ada").grades()) == count + 1
        lines = project.journal_path("Ada").read_bytes()
        assert lines.count(b'"id":"filling-%d"' % count) <= 2  # the line that was cut short, and the whole one


def test_a_limit_on_file_size_is_said_too(tmp_path: Path, serve: Callable[..., Any]) -> None:
    project = many_queries(tmp_path / "project")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # noqa: E731
    with serve(project.folder, "--judge", "Ada", preexec_fn=limit) as clients:
        assert full(clients["Ada"]) == len(project.journal("Ada").grades()) > 5


@pytest.mark.slow
def test_a_client_that_never_ends_its_request_holds_nobody_up(ada: Client) -> None:
    where = urlsplit(ada.base)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=300)
    connection.putrequest("POST", "/api/save")
    own = {**ada.headers(), "Origin": ada.base, "Content-Type": "application/json", "Content-Length": "100"}
    for name, value in own.items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(b"{")
    assert ada.ask("/api/project").status == 200
    begun = time.monotonic()
    assert connection.getresponse().status == 408
    assert time.monotonic() - begun < 60
    connection.close()


def test_the_servers_memory_of_files_does_not_grow(judges: dict[str, Client], ada: Client) -> None:
    """Journals of others are read for the adjudicator, and closed again."""
    handles = Path(f"/proc/{ada.pid}/fd")
    if not handles.is_dir():
        pytest.skip("no /proc here")
    judges["Cy"].ask("/api/project")
    before = len(os.listdir(handles))
    for number in range(20):
        judges["Bo Ö"].save(f"moving-{number}", query_id="q2", doc_id="d1", note=str(number),
                            replaces=f"moving-{number - 1}" if number else "")  # fmt: skip
        judges["Cy"].ask("/api/project")
    assert len(os.listdir(handles)) <= before + 3
