"""The pages of tasks, in the order readers of NanoR2MED's pages know, and of a group of them: Markdown and JSON.

The facts about a task are those of the app's task page.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..core import Document, IdTable, Query, Task, UsageError
from ..core.atomic import write_bytes
from ..core.table import NONE, Table, counted, markdown_text, share, shortened
from ..core.untrusted import component, inside
from ..results.store import indented_json
from ..tasks import Stats, Tendencies, stats
from ..tasks.audit.findings import SystemAudit, TaskAudit
from ..tasks.catalogue import TaskEntry, entries
from ..tasks.nano.figures import ROLES, Contrast, Inspected, NanoProfile, group

ROLE_NAMES = {"bm25": "BM25", "dense": "dense", "hybrid": "hybrid"}
ROLE_TITLES = {"bm25": "BM25", "dense": "Dense", "hybrid": "Reranking hybrid"}
FLAGS = {
    "query-in-document": "the query stands in a document",
    "document-in-query": "a document stands in the query",
    "duplicate-query": "another query says the same",
    "unjudged-copy": "a copy of a positive is not judged relevant",
    "query-in-training": "the query stands in the training data",
    "positive-in-training": "a positive stands in the training data",
    "few-shot": "the query stands in a few-shot example",
    "same-article": "query and document come from one article",
    "same-id": "the document's id is made of the query's",
    "slug": "the ids of the positives carry the question",
}
"""What the flags of an audit mean."""


class Fact(NamedTuple):
    """A figure about a task, with what qualifies it."""

    name: str
    value: str
    note: str = ""


def task_facts(measured: Stats, shape: Tendencies) -> list[Fact]:
    """Counts, lengths, and how queries relate to their positives."""
    overlap, words, long = shape.overlap, shape.query_words, shape.document_words
    positives = f"{measured.positives_min} to {measured.positives_max}, median {measured.positives_median:g}"
    return [
        Fact("Queries", f"{measured.queries:,}"),
        Fact("Documents", f"{measured.documents:,}"),
        Fact("Positive judgments", f"{measured.positives:,}"),
        Fact("Positives per query", f"{measured.positives_mean:.2f}", positives),
        Fact(
            "Queries with several positives",
            f"{measured.multi_positive_queries:,}",
            share(measured.multi_positive_share),
        ),
        Fact("Words of a query", f"{measured.query_words_mean:.0f}", f"quartiles {_quartiles(words)}"),
        Fact("Words of a document", f"{measured.document_words_mean:.0f}", f"quartiles {_quartiles(long)}"),
        Fact("Characters of a query", f"{measured.query_chars_mean:,.2f}", "mean"),
        Fact("Characters of a document", f"{measured.document_chars_mean:,.2f}", "mean"),
        Fact(
            "Query terms in the best positive",
            share(overlap[1]),
            f"quartiles {share(overlap[0])} and {share(overlap[2])}",
        ),
        Fact("Queries with a question mark", share(shape.question_share)),
    ]


def _quartiles(values: tuple[float, float, float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def audit_lines(audit: TaskAudit) -> list[str]:
    """What an audit found, a sentence each."""
    exact, near = audit.exact_copies, audit.near_copies
    return [
        f"{counted(audit.flagged_queries, 'query', 'queries')} of {audit.queries:,} flagged.",
        f"Exact copies among the documents: {_copies(exact.documents, exact.groups)}; "
        f"near copies: {_copies(near.documents, near.groups)}.",
        *map(str, audit.notes),
        *(f"{counted(count, 'query', 'queries')}: {FLAGS.get(kind, kind)}." for kind, count in audit.by_kind.items()),
    ]


def _copies(documents: int, groups: int) -> str:
    return f"{counted(documents, 'document')} in {counted(groups, 'group')}" if documents else "none"


def examples(task: Task) -> list[tuple[Query, Document]]:
    """The first, the middle and the last query, each with a positive."""
    found = []
    for i in sorted({0, len(task.queries) // 2, len(task.queries) - 1}):
        query = task.queries[i]
        positive = next((d for d, grade in task.qrels.of(query.id).items() if grade > 0), None)
        document = task.documents.get(positive) if positive else None
        if document is not None:
            found.append((query, document))
    return found


def catalogue_entry(name: str, split: str = "") -> TaskEntry | None:
    """The catalogue's entry of a task, under its full name or NanoR2MED's split."""
    return next((e for e in entries() if e.full_name == name or (split and e.split == split)), None)


def score(value: float | None) -> str:
    """A score as task pages print it, 0 to 1."""
    return NONE if value is None else f"{value:.4f}"


def task_page(page: Inspected) -> str:
    """The whole page in Markdown."""
    sections = {
        "Overview": _overview(page),
        "What the data measures": description(page)
        or "This task has no description yet (`r2med nano build --description`).",
        "Observed data profile": _data_profile(page),
        "Evaluation profiles": _profiles(page),
        "Query and relevance tendencies": _tendencies(page),
        "Representative failure modes": _failures(page),
        "Training and leakage": _leakage(page),
        "Example pairs": "\n\n".join(
            f"> Query `{query.id}`: {_quote(query.text)}\n>\n> Positive `{document.id}`: {_quote(document.contents)}"
            for query, document in examples(page.task)
        ),
        "Sources": _sources(page),
        "Dataset information": _dataset(page),
        "Candidate subsets": _candidates(page),
    }
    return "\n\n".join([f"# {page.split}", *(f"## {title}\n\n{text}" for title, text in sections.items())]) + "\n"


def description(page: Inspected) -> str:
    """What the task is, in words: ours for a task of the catalogue, the builder's for others."""
    entry = _entry(page)
    return entry.description if entry else page.metadata.description if page.metadata else ""


