"""Two processes, one cache, one results folder: both end well, with the same scores and no damage."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

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
    rows_and_texts,
    run_well,
)


@pytest.mark.parametrize(
    ("rounds", "tasks"), [(1, ONE_TASK), pytest.param(10, TASKS, marks=pytest.mark.faults, id="10")]
)
def test_two_runs_into_one_place(place: Place, rounds: int, tasks: str, count: Callable[[str, object], None]) -> None:
    run_well(place, tasks=tasks)
    expected, texts = content(place.results), rows_and_texts(place.home)[1]
    for number in range(rounds):
        shared = place.beside(f"shared{number}")
        started = [
            subprocess.Popen(command(shared, tasks=tasks), env=environment(shared), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]  # fmt: skip
        for process in started:
            _, said = process.communicate(timeout=300)
            assert process.returncode == 0, said
        check_whole(shared)
        assert content(shared.results) == expected
        assert rows_and_texts(shared.home)[1] == texts
        assert not left_behind(shared)
    count("pairs of processes", rounds)
