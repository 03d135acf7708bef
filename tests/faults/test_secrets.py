"""A key goes to the server and nowhere else: not into a file, a log, a page, a message or the list of processes."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from tests.faults.services import OneServer, ranked, serving

KEY = "sk-secret-7f3a9c51e8d24b60-DoNotStore"
RUN = (
    "run", "--tasks", "mini@1/Biology", "--expand", "hyde:any-model", "--retriever", "bm25", "--retriever", "openai",
    "--fuse", "rrf", "--rerank", "rankgpt:any-model@3",
)  # fmt: skip


@pytest.fixture
def server() -> Iterator[OneServer]:
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    with serving() as running:
        running.text = ranked
        yield running


class Watch:
    """Looks at every command line on the machine while something runs."""

    def __init__(self) -> None:
        self.looks, self.seen = 0, list[str]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.looks += 1
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = path.read_bytes()
                except OSError:
                    continue
                if KEY.encode() in line:
                    self.seen.append(str(path))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def r2med(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OPENAI") and "PROXY" not in k.upper()}
    own = {
        "R2MED_HOME": str(folder / "home"),
        "NO_PROXY": "127.0.0.1",
        "PYTHONFAULTHANDLER": "1",
        "HTTPX_LOG_LEVEL": "trace",
    }
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-m", "r2med", *arguments],
        cwd=folder, env=clean | own | env, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def holding_the_key(folder: Path, *, but: Path | None = None) -> tuple[list[Path], int]:
    """Files with the key in them, plain, compressed or encoded, and how many files were looked at."""
    found, looked = [], 0
    for path in folder.rglob("*"):
        if path.is_file() and path != but:
            looked += 1
            data = path.read_bytes()
            if path.suffix == ".gz":
                data += gzip.decompress(data)
            if KEY.encode() in data or KEY.encode().hex().encode() in data or KEY in str(path):
                found.append(path)
    return found, looked


@pytest.mark.parametrize("given", ["environment", pytest.param("file", marks=pytest.mark.faults)])
def test_a_full_run_leaves_no_key(
    server: OneServer, tmp_path: Path, given: str, count: Callable[[str, object], None]
) -> None:
    secret = tmp_path / "secret" / "key"
    secret.parent.mkdir()
    secret.write_text(f"{KEY}\n")
    key = {"OPENAI_API_KEY": KEY} if given == "environment" else {"OPENAI_API_KEY_FILE": str(secret)}
    key |= {"OPENAI_BASE_URL": server.url}
    folder = tmp_path / "run"
    folder.mkdir()
    server.plan = ["echo-key", "500", "ok"]  # the first answer repeats the key it was sent
    with Watch() as watch:
        done = r2med(folder, *RUN, "--json", **key)
        assert done.returncode == 0, done.stderr
        others = [
            r2med(folder, *RUN, **key),
            r2med(folder, "report", "results", "--html", "report.html", **key),
            r2med(folder, "leaderboard", "--results", "results", "--json", **key),
            r2med(folder, "models", "--json", **key),
            r2med(folder, "cache", "--json", **key),
            *broken(server, folder, key, patient=given == "file"),
        ]
    sent = [h.get("Authorization") for h in server.headers]
    assert sent
    assert set(sent) == {f"Bearer {KEY}"}
    assert server.embedded
    assert len(server.asked) > 13
    for one in others[:5]:
        assert one.returncode == 0, one.stderr
    assert "Leaderboard" in (folder / "report.html").read_text()
    for one in [done, *others]:
        assert KEY not in one.stdout + one.stderr
        assert "Traceback" not in one.stderr, one.stderr
    found, looked = holding_the_key(folder)
    assert not found
    assert looked > 10
    assert not watch.seen
    count(f"key from {given}: files searched", looked)
    count(f"key from {given}: looks at the process list", watch.looks)


def broken(
    server: OneServer, folder: Path, key: dict[str, str], *, patient: bool
) -> list[subprocess.CompletedProcess[str]]:
    """Requests that fail, on servers that quote the key in what they say."""
    failed = []
    for behaviour in ("401", "400", "echo-key"):
        server.default = behaviour
        args = ("run", "--tasks", "mini@1/MedQA-Diag", "--expand", f"hyde:model-{behaviour}", "--retriever", "bm25")
        failed.append(r2med(folder, *args, **key))
    server.default = "ok"
    server.refuse_embeddings = True
    failed.append(r2med(folder, "run", "--tasks", "mini@1/MedQA-Diag", "--retriever", "openai", **key))
    assert failed[-1].returncode
    assert "no such model" in failed[-1].stderr
    server.refuse_embeddings = False
    for step in (("--expand", "hyde:any-model", "--retriever", "bm25"), ("--retriever", "openai")):
        args = ("run", "--tasks", "mini@1/PMC-Treatment", *step)
        failed.append(r2med(folder, *args, **key | {"OPENAI_BASE_URL": f"htp://me:{KEY}@h/v1"}))
    if patient:
        args = ("run", "--tasks", "mini@1/PMC-Treatment", "--expand", "hyde:any-model", "--retriever", "bm25")
        failed.append(r2med(folder, *args, **key | {"OPENAI_BASE_URL": f"http://me:{KEY}@127.0.0.1:9/v1"}))
    assert all(one.returncode for one in failed[3:])
    return failed


def test_no_option_takes_a_key() -> None:
    """What is typed stands in the list of processes and in the shell's history."""
    from r2med.cli import app

    waiting, options = list[click.Command]([app]), list[str]()
    while waiting:
        command = waiting.pop()
        options += [o for p in command.params if isinstance(p, click.Option) for o in (*p.opts, *p.secondary_opts)]
        if isinstance(command, click.Group):
            context = click.Context(command)
            below = [command.get_command(context, name) for name in command.list_commands(context)]
            waiting += [found for found in below if found is not None]
    assert len(options) > 200
    telling = {"key", "keys", "token", "secret", "password", "credentials", "auth"}
    assert not [o for o in options if telling & set(o.strip("-").split("-"))]
