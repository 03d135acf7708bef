"""`README.md`: the dataset card, whose header tells the `datasets` library which files are which config and split."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from ..._version import __version__
from .figures import ROLES, TaskFigures
from .folder import TaskManifest

HUB_LICENCES = {"CC BY 4.0": "cc-by-4.0", "MIT": "mit", "Apache-2.0": "apache-2.0"}
TITLES = {"bm25": "BM25", "dense": "Dense", "hybrid": "Hybrid"}


class CardEntry(NamedTuple):
    """What the card says about one task."""

    split: str
    configs: list[str]
    manifest: TaskManifest
    figures: TaskFigures
    licence: str


def dataset_card(tasks: Sequence[CardEntry]) -> str:
    """The whole card; its title depends on the tasks alone, not on the folder it lies in."""
    several = len(tasks) > 1
    body = files(__package__).joinpath("card.txt").read_text("utf-8")
    body = body.format(
        count=f"{len(tasks)} retrieval tasks" if several else "One retrieval task",
        version=__version__,
        tasks="\n".join(_task_table(tasks)),
        scores="\n".join(_score_table(tasks)),
        split=tasks[0].split,
    )
    title = f"{len(tasks)} Nano retrieval tasks" if several else tasks[0].split
    return f"{_header(tasks)}\n\n# {title}\n\n{body}"


def _header(tasks: Sequence[CardEntry]) -> str:
    configs: dict[str, list[str]] = {}
    for task in tasks:
        for config in ("corpus", "queries", "qrels", *task.configs):
            configs.setdefault(config, []).append(task.split)
    licences = {HUB_LICENCES.get(task.licence, "other") for task in tasks}
    lines = ["---", f"license: {licences.pop() if len(licences) == 1 else 'other'}", "language:", "- en"]
    lines += ["task_categories:", "- text-retrieval", "tags:", "- medical", "- information-retrieval", "configs:"]
    for config, splits in configs.items():
        lines += [f"- config_name: {config}", *(["  default: true"] if config == "corpus" else []), "  data_files:"]
        for split in splits:
            path = json.dumps(f"{config}/{split}-00000-of-00001.parquet")
            lines += [f"  - split: {split}", f"    path: {path}"]
    return "\n".join([*lines, "---"])


def _task_table(tasks: Sequence[CardEntry]) -> list[str]:
    head = "| Task | Source | Queries | Documents | Positives | Fill | Seed |"
    rows = [
        f"| {t.split} | {t.manifest.source}{f'@{t.manifest.revision}' if t.manifest.revision else ''} "
        f"| {t.figures.queries:,} | {t.figures.documents:,} | {t.figures.positives:,} | {t.manifest.fill} "
        f"| {t.manifest.seed} |"
        for t in tasks
    ]
    return [head, "|:---|:---|---:|---:|---:|:---|---:|", *rows]


def _score_table(tasks: Sequence[CardEntry]) -> list[str]:
    roles = [role for role in ROLES if any(role in t.figures.profiles for t in tasks)]
    head = f"| Task | {' | '.join(TITLES[r] for r in roles)} |"
    rows = [
        f"| {t.split} | "
        + " | ".join(f"{t.figures.profiles[r].ndcg_at_10:.4f}" if r in t.figures.profiles else "–" for r in roles)
        + " |"
        for t in tasks
    ]
    return [head, f"|:---|{'---:|' * len(roles)}", *rows]
