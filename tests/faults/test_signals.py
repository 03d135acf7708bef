"""An interrupt ends a run in order: one line that says how to go on, and a state to go on from."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.runs import (
    ONE_TASK,
    TASKS,
    Place,
    check_whole,
    command,
    content,
    environment,
    left_behind,
    linked_home,
    rows_and_texts,
    run_well,
)


@pytest.fixture(autouse=True)
def as_from_a_terminal() -> Iterator[None]:
    """A shell starts what it puts into the background deaf to SIGINT, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def stop(place: Place, tasks: str, number: int, after: float) -> subprocess.CompletedProcess[str] | None:
    """Send a signal some time after the systems began; None if they were done first."""
    with subprocess.Popen(
        command(place, tasks=tasks), env=environment(place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 60
        while not (place.results / ".progress.json").exists() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(after)
        if process.poll() is None:
            process.send_signal(number)
        out, said = process.communicate(timeout=60)
    if process.returncode == 0 or "per-query scores:" in said:  # it came when all was said and done
        return None
    return subprocess.CompletedProcess(process.args, process.returncode, out, said)


@pytest.mark.parametrize(
    ("number", "code", "rounds", "tasks"),
    [
        pytest.param(signal.SIGTERM, 143, 1, ONE_TASK, id="SIGTERM"),
        pytest.param(signal.SIGINT, 130, 10, TASKS, marks=pytest.mark.faults, id="SIGINT-10"),
        pytest.param(signal.SIGTERM, 143, 10, TASKS, marks=pytest.mark.faults, id="SIGTERM-10"),
    ],
)
def test_an_interrupted_run(
    place: Place, tmp_path: Path, number: signal.Signals, code: int, rounds: int, tasks: str,
    count: Callable[[str, object], None],
) -> None:  # fmt: skip
    begin = time.monotonic()
    run_well(place, tasks=tasks)
    whole = time.monotonic() - begin
    expected, texts = content(place.results), rows_and_texts(place.home)[1]
    chance, stopped = random.Random(number), 0
    for i in range(rounds):
        here = Place(linked_home(tmp_path / f"home{i}"), tmp_path / f"results{i}")
        ended = stop(here, tasks, number, chance.uniform(0.0, max(0.2, whole - 1.5)))
        check_whole(here)
        assert not left_behind(here)
        if ended is not None:
            stopped += 1
            assert ended.returncode == code, ended.stderr
            assert ended.stderr.splitlines()[-1].startswith("r2med: ")
            assert "the same command goes on from there" in ended.stderr
            assert "Traceback" not in ended.stderr
            run_well(here, tasks=tasks)
        assert content(here.results) == expected
        assert rows_and_texts(here.home) == (texts, texts)
    assert stopped >= rounds // 2 or rounds == 1
    count(f"{number.name}: rounds", rounds)
    count(f"{number.name}: stopped in the middle", stopped)
