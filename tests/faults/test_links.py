"""Links among results: a run writes its own files, and never through a link into somebody else's."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from r2med.pipeline import check_writable
from r2med.results import ResultStore
from tests.faults.runs import ONE_TASK, Place, content, linked_home, run_well

BM25 = ("--retriever", "bm25")
SECRET = "a file of somebody else's"
NAMES = (
    ".r2med-probe", ".progress.json",
    *(f"bm25/mini@1/Biology.{suffix}" for suffix in ("json", "run.gz", "queries.jsonl")),
)  # fmt: skip


def test_links_where_a_run_writes(tmp_path: Path) -> None:
    """`.r2med-probe` used to be opened for writing under that name: the file it led to was emptied."""
    plain, here = (Place(linked_home(tmp_path / f"{n}-home"), tmp_path / n) for n in ("plain", "here"))
    run_well(plain, tasks=ONE_TASK, systems=BM25)
    victim = tmp_path / "victim"
    victim.write_text(SECRET)
    for name in NAMES:
        (here.results / name).parent.mkdir(parents=True, exist_ok=True)
        (here.results / name).symlink_to(victim)
    run_well(here, "--overwrite", tasks=ONE_TASK, systems=BM25)
    assert victim.read_text() == SECRET
    assert not any((here.results / name).is_symlink() for name in NAMES[1:])
    (here.results / NAMES[0]).unlink()
    assert content(here.results) == content(plain.results)


def test_many_starts_at_once(tmp_path: Path) -> None:
    """The fixed name also made two of sixty simultaneous starts fail."""
    with ThreadPoolExecutor(16) as pool:
        done = list(pool.map(lambda _: check_writable(ResultStore(tmp_path)), range(500)))
    assert len(done) == 500
    assert os.listdir(tmp_path) == []
