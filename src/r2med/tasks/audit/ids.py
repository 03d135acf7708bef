"""What ids give away: the article a query was made from, the query a passage was made for."""

from __future__ import annotations

import re

from ...core import Task
from .findings import FlagList

_PMC = re.compile(r"PMC[_-]?(\d{3,})", re.IGNORECASE)
_PART = re.compile(r"(.+?)[_\-:#.](?:sec|p|part|chunk|passage|psg)?\d+", re.IGNORECASE)
_BRIGHT = re.compile(r"[^/]+/.+_\d+\.txt")
_WORDS = re.compile(r"[a-z0-9]+")
SLUG_SHARE = 0.6
BRIGHT_NOTE = (
    "bright-biology: queries and judgments of R2MED's Biology come from BRIGHT's biology split; "
    "a model trained, tuned or prompted on BRIGHT has seen them"
)


def article(identifier: str) -> str:
    """The article, record or page that a passage's id names: `PMC101395_3` → `PMC101395`, `mb0_1` → `mb0`."""
    if match := _PMC.search(identifier):
        return f"PMC{match[1]}"
    match = _PART.fullmatch(identifier)
    return match[1] if match else identifier


def flag_ids(task: Task, flags: FlagList) -> None:
    """Same id, same article, and slugs of the question in the ids of its passages."""
    by_id = {d: i for i, d in enumerate(task.documents.ids)}
    by_article: dict[str, list[str]] = {}
    by_slug: dict[str, list[str]] = {}
    for doc_id in task.documents.ids:
        by_article.setdefault(article(doc_id), []).append(doc_id)
        if "/" in doc_id:
            by_slug.setdefault(doc_id.partition("/")[0], []).append(doc_id)
    for query in task.queries:
        positives = {d for d, grade in task.qrels.of(query.id).items() if grade > 0}
        matched = [query.id] if query.id in by_id else []
        matched += [d for d in by_article.get(query.id, ()) if d != query.id]
        for doc_id in matched:
            # Two numberings that both count from 1 meet by chance; names do not.
            if query.id.isdigit() and doc_id not in positives:
                continue
            flags.add(query.id, "same-id", f"the id of {_role(doc_id, positives)} is made of the query's", doc_id)
        for name in sorted(_articles_of(query.id, query.text)):
            for doc_id in by_article.get(name, ()):
                said = f"{_role(doc_id, positives)} comes from {name}, which the query names as its own"
                flags.add(query.id, "same-article", said, doc_id)
        if by_slug:
            _flag_slugs(query.id, query.text, positives, by_slug, flags)


def _articles_of(query_id: str, text: str) -> set[str]:
    return {f"PMC{number}" for number in (*_PMC.findall(query_id), *_PMC.findall(text))}


def _role(doc_id: str, positives: set[str]) -> str:
    return "a positive" if doc_id in positives else "a document not judged relevant"


def _flag_slugs(query_id: str, text: str, positives: set[str], by_slug: dict[str, list[str]], flags: FlagList) -> None:
    asked = set(_WORDS.findall(text.lower()))
    for slug in sorted({d.partition("/")[0] for d in positives if "/" in d}):
        words = set(_WORDS.findall(slug.lower().replace("_", " ")))
        share = len(words & asked) / len(words) if words else 0.0
        if len(words) >= 2 and share >= SLUG_SHARE:
            same = by_slug.get(slug, [])
            found = sum(d in positives for d in same)
            said = f"{len(same)} ids begin with {slug!r}, words of the query; {found} of these documents are positives"
            flags.add(query_id, "slug", said, slug, round(share, 4))


def is_bright(task: Task) -> bool:
    """Whether a task is R2MED's Biology or has the ids of BRIGHT's biology corpus."""
    if task.name == "Biology" and task.collection in ("r2med", "nano"):
        return True
    sample = task.documents.ids[: 200 if len(task.documents) > 200 else len(task.documents)]
    return bool(sample) and sum(bool(_BRIGHT.fullmatch(i)) for i in sample) > len(sample) // 2
