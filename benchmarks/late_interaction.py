"""Late interaction: exact MaxSim over an index of 60,000 passages on disk, against the speed of memory.

`python benchmarks/late_interaction.py` builds the index as a run does, from vectors of 128 dimensions that are cheap
to make, and searches it for queries of several lengths. Reading is the fastest reduction that numpy has, over the
same mapped bytes, on as many threads. `… precision` compares the numbers that are kept with those of the model:
scores and nDCG@10 on Mini, with the vectors of bge-small's tokens.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import report, seconds, skipped

PASSAGES, DIMENSION, DEPTH = 60_000, 128, 1000
TOKENS = (8, 16, 32, 64, 128)
POOL = 1 << 17


class Drawn:
    """Vectors of length one, drawn from a pool; passages have 32 to 320 tokens, 176 on average."""

    name = "drawn"

    def __init__(self) -> None:
        self.notes: Counter[str] = Counter()
        made = np.random.default_rng(0).standard_normal((POOL, DIMENSION), dtype=np.float32)
        self.pool = made / np.linalg.norm(made, axis=1, keepdims=True)

    def describe(self, side: str) -> dict[str, object]:
        """All vectors come from one pool."""
        return {"backend": "benchmark", "side": side}

    def max_length(self, side: str) -> int:
        """Beyond the longest."""
        del side
        return 512

    def work_order(self, texts: Sequence[str]) -> Any:
        """Not dealt out."""
        raise NotImplementedError

    def stream_states(self, texts: Sequence[str], side: str, instruction: str = "") -> Iterator[Any]:
        """A slice of the pool for each text."""
        from r2med.retrieve.encoders import TokenBatch

        del instruction
        rng = np.random.default_rng(len(texts))
        for begin in range(0, len(texts), 256):
            rows = np.arange(begin, min(begin + 256, len(texts)))
            sizes = [int(t) for t in texts] if side == "query" else rng.integers(32, 321, len(rows)).tolist()
            first = rng.integers(0, POOL - 512, len(rows)).tolist()
            states = [self.pool[a : a + n] for a, n in zip(first, sizes, strict=True)]
            yield TokenBatch(rows, states, np.array(sizes, dtype=np.int32))


def indexed(folder: Path) -> Any:
    """An index of the passages, as a run makes it."""
    from r2med.cache import EmbeddingCache
    from r2med.core import Document, Documents, Qrels, Query, Task
    from r2med.core.options import Options
    from r2med.core.spec import Spec
    from r2med.models import get_card
    from r2med.retrieve.late_interaction import MaxSimRetriever

    documents = Documents.of(Document(f"d{i:05d}", f"passage {i}") for i in range(PASSAGES))
    task = Task("made", tuple(Query(f"q{n}", str(n)) for n in TOKENS), documents, Qrels.from_judgments([]))
    card = get_card("colbert-small-backbone")
    encoder: Any = Drawn()
    made = MaxSimRetriever(card, Spec("drawn"), encoder, Options(), cache=EmbeddingCache(folder))
    return made.prepare(task)


def read(index: Any) -> None:
    """Every byte of the vectors, on all cores."""
    from r2med.retrieve.sparse import in_parallel

    for piece in index.documents.pieces():
        numbers = piece.matrix.reshape(-1).view(np.int32)

        def work(begin: int, end: int, numbers: Any = numbers) -> None:
            np.maximum.reduce(numbers[begin:end])

        in_parallel(work, len(numbers))


def products() -> float:
    """Products a CPU second where no memory is waited for: a long query and passages that stay in a core's cache."""
    from r2med.retrieve import maxsim

    rng = np.random.default_rng(1)
    query, rows = (rng.integers(-3000, 3000, (count, DIMENSION)).astype(np.int16) for count in (128, 512))
    starts, sizes = np.zeros(256, np.int64), np.full(256, len(rows))
    ends, scores = np.array([len(query)]), np.empty((1, len(sizes)), np.float32)
    work = (query, ends, rows, starts, sizes, scores, DIMENSION, len(sizes), 0, len(sizes), 0, 0)
    taken = min(seconds(lambda: maxsim.native.scores(*work), 5))
    return len(query) * len(rows) * len(sizes) * DIMENSION / taken


