"""The page of one task, in the order readers of NanoR2MED's pages know; its facts are those of the app's task page.

Its sentences are made in `task_reading`, from figures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..core import Document, Query, Task
from ..core.table import NONE, Table, counted, markdown_text, share, shortened
from ..tasks import Stats, Tendencies, stats
from ..tasks.audit.findings import SystemAudit, TaskAudit
from ..tasks.nano.figures import Inspected
from .task_origin import description, entry_of, family, language, licence, set_of, source_table, sources
from .task_reading import (
    LISTS,
    code,
    improvement_reading,
    joined,
    leaders,
    measures_reading,
    metric_reading,
    missed_by_all,
    named,
    profile_reading,
    tendencies_reading,
    training_reading,
    verdict,
)

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


def score(value: float | None) -> str:
    """A score as task pages print it, 0 to 1."""
    return NONE if value is None else f"{value:.4f}"


def task_page(page: Inspected, group: str = "") -> str:
    """The whole page in Markdown; `group` names the set where nothing else does."""
    details: list[tuple[str, Callable[[Inspected], list[str]]]] = [
        ("What the data measures", _measures),
        ("Observed data profile", _data_profile),
        ("Evaluation profiles", _profiles),
        ("Metric interpretation", lambda p: [" ".join(metric_reading(p))]),
        ("Query and relevance tendencies", _tendencies),
        ("Representative failure modes", _failures),
        ("Training data that may help", lambda p: [f"- {line}" for line in training_reading(p)]),
        ("Training and leakage notes", _leakage),
        ("Model improvement notes", lambda p: [f"- {line}" for line in improvement_reading(p)]),
    ]
    rest: list[tuple[str, Callable[[Inspected], list[str]]]] = [
        ("Example data", _examples),
        ("Source and reference table", lambda p: [source_table(sources(p)).markdown(ready=True)]),
        ("Dataset information", lambda p: _dataset(p, group)),
        ("Candidate subsets", _candidates),
        ("Metadata", lambda p: [f"All figures of this page as data: [{p.split}.json]({p.split}.json)."]),
    ]
    lines = [f"# {markdown_text(set_of(page, group))} / {markdown_text(page.split)}", ""]
    lines += ["## Overview", "", *_overview(page), "", "## Details", ""]
    for title, write in details:
        lines += [f"### {title}", "", *write(page), ""]
    for title, write in rest:
        lines += [f"## {title}", "", *write(page), ""]
    return "\n".join(lines).rstrip() + "\n"


def _overview(page: Inspected) -> list[str]:
    figures, kind = page.figures, family(page)
    kind = f", a task of the family “{markdown_text(kind)}”," if kind else ""
    best = leaders({role: profile.ndcg_at_10 for role, profile in figures.profiles.items()})
    if len(figures.profiles) == 1:
        lead = f"Its only candidates are those of {LISTS[best[0]]}, with"
    elif len(best) == 1:
        lead = f"The best of its candidate lists is {LISTS[best[0]]} with"
    else:
        lead = f"The best of its candidate lists are {joined([LISTS[role] for role in best])}, each with"
    return [
        f"{code(page.split)}{kind} puts {counted(figures.queries, 'query', 'queries')} to "
        f"{counted(figures.documents, 'document')}; {counted(figures.positives, 'judgment')} "
        f"{'is' if figures.positives == 1 else 'are'} positive, {figures.positives_per_query:.2f} per query. {lead} "
        f"an nDCG@10 of {score(figures.profiles[figures.best].ndcg_at_10)}."
    ]


def _measures(page: Inspected) -> list[str]:
    said = description(page)
    return [*([markdown_text(said), ""] if said else []), " ".join(measures_reading(page))]


def _data_profile(page: Inspected) -> list[str]:
    facts = task_facts(stats(page.task), page.tendencies)
    rows = [[fact.name, f"{fact.value} ({fact.note})" if fact.note else fact.value] for fact in facts]
    return [Table(["", "Value"], rows).markdown()]


def _profiles(page: Inspected) -> list[str]:
    """The candidate lists as systems, and what their figures say."""
    rows = []
    for role, p in page.figures.profiles.items():
        interval = NONE if p.ndcg_at_10_interval is None else "{:.3f}–{:.3f}".format(*p.ndcg_at_10_interval)
        rows.append(
            [ROLE_TITLES[role], f"`{p.profile}`", str(p.top_k), score(p.ndcg_at_10), interval, score(p.hit_at_10),
             score(p.recall_at_100), score(p.recall_macro_at_100)]
        )  # fmt: skip
    titles = ["Profile", "Config", "Depth", "nDCG@10", "95 % interval", "hit@10", "recall@100", "recall@100, macro"]
    caption = (
        "recall@100 counts judgments, its macro form averages queries. The intervals say how far nDCG@10 may move with "
        "other such queries."
    )
    lines = [Table(titles, rows, caption, left=2).markdown(ready=True), ""]
    for role in page.figures.profiles:
        lines += [f"#### {ROLE_TITLES[role]}", "", " ".join(profile_reading(page, role)), ""]
    return lines[:-1]


def _tendencies(page: Inspected) -> list[str]:
    lines = [tendencies_reading(page)]
    if len(page.terciles) > 1:
        roles = list(page.figures.profiles)
        rows = [
            [f"{part.name} ({share(part.low)}–{share(part.high)})", str(part.queries),
             *(score(part.ndcg_at_10.get(role)) for role in roles)]
            for part in page.terciles
        ]  # fmt: skip
        head = ["Terms shared with the best positive", "Queries", *(f"{ROLE_TITLES[r]} nDCG@10" for r in roles)]
        lines += ["", Table(head, rows).markdown()]
    return lines


def _failures(page: Inspected) -> list[str]:
    """Queries that nothing solves, and those whose first BM25 document shares more words than any positive."""
    lines, missed = [], missed_by_all(page)
    if missed:
        queries = counted(len(missed), "query has", "queries have")
        several = len(page.figures.profiles) > 1
        where = "any profile" if several else LISTS[page.figures.best]
        lines += [f"{queries} no positive among the first ten of {where}: {named(missed)}.", ""]
    for trap in page.traps:
        query, wrong = page.task.query(trap.query), page.task.documents.get(trap.document)
        right = page.task.documents.get(trap.positive)
        if query is None or wrong is None or right is None:
            continue
        rank = "nowhere in its list" if trap.positive_rank is None else f"at rank {trap.positive_rank}"
        held = joined([markdown_text(f"“{word}”") for word in trap.words])
        words = f" The first document holds {held}, which the positive below does not." if trap.words else ""
        lines += [
            f"**Query {code(trap.query)}.** BM25 puts {code(trap.document)} first, which holds {share(trap.share)} of "
            f"the query's terms and is not judged relevant; the positive that matches best holds "
            f"{share(trap.positive_share)} and the first positive stands {rank}.{words}",
            "",
            f"> Query: {_quote(query.text)}",
            ">",
            f"> First, not judged relevant: {_quote(wrong.contents, 220)}",
            ">",
            f"> Positive {code(trap.positive)}: {_quote(right.contents, 220)}",
            "",
        ]
    return lines[:-1] or ["Every query has a positive among the first ten of some profile, and none is a lexical trap."]


def _quote(text: str, length: int = 320) -> str:
    return markdown_text(shortened(text, length))


def _leakage(page: Inspected) -> list[str]:
    """What the audit found, and what it does to the scores."""
    a, settings = page.audit, page.audit_settings
    if a is None:
        return [verdict(page), "", f"- {_to_keep_out(page)}"]
    against = settings.get("against")
    compared = f"compared with the training data {markdown_text(str(against))}" if against else (
        "no training data were given (`r2med pages --against`), so overlap with any is not known"
    )  # fmt: skip
    lines = [
        f"{verdict(page)} Texts were compared by runs of {settings['width']} words; near copies are those with a "
        f"similarity of {settings['threshold']:g} or more; {compared}; few-shot examples looked "
        f"through: {markdown_text(str(settings.get('few_shot') or 'none given'))}.",
        "",
        *(f"- {markdown_text(line)}" for line in audit_lines(a)[1:]),  # the verdict says the first
    ]
    if len(a.flagged(level="id")) == a.queries:
        lines.append(
            "- The ids alone tell which documents belong to which query; keep them from a system that reads ids."
        )
    lines.append(f"- {_to_keep_out(page)}")
    table = _with_and_without(page.scores)
    return [*lines, "", *table] if table else lines


def _to_keep_out(page: Inspected) -> str:
    positives = counted(len({d for _, d, g in page.task.qrels if g > 0}), "positive document")
    return f"To keep out of training: {counted(page.figures.queries, 'query', 'queries')} and {positives}."


def _with_and_without(scores: list[SystemAudit]) -> list[str]:
    """Scores of all queries and of those without a flag; nothing where no query is left."""
    left = {name for s in scores for name, part in s.without.items() if part.measures is not None}
    kinds = list(dict.fromkeys(name for s in scores for name in s.without if name in FLAGS))
    names = [name for name in (*(["any"] if len(kinds) > 1 else []), *kinds) if name in left]
    if not names:
        return []
    rows = [
        [s.system, score(s.all.measures["ndcg_at_10"] if s.all.measures else None)]
        + [
            NONE if (part := s.without.get(name)) is None or part.measures is None
            else f"{part.measures['ndcg_at_10']:.4f} ({part.queries})"
            for name in names
        ]
        for s in scores
    ]  # fmt: skip
    head = ["nDCG@10", "All queries", *(f"Without {name}" for name in names)]
    return [Table(head, rows, "In brackets: the queries left.").markdown()]


def _examples(page: Inspected) -> list[str]:
    """Queries and positives side by side, with their lengths."""
    rows = [
        [_quote(query.text, 225), f"{len(query.text):,}", _quote(document.contents, 225), f"{len(document.contents):,}"]
        for query, document in examples(page.task)
    ]
    return [Table(["Query", "Characters", "Positive document", "Characters"], rows, left=4).markdown(ready=True)]


def _dataset(page: Inspected, group: str) -> list[str]:
    """The fields of the dataset, its configs and columns."""
    f, m, entry = page.figures, page.metadata, entry_of(page)
    revision = m.revision if m else page.task.revision
    stated = {
        "Nano set": set_of(page, group),
        "Backing dataset": m.source if m else (entry.dataset if entry else "") or page.task.source,
        "Task / split": page.split,
        "Hub dataset": (m.dataset if m else "") or (entry.dataset if entry else ""),
        "Language": language(page),
        "Category": "natural language",
        "Licence": licence(page),
        "Revision of the source": revision,
        "Fingerprint": page.task.fingerprint,
        "Queries": f"{f.queries:,}",
        "Documents": f"{f.documents:,}",
        "Positive judgments": f"{f.positives:,}",
        "Positives per query, min / median / max": f"{f.positives_min} / {f.positives_median:g} / {f.positives_max}",
    }
    fields = [[name, markdown_text(value or "not given")] for name, value in stated.items()]
    lines = [Table(["Field", "Value"], fields, left=2).markdown(ready=True)]
    counts = {"corpus": f.documents, "queries": f.queries, "qrels": f.positives}
    rows = [
        [code(config), ", ".join(map(code, page.columns[config])), f"{count:,}"]
        for config, count in counts.items()
        if config in page.columns
    ]
    return [*lines, "", Table(["Config", "Columns", "Rows"], rows, left=2).markdown(ready=True)] if rows else lines


def _candidates(page: Inspected) -> list[str]:
    """The candidate configs with their figures."""
    rows = []
    for role, p in page.figures.profiles.items():
        by = page.made_by.get(p.profile, "rrf" if role == "hybrid" else p.profile)
        covered = NONE if p.positives_covered is None else share(p.positives_covered)
        rows.append(
            [f"`{p.profile}`", markdown_text(by), str(p.top_k), score(p.ndcg_at_10), score(p.hit_at_10),
             score(p.recall_at_100), covered, str(p.safeguard_rows)]
        )  # fmt: skip
    titles = ["Config", "Made by", "Depth", "nDCG@10", "hit@10", "recall@100", "Positives held", "Safeguard rows"]
    return [Table(titles, rows, left=2).markdown(ready=True)]
