"""`kill -9` at any moment: resume ends where an unbroken run ends, and nothing finished is done twice."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.runs import (
    ONE_TASK,
    Place,
    check_whole,
    command,
    content,
    environment,
    finished,
    left_behind,
    linked_home,
    rows_and_texts,
    run_well,
)

Count = Callable[[str, object], None]


def start(place: Place, tasks: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(place, tasks=tasks), env=environment(place), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def killed_after(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process was still at work when it was killed."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    assert process.returncode == 0
    return False


@pytest.mark.parametrize(
    ("kills", "tasks"), [(3, ONE_TASK), pytest.param(100, "mini@1", marks=pytest.mark.faults, id="100")]
)
def test_a_killed_driver(place: Place, tmp_path: Path, kills: int, tasks: str, count: Count) -> None:
    begin = time.monotonic()
    run_well(place, tasks=tasks)
    whole, expected = time.monotonic() - begin, content(place.results)
    texts = rows_and_texts(place.home)[1]
    assert expected
    chance = random.Random(kills)
    starts = killed_so_far = in_progress = journeys = leftovers = 0
    here: Place | None = None
    done: dict[Path, tuple[int, int, int]] = {}
    while killed_so_far < kills:  # a resumed run may end before its time: that round does not count
        starts += 1
        if here is None:
            journeys += 1
            here, done = Place(linked_home(tmp_path / f"home{journeys}"), tmp_path / f"results{journeys}"), {}
        killed = killed_after(start(here, tasks), chance.uniform(0.1, whole))
        killed_so_far += killed
        in_progress += killed and (here.results / ".progress.json").exists()
        check_whole(here)
        now = finished(here.results)
        assert done.items() <= now.items(), "something that was finished was done again"
        done = now
        if not killed:
            leftovers += settle(here, expected, texts)
            here = None
    if here is not None:
        run_well(here, tasks=tasks)
        assert done.items() <= finished(here.results).items()
        leftovers += settle(here, expected, texts)
    count("kills before the end", kills)
    count("runs started for them", starts)
    count("kills while systems ran", in_progress)
    count("journeys to the end, byte-equal", journeys)
    count("temporary files left, ignored", leftovers)


def settle(place: Place, expected: dict[str, bytes], texts: int) -> int:
    """A resumed run is like an unbroken one: the same bytes, each text encoded and kept once."""
    assert content(place.results) == expected
    assert rows_and_texts(place.home) == (texts, texts)
    return len(left_behind(place))