def _entry(page: Inspected) -> TaskEntry | None:
    return catalogue_entry(page.metadata.task if page.metadata else page.task.full_name, page.split)


def _overview(page: Inspected) -> str:
    figures, entry = page.figures, _entry(page)
    family = entry.family if entry else page.metadata.family if page.metadata else ""
    kind = f", a task of the family “{family}”," if family else ""
    best = figures.profiles[figures.best]
    return (
        f"`{page.split}`{kind} asks {counted(figures.queries, 'query', 'queries')} of "
        f"{counted(figures.documents, 'document')}; {counted(figures.positives, 'judgment')} are positive, "
        f"{figures.positives_per_query:.2f} per query. The best of its candidate lists is "
        f"{ROLE_NAMES[figures.best]} with an nDCG@10 of {score(best.ndcg_at_10)}."
    )


def _data_profile(page: Inspected) -> str:
    facts = task_facts(stats(page.task), page.tendencies)
    rows = [[fact.name, f"{fact.value} ({fact.note})" if fact.note else fact.value] for fact in facts]
    return Table(["", "Value"], rows).markdown()


def _profiles(page: Inspected) -> str:
    """The candidate lists as systems, and what their figures say."""
    rows = []
    for role, p in page.figures.profiles.items():
        interval = NONE if p.ndcg_at_10_interval is None else "{:.4f}–{:.4f}".format(*p.ndcg_at_10_interval)
        rows.append(
            [ROLE_TITLES[role], f"`{p.profile}`", str(p.top_k), score(p.ndcg_at_10), interval, score(p.hit_at_10),
             score(p.recall_at_100), score(p.recall_macro_at_100)]
        )  # fmt: skip
    titles = ["Profile", "Config", "Depth", "nDCG@10", "95 % interval", "hit@10", "recall@100", "recall@100, macro"]
    caption = "recall@100 counts judgments, its macro form averages queries. Intervals: bootstrap over queries."
    said = [f"### {ROLE_TITLES[role]}\n\n{_interpretation(page, role)}" for role in page.figures.profiles]
    return "\n\n".join([Table(titles, rows, caption, left=2).markdown(ready=True), *said])


