"""Try it over HTTP: what comes back, who may ask, what waits, and that nothing typed is left anywhere."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med.core import Task
from r2med.core.queries import Tried, Typed
from r2med.pipeline.typed import TypedSearch
from r2med.report.web.app import FORM, MOST_ASKING, MOST_BYTES, create_app
from r2med.report.web.background import MOST_WAITING, Busy, Trying
from r2med.report.web.pages import try_it
from r2med.report.web.server import listen, make_server
from r2med.report.web.site import Site
from r2med.scoring import MAIN, rescored
from tests.report.conftest import START, Server

SECRET = "zugzwang quixotry"
FUSED = "bm25+bm25-lucene.rrf"


@pytest.fixture(scope="module")
def task() -> Task:
    return r2med.load("mini@1/MedQA-Diag")


def test_the_form_offers_tasks_and_systems(server: Server) -> None:
    page = server.get("/try").text
    assert 'aria-current="page">Try it' in page
    tasks = re.findall(r'<option value="(mini[^"/]*/[^"]*)"', page)
    assert tasks[0] == "mini@1/Biology"  # those with results stand first
    assert {"mini/MedQA-Diag", "mini-dev/Biology"} <= set(tasks)
    assert f'value="{FUSED}"' in page
    assert "<textarea" in page
    filled = server.get(
        f"/try?task=mini@1/MedQA-Diag&query=MedQA-Diag-q03&s={FUSED.replace('+', '%2B')}&s=hyde:gpt4"
    ).text
    assert re.search(r'<option value="mini@1/MedQA-Diag" selected', filled)
    assert r2med.load("mini@1/MedQA-Diag").queries[2].text[:40] in filled
    assert re.findall(r'<input name="s"[^>]*value="([^"]*)"', filled) == [FUSED, "", ""]


def test_a_link_never_carries_a_text(server: Server) -> None:
    """What stands in an address is in the browser's history."""
    page = server.get(f"/try?text={SECRET.replace(' ', '+')}&expansion=other")
    assert page.status == 200
    assert SECRET not in page.text
    assert 'method="post"' in page.text


def test_rankings_come_back_with_shares_and_judgments(server: Server, task: Task) -> None:
    query = task.queries[0]
    answer = server.try_it(query.text, "bm25", FUSED)
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.text.count('class="list"') == 2
    assert answer.text.count('<li class="hit') == 20
    assert f'This is query <a href="/query/mini%401/MedQA-Diag/{query.id}">' in answer.text
    assert "✓ relevant" in answer.text
    shown = rescored(r2med.BM25().retrieve(task), task.qrels, MAIN)[query.id]
    assert f"nDCG@10 {100 * shown:.2f}</span>" in answer.text
    assert "idf " in answer.text
    assert "A sum over the rankings" in answer.text
    other = server.try_it("a rash after a walk in the woods", "bm25")
    assert "This is no query of the task" in other.text
    assert "relevant</span>" not in other.text


def test_an_expansion_shows_ranks_before_and_after(server: Server) -> None:
    expansion = "a patient with adrenal insufficiency: weight loss, low sodium and dark skin"
    answer = server.try_it("a tired patient whose skin has become dark", "bm25", expansion=expansion, use="instead")
    assert "What the expansion changes" in answer.text
    assert "<code>passages</code>" in answer.text
    assert re.search(r"was \d+|not found before", answer.text)
    assert '<mark class="added">' in answer.text
    assert re.search(r"[▲▼]\d+", answer.text)


def test_systems_that_differ_do_not_share_a_ranking(server: Server) -> None:
    def first(system: str) -> list[str]:
        page = server.try_it("fever and a cough for three weeks", system).text
        return re.findall(r'class="muted score">([^<]*)<', page)

    assert first("bm25") != first("bm25:k1=2") != first("bm25-lucene")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"text": " \n "}, "type a query"),
        ({"text": "x" * 16_001}, "16,001 characters; at most 16,000"),
        ({"text": "x", "expansion": "y" * 16_001}, "the expansion has 16,001"),
        ({"text": "x", "task": "mini@1/../../etc"}, "unknown task"),
        ({"text": "x", "task": "/etc/passwd"}, "unknown task"),
        ({"text": "x", "task": ""}, "unknown task"),
    ],
)
def test_mistakes_are_one_line(server: Server, fields: dict[str, str], said: str) -> None:
    answer = server.try_it(fields.pop("text"), "bm25", **fields)
    assert answer.status == 400
    assert said in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("system", ["os:system", "run:/etc/passwd", "openai", "<script>alert(1)</script>", "nonsense"])
