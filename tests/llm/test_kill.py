"""The promise about money: kill it at any moment, and no finished call is paid for twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CALLS_A_ROUND = 30
THREADS = 12  # eight in flight, and as many being written as there are threads left


@contextmanager
def server_process(seconds: float) -> Iterator[str]:
    command = [sys.executable, str(HERE / "server.py"), str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


@pytest.mark.parametrize("count", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_no_finished_call_is_paid_twice(tmp_path: Path, count: int) -> None:
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    calls = count * CALLS_A_ROUND
    with server_process(0.02) as url:
        command = [sys.executable, str(HERE / "kill_rounds.py"), str(tmp_path), url, str(count), str(CALLS_A_ROUND)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    rounds, asked = report["rounds"], report["asked"]
    assert len(rounds) == count + 1
    assert not any(one["done"] for one in rounds[:-1])  # all were killed
    assert rounds[-2]["stored"]
    for before, after in pairwise(rounds):
        paid_again = set(before["stored"]) & set(asked[before["asked"] : after["asked"]])
        assert not paid_again
        assert set(before["stored"]) <= set(after["stored"])
    last = rounds[-1]
    assert last["done"]
    assert sorted(last["stored"]) == sorted(f"q{i}" for i in range(calls))  # each of them once
    # What was on the wire or between wire and disk when the process died is lost: at most one call a thread.
    assert len(asked) - calls <= count * THREADS
    # Each of them is known to be lost, and at most one a thread that was about to be sent.
    for one in rounds:
        in_vain = one["asked"] - len(one["stored"])
        assert in_vain <= one["lost"] <= in_vain + count * THREADS
    assert last["lost"]
