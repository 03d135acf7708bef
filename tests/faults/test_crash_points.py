"""Death before every single write, flush, rename and removal of a run: each one is survived."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from itertools import count as numbers
from pathlib import Path

import pytest

from tests.faults.runs import ONE_TASK, Place, check_whole, content, finished, left_behind, run, run_well

SOURCE = Path(__file__).parent / "crash.c"
BM25 = ("--retriever", "bm25")
DENSE = ("--retriever", "bge-small:max_length=32")
POINTS = 400
"""More than a run of one system on one task has."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the crash with")
    made = tmp_path_factory.mktemp("crash") / "crash.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(made), str(SOURCE), "-ldl"], check=True)
    return made


@pytest.mark.parametrize(
    ("systems", "step"),
    [
        pytest.param(BM25, 9, id="some"),
        pytest.param(BM25, 1, marks=pytest.mark.faults, id="every-lexical"),
        pytest.param(DENSE, 1, marks=pytest.mark.faults, id="every-dense"),
    ],
)
def test_every_point_of_no_return(
    place: Place, library: Path, systems: tuple[str, ...], step: int, count: Callable[[str, object], None]
) -> None:
    run_well(place, tasks=ONE_TASK, systems=systems)
    expected, crashes, torn = content(place.results), 0, 0
    for number in numbers(2, step):
        assert number < POINTS, "the run never ends"
        here = place.beside(f"at{number}")
        env = {"LD_PRELOAD": str(library), "R2MED_CRASH_AT": str(number)}
        ended = run(here, tasks=ONE_TASK, systems=systems, env=env)
        check_whole(here)
        done = finished(here.results)
        if ended.returncode == 0:
            break
        assert ended.returncode == -9, ended.stderr
        crashes += 1
        torn += bool(left_behind(here))
        run_well(here, tasks=ONE_TASK, systems=systems)
        assert done.items() <= finished(here.results).items()
        assert content(here.results) == expected
    assert crashes > 2
    count("crashes before a change to a file, resumed byte-equal", crashes)
    count("of these in the middle of a file", torn)
