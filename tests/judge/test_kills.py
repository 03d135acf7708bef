"""kill -9 of the server in a stream of saves: what was acknowledged is there, once."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections import Counter
from http.client import HTTPException
from pathlib import Path

import pytest

from r2med.judge import open_project
from tests.judge.conftest import Client, make_project, serving

QUERIES, PASSAGES = 50, 40
PAIRS = [(f"q{i}", f"d{j}") for i in range(QUERIES) for j in range(PASSAGES)]


def stream(client: Client, numbers: list[int], acknowledged: set[int], enough: threading.Event, after: int) -> None:
    """Save one after the other until the server is gone; what was not answered is tried again by the next one."""
    while numbers:
        number = numbers[-1]
        query_id, doc_id = PAIRS[number]
        try:
            answer = client.save(
                f"entry-{number:05d}", query_id=query_id, doc_id=doc_id, grade=number % 4, reason="r" * 300
            )
        except (OSError, HTTPException):  # refused, or an answer cut short
            break
        assert answer.status == 200, answer
        acknowledged.add(number)
        numbers.pop()
        if len(acknowledged) >= after:
            enough.set()
    enough.set()


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.faults)])
def test_no_acknowledged_judgment_is_lost_and_none_is_there_twice(tmp_path: Path, kills: int) -> None:
    texts = {f"d{j}": f"passage {j}" for j in range(PASSAGES)}
    folder = make_project(tmp_path / "p", {f"q{i}": f"query {i}" for i in range(QUERIES)}, texts).folder
    rng = random.Random(kills)
    left = [list(range(start, len(PAIRS), 3))[::-1] for start in range(3)]
    acknowledged: set[int] = set()
    for _ in range(kills):
        with serving(folder, "--judge", "Ada") as clients:
            enough = threading.Event()
            after = len(acknowledged) + rng.randint(1, 12)
            threads = [
                threading.Thread(target=stream, args=(clients["Ada"], numbers, acknowledged, enough, after))
                for numbers in left
            ]
            for thread in threads:
                thread.start()
            assert enough.wait(60)
            time.sleep(rng.random() * 0.004)  # somewhere inside a save
            os.kill(clients["Ada"].pid, signal.SIGKILL)
            for thread in threads:
                thread.join()
        journal = open_project(folder).journal("Ada")
        found = journal.grades()
        journal.close()
        assert {PAIRS[number] for number in acknowledged} <= set(found)
        assert all(found[PAIRS[number]] == number % 4 for number in acknowledged)
    with serving(folder, "--judge", "Ada") as clients:
        for numbers in left:
            del numbers[:-2]  # what was on the way when the server was killed, and one more
            stream(clients["Ada"], numbers, acknowledged, threading.Event(), 1 << 30)
    assert len(acknowledged) >= kills
    journal = open_project(folder).journal("Ada")
    assert set(journal.grades()) == {PAIRS[number] for number in acknowledged}
    assert not journal.forks
    whole = re.findall(rb'"id":"(entry-\d+)".*"crc32":\d+\}\n', journal.path.read_bytes())
    assert max(Counter(whole).values()) == 1
