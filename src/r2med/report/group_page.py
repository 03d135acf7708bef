"""The page of a group of tasks, and all pages on disk: Markdown to read, JSON to compute with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..core import IdTable, UsageError
from ..core.files import write_bytes
from ..core.table import NONE, Table, counted, markdown_text, points, share
from ..core.untrusted import component, inside
from ..tasks.nano.figures import ROLES, Contrast, Inspected, NanoProfile, group
from .page_html import draw_profiles, markdown_html, task_pictures, whole_page
from .task_origin import description, family, language, licence, set_of, source_table, sources
from .task_page import ROLE_TITLES, score, task_page
from .task_reading import (
    LEVEL,
    LISTS,
    ROLE_NAMES,
    code,
    hit_overlap,
    joined,
    leaders,
    measures_reading,
    missed_by_all,
    opening,
)

PROFILES = ["BM25", "Dense", "Hybrid"]


def group_table(profile: NanoProfile, *, in_points: bool = False) -> Table:
    """The tasks of a group, and all of them by query; a mean over some of the tasks only is marked.

    Scores are from 0 to 1, as all of a page's are; `in_points`, they are × 100, as in a terminal's tables.
    """
    shown = points if in_points else score
    rows = [
        [t.task, f"{t.queries:,}", f"{t.documents:,}", f"{t.positives:,}", f"{t.positives_per_query:.2f}",
         *(shown(t.profiles[r].ndcg_at_10 if r in t.profiles else None) for r in ROLES),
         _best_names({r: p.ndcg_at_10 for r, p in t.profiles.items()})]
        for t in profile.tasks.values()
    ]  # fmt: skip
    have = {r: g for r in ROLES if (g := profile.group[r]) is not None}
    complete = {r: g.ndcg_at_10 for r, g in have.items() if g.complete}
    cells = [shown(have[r].ndcg_at_10) + ("" if have[r].complete else "*") if r in have else NONE for r in ROLES]
    counts = [f"{profile.queries:,}", f"{profile.documents:,}", f"{profile.positives:,}"]
    rows.append(["All, by query", *counts, f"{profile.positives / profile.queries:.2f}", *cells, _best_names(complete)])
    marked = "; * over the tasks that have the profile only." if any("*" in cell for cell in cells) else "."
    caption = f"nDCG@10{' × 100' * in_points} of the candidates; the last line weights tasks by their queries{marked}"
    titles = ["Task", "Queries", "Documents", "Positives", "Pos./query", *PROFILES, "Best"]
    return Table(titles, rows, caption)


def _best_names(scores: Mapping[str, float]) -> str:
    return ", ".join(ROLE_NAMES[role] for role in leaders(scores)) if scores else NONE


def group_page(name: str, profile: NanoProfile, tasks: Sequence[Inspected]) -> str:
    """The whole page in Markdown."""
    sections = {
        "Overview": [_overview(name, profile)],
        "What the group measures": _measures(tasks),
        "Task families": _families(tasks),
        "Dataset shape": [_shape(tasks)],
        "Tasks": [_task_table(profile, tasks).markdown(ready=True)],
        "Evaluation profiles": [*_profiles(profile), "", _other_figures(profile).markdown()],
        "Interpretation across tasks": [f"- {line}" for line in across_tasks(tasks)],
        "Training and leakage": _leakage(tasks),
        "Sources": [source_table(s for page in tasks for s in sources(page)).markdown(ready=True)],
        "Metadata summary": [_metadata_table(name, profile, tasks).markdown(ready=True)],
    }
    lines = [f"# {markdown_text(name)}", ""]
    for title, written in sections.items():
        lines += [f"## {title}", "", *written, ""]
    return "\n".join(lines).rstrip() + "\n"


def _overview(name: str, profile: NanoProfile) -> str:
    complete = {r: g.ndcg_at_10 for r, g in profile.group.items() if g is not None and g.complete}
    best, lead = leaders(complete) if complete else [], ""
    if best:
        several = sum(g is not None for g in profile.group.values()) > 1
        does = "are level at" if len(best) > 1 else "leads with" if several else "has"
        lead = (
            f" Over all queries {joined([LISTS[role] for role in best])} {does} an nDCG@10 of "
            f"{score(complete[best[0]])}."
        )
    return (
        f"{markdown_text(name)} has {counted(len(profile.tasks), 'task')} with "
        f"{counted(profile.queries, 'query', 'queries')}, {counted(profile.documents, 'document')} in all pools "
        f"together and {counted(profile.positives, 'positive judgment')}.{lead}"
    )


def _measures(tasks: Sequence[Inspected]) -> list[str]:
    """A line a task: what its builder says of it, else what its figures do."""
    said = [(page, markdown_text(description(page)) or " ".join(measures_reading(page))) for page in tasks]
    return [f"- {code(page.split)}: {line}" for page, line in said]


def _families(tasks: Sequence[Inspected]) -> list[str]:
    found: dict[str, list[str]] = {}
    for page in tasks:
        found.setdefault(family(page) or "not stated", []).append(code(page.split))
    return [f"- {markdown_text(kind)}: {', '.join(names)}" for kind, names in found.items()]


def _shape(tasks: Sequence[Inspected]) -> str:
    figures = [page.figures for page in tasks]
    longest, shortest = (pick(figures, key=lambda f: f.query_chars_mean) for pick in (max, min))
    several = sum(f.multi_positive_queries for f in figures)
    queries = sum(f.queries for f in figures)
    have = counted(queries, "query has", "queries have")
    said = f"{several:,} of {have} several positives ({share(several / queries)})."
    if len(figures) == 1:
        return f"{said} Queries have {longest.query_chars_mean:,.0f} characters in the mean."
    wide = max(figures, key=lambda f: f.document_chars_mean)
    return (
        f"{said} Queries are longest in {code(longest.split)} ({longest.query_chars_mean:,.0f} characters in the mean) "
        f"and shortest in {code(shortest.split)} ({shortest.query_chars_mean:,.0f}); documents are longest in "
        f"{code(wide.split)} ({wide.document_chars_mean:,.0f})."
    )


def _task_table(profile: NanoProfile, tasks: Sequence[Inspected]) -> Table:
    """The table with links, families and languages."""
    table = group_table(profile)
    cells = [[markdown_text(cell) for cell in row] for row in table.rows]
    for row, page in zip(cells, tasks, strict=False):
        row[0] = f"[{row[0]}]({page.split}.md)"
    about = [[markdown_text(family(page) or NONE), markdown_text(language(page))] for page in tasks]
    rows = [[row[0], *told, *row[1:]] for row, told in zip(cells, [*about, [NONE, NONE]], strict=True)]
    return Table([table.titles[0], "Family", "Language", *table.titles[1:]], rows, table.caption, left=3)


def _profiles(profile: NanoProfile) -> list[str]:
    """A paragraph per profile: its best and its worst task."""
    lines: list[str] = []
    for role, of_group in profile.group.items():
        have = [(t.profiles[role].ndcg_at_10, t.split) for t in profile.tasks.values() if role in t.profiles]
        if of_group is None or not have:
            continue
        (low, hardest), (high, easiest) = min(have), max(have)
        said = (
            f"{opening(role)} has an nDCG@10 of {score(of_group.ndcg_at_10)}, a hit@10 of "
            f"{score(of_group.hit_at_10)} and a recall@100 of {score(of_group.recall_at_100)} over all queries of "
            f"{counted(of_group.tasks, 'task')}."
        )
        if len(have) > 1:
            said += f" It does best on {code(easiest)} ({score(high)}) and worst on {code(hardest)} ({score(low)})."
        first = [
            (t.split, leaders({r: p.ndcg_at_10 for r, p in t.profiles.items()}))
            for t in profile.tasks.values()
            if len(t.profiles) > 1
        ]
        wins, level = ([code(split) for split, best in first if role in best and (len(best) == 1) == alone]
                       for alone in (True, False))  # fmt: skip
        if wins:
            said += f" It is the best profile of {counted(len(wins), 'task')}: {', '.join(wins)}."
        if level:
            said += f" It shares the first place on {counted(len(level), 'task')}: {', '.join(level)}."
        if of_group.safeguard_rows:
            rows = counted(of_group.safeguard_rows, "list needs", "lists need")
            said += f" {rows} the appended positive, which no figure counts."
        lines += ["", said] if lines else [said]
    return lines


def across_tasks(tasks: Sequence[Inspected]) -> list[str]:
    """What holds on several tasks, and where it does not."""
    alike: dict[str, list[str]] = {}
    for page in tasks:
        if page.contrasts:
            alike.setdefault(_standing(page.contrasts), []).append(code(page.split))
    said = [f"On {joined(names)}, {standing} (5 % for each task)." for standing, names in alike.items()]
    for role in ROLES:
        falling = [code(p.split) for p in tasks for s in p.slopes if s.role == role and s.clear and s.difference > 0]
        if falling:
            said.append(
                f"{opening(role)} scores less where queries share few terms with their positives on {joined(falling)} "
                f"(95 % intervals leave out 0)."
            )
    missed = [(len(missed_by_all(p)) / len(p.outcomes), p) for p in tasks if missed_by_all(p)]
    if missed:
        most, page = max(missed, key=lambda m: m[0])
        said.append(
            f"The largest share of queries without a positive among the first ten of any profile is "
            f"{share(most)}, on {code(page.split)}."
        )
    return said or ["Every query of every task has a positive among the first ten of some profile."]


def _standing(contrasts: Sequence[Contrast]) -> str:
    """Which profile is best, and than which it is significantly better."""
    alone = all(c.difference >= LEVEL for c in contrasts)
    clear, unclear = ([LISTS[c.worse] for c in contrasts if c.clear == wanted] for wanted in (True, False))
    best = LISTS[contrasts[0].better]
    first = f"{best} is best" if alone else f"no list is better than {best}"
    parts = [f"significantly better than {joined(clear)}"] if clear else []
    if unclear:
        parts.append(f"not significantly better than {joined(unclear, 'or')}")
    return f"{first}: it is {' but '.join(parts)}"


def _leakage(tasks: Sequence[Inspected]) -> list[str]:
    audited = [(p.split, p.audit) for p in tasks if p.audit is not None]
    if len(audited) < len(tasks):
        return ["Not audited yet: `r2med pages` looks for leaks and copies."]
    audits = [
        [
            split,
            f"{a.flagged_queries:,} of {a.queries:,}",
            f"{a.exact_copies.documents:,}",
            f"{a.near_copies.documents:,}",
        ]
        for split, a in audited
    ]
    copies = "Copies: documents that have at least one other of (nearly) the same text in their pool."
    table = Table(["Task", "Flagged queries", "Exact copies", "Near copies"], audits, copies).markdown()
    flagged, queries = sum(a.flagged_queries for _, a in audited), sum(a.queries for _, a in audited)
    are = "is" if flagged == 1 or queries == 1 else "are"
    by_text = sum(len({flag.query for flag in a.flags if flag.level != "id"}) for _, a in audited)
    ids = f", {flagged - by_text:,} of them by ids alone" if flagged > by_text else ""
    lead = f"{flagged:,} of {counted(queries, 'query', 'queries')} {are} flagged{ids}."
    against = {str(p.audit_settings.get("against") or "") for p in tasks} - {""}
    if not against:
        lead += " No training data were given (`r2med pages --against`), so overlap with any is not known."
    return [lead, "", table]


def _metadata_table(name: str, profile: NanoProfile, tasks: Sequence[Inspected]) -> Table:
    """The figures of the group in one place; `index.json` has all of them."""
    stated = {
        "Nano set": name,
        "Tasks": str(len(profile.tasks)),
        "Languages": ", ".join(dict.fromkeys(map(language, tasks))),
        "Licences": ", ".join(dict.fromkeys(licence(page) or "not given" for page in tasks)),
        "Queries": f"{profile.queries:,}",
        "Documents in all pools": f"{profile.documents:,}",
        "Positive judgments": f"{profile.positives:,}",
        "Positives per query": f"{profile.positives / profile.queries:.2f}",
    }
    for role, g in profile.group.items():
        if g is not None:
            stated[f"{ROLE_TITLES[role]} nDCG@10 / hit@10 / recall@100"] = " / ".join(
                map(score, (g.ndcg_at_10, g.hit_at_10, g.recall_at_100))
            )
    rows = [[field, markdown_text(value)] for field, value in stated.items()]
    return Table(["Field", "Value"], rows, "All of it as data: [index.json](index.json).", left=2)


def _other_figures(profile: NanoProfile) -> Table:
    rows = [
        [ROLE_TITLES[role], f"{g.tasks} of {g.of_tasks}", score(g.ndcg_at_10), score(g.ndcg_at_10_task_mean),
         score(g.hit_at_10), score(g.recall_at_100), score(g.recall_at_100_query_weighted),
         score(g.recall_macro_at_100), str(g.safeguard_rows)]
        for role, g in profile.group.items()
        if g is not None
    ]  # fmt: skip
    measures = [
        "nDCG@10",
        "nDCG@10, mean of tasks",
        "hit@10",
        "recall@100",
        "recall@100, by query",
        "recall@100, macro",
    ]
    return Table(["Profile", "Tasks", *measures, "Safeguards"], rows)


def write_pages(name: str, tasks: Sequence[Inspected], folder: Path, *, html: bool = False) -> list[Path]:
    """Write a page and a JSON file per task and `index` for the group; with `html`, as linked HTML, too."""
    names = ["index", *(page.split.casefold() for page in tasks)]  # some file systems fold capitals
    if repeated := IdTable(names).duplicates():
        raise UsageError(f"two of the pages would be called {repeated[0]!r}; write them into a folder each")
    sets = {set_of(page, name) for page in tasks}
    name = sets.pop() if len(sets) == 1 else name
    profile = group([page.figures for page in tasks], source=name)
    files: dict[str, bytes] = {}
    for page in tasks:
        stem = component(page.split, "task")
        files[f"{stem}.md"] = task_page(page, name).encode()
        files[f"{stem}.json"] = _json(metadata(page, name))
    files |= {"index.md": group_page(name, profile, tasks).encode(), "index.json": _json(profile)}
    if html:
        files |= _site(name, profile, tasks, files)
    paths = {inside(folder, file, "page"): data for file, data in files.items()}
    for path, data in paths.items():
        write_bytes(path, data)
    return list(paths)


def _site(
    name: str, profile: NanoProfile, tasks: Sequence[Inspected], written: Mapping[str, bytes]
) -> dict[str, bytes]:
    """The same pages as HTML that link each other, with pictures."""
    links = [("index.html", name), *((f"{page.split}.html", page.split) for page in tasks)]
    pictures = {page.split: task_pictures(page.figures, page.outcomes) for page in tasks}
    pictures["index"] = {"Evaluation profiles": draw_profiles(list(profile.tasks.values()))}
    made = {}
    for address, title in links:
        stem = address.removesuffix(".html")
        body = markdown_html(written[f"{stem}.md"].decode(), pictures[stem])
        made[address] = whole_page(title, body, links, address).encode("utf-8", "replace")
    return made


def metadata(page: Inspected, group: str = "") -> dict[str, Any]:
    """All figures of a page as plain data."""
    return {
        "schema": 2,
        "set": set_of(page, group),
        "task": page.task.full_name,
        "split": page.split,
        "family": family(page),
        "language": language(page),
        "licence": licence(page),
        "sources": [source._asdict() for source in sources(page)],
        "description": description(page),
        "fingerprint": page.task.fingerprint,
        "figures": page.figures,
        "contrasts": [c._asdict() for c in page.contrasts],
        "tendencies": page.tendencies,
        "terciles": [t._asdict() for t in page.terciles],
        "slopes": [{**s._asdict(), "difference": s.difference} for s in page.slopes],
        "outcomes": page.outcomes,
        "hits_at_10": hit_overlap(page.outcomes),
        "failures": page.traps,
        "trapped_queries": page.trapped,
        "audit": {"settings": page.audit_settings, "findings": page.audit, "scores": page.scores},
    }


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
