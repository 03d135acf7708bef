"""Many calls at once: order, failures and an end that waits for nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from r2med.core import Unavailable, UnknownName, parallel
from r2med.core.parallel import in_parallel, in_processes


def double(job: int, stop: threading.Event) -> int:
    return 2 * job


def test_every_job_gives_its_result() -> None:
    assert sorted(in_parallel(range(100), double, 7)) == [2 * i for i in range(100)]
    assert list(in_parallel([], double, 3)) == []


def test_results_are_handed_to_the_thread_that_made_them() -> None:
    here, seen = threading.get_ident(), dict[int, int]()

    def keep(job: int, result: int) -> None:
        assert threading.get_ident() != here
        seen[job] = result

    list(in_parallel(range(10), double, 2, on_result=keep))
    assert seen == {i: 2 * i for i in range(10)}


def test_the_first_failure_ends_it_after_what_is_under_way() -> None:
    begun: list[int] = []

    def work(job: int, stop: threading.Event) -> int:
        begun.append(job)
        if job == 3:
            raise ValueError("three")
        return job

    results: list[int] = []
    with pytest.raises(ValueError, match="three"):
        results.extend(in_parallel(range(1000), work, 2))
    assert len(begun) < 20
    assert sorted([*results, 3]) == sorted(begun)


def test_a_result_can_end_it() -> None:
    def enough(result: int) -> Exception | None:
        return RuntimeError("enough") if result > 10 else None

    with pytest.raises(RuntimeError, match="enough"):
        list(in_parallel(range(1000), double, 2, give_up=enough))


def test_jobs_that_fail_to_come_are_raised() -> None:
    def jobs() -> Iterator[int]:
        yield 1
        raise KeyError("no more")

    results: list[int] = []
    with pytest.raises(KeyError):
        results.extend(in_parallel(jobs(), double, 2))
    assert results == [2]


def test_a_call_that_never_returns_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "GRACE", 0.1)
    release = threading.Event()

    def work(job: int, stop: threading.Event) -> int:
        if job:
            release.wait(60)
        return job

    running = in_parallel(range(5), work, 2)
    assert next(running) == 0
    begun = time.monotonic()
    running.close()  # type: ignore[attr-defined]
    assert time.monotonic() - begun < 30
    release.set()


def worker(begun: Path) -> Callable[[int], tuple[int, int]]:
    """What a process does: it notes that it began, and answers with its number."""
    (begun / f"{os.getpid()}").touch()

    def work(job: int) -> tuple[int, int]:
        if job == 97:
            raise UnknownName("job", "dentist", ["dentists"])
        if job == 98:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.3 if job == 0 else 0.01)
        return job, os.getpid()

    return work


@pytest.mark.parametrize("processes", [1, 3])
def test_processes_give_results_in_the_order_of_the_jobs(tmp_path: Path, processes: int) -> None:
    found = list(in_processes(range(20), partial(worker, tmp_path), processes))
    assert [job for job, _ in found] == list(range(20))
    pids = {pid for _, pid in found}
    assert len(pids) <= processes
    assert (os.getpid() in pids) == (processes == 1)
    assert {int(path.name) for path in tmp_path.iterdir()} >= pids  # made once in each
    assert len(list(tmp_path.iterdir())) <= processes


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_of_a_process_is_raised_as_it_was(tmp_path: Path, processes: int) -> None:
    with pytest.raises(UnknownName, match=r"unknown job 'dentist'; did you mean dentists\?") as caught:
        list(in_processes([1, 97, 2], partial(worker, tmp_path), processes))
    assert caught.value.suggestions == ["dentists"]


def test_a_process_that_dies_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="a process ended before its work was done"):
        list(in_processes([1, 98, 2], partial(worker, tmp_path), 2))


ABANDONED = """
import sys, time
from functools import partial
from pathlib import Path
from r2med.core.parallel import in_processes
from tests.core.test_parallel import worker

if __name__ == "__main__":
    list(in_processes(range(10_000), partial(worker, Path(sys.argv[1])), 2))
"""


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    script, begun = tmp_path / "script.py", tmp_path / "begun"
    script.write_text(ABANDONED)
    begun.mkdir()
    root = Path(__file__).parents[2]
    started = subprocess.Popen([sys.executable, str(script), str(begun)], env=os.environ | {"PYTHONPATH": str(root)})
    try:
        _wait(lambda: len(list(begun.iterdir())) == 2)
    finally:
        started.kill()
        started.wait()
    _wait(lambda: not any(Path("/proc", path.name).exists() for path in begun.iterdir()))


def _wait(there: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not there():
        assert time.monotonic() < until
        time.sleep(0.05)
