"""The ray executor: two workers against one on CPU encoding, and what Ray adds to a run that has nothing to encode.

Encoding: the same passages without a cache, on actors that have their model loaded, one and two in turns; each has one
CPU and one thread. Passages come from the vignettes beside the clone where they are there, else from Mini. It takes two
idle cores: a scheduler that shares them by session gives two busy workers no more than one. Overhead: whole `r2med run`
processes on Mini with everything cached, on a cluster that is up, against the same without Ray; the median of three.

    python benchmarks/cluster.py [--texts 1500] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from common import DATA, report

from r2med.core.files import home
from r2med.pipeline import Builder, SystemSpec
from r2med.pipeline.pooled_models import PoolExecutor
from r2med.pipeline.ray_workers import RayWorkers
from r2med.retrieve.dense import DenseRetriever
from r2med.retrieve.embed import embed
from r2med.tasks import resolve

MODEL = "bge-small"
ROUNDS = 6
RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--head", "--block"]


def passages(count: int) -> list[str]:
    """Real texts: evenly spread over the corpus, each once."""
    vignettes = DATA / "vignettes"
    refs = resolve(str(vignettes)) if vignettes.is_dir() else resolve("mini")
    texts = list(dict.fromkeys(text for ref in refs for text in ref.load().documents.contents))
    return texts[:: max(len(texts) // count, 1)][:count]


def encoding_seconds(texts: list[str]) -> tuple[float, float]:
    """What one and two warm workers take, in turns, so that what else the machine does weighs on both alike."""
    builder = Builder()
    (retriever,) = builder.build(SystemSpec.parse(MODEL)).retrievers
    assert isinstance(retriever, DenseRetriever)
    taken = {1: 0.0, 2: 0.0}
    with PoolExecutor("ray", RayWorkers(2, "local", "cpu", lambda text: None), lambda text: None) as executor:
        executor.adopt(builder.components)
        pool = executor.pool
        while len(pool.nodes) < 2:  # every worker says hello and loads its model
            embed(retriever.encoder, [f"{i} {text}" for i, text in enumerate(texts[:16])], "document")
        embed(retriever.encoder, [f"again {text}" for text in texts[:32]], "document")
        both = dict(pool.nodes)
        for start in range(ROUNDS):
            for workers in (1, 2) if start % 2 else (2, 1):
                pool.nodes = dict(list(both.items())[:workers])
                pool.workers.size = workers
                begin = time.perf_counter()
                embed(retriever.encoder, texts[start::ROUNDS], "document")
                taken[workers] += time.perf_counter() - begin
        pool.nodes, pool.workers.size = both, 2
    return taken[1], taken[2]


@contextmanager
def cluster() -> Iterator[str]:
    """A cluster of one node with a CPU for each of ours."""
    import ray

    with socket.socket() as found:
        found.bind(("", 0))
        port = found.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        command = [*RAY, f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}", "--disable-usage-stats"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(10)
            yield f"{ray.util.get_node_ip_address()}:{port}"
        finally:
            process.terminate()
            process.wait()


def run_seconds(*arguments: str, repeat: int = 3) -> float:
    """The median of whole processes that run everything again out of warm caches."""
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeat + 1):  # the first fills the caches
            begin = time.perf_counter()
            command = [sys.executable, "-m", "r2med", "run", "--tasks", "mini", "--results", folder, "--overwrite"]
            subprocess.run([*command, "--json", *arguments], check=True, capture_output=True)
            taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1500)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if not (home() / "models" / MODEL).is_dir():
        raise SystemExit(f"{MODEL} is not on this machine: r2med models fetch {MODEL}")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # a cluster for a minute, on this machine
    texts = passages(asked.texts)
    load = os.getloadavg()[0]
    one, two = encoding_seconds(texts)
    with cluster() as address:
        there = run_seconds("--executor", "ray", "--address", address)
    here = run_seconds()
    found = {
        "texts": len(texts),
        "characters": sum(map(len, texts)),
        "load_before": load,
        "one_worker_seconds": one,
        "two_workers_seconds": two,
        "speedup": one / two,
        "mini_local_seconds": here,
        "mini_ray_seconds": there,
        "overhead_seconds": there - here,
    }
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{len(texts)} passages: {one:.1f} s with one worker, {two:.1f} s with two; load before {load:.1f}")
    met = report("two Ray workers against one", one / two, 1.7)
    print(f"Mini, all cached: {here:.2f} s without Ray, {there:.2f} s with it")
    met &= report("seconds that Ray adds", there - here, 3.0, at_least=False)
    raise SystemExit(not met)


if __name__ == "__main__":
    main()
