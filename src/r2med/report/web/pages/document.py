"""One document in full."""

from __future__ import annotations

from ....core import UnknownName, UsageError
from ..asked import Asked, Links, Page
from ..site import Site
from ..text import marked, terms_of
from .tasks_of import find_task

LONGEST = 400_000


def document(site: Site, asked: Asked, url: Links) -> Page:
    """The page; `query` names a query whose words are marked."""
    holdings, name = find_task(site, asked)
    info = holdings.infos[name]
    task = site.texts.of(info).task
    if len(asked.parts) < 3:
        raise UsageError("a document has an address like /document/COLLECTION/TASK/ID")
    found = task.documents.get(asked.parts[2]) if task else None
    if task is None or found is None:
        raise UnknownName("document", asked.parts[2], (), hint=f"in {info.full_name}, or its texts are not here")
    query = task.query(asked.get("query"))
    judged = [(j.query_id, j.grade) for j in task.qrels if j.doc_id == found.id]
    same = site.looks.copies(task, found.id)
    context = {
        "info": info,
        "document": found,
        "text": marked(found.text, terms_of(query.text) if query else (), most=LONGEST),
        "cut": len(found.text) > LONGEST,
        "query": query,
        "judged": [(q, g, url("query", holdings.slug, name, q)) for q, g in judged],
        "copies": [(d, url("document", holdings.slug, name, d)) for d in same],
        "task_href": url("task", holdings.slug, name),
        "words": len(found.text.split()),
    }
    return Page("document.html", found.id, context, "task")