def _interpretation(page: Inspected, role: str) -> str:
    f = page.figures
    p = f.profiles[role]
    said = f"{share(p.hit_at_10)} of the queries have a positive among the first ten"
    if p.positives_covered is not None and p.queries_covered is not None:
        said += (
            f"; the whole list holds {share(p.positives_covered)} of the positives "
            f"and at least one for {share(p.queries_covered)} of the queries"
        )
    said += "."
    if role == f.best and page.contrasts:
        said += f" It is the best of the profiles: {' and '.join(versus(c) for c in page.contrasts)}."
    elif role == f.best:
        said += " There is no other profile to compare it with."
    if role == "bm25":
        zero = share(page.unsolved / f.queries)
        said += f" Matching words puts no positive into the first ten for {zero} of the queries."
    if role == "hybrid":
        rows = counted(p.safeguard_rows, "query needs", "queries need")
        said += f" {rows} the appended positive, which no figure counts."
    return said


def versus(contrast: Contrast) -> str:
    """A difference as half a sentence, with what its interval allows to say."""
    name = ROLE_NAMES[contrast.worse]
    interval = f"95 % interval {contrast.low:+.3f} to {contrast.high:+.3f}"
    if contrast.clear:
        return f"{contrast.difference:.3f} above {name} ({interval})"
    return f"{contrast.difference:.3f} above {name}, which is not significant on these queries ({interval})"


def _tendencies(page: Inspected) -> str:
    t, roles = page.tendencies, list(page.figures.profiles)
    low, middle, high = t.overlap
    said = (
        f"{share(t.question_share)} of the queries hold a question mark; half of them have between "
        f"{t.query_words[0]:g} and {t.query_words[2]:g} words. The positive that matches a query best holds "
        f"{share(middle)} of its terms (quartiles {share(low)} and {share(high)})."
    )
    if not page.terciles:
        return said
    rows = [
        [f"{part.name} ({share(part.low)}–{share(part.high)})", str(part.queries),
         *(score(part.ndcg_at_10.get(role)) for role in roles)]
        for part in page.terciles
    ]  # fmt: skip
    head = ["Terms shared with the best positive", "Queries", *(f"{ROLE_TITLES[r]} nDCG@10" for r in roles)]
    return f"{said}\n\n{Table(head, rows).markdown()}"


def _failures(page: Inspected) -> str:
    """Queries where BM25's first document shares more words than any positive, and is wrong."""
    found = []
    for trap in page.traps:
        query, wrong = page.task.query(trap.query), page.task.documents.get(trap.document)
        right = page.task.documents.get(trap.positive)
        if query is None or wrong is None or right is None:
            continue
        rank = "nowhere in its list" if trap.positive_rank is None else f"at rank {trap.positive_rank}"
        words = f" Only the wrong one has: {', '.join(markdown_text(w) for w in trap.words)}." if trap.words else ""
        found.append(
            f"**Query `{trap.query}`.** BM25 puts `{trap.document}` first, which holds {share(trap.share)} of the "
            f"query's terms and is not relevant; the positive that matches best holds {share(trap.positive_share)}, "
            f"and the first positive stands {rank}.{words}\n\n"
            f"> Query: {_quote(query.text)}\n>\n"
            f"> Wrong, first: {_quote(wrong.contents, 220)}\n>\n"
            f"> Positive `{trap.positive}`: {_quote(right.contents, 220)}"
        )
    return (
        "\n\n".join(found) or "No query has a first BM25 document that is wrong and shares more words than a positive."
    )


def _quote(text: str, length: int = 320) -> str:
    return markdown_text(shortened(text, length))