def test_a_system_that_is_not_here_is_refused_and_the_text_stays(server: Server, system: str) -> None:
    answer = server.try_it("<b>my query</b>", system)
    assert answer.status == 400
    assert "cannot be tried here" in answer.text
    assert "&lt;b&gt;my query&lt;/b&gt;</textarea>" in answer.text
    assert "<script>alert" not in answer.text
    assert server.try_it("x").status == 400  # no system at all


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "null"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "null", "Content-Type": "text/plain"}, 415),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "null", "Host": "evil.example"}, 421),
    ],
)
def test_only_its_own_page_may_ask(server: Server, headers: dict[str, str], status: int) -> None:
    body = b"task=mini@1/MedQA-Diag&text=fever&s=bm25"
    assert server.get("/try", method="POST", data=body, **headers).status == status


def test_limits_on_what_is_sent(server: Server) -> None:
    connection = HTTPConnection(server.base.removeprefix("http://"), timeout=20)
    connection.putrequest("POST", "/try")
    for name, value in (("Origin", server.base), ("Content-Type", FORM), ("Content-Length", str(MOST_BYTES + 1))):
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    assert server.get("/", method="POST", data=b"text=x", Origin=server.base).status == 405
    assert server.get("/try/more", method="POST", data=b"text=x", Origin=server.base).status == 405
    assert server.get("/try", method="PUT", data=b"text=x", Origin=server.base).status == 405
    many = "&".join(f"s={i}" for i in range(60)).encode()
    assert server.get("/try", method="POST", data=many, Origin=server.base).status == 400


def test_it_is_there_on_loopback_only(results: Path, serve: Callable[..., Any]) -> None:
    with serve(results, "--host", "0.0.0.0") as server:
        assert "Try it" not in server.get("/").text
        assert "Try it" not in server.get("/query/mini@1/MedQA-Diag/MedQA-Diag-q01").text
        refused = server.get("/try")
        assert refused.status == 400
        assert "listens on this machine alone" in refused.text
        assert server.try_it("fever", "bm25").status == 405


WATCHED = """
import os, sys
events = open(os.environ["EVENTS"], "a", buffering=1)
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen", "os.rename", "os.mkdir"):
        events.write(f"{event} {arguments}\\n")
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        events.write(f"{event} {arguments}\\n")
sys.addaudithook(watch)
class Tee:
    def __init__(self, stream):
        self.stream = stream
    def write(self, text):
        events.write(f"printed {text!r}\\n")
        return self.stream.write(text)
    def __getattr__(self, name):
        return getattr(self.stream, name)
sys.stdout, sys.stderr = Tee(sys.stdout), Tee(sys.stderr)
open(os.devnull, "w").close()
"""


