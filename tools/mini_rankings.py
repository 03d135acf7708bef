"""Write the rankings that ship with Mini: `python tools/mini_rankings.py`, after tools/mini_build.py.

The first ten documents of each system for each test query, for `r2med data audit mini --artefacts`: what the benchmark
can tell apart, and how much of a top ten nobody judged. It needs the models of the systems, and PyTorch for minilm.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from r2med.core.files import write_bytes
from r2med.pipeline import Builder, SystemSpec
from r2med.pipeline.calibration import FILE, Made, Ranking
from r2med.pipeline.run import rank_systems
from r2med.retrieve.contract import DEPTH
from r2med.tasks import load_all

KEPT = 10
COMPARED = ("bm25", "bge-small", "minilm", "bm25+bge-small.rrf")
SYSTEMS = (
    *COMPARED,
    "bm25-lucene",
    "bm25-nano",
    "bm25:b=0.75,k1=1.2",
    "bm25-nano:analyzer=english",
    "bm25+minilm.rrf",
    "bm25+bge-small.weighted:w=0.3/0.7",
    "bm25:b=0.9,k1=1.2+bge-small.weighted:w=0.3/0.7+neighbours@100",
    "bm25+bge-small.rrf+maxsim@50",
)


def main() -> None:
    systems = {name: Builder().build(SystemSpec.parse(name)) for name in SYSTEMS}
    for task in load_all("mini"):
        runs = rank_systems(task, list(systems.values()), depth=DEPTH, notify=print)
        lines = [
            Ranking(system=name, query_id=query.id, docs=[hit.doc_id for hit in run.of(query.id)[:KEPT]],
                    compared=name in COMPARED)
            for name, run in ((name, runs[system.name]) for name, system in systems.items())
            for query in task.queries
        ]  # fmt: skip
        made = Made(fingerprint=task.fingerprint)
        text = b"".join(msgspec.json.encode(line) + b"\n" for line in (made, *lines))
        write_bytes(Path(str(task.extra["path"])) / FILE, text)


if __name__ == "__main__":
    main()
