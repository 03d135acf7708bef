"""BM25 against upstream's gensim path, bm25s and tantivy: whole fresh processes, CPU seconds, peak memory.

Each contender reads the same JSON lines, tokenizes, indexes and searches top-1,000; imports are counted. A peer that
is not installed is left out and named.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from common import contender, here, measure, report, skipped, write_texts

SHAPES = {
    "60,000 × 150 words, 120 × 200": (60_000, 150, 120, 200),
    "10,000 × 1,270 words, 129 × 600": (10_000, 1_270, 129, 600),
}
TARGETS = {"gensim": 20.0, "bm25s": 6.0, "tantivy": 3.0}


MINI = """
import tempfile, time
from r2med.pipeline import Builder, SystemSpec, run_experiment
from r2med.results import ResultStore
from r2med.tasks import resolve
start = time.perf_counter()
with tempfile.TemporaryDirectory() as folder:
    systems = [Builder().build(SystemSpec.parse(name)) for name in ("bm25", "bm25-lucene")]
    run_experiment(resolve("mini"), systems, ResultStore(folder))
print(time.perf_counter() - start)
"""


def mini_seconds() -> float:
    """Wall seconds for both flavours on Mini's eight tasks, scored and stored, after import."""
    return statistics.median(float(subprocess.check_output([sys.executable, "-c", MINI])) for _ in range(5))


def kept_index(corpus: str, queries: str) -> tuple[float, float]:
    """CPU seconds to make an index of documents that are read, and to find it again on disk."""
    with tempfile.TemporaryDirectory() as home:
        first, *later = (
            contender("lexical_contenders.py", "kept", corpus, queries, environment={"R2MED_HOME": home})["seconds"]
            for _ in range(4)
        )
    return first, statistics.median(later)


def main() -> None:
    peers = {name: target for name, target in TARGETS.items() if find_spec(name)}
    for name in TARGETS.keys() - peers:
        skipped(name, f"pip install {name}")
    met = report("s for Mini end to end, after import", mini_seconds(), 1.5, at_least=False)
    for title, (documents, words, queries, query_words) in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            corpus = write_texts(Path(folder, "corpus.jsonl"), documents, words, seed=1)
            asked = write_texts(Path(folder, "query.jsonl"), queries, query_words, seed=2)
            print(f"\n{title} ({Path(corpus).stat().st_size / 1e6:.0f} MB)")
            costs = {}
            for name in ("r2med", "nano", *peers):
                repeat = 1 if name == "gensim" else 3
                costs[name] = measure([here("lexical_contenders.py"), name, corpus, asked], repeat=repeat)
                cpu, wall, megabytes = costs[name]
                print(f"  {name:8} {cpu:6.2f} s CPU  {wall:6.2f} s  {megabytes:5.0f} MB")
            for name, target in peers.items():
                met &= report(f"CPU {name} / r2med", costs[name].cpu / costs["r2med"].cpu, target)
            met &= report("CPU bm25-nano / bm25", costs["nano"].cpu / costs["r2med"].cpu, 1.3, at_least=False)
            if "bm25s" in costs:
                share = costs["r2med"].megabytes / costs["bm25s"].megabytes
                met &= report("memory r2med / bm25s", share, 1.0, at_least=False)
            made, found = kept_index(corpus, asked)
            print(f"  index made and kept in {made:.2f} s of CPU, found again in {found:.2f} s")
            met &= report("making an index / finding it on disk", made / found, 4.0)
    sys.exit(not met)


if __name__ == "__main__":
    main()
