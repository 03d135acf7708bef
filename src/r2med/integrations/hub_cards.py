"""Cards for the hub: what a dataset or a set of results is, where it comes from, and under which terms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files

from .._version import __version__
from ..core.table import points
from ..report.collection import by_system
from ..results import TaskResult, macro_average
from ..scoring import MAIN
from ..tasks.nano.folder import HUB_LICENCES, Manifest

MARK = "<!-- prepared by r2med export hub -->"
NOT_CLINICAL = (
    "For research on retrieval. This is not a clinical decision system and not a source of medical advice: a passage "
    "that ranks high is not thereby true, current or right for a patient."
)


def known_licences(licences: Iterable[str]) -> str:
    """The licence that all sources share; empty where one of them states none or they differ."""
    found = set(licences)
    return found.pop() if len(found) == 1 else ""


def nano_card(card: str, repo: str, manifest: Manifest, licence: str) -> str:
    """The card of a Nano folder with its place on the hub, its sources and their terms."""
    text = card.replace("path/to/this/folder", repo)
    head, _, body = text.removeprefix("---\n").partition("\n---\n")
    stated = f"license: {_hub_licence(licence)}"
    lines = [stated if line.startswith("license:") else line for line in head.split("\n")]
    sources = [
        f"| {split} | {_source(t.source, t.revision)} | `{t.source_fingerprint[:16]}` | `{t.fingerprint[:16]}` |"
        for split, t in manifest.tasks.items()
    ]
    return "\n".join(
        [
            "---", *lines, "---", MARK, body.strip(), "",
            "## Provenance", "",
            f"Built by {manifest.made_by}, prepared for the hub by r2med {__version__}. Fingerprints are hashes of the "
            "whole content; two tasks with equal ones hold the same texts and judgments.", "",
            "| Task | Source | Fingerprint of the source | Fingerprint of this task |",
            "|:---|:---|:---|:---|", *sources, "",
            *_terms(licence), "", NOT_CLINICAL, "",
        ]
    )  # fmt: skip


def results_card(results: Sequence[TaskResult], repo: str, licence: str) -> str:
    """The card of a set of results."""
    grouped = by_system(results)
    tables = [
        f"## {collection or 'Tasks of our own'}: nDCG@10 × 100\n\n" + "\n".join(_scores(grouped, collection))
        for collection in dict.fromkeys(r.task.collection for r in results)
    ]
    template = files(__package__).joinpath("results_card.txt").read_text("utf-8")
    return template.format(
        licence=_hub_licence(licence),
        mark=MARK,
        systems=f"{len(grouped)} retrieval system{'s' * (len(grouped) != 1)}",
        results=f"{len(results)} result{'s' * (len(results) != 1)}",
        tables="\n\n".join(tables),
        repo=repo,
        provenance="\n".join(_provenance(results)),
        terms="\n".join(_terms(licence)),
        not_clinical=NOT_CLINICAL,
    )


def _scores(grouped: dict[str, dict[str, TaskResult]], collection: str) -> list[str]:
    tasks = list(
        dict.fromkeys(r.task.name for of in grouped.values() for r in of.values() if r.task.collection == collection)
    )
    lines = [f"| System | {' | '.join(tasks)} | Average |", f"|:---|{'---:|' * (len(tasks) + 1)}"]
    ranked = []
    for system, of_system in grouped.items():
        here = {r.task.name: r for r in of_system.values() if r.task.collection == collection}
        if not here:
            continue
        whole = macro_average([r.measures for r in here.values()])[MAIN.key] if len(here) == len(tasks) else None
        cells = [points(here[t].measures[MAIN.key] if t in here else None) for t in tasks]
        line = f"| {_cell(system)} | {' | '.join(cells)} | {points(whole)} |"
        ranked.append((-1.0 if whole is None else whole, line))
    return lines + [line for _, line in sorted(ranked, key=lambda r: -r[0])]


def _provenance(results: Sequence[TaskResult]) -> list[str]:
    tasks = {r.task.full_name: r.task for r in results}
    versions = sorted({str(_part(r.environment.get("versions"), "r2med")) for r in results})
    lines = [f"Measured with r2med {', '.join(versions)}; prepared for the hub by r2med {__version__}.", ""]
    lines += ["| Task | Source | Queries | Documents | Fingerprint |", "|:---|:---|---:|---:|:---|"]
    for name, t in tasks.items():
        source = t.source if not t.source.startswith(("/", "~")) else "a folder of our own"
        shown = _cell(_source(source, t.revision))
        row = [_cell(name), shown, f"{t.queries:,}", f"{t.documents:,}", f"`{t.fingerprint[:16]}`"]
        lines.append(f"| {' | '.join(row)} |")
    return lines


def _source(source: str, revision: str) -> str:
    """`org/name@revision` as the hub writes it; in words where the source is no repository."""
    if not revision:
        return source
    return f"{source}@{revision}" if "/" in source else f"{source}, revision {revision}"


def _terms(licence: str) -> list[str]:
    said = (
        f"The source data are under {licence}. Keep to its terms, and credit the source, when you use what was made "
        "from them."
        if licence
        else "The licence of the source data is not stated here: the terms of each source apply."
    )
    return ["## Source and licence", "", said]


def _hub_licence(licence: str) -> str:
    return HUB_LICENCES.get(licence, licence if licence in HUB_LICENCES.values() else "other")


def _part(value: object, key: str) -> object:
    return value.get(key, "unknown") if isinstance(value, dict) else "unknown"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
