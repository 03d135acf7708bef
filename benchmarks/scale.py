"""How cost grows: indexing and encoding from 1,000 to 100,000+ documents, search against the speed of memory.

    python benchmarks/scale.py                     all of it
    python benchmarks/scale.py indexing search     some

A document should cost no more to index or encode among many than among few: the slope of seconds over documents, both
as logarithms, is at most 1.05 over all sizes, and 1 where growth is steady. Search for one query reads the whole
matrix once, so reading it is the least it can take.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from common import DATA, english_like, report, seconds, skipped

from r2med.cache import EmbeddingCache
from r2med.core import Document, Documents, Qrels, Query, Task
from r2med.core.options import Options
from r2med.retrieve import get_retriever
from r2med.retrieve.rows import ArrayRows
from r2med.retrieve.sparse import available_cores
from r2med.retrieve.vectors import search
from r2med.tasks import write_task
from r2med.tasks.load import from_path

SIZES = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000)
LARGE = 3
"""Where growth is steady: the first thousand documents bring words that later ones only repeat, so they cost more."""
WORDS = 120
SHORT = 8
"""Words of a passage for encoding: growth is in the number of passages, and a model takes its time for each."""
MATRIX = (200_000, 400_000, 800_000)
DIMENSION = 384


def main() -> None:
    parts = {"indexing": indexing, "encoding": encoding, "search": searching}
    chosen = sys.argv[1:] or list(parts)
    if unknown := [name for name in chosen if name not in parts]:
        raise SystemExit(f"no part {unknown[0]}; there are {', '.join(parts)}")
    met = [parts[name]() for name in chosen]
    sys.exit(0 if all(met) else 1)


def slope(sizes: tuple[int, ...], times: list[float]) -> float:
    """Of the line through both logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def grown(name: str, sizes: tuple[int, ...], times: list[float]) -> bool:
    for size, taken in zip(sizes, times, strict=True):
        print(f"     {name} {size:>7,} documents: {taken:8.3f} s of CPU, {size / taken:,.0f} a second")
    whole, steady = slope(sizes, times), slope(sizes[LARGE:], times[LARGE:])
    met = report(f"{name}: slope over the whole range", whole, 1.05, at_least=False)
    ends = f"{name}: slope from {sizes[LARGE]:,} documents on"
    return met & report(ends, steady, 1.05, at_least=False) & report(ends, steady, 0.95)


def indexing() -> bool:
    """From a file of documents to the first answer."""
    texts = real_texts() or english_like(np.random.default_rng(0), max(SIZES), WORDS)
    sizes = (*(size for size in SIZES if size < len(texts)), len(texts))
    times = []
    for size in sizes:
        documents = Documents.of(Document(f"d{i}", text) for i, text in enumerate(texts[:size]))
        task = Task("scale", (Query("q", "neuritis"),), documents, Qrels.from_judgments([("q", "d0", 1)]))
        with tempfile.TemporaryDirectory() as folder:
            write_task(task, Path(folder) / "task", to="r2med")

            def index(path: Path = Path(folder) / "task") -> None:
                get_retriever("bm25", Options(cache=False)).retrieve(from_path(path)[0].load(), depth=10)

            times.append(min(seconds(index, 9 if size < 60_000 else 3)))
    return grown("indexing", sizes, times)


def real_texts() -> list[str]:
    """The passages of the medical test collections beside the project, shuffled; none where they are not there."""
    files = sorted(DATA.glob("*/corpus.jsonl.gz"))
    texts = [json.loads(line)["text"] for path in files for line in gzip.decompress(path.read_bytes()).splitlines()]
    return [texts[i] for i in np.random.default_rng(0).permutation(len(texts))]


def encoding() -> bool:
    from r2med.core.spec import Spec
    from r2med.models import get_card, locate
    from r2med.retrieve.dense import DenseRetriever
    from r2med.retrieve.encoders import load_encoder

    card = get_card("bge-small")
    if locate(card) is None:
        return skipped("encoding", "r2med models fetch bge-small")
    texts = english_like(np.random.default_rng(1), max(SIZES), SHORT)
    times = []
    for size in SIZES:

        def encode(size: int = size) -> None:
            with tempfile.TemporaryDirectory() as folder:
                cache = EmbeddingCache(Path(folder))
                retriever = DenseRetriever(load_encoder(card), Spec(card.name), card=card, cache=cache)
                retriever.embed(["warm"], "document", "")
                retriever.embed(texts[:size], "document", "")

        times.append(min(seconds(encode, 3 if size < 16_000 else 1)))
    return grown("encoding", SIZES, times)


def searching() -> bool:
    """One query at a time, as a person searches."""
    rng = np.random.default_rng(2)
    met = []
    for size in MATRIX:
        matrix = rng.standard_normal((size, DIMENSION), dtype=np.float32)
        matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
        query, ties = rng.standard_normal((1, DIMENSION), dtype=np.float32), rng.permutation(size).astype(np.int32)
        rows = ArrayRows(matrix)
        search(query, rows, ties, 100)
        ratios = []
        for _ in range(7):  # side by side, so that both meet the same machine
            bound = reading(matrix)
            ratios.append(min(seconds(partial(search, query, rows, ties, 100), clock=time.perf_counter)) / bound)
        print(f"     {size:,} × {DIMENSION}: {matrix.nbytes / bound / 1e9:.1f} GB/s are read here")
        ratio = statistics.median(ratios)
        met.append(report(f"search of {size:,} vectors / reading them", ratio, 1.2, at_least=False))
    return all(met)


def reading(matrix: np.ndarray) -> float:
    """All of it through the largest number on every core: numpy's quickest pass over an array."""
    cores = available_cores()
    bounds = np.linspace(0, len(matrix), cores + 1).astype(int).tolist()
    parts = [matrix[a:b].reshape(-1) for a, b in pairwise(bounds)]
    with ThreadPoolExecutor(cores) as pool:
        return min(seconds(lambda: list(pool.map(np.maximum.reduce, parts)), clock=time.perf_counter))


if __name__ == "__main__":
    main()
