"""`r2med search`: try it."""

from __future__ import annotations

import click

from .common import emit, json_option, options_from
from .output import passage, say


@click.command("search")
@click.argument("text")
@click.option("--task", "-t", "spec", default="mini/MedQA-Diag", show_default=True, help="Task or folder to search in.")
@click.option("--retriever", "-r", default="bm25", show_default=True, help="Retriever.")
@click.option("--top", "-k", default=5, show_default=True, type=click.IntRange(min=1), help="Passages to show.")
@click.option("--memory", metavar="SIZE", help="What dense search may hold beside its mapped vectors, such as 2GB.")
@json_option
def command(text: str, spec: str, retriever: str, top: int, memory: str | None, as_json: bool) -> None:
    """Type a query and see the top passages, with the words that matched marked."""
    from .. import api
    from ..tasks import load

    task = load(spec)
    found = api.search(text, task, retriever=retriever, top=top, options=options_from({"memory": memory}))
    if as_json:
        emit({"query": text, "task": task.full_name, "retriever": retriever, "hits": [hit._asdict() for hit in found]})
        return
    if not found:
        say("Nothing found: no passage shares a term with the query.")
    for hit in found:
        words = dict.fromkeys(hit.text[start:stop].lower() for start, stop in hit.marks)
        passage(f"{hit.rank}. {hit.doc_id}  {hit.score:.3f}", hit.text, hit.marks, words)
