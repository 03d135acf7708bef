"""`r2med board build`: 200 submissions × 8 tasks of Mini, from bundles to the whole site.

    python benchmarks/board.py

Submissions are real: BM25 with other constants each, run on all of Mini and packed. Building scores every run again,
works out intervals, ranks and letters of all systems by three measures, and writes every page.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from common import report

import r2med
from r2med.results import ResultIndex
from r2med.retrieve.sparse import available_cores

SUBMISSIONS = int(os.environ.get("SUBMISSIONS", "200"))
SECONDS = 30.0


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bundles = make_bundles(Path(folder))
        begin, cpu, workers = time.perf_counter(), spent(), available_cores()
        written = r2med.build_board(bundles, out=Path(folder) / "site", title="Benchmark", workers=workers)
        seconds = time.perf_counter() - begin
        here, children = (now - then for now, then in zip(spent(), cpu, strict=True))
        size = sum(path.stat().st_size for path in (Path(folder) / "site").rglob("*") if path.is_file())
    assert (written.submissions, written.verified) == (SUBMISSIONS, SUBMISSIONS)
    print(f"{written.pages} pages, {size / 1e6:.1f} MB; {seconds:.1f} s by the clock")
    print(f"seconds of CPU: {here:.1f} in the first process, {children:.1f} in {workers} that check bundles")
    sys.exit(0 if report(f"seconds for {SUBMISSIONS} submissions", seconds, SECONDS, at_least=False) else 1)


def spent() -> tuple[float, float]:
    """Seconds of CPU so far, of this process and of those that it started and that have ended."""
    own, others = (resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime


def make_bundles(folder: Path) -> Path:
    """One bundle a system; each has results on every task of Mini."""
    grid = [f"bm25:b={b / 20:g},k1={k / 10:g}" for b in range(1, 21) for k in range(2, 22, 2)]
    bundles = folder / "bundles"
    bundles.mkdir()
    r2med.run(*grid[:SUBMISSIONS], tasks="mini", results=folder / "results")
    systems = sorted({stored.system for stored in ResultIndex([folder / "results"]).all()})
    for number, system in enumerate(systems):
        day = f"2026-{1 + number % 12:02}-{1 + number % 28:02}"
        name = f"Submission {number}"
        r2med.pack_bundle(bundles / f"{number:03}.zip", system, results=folder / "results", title=name, date=day)
    return bundles


if __name__ == "__main__":
    main()
