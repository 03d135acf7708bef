"""Does a Nano rank systems as its full set does? Kendall's τ and inflation by fill on real sets, in Markdown.

Sets can be named, and further systems behind `--with`, dense and fused ones included; each full corpus is then encoded:

    python benchmarks/nano_fidelity.py scifact --with bge-small bm25+bge-small.rrf
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common import DATA

if TYPE_CHECKING:
    from r2med.pipeline.nano_build import Fidelity
    from r2med.scoring.intervals import Estimate

# A pool is smaller than its set, and larger than all positives.
POOLS = {"scifact": 1_000, "bioasq-snippets": 10_000, "liveqa-med": 3_000, "evidence": 3_000, "vignettes": 10_000}
SYSTEMS = (
    "bm25", "bm25-lucene", "bm25-nano", "bm25:k1=1.2,b=0.75", "bm25:k1=0.4,b=0.2", "bm25-lucene:k1=2,b=1",
    "bm25-lucene:k1=0.4,b=0", "bm25-nano:analyzer=english", "bm25:analyzer=whitespace", "bm25-lucene:analyzer=regex",
)  # fmt: skip


def measured(name: str, fill: str, systems: Sequence[str]) -> Fidelity:
    """The agreement of one set with its Nano."""
    from r2med.api.data import nano_fidelity
    from r2med.pipeline.nano_build import build_nano
    from r2med.retrieve import get_retriever
    from r2med.tasks.load import from_path
    from r2med.tasks.nano import FILLS, PoolSettings

    chosen = next(known for known in FILLS if known == fill)
    with tempfile.TemporaryDirectory() as folder:
        settings, nano = PoolSettings(docs=POOLS[name], fill=chosen), Path(folder, "nano")
        build_nano(from_path(DATA / name), nano, settings, bm25=get_retriever("bm25-nano"), dense=None)
        return nano_fidelity(str(DATA / name), str(nano), *systems)


def shown(value: Estimate, digits: int) -> str:
    return f"{value.value:.{digits}f} ({value.low:.{digits}f} to {value.high:.{digits}f})"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("sets", nargs="*", metavar="SET", help=f"Some of {', '.join(POOLS)}; by default all.")
    arguments.add_argument("--with", nargs="+", default=[], dest="more", metavar="SYSTEM")
    given = arguments.parse_args()
    if unknown := set(given.sets) - set(POOLS):
        arguments.error(f"unknown sets: {', '.join(sorted(unknown))}")
    if not DATA.is_dir():
        sys.exit("needs real collections beside the clone")
    systems = (*SYSTEMS, *given.more)
    print(f"{len(systems)} systems: {', '.join(f'`{s}`' for s in systems)}.\n")
    print("| Set | Queries | Pool | Fill | Kendall's τ | Inflation of nDCG@10 |\n|:---|---:|---:|:---|---:|---:|")
    found: dict[str, list[Fidelity]] = {}
    for name in given.sets or POOLS:
        for fill in ("source-order", "hard", "random"):
            fidelity = measured(name, fill, systems)
            found.setdefault(fill, []).append(fidelity)
            cells = [shown(fidelity.kendall, 2), shown(fidelity.inflation, 3)]
            print(f"| {name} | {fidelity.queries} | {POOLS[name]:,} | `{fill}` | {' | '.join(cells)} |", flush=True)
    for fill, of_fill in found.items():
        tau, inflation = (
            sum(getattr(f, part).value for f in of_fill) / len(of_fill) for part in ("kendall", "inflation")
        )
        print(f"| mean | – | – | `{fill}` | {tau:.2f} | {inflation:.3f} |")


if __name__ == "__main__":
    main()
