"""`r2med search`: try it."""

from __future__ import annotations

import click

from .common import emit, json_option


@click.command("search")
@click.argument("text")
@click.option("--task", "-t", "spec", default="mini/MedQA-Diag", show_default=True, help="Task or folder to search in.")
@click.option("--retriever", "-r", default="bm25", show_default=True, help="Retriever.")
@click.option("--top", "-k", default=5, show_default=True, type=click.IntRange(min=1), help="Passages to show.")
@click.option("--memory", metavar="SIZE", help="What dense search may hold beside its mapped vectors, such as 2GB.")
@json_option
def command(text: str, spec: str, retriever: str, top: int, memory: str | None, as_json: bool) -> None:
    """Type a query and see the top passages, with the words that matched marked."""
    from ..core.sizes import parse_size
    from ..pipeline.search import search_text
    from ..tasks import load

    limit = parse_size(memory) if memory else None
    task = load(spec)
    found = search_text(task, text, retriever, top, memory=limit)
    if as_json:
        emit({"query": text, "task": task.full_name, "retriever": retriever, "hits": [hit._asdict() for hit in found]})
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if not found:
        console.print("Nothing found: no passage shares a term with the query.")
    for hit in found:
        console.print(Text(f"{hit.rank}. {hit.doc_id}  {hit.score:.3f}", style="bold"))
        passage, end = Text("   "), 0
        for start, stop in hit.marks:
            passage.append(hit.text[end:start]).append(hit.text[start:stop], style="bold yellow")
            end = stop
        console.print(passage.append(hit.text[end:]), soft_wrap=not console.is_terminal)
        if hit.marks:
            words = dict.fromkeys(hit.text[start:stop].lower() for start, stop in hit.marks)
            console.print(Text(f"   matched: {', '.join(words)}", style="dim"))
