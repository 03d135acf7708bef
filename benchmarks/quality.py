"""Quality on real collections: every set with every system, written as a Markdown page.

    python benchmarks/quality.py FOLDER-OF-TASKS --results results-quality --out docs/results.md

Resumable like every run of r2med; the page is written from the stored results alone, so `--write-only` needs no model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from r2med.core.options import Options
from r2med.core.table import Table
from r2med.pipeline import Builder, SystemSpec, run_experiment
from r2med.report import score_table
from r2med.results import ResultStore, TaskResult
from r2med.scoring import Measure
from r2med.tasks import resolve

SYSTEMS = [
    "bm25", "bm25-lucene", "bge-small", "minilm", "bm25+bge-small.rrf", "bm25+minilm.rrf",
    "bm25:b=0.9,k1=1.2+bge-small.weighted:w=0.3/0.7", "bm25:b=0.9,k1=1.2+bge-small.weighted:w=0.3/0.7+neighbours@100",
]  # fmt: skip
MEASURES = ["nDCG@10", "R@100"]
BEHIND = "## The best pipeline without a chat model\n"


def run(folder: Path, store: ResultStore, names: list[str], options: Options) -> None:
    builder = Builder(options)
    systems = [builder.build(SystemSpec.parse(name)) for name in names]
    for ref in resolve(str(folder)):
        run_experiment([ref], systems, store, notify=lambda *event: print(*event, flush=True))


def page(results: list[TaskResult]) -> str:
    order = {name: i for i, name in enumerate(SYSTEMS)}
    results = sorted(results, key=lambda r: (order.get(r.system.name, 99), r.task.name))
    lines = [
        "# Quality on real collections",
        "",
        "Written by `benchmarks/quality.py`; title and text are searched.",
        "",
    ]
    for measure in map(Measure.parse, MEASURES):
        table = score_table(results, measure)
        whole, shown = table.table(), 1 + len(table.tasks)
        by_task = Table(whole.titles[:shown], [row[:shown] for row in whole.rows])
        lines += [f"## {measure} × 100", "", by_task.markdown(), ""]
    lines += [
        "## What was run",
        "",
        "| set | queries | documents | judgments | fingerprint |",
        "|:---|---:|---:|---:|:---|",
    ]
    for task in {r.task.name: r.task for r in results}.values():
        counts = f"{task.queries:,} | {task.documents:,} | {task.judgments:,}"
        lines.append(f"| {task.name} | {counts} | `{task.fingerprint[:12]}` |")
    lines += [
        "",
        "| system | set | documents cut | positives cut | seconds | machine |",
        "|:---|:---|---:|---:|---:|:---|",
    ]
    for r in results:
        cut = r.notes.get("truncation", {})
        documents = cut.get("document", {}) if isinstance(cut, dict) else {}
        if documents:
            cut_counts = f"{documents.get('texts_cut', 0):,} | {documents.get('positives_cut', 0):,}"
            spent = f"{sum(r.seconds.values()):,.0f} | {r.environment.get('processor')}"
            lines.append(f"| {r.system.name} | {r.task.name} | {cut_counts} | {spent} |")
    return "\n".join(lines) + "\n"


def kept(path: Path) -> str:
    """What stands on the page behind the tables that are written here."""
    written = path.read_text("utf-8") if path.exists() else ""
    _, found, behind = written.partition(BEHIND)
    return "\n" + found + behind if found else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results-quality"))
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--system", action="append", help=f"instead of {', '.join(SYSTEMS)}")
    parser.add_argument("--device")
    parser.add_argument("--write-only", action="store_true")
    given = parser.parse_args()
    store = ResultStore(given.results)
    if not given.write_only:
        run(given.folder, store, given.system or SYSTEMS, Options(device=given.device))
    given.out.write_text(page(list(store)) + kept(given.out))


if __name__ == "__main__":
    main()
