"""The artefact audit of Mini and of real sets, as the Markdown tables of docs/audit.md.

    python benchmarks/artefacts.py [FOLDER]

FOLDER holds a set in each of its folders; without it, the two editions of Mini alone are audited.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import r2med
from r2med.core.table import Table
from r2med.pipeline.artefact_report import THRESHOLDS
from r2med.pipeline.artefacts import artefacts
from r2med.tasks.load import from_path

if TYPE_CHECKING:
    from r2med.pipeline.artefact_report import Finding, TaskArtefacts

NAMES = {
    "scifact": "SciFact", "bioasq-snippets": "BioASQ snippets", "liveqa-med": "LiveQA-Med",
    "evidence": "Evidence Inference", "vignettes": "Exam vignettes",
}  # fmt: skip
MARKS = {"fails": "**", "passes": "", "cannot be told": "?"}


def cell(finding: Finding | None) -> str:
    """A figure with its interval: bold where it fails, with a question mark where nothing can be told."""
    if finding is None or finding.value is None:
        return "–"
    mark = MARKS[finding.verdict]
    value = f"{mark}{finding.value:.2f}{mark}"
    return value if finding.low is None else f"{value} ({finding.low:.2f} to {finding.high:.2f})"


def row(name: str, findings: list[Finding]) -> list[str]:
    found = {finding.check: finding for finding in findings}
    return [name, *(cell(found.get(check)) for check in THRESHOLDS)]


def parts(name: str, task: TaskArtefacts) -> list[str]:
    first = task.separations[0]
    values = [first.auc, first.pooled, *first.parts.values()]
    return [f"{name} ({'judged' if first.negatives_are == 'judged' else 'BM25'})", *(f"{v.value:.2f}" for v in values)]


def main() -> None:
    begin, processor = time.perf_counter(), time.process_time()
    reports, rows = [], []
    for collection in ("mini", "mini@1"):
        found = artefacts(r2med.load_all(collection))
        reports += [(task.task, task) for task in found.tasks]
        rows += [row(task.task, task.findings) for task in found.tasks]
        rows.append(row(f"{collection}, all tasks", found.overall))
        print(f"{collection}: {time.process_time() - processor:.1f} s of CPU time in all", file=sys.stderr)
    for folder in sorted(Path(sys.argv[1]).iterdir()) if len(sys.argv) > 1 else ():
        if not folder.is_dir():
            continue
        ((task,),) = [artefacts([ref.load() for ref in from_path(folder)]).tasks]
        reports.append((NAMES.get(task.task, task.task), task))
        rows.append(row(reports[-1][0], task.findings))
        print(f"{task.task}: {time.process_time() - processor:.1f} s of CPU time in all", file=sys.stderr)
    titles = ["Task", "Judged negatives", "BM25's top 20", "By word length", "By length", "Answer", "Quoting", "Twins",
              "Order"]  # fmt: skip
    print(Table(titles, rows).markdown(ready=True), end="\n\n")
    columns = ["Task (negatives)", "AUC", "Pooled", *(name.capitalize() for name in reports[0][1].separations[0].parts)]
    print(Table(columns, [parts(name, task) for name, task in reports]).markdown(ready=True))
    print(f"{time.perf_counter() - begin:.0f} s, {time.process_time() - processor:.0f} s of CPU time", file=sys.stderr)


if __name__ == "__main__":
    main()
