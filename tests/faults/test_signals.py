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


def files_of(place: Place) -> int:
    """How far a run is: files it has finished, of its caches and of its results."""
    return sum(1 for root in place for p in root.rglob("*") if p.is_file() and not p.name.startswith("."))


def stop(place: Place, tasks: str, number: int, after: int) -> subprocess.CompletedProcess[str] | None:
    """Send a signal when systems run and so many files are finished; None if all was done before it came."""
    with subprocess.Popen(
        command(place, tasks=tasks), env=environment(place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        progress = place.results / ".progress.json"
        while process.poll() is None and not (progress.exists() and files_of(place) >= after):
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(number)
        out, said = process.communicate(timeout=300)
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
    run_well(place, tasks=tasks)
    expected, texts = content(place.results), rows_and_texts(place.home)[1]
    chance, stopped, starts, latest = random.Random(number), 0, 0, files_of(place)
    while stopped < rounds:
        starts += 1
        here = Place(linked_home(tmp_path / f"home{starts}"), tmp_path / f"results{starts}")
        after = chance.randrange(latest)
        ended = stop(here, tasks, number, after)
        check_whole(here)
        assert not left_behind(here)
        if ended is None:
            latest = max(1, after)  # it was done before the signal came: earlier from now on
        else:
            stopped += 1
            assert ended.returncode == code, ended.stderr
            assert ended.stderr.splitlines()[-1].startswith("r2med: ")
            assert "the same command goes on from there" in ended.stderr
            assert "Traceback" not in ended.stderr
            run_well(here, tasks=tasks)
        assert content(here.results) == expected
        assert rows_and_texts(here.home) == (texts, texts)
    count(f"{number.name}: runs started", starts)
    count(f"{number.name}: stopped in the middle", stopped)