def anonymous() -> float:
    """Megabytes that are held beside mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1024


def peak(work: Callable[[], object]) -> float:
    """The most megabytes beside mapped files while some work goes on."""
    seen, done = [anonymous()], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            seen.append(anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return max(seen)


def speed() -> bool:
    from r2med.core.queries import Queries
    from r2med.retrieve import maxsim

    with tempfile.TemporaryDirectory() as scratch:
        begin = time.perf_counter()
        index = indexed(Path(scratch))
        vectors = sum(int(piece.sizes.sum()) for piece in index.documents.pieces())
        size = vectors * DIMENSION * 2
        print(
            f"     {PASSAGES:,} passages, {vectors:,} vectors: {size / 1e9:.2f} GB, {maxsim.native.ways()[0]}, ", end=""
        )
        print(f"kept in {time.perf_counter() - begin:.0f} s")
        queries = Queries.of(index.task)

        def search(number: int) -> Callable[[], object]:
            states, _ = index._states([str(TOKENS[number])])
            return lambda: index._rank(states, queries.texts[number : number + 1], DEPTH)

        most = products()
        reading, ratios = [], {}
        for number, tokens in enumerate(TOKENS):
            reading += seconds(lambda: read(index), 3)
            work = search(number)
            taken, wall = min(seconds(work, 3)), min(seconds(work, 3, clock=time.perf_counter))
            ratios[tokens] = min(reading) / taken
            rate = vectors * tokens * DIMENSION / taken
            share = f"{rate / 1e9:.0f} G products a CPU second, {rate / most:.2f} of the most"
            print(f"     query of {tokens} tokens: {wall:.2f} s, {taken:.2f} CPU seconds, {share}")
        print(f"     without memory: {most / 1e9:.0f} G products a CPU second")
        print(f"     reading once: {min(reading):.2f} CPU seconds, {size / min(reading) / 1e9:.1f} GB a CPU second")
        for tokens, ratio in ratios.items():
            print(f"     query of {tokens} tokens: {ratio:.2f} of the speed of reading")
        # Longer queries are bound by arithmetic: what they reach of the most products says how well they do.
        met = report("query of 16 tokens, of the speed of reading the index", ratios[16], 0.4)
        if sys.platform == "linux":
            held = peak(lambda: index.search(queries, DEPTH))
            met &= report("gigabytes beside the mapped index", held / 1024, 2, at_least=False)
    return met


def rounded(kind: str, vectors: Any) -> Any:
    """Vectors of length one in a number format, as exact float64."""
    if kind == "int8":
        return np.clip(np.rint(vectors * 128), -127, 127).astype(np.float64) / 128
    if kind == "int16":
        from r2med.retrieve.maxsim import STEPS, fixed_point

        return fixed_point(vectors).astype(np.float64) / STEPS
    return vectors.astype(kind).astype(np.float64)


def precision() -> bool:
    """What is kept against what the model gives: all pairs of Mini's queries and passages."""
    import r2med
    from r2med.core import Run
    from r2med.core.options import Options
    from r2med.models import get_card, locate
    from r2med.retrieve.cards import prefix_for
    from r2med.retrieve.encoders import token_encoder
    from r2med.retrieve.sparse import top_k
    from r2med.retrieve.vectors import unit

    card = get_card("bge-small")
    if (folder := locate(card)) is None:
        return skipped("precision", "r2med models fetch bge-small")
    encoder = token_encoder(card, folder, Options())

    def states(texts: Sequence[str], side: Any, task: Any) -> list[Any]:
        made: dict[int, Any] = {}
        for batch in encoder.stream_states(texts, side, prefix_for(card, side, task)):
            made |= dict(zip(batch.rows.tolist(), map(unit, batch.states), strict=True))
        return [made[i] for i in range(len(texts))]

    found: dict[str, list[Any]] = {}
    exact: list[Any] = []
    for task in r2med.load_all("mini"):
        queries, passages = states(task.query_texts, "query", task), states(task.documents.contents, "document", task)
        for kind in ("float32", "float16", "int16", "int8"):
            given = [rounded(kind, p) for p in passages]
            # float32 and float16 keep the queries as they are; whole numbers need both sides.
            asked = [rounded(kind if kind.startswith("int") else "float32", q) for q in queries]
            scores = np.array([[(p @ q.T).max(axis=0).sum() for p in given] for q in asked])
            exact.append(scores) if kind == "float32" else None
            top = top_k(scores.astype(np.float32), task.documents.ids.tie_rank, 10)
            run = Run(task.query_ids, task.documents.ids, *top, name=kind)
            ndcg = r2med.score(run, task.qrels, measures=["nDCG@10"]).mean("nDCG@10")
            found.setdefault(kind, []).append((ndcg, top.docs, np.abs(scores - exact[-1]).max()))
    for kind, results in found.items():
        value = np.mean([ndcg for ndcg, _, _ in results])
        places = [(a[1] == b[1]).reshape(-1) for a, b in zip(results, found["float32"], strict=True)]
        error = max(error for _, _, error in results)
        same = f"{np.concatenate(places).mean():.2%} of all first ten places"
        print(f"     {kind}: nDCG@10 {value:.6f}, {same}, scores {error:.1e} away at most")
    return True


def main() -> None:
    sys.exit(not (precision() if sys.argv[1:] == ["precision"] else speed()))


if __name__ == "__main__":
    main()
