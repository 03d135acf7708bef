"""Many calls at once: order, failures and an end that waits for nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from r2med.core import parallel
from r2med.core.parallel import in_parallel


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
