"""A hub that sends too much or too slowly: given up within bounds, and ended by an interrupt."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from r2med.core import Unavailable, hub, parallel
from r2med.core.hub import Repository, download
from tests.models.hub_stand_in import COMMIT, Hub, serving

pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")

MODEL = {"config.json": b'{"model_type": "bert", "hidden_size": 8}', "model.safetensors": b"safe tensors " * 100}
TINY = Repository("org/tiny", COMMIT)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving({"org/tiny": MODEL}) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def fetch() -> Path:
    return download(TINY, lambda names: names).folder


def test_a_plain_list_is_asked_for(server: Hub) -> None:
    assert (fetch() / "model.safetensors").read_bytes() == MODEL["model.safetensors"]


def test_a_list_that_is_too_large_is_refused_on_the_way(server: Hub) -> None:
    server.spaces = (hub.MOST_LISTED >> 20) + 1
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Unavailable, match="answered with more than 32 MB"):
        fetch()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_a_packed_list_is_not_unpacked(server: Hub) -> None:
    server.spaces, server.packed = 1, True
    with pytest.raises(Unavailable, match="in a compression that was not asked for"):
        fetch()


def test_a_file_that_is_larger_than_its_list_says_is_refused(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "MOST_LISTED", 1 << 20)
    server.served["model.safetensors"] = bytes(3 << 20)
    with pytest.raises(Unavailable, match="answered with more than 1 MB"):
        fetch()


STARTED = (  # a suite that runs in the background ignores interrupts, and so would what it starts
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from r2med.cli import main; main()"
)


@pytest.mark.parametrize("slow", ["api", "model.safetensors"])
def test_a_byte_now_and_then_is_given_up(server: Hub, slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte came in time, so the client would have waited for years."""
    server.slow = slow
    monkeypatch.setattr(hub, "LIST_WITHIN", 1.0)
    monkeypatch.setattr(hub, "FIRST_MINUTE", 1.0)
    with pytest.raises(Unavailable, match=r"cannot download org/tiny from .* within 1 seconds"):
        fetch()


@pytest.mark.parametrize("slow", ["api", "model.safetensors"])
def test_a_download_ends_when_the_program_ends(server: Hub, slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server.slow = slow
    monkeypatch.setattr(parallel, "STOP", threading.Event())
    threading.Timer(0.3, parallel.STOP.set).start()
    with pytest.raises(Unavailable, match="interrupted"):
        fetch()


def test_the_client_of_others_is_left_as_it_was(server: Hub) -> None:
    session = hub.library("looking at it").utils.get_session()
    before = {when: list(hooks) for when, hooks in session.event_hooks.items()}
    fetch()
    assert {when: list(hooks) for when, hooks in session.event_hooks.items() if hooks} == {
        when: hooks for when, hooks in before.items() if hooks
    }


@pytest.mark.parametrize("slow", ["api", "model.safetensors"])
@pytest.mark.parametrize("command", ["models fetch org/tiny", "data download r2med/Biology"])
def test_an_interrupt_ends_within_two_seconds(server: Hub, tmp_path: Path, slow: str, command: str) -> None:
    server.slow = slow
    if command.startswith("data"):
        server.prefix, server.models = "datasets/", {"R2MED/Biology": MODEL}
    environment = {k: v for k, v in os.environ.items() if not k.upper().endswith("_PROXY")}
    for _ in range(4):  # the machine may have other work
        server.dripping.clear()
        with subprocess.Popen(
            [sys.executable, "-c", STARTED, *command.split()], cwd=tmp_path, stderr=subprocess.PIPE, env=environment
        ) as process:
            assert server.dripping.wait(60)
            time.sleep(0.3)
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=300)
        assert process.returncode == 130, said
        assert b"interrupted; what was finished is kept" in said
        assert b"Traceback" not in said
        if time.monotonic() - begun < 2:
            return
    pytest.fail("it took two seconds or more four times")
