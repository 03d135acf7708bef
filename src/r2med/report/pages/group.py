"""The page of a group: one table, and what it says."""

from __future__ import annotations

from collections.abc import Sequence

from ...tasks.nano.figures import ROLES, Inspected, NanoProfile
from .words import ROLE_NAMES, counted, score, table


def group_table(profile: NanoProfile) -> tuple[list[str], list[list[str]]]:
    """Titles and cells of the group table, for a terminal or a page."""
    rows = [
        [t.task, f"{t.queries:,}", f"{t.documents:,}", f"{t.positives:,}", f"{t.positives_per_query:.2f}",
         *(score(t.profiles[r].ndcg_at_10 if r in t.profiles else None) for r in ROLES), ROLE_NAMES.get(t.best, "–")]
        for t in profile.tasks.values()
    ]  # fmt: skip
    per_query = profile.positives / profile.queries
    group = [profile.group[r] for r in ROLES]
    have = {r: g.ndcg_at_10 for r, g in zip(ROLES, group, strict=True) if g is not None and g.complete}
    rows.append(
        ["All, by query", f"{profile.queries:,}", f"{profile.documents:,}", f"{profile.positives:,}",
         f"{per_query:.2f}",
         *(_cell(g.ndcg_at_10 if g else None, g is None or g.complete) for g in group),
         ROLE_NAMES[max(have, key=lambda r: have[r])] if have else "–"]
    )  # fmt: skip
    titles = ["Task", "Queries", "Documents", "Positives", "Pos./query", "BM25", "Dense", "Hybrid", "Best"]
    return titles, rows


def _cell(value: float | None, complete: bool) -> str:
    """A mean over some of the tasks only is marked."""
    return score(value) + ("" if complete else "*")


def group_page(name: str, profile: NanoProfile, tasks: Sequence[Inspected]) -> str:
    """The whole page."""
    titles, rows = group_table(profile)
    linked = [[f"[{row[0]}]({page.split}.md)", *row[1:]] for row, page in zip(rows, tasks, strict=False)]
    lines = [
        f"# {name}",
        "",
        f"{counted(len(profile.tasks), 'task')}, {counted(profile.queries, 'query', 'queries')}, "
        f"{counted(profile.positives, 'positive judgment')}.",
        "",
        "## Profiles",
        "",
        *table(titles, [*linked, rows[-1]]),
        "",
        "nDCG@10 of the candidate lists. The last line weights tasks by their queries"
        + ("; * over the tasks that have the profile only." if any("*" in c for c in rows[-1]) else "."),
        "",
        *_other_figures(profile),
        "",
        "## Audit",
        "",
        *table(
            ["Task", "Flagged queries", "Exact copies", "Near copies"],
            [[p.split, f"{p.audit.flagged_queries} of {p.audit.queries}", str(p.audit.exact_copies.documents),
              str(p.audit.near_copies.documents)] for p in tasks],
        ),
        "",
        "Copies: documents that have at least one other of (nearly) the same text in their pool.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _other_figures(profile: NanoProfile) -> list[str]:
    rows = []
    for role, g in profile.group.items():
        if g is not None:
            rows.append(
                [ROLE_NAMES[role], f"{g.tasks} of {g.of_tasks}", score(g.ndcg_at_10), score(g.ndcg_at_10_task_mean),
                 score(g.hit_at_10), score(g.recall_at_100), score(g.recall_macro_at_100), str(g.safeguard_rows)]
            )  # fmt: skip
    titles = [
        "Profile",
        "Tasks",
        "nDCG@10",
        "nDCG@10, mean of tasks",
        "hit@10",
        "recall@100",
        "recall@100, macro",
        "Safeguards",
    ]
    return table(titles, rows)
