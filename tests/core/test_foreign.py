"""Code of somebody else's: what it prints stays out of our output, what it forks ends, what it raises is one line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from r2med.core.foreign import redirect_stdout

CHATTY = """
import os
import zlib

import numpy as np

print("loading")


class Model:
    def __init__(self):
        print("making")
        os.fork()

    def encode(self, texts):
        print("encoding")
        return np.array([[zlib.crc32(t.encode()) % 97, len(t)] for t in texts])


def overlap(pairs):
    print("scoring")
    return [len(set(q.split()) & set(d.split())) for q, d in pairs]
"""


def test_what_a_model_prints_stays_out_of_the_json(tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(CHATTY)
    flags = ("--tasks", "mini/Biology", "--retriever", "chatty:Model", "--rerank", "chatty:overlap", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "r2med", "run", *flags], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["systems"]) == 2
    assert {"loading", "making", "encoding", "scoring"} <= set(done.stderr.splitlines())
    assert done.stderr.count("forked on construction") == 1


def test_output_comes_back_whichever_thread_leaves_last(capsys: pytest.CaptureFixture[str]) -> None:
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with redirect_stdout("a", "work"):
            entered.set()
            leave.wait(10)

    output, thread = sys.stdout, threading.Thread(target=stay)
    with redirect_stdout("b", "work"):
        thread.start()
        assert entered.wait(10)
        print("aside")
    leave.set()
    thread.join()
    assert sys.stdout is output
    assert capsys.readouterr() == ("", "aside\n")
