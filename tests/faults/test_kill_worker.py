"""`kill -9` of workers at random moments: their work is done by others, and the result is the same to the byte."""

from __future__ import annotations

import importlib.util
import os
import random
import secrets
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
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
from tests.pipeline.ray_nodes import command_line, descendants

Count = Callable[[str, object], None]
MARKS = {"local": "multiprocessing.spawn", "ray": "ray::RayWorker"}
"""What the command line of a worker holds."""
MOST_KILLS = 3
"""In one run: work that ends four workers is given up, for it would end every one."""


def workers_of(pid: int, mark: str) -> list[int]:
    lines = {child: command_line(child) for child in descendants(pid)}
    return [child for child, line in lines.items() if mark in line and "resource_tracker" not in line]


def harried(place: Place, executor: str, tasks: str, chance: random.Random, patience: float) -> tuple[int, str]:
    """A run whose workers are killed as it goes, within so many seconds each; how many were, and what it said."""
    flags = ("--executor", executor, "--workers", "2", *(("--address", "local") if executor == "ray" else ()))
    # A token of the test's own for the cluster it starts: nothing depends on who uses Ray here besides.
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)} if executor == "ray" else {}
    with subprocess.Popen(
        command(place, *flags, tasks=tasks), env=environment(place, **own), stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        kills = 0
        while process.poll() is None and kills < MOST_KILLS:
            alive = workers_of(process.pid, MARKS[executor])
            if not alive:
                time.sleep(0.02)
                continue
            time.sleep(chance.uniform(0.0, patience))
            with suppress(ProcessLookupError):
                os.kill(chance.choice(alive), signal.SIGKILL)
                kills += 1
        _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "Traceback" not in said, said
    return kills, said


@pytest.mark.parametrize(
    ("executor", "rounds"),
    [
        pytest.param("local", 1, id="local"),
        pytest.param("local", 25, marks=pytest.mark.faults, id="local-25"),
        pytest.param("ray", 4, marks=pytest.mark.faults, id="ray-4"),
    ],
)
def test_killed_workers(place: Place, tmp_path: Path, executor: str, rounds: int, count: Count) -> None:
    if executor == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("the extra `ray` is not installed")
    tasks = ONE_TASK if rounds == 1 else TASKS
    run_well(place, tasks=tasks)
    expected, texts = content(place.results), rows_and_texts(place.home)[1]
    chance, kills, noticed, harmed, number, patience = random.Random(rounds), 0, 0, 0, 0, 2.0
    while harmed < rounds:
        number += 1
        here = Place(linked_home(tmp_path / f"home{number}"), tmp_path / f"results{number}")
        killed, said = harried(here, executor, tasks, chance, patience)
        kills, harmed = kills + killed, harmed + (killed > 0)
        patience = patience if killed else patience / 2  # its workers were gone before: sooner from now on
        noticed += "lost on the way" in said
        check_whole(here)
        assert content(here.results) == expected
        assert rows_and_texts(here.home) == (texts, texts)
        assert not left_behind(here)
    count(f"{executor}: rounds", number)
    count(f"{executor}: workers killed", kills)
    count(f"{executor}: runs that said so", noticed)