def test_nothing_typed_leaves_the_machine_or_is_left_on_it(
    results: Path, serve: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection, no file that is written or changed, no line on the terminal."""
    events, work, folder = tmp_path / "events", tmp_path / "work", tmp_path / "results"
    shutil.copytree(results, folder)
    work.mkdir()
    events.touch()
    monkeypatch.setenv("EVENTS", str(events))
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(work))

    def files() -> dict[Path, bytes]:
        places = (folder, work, tmp_path / "home")
        return {p: p.read_bytes() for place in places for p in place.rglob("*") if p.is_file()}

    with serve(folder, cwd=work, start=f"{WATCHED}\n{START}") as server:
        assert server.try_it("fever", "bm25", FUSED, "bm25-nano").status == 200
        before, said = files(), events.read_text()
        assert os.devnull in said  # it is watched
        assert f"printed '{server.base}/" in said
        for more in ({}, {"expansion": f"{SECRET} again"}, {"expansion": SECRET, "use": "instead"}):
            answer = server.try_it(f"{SECRET} fever", "bm25", FUSED, "bm25-nano", **more)
            assert answer.status == 200
            assert SECRET in answer.text
        assert server.try_it(f"{SECRET} fever", "os:system").status == 400
        assert files() == before
        assert events.read_text() == said
    assert SECRET not in events.read_text()


class Slow(TypedSearch):
    """Waits before it searches, as a model does that has to be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def search(self, task: Task, systems: Sequence[str], typed: Typed) -> list[Tried]:
        self.doing = "loading a large model"
        assert self.go.wait(60)
        return super().search(task, systems, typed)


@contextmanager
def in_process(results: Path, search: Slow) -> Iterator[Server]:
    site = Site([results], search=search)
    assert site.trying is not None
    site.trying.wait = 0.2
    opened = listen("127.0.0.1", 0)
    running = make_server(create_app(site))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{opened.getsockname()[1]}", os.getpid())
    finally:
        search.go.set()
        running.should_exit = True
        thread.join(20)
        opened.close()


def test_a_slow_model_holds_up_no_page_and_the_queue_is_short(results: Path) -> None:
    search = Slow()
    with in_process(results, search) as server:
        waiting = server.try_it("a patient with fever", "bm25")
        assert waiting.status == 200
        assert "data-again" in waiting.text
        assert "loading a large model" in waiting.text
        for number in range(1, MOST_WAITING):
            assert "data-again" in server.try_it(f"fever {number}", "bm25").text
        refused = server.try_it("one too many", "bm25")
        assert refused.status == 503
        assert "searches are waiting already: try again in a moment" in refused.text
        assert "one too many</textarea>" in refused.text
        assert (
            "data-again" in server.try_it("a patient with fever", "bm25").text
        )  # the same query again waits for the same search
        assert server.get("/board/mini@1").status == 200
        search.go.set()
        deadline = time.monotonic() + 30
        while (
            "data-again" in (answer := server.try_it("a patient with fever", "bm25")).text
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        assert answer.text.count('<li class="hit') == 10


def test_those_who_wait_take_no_threads_from_the_pages(results: Path) -> None:
    search = Slow()
    with in_process(results, search) as server, ThreadPoolExecutor(3 * MOST_ASKING) as pool:
        asked = [pool.submit(server.try_it, f"fever {i}", "bm25") for i in range(3 * MOST_ASKING)]
        pages = [pool.submit(server.get, "/progress") for _ in range(4)]
        assert all(page.result(30).status == 200 for page in pages)
        answers = [one.result(30) for one in asked]
        assert {answer.status for answer in answers} <= {200, 503}
        assert sum(answer.status == 200 for answer in answers) <= MOST_ASKING + MOST_WAITING
        assert all("try again in a moment" in answer.text for answer in answers if answer.status == 503)


def test_what_was_answered_is_forgotten(task: Task) -> None:
    trying = Trying(TypedSearch())
    assert trying.ask(task, ["bm25"], Typed(SECRET)) is not None
    assert SECRET not in repr(vars(trying._background))
    with pytest.raises(r2med.R2MedError, match="cannot be tried here"):
        trying.ask(task, ["os:system"], Typed(SECRET))
    assert SECRET not in repr(vars(trying._background))


def test_a_search_that_lost_its_place_says_so(task: Task) -> None:
    search = Slow()
    trying = Trying(search, wait=0.01)
    assert trying.ask(task, ["bm25"], Typed("a")) is None
    assert trying.ask(task, ["bm25"], Typed("b")) is None
    trying.wait = 20.0
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(trying.ask, task, ["bm25"], Typed("b"))
        time.sleep(0.1)
        trying._background.forget((task.fingerprint, ("bm25",), Typed("b")))
        with pytest.raises(Busy, match="try again"):
            waiting.result(20)
    search.go.set()


def test_tasks_with_results_are_those_the_results_were_made_on(results: Path, tmp_path: Path) -> None:
    """A folder of one's own and a task of the catalogue may have one name; each is searched as itself."""
    own = tmp_path / "MedQA-Diag"
    r2med.convert("mini@1/Biology", own, to="beir")
    r2med.run("bm25", tasks=str(own), results=tmp_path / "results")
    site = Site([results, tmp_path / "results"])
    names = try_it.task_names(site)
    assert {"own/MedQA-Diag", "mini@1/MedQA-Diag", "mini/MedQA-Diag"} <= set(names)
    assert len(names) == len(set(names))
    found = {
        name: try_it.find_task(site, name).task for name in ("own/MedQA-Diag", "mini@1/MedQA-Diag", "mini/MedQA-Diag")
    }
    assert len({task.fingerprint for task in found.values() if task is not None}) == 3
    assert try_it.find_task(site, "mini/nothing").task is None
