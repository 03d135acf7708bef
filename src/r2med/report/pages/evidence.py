"""The sections of a task page that quote the data: failures, leakage, examples."""

from __future__ import annotations

from ...tasks.audit.findings import SystemAudit
from ...tasks.nano.figures import Inspected
from .words import counted, plain, score, share, snippet, table

KINDS = {
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


def failures(page: Inspected) -> list[str]:
    """Queries where BM25's first document shares more words than any positive, and is wrong."""
    if not page.traps:
        return ["No query has a first BM25 document that is wrong and shares more of its words than a positive does."]
    lines = []
    for lure in page.traps:
        query, wrong = page.task.query(lure.query), page.task.documents.get(lure.document)
        right = page.task.documents.get(lure.positive)
        assert query is not None
        assert wrong is not None
        assert right is not None
        rank = "nowhere in its list" if lure.positive_rank is None else f"at rank {lure.positive_rank}"
        words = f" Only the wrong one has: {', '.join(plain(w) for w in lure.words)}." if lure.words else ""
        lines += [
            f"**Query `{lure.query}`.** BM25 puts `{lure.document}` first, which holds {share(lure.share)} of the "
            f"query's terms and is not relevant; the positive that matches best holds {share(lure.positive_share)}, "
            f"and the first positive stands {rank}.{words}",
            "",
            f"> Query: {snippet(query.text)}",
            ">",
            f"> Wrong, first: {snippet(wrong.contents, 220)}",
            ">",
            f"> Positive `{lure.positive}`: {snippet(right.contents, 220)}",
            "",
        ]
    return lines[:-1]


def leakage(page: Inspected) -> list[str]:
    """What the audit found, and what it does to the scores."""
    a, settings = page.audit, page.audit_settings
    against = settings.get("against") or "no training set was given"
    lines = [
        f"Audited: runs of {settings['width']} words, near duplicates from a similarity of {settings['threshold']:g}; "
        f"compared with training data: {plain(str(against))}; with few-shot examples: "
        f"{plain(str(settings.get('few_shot') or 'none given'))}.",
        "",
        f"- {counted(a.flagged_queries, 'query', 'queries')} of {a.queries:,} flagged.",
        f"- Exact copies among documents: {counted(a.exact_copies.groups, 'group')} "
        f"({counted(a.exact_copies.documents, 'document')}); near copies: {counted(a.near_copies.groups, 'group')} "
        f"({counted(a.near_copies.documents, 'document')}).",
        *(f"- {note}" for note in a.notes),
    ]
    if len(a.flagged(level="id")) == a.queries:
        lines.append(
            "- The ids alone tell which documents belong to which query; keep them from a system that reads ids."
        )
    if a.by_kind:
        rows = [[f"`{kind}`", KINDS[kind], str(count)] for kind, count in a.by_kind.items()]
        lines += ["", *table(["Flag", "Meaning", "Queries"], rows, left=2), "", *_with_and_without(page.scores)]
    return lines


def _with_and_without(scores: list[SystemAudit]) -> list[str]:
    kinds = list(dict.fromkeys(name for s in scores for name in s.without if name in KINDS))
    names = [*(["any"] if len(kinds) > 1 else []), *kinds]
    rows = [
        [s.system, score(s.all.measures["ndcg_at_10"] if s.all.measures else None)]
        + [
            "–" if (part := s.without.get(name)) is None or part.measures is None
            else f"{part.measures['ndcg_at_10']:.4f} ({part.queries})"
            for name in names
        ]
        for s in scores
    ]  # fmt: skip
    head = ["nDCG@10", "All queries", *(f"Without `{name}`" for name in names)]
    return [*table(head, rows), "", "In brackets: the queries left; a dash where none is."]


def examples(page: Inspected) -> list[str]:
    """The first, the middle and the last query, each with a positive."""
    queries = page.task.queries
    lines = []
    for i in sorted({0, len(queries) // 2, len(queries) - 1}):
        query = queries[i]
        positive = next((d for d, grade in page.task.qrels.of(query.id).items() if grade > 0), None)
        document = page.task.documents.get(positive) if positive else None
        if document is None:
            continue
        lines += [
            f"> Query `{query.id}`: {snippet(query.text)}",
            ">",
            f"> Positive `{document.id}`: {snippet(document.contents)}",
            "",
        ]
    return lines[:-1]