def _leakage(page: Inspected) -> str:
    a, settings = page.audit, page.audit_settings
    against, few_shot = settings.get("against") or "no training set was given", settings.get("few_shot") or "none given"
    said = (
        f"Audited: runs of {settings['width']} words, near duplicates from a similarity of {settings['threshold']:g}; "
        f"compared with training data: {markdown_text(str(against))}; with few-shot examples: "
        f"{markdown_text(str(few_shot))}."
    )
    lines = [f"- {markdown_text(line)}" for line in audit_lines(a)]
    if len(a.flagged(level="id")) == a.queries:
        lines.append(
            "- The ids alone tell which documents belong to which query; keep them from a system that reads ids."
        )
    scores = [_with_and_without(page.scores)] if a.by_kind else []
    return "\n\n".join([said, "\n".join(lines), *scores])


def _with_and_without(scores: list[SystemAudit]) -> str:
    kinds = list(dict.fromkeys(name for s in scores for name in s.without if name in FLAGS))
    names = [*(["any"] if len(kinds) > 1 else []), *kinds]
    rows = []
    for s in scores:
        parts = [s.without.get(name) for name in names]
        left = [f"{p.measures['ndcg_at_10']:.4f} ({p.queries})" if p and p.measures else NONE for p in parts]
        rows.append([s.system, score(s.all.measures["ndcg_at_10"] if s.all.measures else None), *left])
    head = ["nDCG@10", "All queries", *(f"Without {name}" for name in names)]
    return Table(head, rows, "In brackets: the queries left; a dash where none is.").markdown()


def _sources(page: Inspected) -> str:
    m, entry = page.metadata, _entry(page)
    source = m.source if m else (entry.dataset if entry else page.task.source) or page.task.source
    revision = m.revision if m else page.task.revision
    licence = m.licence if m else entry.licence if entry else ""
    stated = {"Source": source, "Revision": revision, "Licence": licence}
    return "\n".join(f"- {name}: {markdown_text(value or 'not given')}" for name, value in stated.items())


def _dataset(page: Inspected) -> str:
    graded = bool((page.task.qrels.grades != 1).any())
    titled = page.task.documents.titles is not None
    rows = [
        ["`corpus`", "`_id`, `text`" + (", `title`" if titled else ""), f"{page.figures.documents:,}"],
        ["`queries`", "`_id`, `text`", f"{page.figures.queries:,}"],
        ["`qrels`", "`query-id`, `corpus-id`" + (", `score`" if graded else ""), f"{page.figures.positives:,}"],
    ]
    table = Table(["Config", "Columns", "Rows"], rows, left=2).markdown(ready=True)
    return f"Split `{page.split}` of each config; fingerprint `{page.task.fingerprint}`.\n\n{table}"


def _candidates(page: Inspected) -> str:
    rows = []
    for role, p in page.figures.profiles.items():
        made = page.metadata.retrievers.get(p.profile, {}) if page.metadata else {}
        by = str(made.get("name", "rrf" if role == "hybrid" else p.profile))
        covered = NONE if p.positives_covered is None else share(p.positives_covered)
        rows.append([f"`{p.profile}`", markdown_text(by), str(p.top_k), covered, str(p.safeguard_rows)])
    titles = ["Config", "Made by", "Depth", "Positives held", "Safeguard rows"]
    return Table(titles, rows, left=2).markdown(ready=True)


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
    titles = ["Task", "Queries", "Documents", "Positives", "Pos./query", "BM25", "Dense", "Hybrid", "Best"]
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
    parts = [
        f"# {markdown_text(name)}",
        f"{counted(len(profile.tasks), 'task')}, {counted(profile.queries, 'query', 'queries')}, "
        f"{counted(profile.positives, 'positive judgment')}.",
        "## Profiles",
        table._replace(rows=cells).markdown(ready=True),
        _other_figures(profile).markdown(),
        "## Audit",
        Table(["Task", "Flagged queries", "Exact copies", "Near copies"], audits, copies).markdown(),
    ]
    return "\n\n".join(parts) + "\n"


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
        files[f"{stem}.json"] = indented_json(metadata(page))
    files |= {"index.md": group_page(name, profile, tasks).encode(), "index.json": indented_json(profile)}
    paths = {inside(folder, file, "page"): data for file, data in files.items()}
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
