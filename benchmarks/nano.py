"""Building a Nano task against reading its corpus and indexing it once; near duplicates of a whole corpus."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from common import english_like, here, measure, report

if TYPE_CHECKING:
    from r2med.retrieve import Retriever
    from r2med.tasks.nano import Fill

DOCUMENTS, WORDS, QUERIES = 63_080, 115, 154


def write_task(place: str) -> None:
    """A task of the size of a full R2MED corpus, with copies in it."""
    import msgspec

    folder, rng = Path(place), np.random.default_rng(7)
    texts = english_like(rng, DOCUMENTS, WORDS)
    for copy in range(0, DOCUMENTS, 20):
        texts[copy] = texts[(copy * 7 + 1) % DOCUMENTS]
    (folder / "qrels").mkdir(parents=True)
    encode = msgspec.json.encode
    (folder / "corpus.jsonl").write_bytes(
        b"".join(encode({"_id": f"d{i}", "text": t}) + b"\n" for i, t in enumerate(texts))
    )
    asked = english_like(rng, QUERIES, 150)
    (folder / "queries.jsonl").write_bytes(
        b"".join(encode({"_id": f"q{i}", "text": t}) + b"\n" for i, t in enumerate(asked))
    )
    rows = [f"q{i}\td{int(d)}\t1\n" for i in range(QUERIES) for d in rng.choice(DOCUMENTS, 4, replace=False)]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))


def bm25(name: str) -> Retriever:
    """BM25 that keeps no index: every process makes its own."""
    from r2med.core.options import Options
    from r2med.retrieve import get_retriever

    return get_retriever(name, Options(cache=False))


def once(folder: str) -> None:
    """What a build cannot do without: read the corpus, index it."""
    import r2med

    bm25("bm25").prepare(r2med.load(Path(folder)))


def build(folder: str, fill: str) -> None:
    """Tasks, manifest and pages, as `r2med nano build --dense none` makes them."""
    from r2med.api.data import build_nano

    with tempfile.TemporaryDirectory() as out:
        chosen: Fill = "hard" if fill == "hard" else "source-order"
        build_nano(folder, out=Path(out, "nano"), fill=chosen, bm25=bm25("bm25-nano"), dense="none")


def duplicates(folder: str) -> None:
    import r2med
    from r2med.text.duplicates import near_duplicates, shingle

    pairs = near_duplicates(shingle(r2med.load(Path(folder)).documents.contents))
    assert len(pairs) >= DOCUMENTS // 25


def main() -> None:
    met = True
    with tempfile.TemporaryDirectory() as folder:
        task = Path(folder, "task")
        measure([here("nano.py"), "write", str(task)], repeat=1)
        needed = measure([here("nano.py"), "once", str(task)])
        for fill in ("source-order", "hard"):
            taken = measure([here("nano.py"), "build", str(task), fill])
            print(f"{fill}: {taken.cpu:.2f} s of CPU, read and index once {needed.cpu:.2f} s, {taken.megabytes:.0f} MB")
            met &= report(f"nano build --fill {fill} / (read + index once)", taken.cpu / needed.cpu, 3, at_least=False)
        looked = measure([here("nano.py"), "duplicates", str(task)], repeat=1)
        print(f"near duplicates of {DOCUMENTS:,} documents: {looked.cpu:.1f} s of CPU, {looked.megabytes:.0f} MB")
        met &= report("minutes of CPU for near duplicates", looked.cpu / 60, 3, at_least=False)
        met &= report("GB at the peak", looked.megabytes / 1000, 2, at_least=False)
    sys.exit(not met)


STEPS: dict[str, Callable[..., None]] = {"write": write_task, "once": once, "build": build, "duplicates": duplicates}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        STEPS[sys.argv[1]](*sys.argv[2:])
    else:
        main()
