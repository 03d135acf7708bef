"""An agent that is killed in the middle goes on from the store: what was stored is not asked again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import r2med
from r2med.expand.searching import SearchR1
from r2med.llm.store import read_store
from tests.llm.conftest import MakeChat
from tests.llm.server import ChatServer

CODE = """
import r2med
from r2med.expand import Settings, get_expander
get_expander("search-r1:any-model", settings=Settings(concurrency=3)).expand(r2med.load("mini/Biology"))
"""
TURNS = 3


def play(body: dict[str, Any]) -> str:
    done = sum(message["role"] == "assistant" for message in body["messages"])
    return f"<search>cell membrane {done}" if done < TURNS - 1 else "<answer>An answer of some length.</answer>"


def test_killed_and_resumed(server: ChatServer, make_chat: MakeChat) -> None:
    server.text, server.seconds = play, 0.03
    task = r2med.load("mini/Biology")
    whole = TURNS * len(task.queries)
    for calls_before_the_end in (5, 17):
        process = subprocess.Popen([sys.executable, "-c", CODE], env=dict(os.environ))
        aim = len(server.asked) + calls_before_the_end
        while len(server.asked) < aim and process.poll() is None:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    time.sleep(0.1)  # answers under way go nowhere
    expander = SearchR1(make_chat())
    stored = [g for g in read_store(Path(expander.plan(task).store))[1] if "#" in g.query_id]
    assert 0 < len(stored) < whole
    before = len(server.asked)
    made = expander.expand(task)
    assert made.summary()["status"] == {"ok": len(task.queries)}
    assert len(server.asked) - before == whole - len(stored)
