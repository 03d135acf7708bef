"""The dense profile of a Nano task: NanoR2MED's own model where it is at hand, else the embedded default."""

from __future__ import annotations

from typing import Any

from ..core import UsageError
from ..models import find_card
from ..models.parts import Instructions
from ..retrieve import Retriever, get_retriever
from .defaults import missing_for

AUTOMATIC = ("harrier", "bge-small")
# NanoR2MED asks Harrier with the model's own prompt `web_search_query`, whatever the task.
WEB_SEARCH_QUERY = "Given a web search query, retrieve relevant passages that answer the query"


def dense_retriever(spec: str, **options: Any) -> Retriever | None:
    """The retriever behind `--dense`: a name, `none`, or `auto` for the first of the usual ones that can run here.

    `options` go to the model (`device`, `on_progress`, …).
    """
    if spec == "none":
        return None
    if spec == "auto":
        found = next((name for name in AUTOMATIC if not missing_for(name)), None)
        return dense_retriever(found, **options) if found else None
    if spec == "harrier":
        return _harrier(**options)
    retriever = get_retriever(spec, **options)
    if retriever.kind == "lexical":
        raise UsageError(f"{spec!r} is not a dense retriever; the BM25 profile is chosen with --bm25")
    return retriever


def _harrier(**options: Any) -> Retriever:
    from ..retrieve.dense import DenseRetriever

    card = find_card("harrier").replace(
        prompts="web_search_query", instructions=Instructions(query={"default": WEB_SEARCH_QUERY})
    )
    return DenseRetriever(card, **options)
