"""A page per task: the whole page for Mini, which is at hand; what the catalogue knows for the others."""

from __future__ import annotations

from r2med.core.table import Table, markdown_text
from r2med.pipeline.audit import inspect
from r2med.report.task_page import task_page
from r2med.results.ledger import ledger
from r2med.tasks import TaskEntry, collections, resolve

GET = """
```console
$ r2med data download {name}
$ r2med run --tasks {name} --retriever bm25
```
"""


def pages() -> dict[str, str]:
    """`tasks/index.md` and `tasks/<collection>/<task>.md`."""
    made = {"tasks/index.md": _index()}
    for name, collection in collections().items():
        for entry in collection.tasks:
            text = _mini(entry) if name == "mini" else _catalogued(entry, collection.title)
            made[f"tasks/{name}/{entry.name}.md"] = text
    return made


def _index() -> str:
    lines = ["# Tasks", ""]
    for name, collection in collections().items():
        rows = [
            [f"[{e.name}]({name}/{e.name}.md)", e.family, e.scenario, f"{e.queries:,}", f"{e.documents:,}",
             f"{e.judgments:,}"]
            for e in collection.tasks
        ]  # fmt: skip
        home = f" [Home page]({collection.homepage})." if collection.homepage else ""
        lines += [
            f"## {collection.title}",
            "",
            f"{markdown_text(collection.summary)}. Licence: {collection.licence}.{home}",
            "",
        ]
        titles = ["Task", "Family", "Scenario", "Queries", "Documents", "Judgments"]
        lines += [Table(titles, rows, left=3).markdown(ready=True), ""]
    return "\n".join(lines)


def _mini(entry: TaskEntry) -> str:
    (ref,) = resolve(entry.full_name)
    body = task_page(inspect(ref)).partition("\n")[2].partition("## Metadata\n")[0]  # no file of figures lies beside it
    words = "Written by `r2med pages mini`. BM25 on this page is `bm25-nano`, as in NanoR2MED's candidate lists."
    return f"# mini/{entry.name}\n\n{words}\n{body}"


def _catalogued(entry: TaskEntry, title: str) -> str:
    rows = [
        ["Collection", title],
        ["Family", entry.family],
        ["Scenario", entry.scenario],
        ["Queries", f"{entry.queries:,}"],
        ["Documents", f"{entry.documents:,}"],
        ["Judgments", f"{entry.judgments:,}"],
        ["Data set", f"`{entry.dataset}`"],
        ["Revision", f"`{entry.revision}`"],
        *([["Split", f"`{entry.split}`"]] if entry.split else []),
        ["Other names", ", ".join(f"`{alias}`" for alias in entry.aliases) or "–"],
        ["Licence", entry.licence],
    ]
    return "\n".join(
        [
            f"# {entry.full_name}",
            "",
            entry.description,
            "",
            Table(["Property", "Value"], rows, left=2).markdown(ready=True),
            "",
            "Counts are those of the published data; `r2med data download` checks them.",
            "",
            "<!-- not run: needs the hub -->",
            GET.format(name=entry.full_name).strip(),
            "",
            *_published(entry),
        ]
    )


def _published(entry: TaskEntry) -> list[str]:
    """The best published retrievers on this task; figures we did not compute."""
    found = [
        (figure.tasks("ndcg_at_10")[entry.name], figure)
        for figure in ledger().select(collection=entry.collection)
        if entry.name in figure.tasks("ndcg_at_10")
    ]
    if not found:
        return []
    best = sorted(found, key=lambda pair: -pair[0])[:10]
    rows = [
        [
            f"`{f.system}`",
            f.kind,
            f"`{f.protocol}`",
            f"[{markdown_text(f.source.title)}]({f.source.url})",
            f"{100 * value:.2f}",
        ]
        for value, f in best
    ]
    titles = ["System", "Kind", "Protocol", "Source", "nDCG@10 × 100"]
    return [
        "## Published figures", "", Table(titles, rows, left=4).markdown(ready=True), "",
        "The ten highest of the [ledger](../../../ledger.md). We did not compute them, and figures of different "
        "[protocols](../../../protocols.md) do not compare.",
    ]  # fmt: skip
