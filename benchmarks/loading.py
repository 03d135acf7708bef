"""Loading a corpus against one orjson pass over the same bytes, its memory, and the command: start-up, cached run."""

from __future__ import annotations

import statistics
import sys
import tempfile
import tracemalloc
from pathlib import Path

import orjson
from common import measure, report, seconds, write_texts

from r2med.core.stores import FolderStore
from r2med.tasks.records import read_documents


def corpus_ratio(path: Path) -> float:
    store = FolderStore(path.parent)
    ours, peer = list[float](), list[float]()

    def one_pass() -> None:
        with path.open("rb") as lines:
            for line in lines:
                orjson.loads(line)

    for _ in range(7):  # in turns, so that both meet the same machine
        ours += seconds(lambda: read_documents(store, path.name), 1)
        peer += seconds(one_pass, 1)
    print(f"r2med {statistics.median(ours):.3f} s, one orjson pass {statistics.median(peer):.3f} s of CPU")
    return statistics.median(ours) / statistics.median(peer)


def memory_ratio(path: Path) -> float:
    tracemalloc.start()
    documents = read_documents(FolderStore(path.parent), path.name)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = documents.texts.nbytes
    print(f"{size / 1e6:.1f} MB of text: {held / 1e6:.1f} MB held, {peak / 1e6:.1f} MB at the peak")
    return held / size


def cached_run() -> float:
    """CPU seconds of a whole `r2med run` of the default systems that finds everything stored."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "r2med", "run", "--results", str(Path(folder, "results"))]
        measure(command, repeat=1)
        again = measure(command, repeat=9)
        print(f"{again.cpu:.2f} s of CPU, of which importing numpy {measure(['-c', 'import numpy'], repeat=9).cpu:.2f}")
        return again.cpu


def main() -> None:
    met = True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "corpus.jsonl")
        write_texts(path, 60_000, 150, seed=1)
        met &= report("loading / orjson pass", corpus_ratio(path), 1.5, at_least=False)
        met &= report("memory held / text", memory_ratio(path), 1.3, at_least=False)
    plain = measure(["-c", "pass"], repeat=9).cpu
    helped = measure(["-m", "r2med", "--help"], repeat=9).cpu
    met &= report("s CPU of r2med --help over python -c pass", helped - plain, 0.25, at_least=False)
    met &= report("s CPU of r2med run on Mini, all results there", cached_run(), 0.6, at_least=False)
    sys.exit(not met)


if __name__ == "__main__":
    main()
