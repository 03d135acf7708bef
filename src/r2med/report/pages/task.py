"""The page of one task, in the order readers of NanoR2MED's pages know."""

from __future__ import annotations

from collections.abc import Callable

from ...tasks.catalogue import TaskEntry, entries
from ...tasks.nano.figures import Inspected
from .evidence import examples, failures, leakage
from .words import ROLE_NAMES, counted, plain, score, share, table, versus

PROFILE_TITLES = {"bm25": "BM25", "dense": "Dense", "hybrid": "Reranking hybrid"}


def task_page(page: Inspected) -> str:
    """The whole page."""
    sections: list[tuple[str, Callable[[Inspected], list[str]]]] = [
        ("Overview", overview),
        ("What the data measures", measures),
        ("Observed data profile", data_profile),
        ("Evaluation profiles", profiles),
        ("Query and relevance tendencies", query_tendencies),
        ("Representative failure modes", failures),
        ("Training and leakage", leakage),
        ("Example pairs", examples),
        ("Sources", sources),
        ("Dataset information", dataset_information),
        ("Candidate subsets", candidates),
    ]
    lines = [f"# {page.split}", ""]
    for title, write in sections:
        lines += [f"## {title}", "", *write(page), ""]
    return "\n".join(lines).rstrip() + "\n"


def entry_of(page: Inspected) -> TaskEntry | None:
    """The catalogue's entry of the task, under NanoR2MED's split or its own full name."""
    name = page.metadata.task if page.metadata else page.task.full_name
    return next((e for e in entries() if page.split == e.split or e.full_name == name), None)


def description(page: Inspected) -> str:
    """What the task is, in words: ours for a task of the catalogue, the builder's for others."""
    entry = entry_of(page)
    return entry.description if entry else page.metadata.description if page.metadata else ""


def overview(page: Inspected) -> list[str]:
    """Size and shape in one paragraph."""
    figures, entry = page.figures, entry_of(page)
    family = entry.family if entry else page.metadata.family if page.metadata else ""
    kind = f", a task of the family “{family}”," if family else ""
    best = figures.profiles[figures.best]
    return [
        f"`{page.split}`{kind} asks {counted(figures.queries, 'query', 'queries')} of "
        f"{counted(figures.documents, 'document')}; {counted(figures.positives, 'judgment')} are positive, "
        f"{figures.positives_per_query:.2f} a query. The best of its candidate lists is "
        f"{ROLE_NAMES[figures.best]} with an nDCG@10 of {score(best.ndcg_at_10)}."
    ]


def measures(page: Inspected) -> list[str]:
    """What the task asks of a system."""
    said = description(page)
    return [said] if said else ["Nobody has described this task yet (`r2med nano build --description`)."]


def data_profile(page: Inspected) -> list[str]:
    """Counts and lengths."""
    f, t = page.figures, page.tendencies
    rows = [
        ["Queries", f"{f.queries:,}"],
        ["Documents", f"{f.documents:,}"],
        ["Positive judgments", f"{f.positives:,}"],
        ["Positives a query: least / median / most", f"{f.positives_min} / {f.positives_median:g} / {f.positives_max}"],
        [
            "Queries with several positives",
            f"{f.multi_positive_queries:,} ({share(f.multi_positive_queries / f.queries)})",
        ],
        ["Characters of a query, mean", f"{f.query_chars_mean:,.2f}"],
        ["Characters of a document, mean", f"{f.document_chars_mean:,.2f}"],
        ["Words of a query, quartiles", " / ".join(f"{v:g}" for v in t.query_words)],
        ["Words of a document, quartiles", " / ".join(f"{v:g}" for v in t.document_words)],
    ]
    return table(["", "Value"], rows)


def profiles(page: Inspected) -> list[str]:
    """The candidate lists as systems, and what their figures say."""
    f = page.figures
    rows = []
    for role, p in f.profiles.items():
        interval = "–" if p.ndcg_at_10_interval is None else "{:.4f}–{:.4f}".format(*p.ndcg_at_10_interval)
        rows.append(
            [PROFILE_TITLES[role], f"`{p.profile}`", str(p.top_k), score(p.ndcg_at_10), interval, score(p.hit_at_10),
             score(p.recall_at_100), score(p.recall_macro_at_100)]
        )  # fmt: skip
    titles = ["Profile", "Config", "Depth", "nDCG@10", "95 % interval", "hit@10", "recall@100", "recall@100, macro"]
    lines = [
        *table(titles, rows, left=2),
        "",
        "recall@100 counts judgments, its macro form averages queries. Intervals: bootstrap over queries.",
        "",
    ]
    for role in f.profiles:
        lines += [f"### {PROFILE_TITLES[role]}", "", _interpretation(page, role), ""]
    return lines[:-1]


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


def query_tendencies(page: Inspected) -> list[str]:
    """How queries relate to their positives."""
    t, f = page.tendencies, page.figures
    low, middle, high = t.overlap
    lines = [
        f"{share(t.question_share)} of the queries hold a question mark; half of them have between "
        f"{t.query_words[0]:g} and {t.query_words[2]:g} words. The positive that matches a query best holds "
        f"{share(middle)} of its terms (quartiles {share(low)} and {share(high)}).",
    ]
    if page.terciles:
        roles = list(f.profiles)
        rows = [
            [f"{part.name} ({share(part.low)}–{share(part.high)})", str(part.queries),
             *(score(part.ndcg_at_10.get(role)) for role in roles)]
            for part in page.terciles
        ]  # fmt: skip
        head = ["Terms shared with the best positive", "Queries", *(f"{PROFILE_TITLES[r]} nDCG@10" for r in roles)]
        lines += ["", *table(head, rows)]
    return lines


def sources(page: Inspected) -> list[str]:
    """Where the data come from."""
    m, entry = page.metadata, entry_of(page)
    source = m.source if m else (entry.dataset if entry else page.task.source) or page.task.source
    revision = (m.revision if m else page.task.revision) or "not given"
    licence = (m.licence if m else entry.licence if entry else "") or "not given"
    return [f"- Source: {plain(source)}", f"- Revision: {plain(revision)}", f"- Licence: {plain(licence)}"]


def dataset_information(page: Inspected) -> list[str]:
    """Configs, columns and the fingerprint."""
    graded = any(grade != 1 for grade in set(page.task.qrels.grades.tolist()))
    titled = page.task.documents.titles is not None
    rows = [
        ["`corpus`", "`_id`, `text`" + (", `title`" if titled else ""), f"{page.figures.documents:,}"],
        ["`queries`", "`_id`, `text`", f"{page.figures.queries:,}"],
        ["`qrels`", "`query-id`, `corpus-id`" + (", `score`" if graded else ""), f"{page.figures.positives:,}"],
    ]
    return [
        f"Split `{page.split}` of each config; fingerprint `{page.task.fingerprint}`.",
        "",
        *table(["Config", "Columns", "Rows"], rows, left=2),
    ]


def candidates(page: Inspected) -> list[str]:
    """The candidate configs and what they cover."""
    rows = []
    for role, p in page.figures.profiles.items():
        made = page.metadata.retrievers.get(p.profile, {}) if page.metadata else {}
        by = str(made.get("name", "rrf" if role == "hybrid" else p.profile))
        covered = "–" if p.positives_covered is None else share(p.positives_covered)
        rows.append([f"`{p.profile}`", plain(by), str(p.top_k), covered, str(p.safeguard_rows)])
    return table(["Config", "Made by", "Depth", "Positives held", "Safeguard rows"], rows, left=2)
