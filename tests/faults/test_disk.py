"""A full disk, a file size limit, a read-only folder: one clear line, nothing half-written, and a way on."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.mounts import tmpfs
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
    one_line,
    run,
    run_well,
)

BM25 = ("--retriever", "bm25", "--retriever", "bm25-lucene")
DENSE = ("--retriever", "bge-small:max_length=32")


@pytest.mark.parametrize("size", ["64k", pytest.param("200k", marks=pytest.mark.faults)])
def test_no_space_for_results(place: Place, size: str, count: Callable[[str, object], None]) -> None:
    run_well(place, tasks="mini@1", systems=BM25)
    small = place.beside("small")
    with tmpfs(small.results, size) as disk:
        refused = run(small, tasks="mini@1", systems=BM25)
        assert "No space left on device" in one_line(refused)
        assert str(small.results) in refused.stderr
        check_whole(small)
        assert not left_behind(small)
        done = finished(small.results)
        disk.remount("size=8m")
        run_well(small, tasks="mini@1", systems=BM25)
        assert done.items() <= finished(small.results).items()
        assert content(small.results) == content(place.results)
        count(f"disk full at {size}: results kept and not done again", len(done) // 3)


@pytest.mark.faults
def test_no_space_for_the_cache(place: Place) -> None:
    run_well(place, tasks=ONE_TASK, systems=DENSE)
    small = place.beside("small")
    shutil.rmtree(small.home)
    with tmpfs(small.home, "128k") as disk:
        linked_home(small.home / "inner")
        inner = Place(small.home / "inner", small.results)
        assert "No space left on device" in one_line(run(inner, tasks=ONE_TASK, systems=DENSE))
        check_whole(inner)
        assert not left_behind(inner)
        assert not finished(inner.results)
        disk.remount("size=8m")
        run_well(inner, tasks=ONE_TASK, systems=DENSE)
        assert content(inner.results) == content(place.results)


@pytest.mark.parametrize("limit", [20_000, *(pytest.param(n, marks=pytest.mark.faults) for n in (2_000, 100_000))])
def test_a_limit_on_file_size(place: Place, limit: int) -> None:
    """The same without a mount: every file that outgrows the limit fails as on a full disk."""
    refused = subprocess.run(
        command(place, tasks=ONE_TASK, systems=DENSE), env=environment(place), capture_output=True, text=True,
        check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert "File too large" in one_line(refused)
    check_whole(place)
    assert not left_behind(place)
    run_well(place, tasks=ONE_TASK, systems=DENSE)


def test_a_read_only_results_folder(place: Place) -> None:
    with tmpfs(place.results, "1m") as disk:
        disk.remount("ro")
        refused = run(place, tasks=ONE_TASK, systems=DENSE)
        assert "cannot be written (Read-only file system)" in one_line(refused)
        assert not (place.home / "embeddings").exists(), "hours of work before the first write"
        disk.remount("rw")
        run_well(place, tasks=ONE_TASK, systems=DENSE)


@pytest.mark.faults
def test_a_read_only_home(place: Place) -> None:
    """What is in the cache is used; what is not is refused in one line, or done without being kept."""
    run_well(place, tasks=ONE_TASK, systems=DENSE)
    expected = content(place.results)
    with tmpfs(place.home.parent / "ro", "8m") as disk:
        shutil.copytree(place.home, disk.path / "home", symlinks=True)
        disk.remount("ro")
        warm = Place(disk.path / "home", place.results.parent / "warm")
        run_well(warm, tasks=ONE_TASK, systems=DENSE)
        assert content(warm.results) == expected
        cold = Place(disk.path / "home", place.results.parent / "cold")
        assert "Read-only file system" in one_line(run(cold, tasks="mini@1/MedQA-Diag", systems=DENSE))
        assert not finished(cold.results)


@pytest.mark.faults
def test_a_folder_of_somebody_elses(place: Place, tmp_path: Path) -> None:
    """Results where one may not write: said before any work."""
    taken = tmp_path / "taken"
    taken.write_text("a file where the folder should be")
    refused = run(Place(place.home, taken), tasks=ONE_TASK, systems=DENSE)
    assert one_line(refused)
    refused = run(Place(place.home, Path("/proc/nowhere")), tasks=ONE_TASK, systems=DENSE)
    assert "cannot be written" in one_line(refused)
    assert not (place.home / "embeddings").exists()
