"""Write the ledger's reference figures of Mini: `python tools/mini_reference.py`.

They are our own, made by r2med on the built-in tasks, so that `r2med reproduce --collection mini` can tell on any
machine whether BM25 still gives what it gave. Run it again when Mini or BM25 changes on purpose.
"""

from __future__ import annotations

import tempfile
from datetime import date
from pathlib import Path

from r2med import __version__
from r2med.core.files import write_bytes
from r2med.pipeline import Builder, SystemSpec, run_experiment
from r2med.results import ResultStore, TaskResult
from r2med.tasks import resolve

TARGET = Path(__file__).parent.parent / "src" / "r2med" / "results" / "ledger" / "mini.toml"
SYSTEMS = {"bm25": "BM25, query weighted as a document", "bm25-lucene": "BM25, sum over query terms"}
MEASURES = ("ndcg_at_10", "map_at_10", "recall_at_10", "recall_at_100")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        systems = [Builder().build(SystemSpec.parse(name)) for name in SYSTEMS]
        results = run_experiment(resolve("mini"), systems, ResultStore(folder)).results
    write_bytes(TARGET, ledger_text(results).encode())


def ledger_text(results: list[TaskResult]) -> str:
    by_system = {name: [r for r in results if r.system.name == name] for name in SYSTEMS}
    tasks = [r.task for r in by_system["bm25"]]
    lines = [
        "# Reference figures of Mini, measured by r2med itself and written by tools/mini_reference.py.",
        "[[source]]",
        'id = "r2med-mini-reference"',
        'title = "r2med on its built-in Mini"',
        'url = "https://github.com/r2med/r2med"',
        f'date = "{date.today():%Y-%m}"',
        'protocol = "default"',
        'collection = "mini"',
        "measured = true",
        "scale = 1",
        "tolerance = 0.01",
        f'note = "made by r2med {__version__}"',
        f"tasks = [{', '.join(_quoted(t.name) for t in tasks)}]",
        f"queries = {[t.queries for t in tasks]}",
        "fingerprints = [",
        *(f"    {_quoted(t.fingerprint)}," for t in tasks),
        "]",
    ]
    for name, label in SYSTEMS.items():
        lines += ["", f"[source.systems.{_quoted(name)}]", f"label = {_quoted(label)}", 'kind = "retriever"']
        for measure in MEASURES:
            values = (f"{r.measures[measure]:.10f}" for r in by_system[name])
            lines.append(f"{measure} = [{', '.join(values)}]")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return f'"{text}"'


if __name__ == "__main__":
    main()
