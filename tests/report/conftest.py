"""Real results of real systems on Mini, a real server in a process of its own, a real browser."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

NEEDED = ("jinja2", "uvicorn")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
WEB = ("background", "browser", "try_it", "failures", "hostile", "limits", "pages", "server", "single_file", "text")
collect_ignore = [f"test_{name}.py" for name in WEB] if MISSING else []

START = "from r2med.cli.browse import view; view()"


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two flavours of BM25 and their fusion on all of the first edition of Mini."""
    import r2med
    from r2med.tasks import resolve

    home = tmp_path_factory.mktemp("home")
    folder = tmp_path_factory.mktemp("made") / "results"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(home))
        r2med.run("bm25", "bm25-lucene", tasks=resolve("mini@1"), fuse="rrf", results=folder)
    return folder


@pytest.fixture(scope="session")
def mini_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two real systems on all of the first edition of Mini, and a third on one task only."""
    import r2med
    from r2med.results import ResultStore
    from r2med.tasks import resolve

    folder = tmp_path_factory.mktemp("mini") / "results"
    store = ResultStore(folder)
    r2med.run("bm25", "bm25-lucene", tasks=resolve("mini@1"), results=store.root)
    r2med.run("bm25:k1=1.2,b=0.75", tasks=resolve("mini@1/Biology"), results=store.root)
    return folder


@pytest.fixture
def own_results(results: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    copy = tmp_path / "results"
    shutil.copytree(results, copy)
    return copy


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class Server(NamedTuple):
    base: str
    pid: int

    def get(self, path: str, *, method: str = "GET", data: bytes | None = None, **headers: str) -> Answer:
        request = urllib.request.Request(self.base + path, data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), error.read().decode())

    def try_it(self, text: str, *systems: str, **more: str) -> Answer:
        """Send the form of the page as a browser does."""
        fields = {"task": "mini@1/MedQA-Diag", "text": text, **more}
        data = urllib.parse.urlencode([*fields.items(), *(("s", system) for system in systems)]).encode()
        return self.get("/try", method="POST", data=data, Origin=self.base)


@contextmanager
def serving(*arguments: str | Path, cwd: Path | None = None, start: str = START) -> Iterator[Server]:
    command = [sys.executable, "-c", start, *map(str, arguments), "--no-open", "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=os.environ.copy()
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline().strip()
        assert line.startswith("http://"), process.stderr.read()
        yield Server(line.rstrip("/"), process.pid)
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
        process.stderr.close()


@pytest.fixture(scope="session")
def server(results: Path) -> Iterator[Server]:
    with serving(results) as started:
        yield started


@pytest.fixture
def serve() -> Callable[..., Any]:
    return serving
