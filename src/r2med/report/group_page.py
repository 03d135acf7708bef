"""The page of a group of tasks, and all pages on disk: Markdown to read, JSON to compute with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..core import IdTable, UsageError
from ..core.atomic import write_bytes
from ..core.table import NONE, Table, counted, markdown_text
from ..core.untrusted import component, inside
from ..tasks.nano.figures import ROLES, Inspected, NanoProfile, group
from .task_page import ROLE_NAMES, description, score, task_page

PROFILES = ["BM25", "Dense", "Hybrid"]


def group_table(profile: NanoProfile) -> Table:
    """The tasks of a group, and all of them by query; a mean over some of the tasks only is marked."""
    rows = [
        [t.task, f"{t.queries:,}", f"{t.documents:,}", f"{t.positives:,}", f"{t.positives_per_query:.2f}",
         *(score(t.profiles[r].ndcg_at_10 if r in t.profiles else None) for r in ROLES),
         ROLE_NAMES.get(t.best, NONE)]
        for t in profile.tasks.values()
    ]  # fmt: skip
    have = {r: g for r in ROLES if (g := profile.group[r]) is not None}
    complete = {r: g.ndcg_at_10 for r, g in have.items() if g.complete}
    cells = [score(have[r].ndcg_at_10) + ("" if have[r].complete else "*") if r in have else NONE for r in ROLES]
    best = ROLE_NAMES[max(complete, key=lambda r: complete[r])] if complete else NONE
    counts = [f"{profile.queries:,}", f"{profile.documents:,}", f"{profile.positives:,}"]
    rows.append(["All, by query", *counts, f"{profile.positives / profile.queries:.2f}", *cells, best])
    marked = "; * over the tasks that have the profile only." if any("*" in cell for cell in cells) else "."
    caption = f"nDCG@10 of the candidates; the last line weights tasks by their queries{marked}"
    titles = ["Task", "Queries", "Documents", "Positives", "Pos./query", *PROFILES, "Best"]
    return Table(titles, rows, caption)


def group_page(name: str, profile: NanoProfile, tasks: Sequence[Inspected]) -> str:
    """The whole page in Markdown."""
    table = group_table(profile)
    cells = [[markdown_text(cell) for cell in row] for row in table.rows]
    for row, page in zip(cells, tasks, strict=False):
        row[0] = f"[{row[0]}]({page.split}.md)"
    audits = [
        [p.split, f"{p.audit.flagged_queries} of {p.audit.queries}", str(p.audit.exact_copies.documents),
         str(p.audit.near_copies.documents)]
        for p in tasks
    ]  # fmt: skip
    copies = "Copies: documents that have at least one other of (nearly) the same text in their pool."
    lines = [
        f"# {markdown_text(name)}",
        "",
        f"{counted(len(profile.tasks), 'task')}, {counted(profile.queries, 'query', 'queries')}, "
        f"{counted(profile.positives, 'positive judgment')}.",
        "",
        "## Profiles",
        "",
        table._replace(rows=cells).markdown(ready=True),
        "",
        _other_figures(profile).markdown(),
        "",
        "## Audit",
        "",
        Table(["Task", "Flagged queries", "Exact copies", "Near copies"], audits, copies).markdown(),
    ]
    return "\n".join(lines) + "\n"


def _other_figures(profile: NanoProfile) -> Table:
    rows = [
        [ROLE_NAMES[role], f"{g.tasks} of {g.of_tasks}", score(g.ndcg_at_10), score(g.ndcg_at_10_task_mean),
         score(g.hit_at_10), score(g.recall_at_100), score(g.recall_macro_at_100), str(g.safeguard_rows)]
        for role, g in profile.group.items()
        if g is not None
    ]  # fmt: skip
    measures = ["nDCG@10", "nDCG@10, mean of tasks", "hit@10", "recall@100", "recall@100, macro"]
    return Table(["Profile", "Tasks", *measures, "Safeguards"], rows)


def write_pages(name: str, tasks: Sequence[Inspected], folder: Path) -> list[Path]:
    """Write a page and a JSON file per task, and `index.md` and `index.json` for the group."""
    names = ["index", *(page.split.casefold() for page in tasks)]  # some file systems fold capitals
    if repeated := IdTable(names).duplicates():
        raise UsageError(f"two of the pages would be called {repeated[0]!r}; write them into a folder each")
    profile = group([page.figures for page in tasks], source=name)
    files: dict[str, bytes] = {}
    for page in tasks:
        stem = component(page.split, "task")
        files[f"{stem}.md"] = task_page(page).encode()
        files[f"{stem}.json"] = _json(metadata(page))
    files |= {"index.md": group_page(name, profile, tasks).encode(), "index.json": _json(profile)}
    paths = {inside(folder, name, "page"): data for name, data in files.items()}
    for path, data in paths.items():
        write_bytes(path, data)
    return list(paths)


def metadata(page: Inspected) -> dict[str, Any]:
    """All figures of a page as plain data."""
    return {
        "schema": 1,
        "task": page.task.full_name,
        "split": page.split,
        "description": description(page),
        "fingerprint": page.task.fingerprint,
        "figures": page.figures,
        "contrasts": [c._asdict() for c in page.contrasts],
        "tendencies": page.tendencies,
        "terciles": [t._asdict() for t in page.terciles],
        "failures": page.traps,
        "audit": {"settings": page.audit_settings, "findings": page.audit, "scores": page.scores},
    }


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
