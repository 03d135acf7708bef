"""`r2med search`: try it."""

from __future__ import annotations

from pathlib import Path

import click

from .common import emit, json_option, options_from


@click.command("search")
@click.argument("text")
@click.option("--task", "-t", "spec", default="mini/MedQA-Diag", show_default=True, help="Task or folder to search in.")
@click.option("--retriever", "-r", default="bm25", show_default=True, help="Retriever.")
@click.option("--top", "-k", default=5, show_default=True, type=click.IntRange(min=1), help="Passages to show.")
@click.option("--prompts", type=click.Path(path_type=Path), help="A prompt pack that replaces the task instructions.")
@click.option("--memory", metavar="SIZE", help="What dense search may hold beside its mapped vectors, such as 2GB.")
@json_option
def command(
    text: str, spec: str, retriever: str, top: int, prompts: Path | None, memory: str | None, as_json: bool
) -> None:  # fmt: skip
    """Type a query and see the top passages, with the words that matched marked."""
    from .. import api
    from ..tasks import load

    task = load(spec)
    options = options_from({"memory": memory})
    found = api.search(text, task, retriever=retriever, top=top, prompts=prompts, options=options)
    if as_json:
        emit({"query": text, "task": task.full_name, "retriever": retriever, "hits": [hit._asdict() for hit in found]})
        return
    from rich.console import Console
    from rich.text import Text

    from ..core.untrusted import printable

    console = Console(highlight=False)
    if not found:
        console.print("Nothing found: no passage shares a term with the query.")
    for hit in found:
        console.print(Text(printable(f"{hit.rank}. {hit.doc_id}  {hit.score:.3f}"), style="bold"))
        passage, end = Text("   "), 0
        for start, stop in hit.marks:
            passage.append(_shown(hit.text[end:start])).append(_shown(hit.text[start:stop]), style="bold yellow")
            end = stop
        console.print(passage.append(_shown(hit.text[end:])), soft_wrap=not console.is_terminal)
        if hit.marks:
            words = dict.fromkeys(hit.text[start:stop].lower() for start, stop in hit.marks)
            console.print(Text(printable(f"   matched: {', '.join(words)}"), style="dim"))


def _shown(text: str) -> str:
    """A piece of a passage that cannot drive the terminal."""
    from ..core.untrusted import printable

    return printable(text, keep="\n")
