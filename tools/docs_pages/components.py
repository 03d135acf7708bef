"""Every retriever, reranker, expansion method, chat model and fusion with its parameters, from the registries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from r2med.core.options import Parameter
from r2med.core.registry import Entry, Registry
from r2med.core.spec import show
from r2med.core.table import Table, markdown_text
from r2med.expand import expanders
from r2med.fuse import fusions
from r2med.llm import chats
from r2med.rerank import rerankers
from r2med.retrieve import retrievers

INTRODUCTION = """# Components

Everything that can stand in a [spec](../specs.md), with its parameters. A parameter that is left out has its default;
one at its default is left out of the printed name. The tables *How … are run* list what may be typed the same way and
is no part of the name, because it changes no ranking. `r2med models` says which models are ready on your machine.
"""


class Kind(NamedTuple):
    """One registry, as a section of the page."""

    title: str
    registry: Registry[Any]
    words: str


KINDS = (
    Kind("Retrievers", retrievers, "For `--retriever`. A Hugging Face id, a folder and `module:attr` work as well."),
    Kind(
        "Rerankers",
        rerankers,
        "For `--rerank`. `@50` behind one says how many candidates it reorders (100 by default); a Hugging Face id, a "
        "folder and `module:attr` work as well.",
    ),
    Kind("Expansion methods", expanders, "For `--expand`. `module:attr` works as well."),
    Kind(
        "Chat models",
        chats,
        "What may stand for `LLM` on this page, and for `--llm`. Where `OPENAI_BASE_URL` is set, any name that the "
        "server knows works as well.",
    ),
    Kind("Fusions", fusions, "For `--fuse`."),
)


def pages() -> dict[str, str]:
    """`components.md`."""
    return {"components.md": "\n".join([INTRODUCTION, *(line for kind in KINDS for line in _section(kind))])}


def _section(kind: Kind) -> Iterator[str]:
    registry = kind.registry
    yield from (f"## {kind.title}", "", kind.words, "")
    for entry in registry:
        yield from (
            f"### `{entry.shape}`",
            "",
            f"{markdown_text(entry.summary)[:1].upper()}{markdown_text(entry.summary)[1:]}.",
            "",
        )
        yield from _parameters(entry.parameters, [entry])
    for parts in _alike(registry[name] for name in registry.names() if not _registered(registry, name)):
        yield from (f"### Models: {', '.join(f'`{entry.name}`' for entry in parts)}", "")
        yield from _parameters(parts[0].parameters, parts)
    if registry.options:
        yield from (f"### How {kind.title.lower()} are run", "")
        yield from _parameters(registry.options, [])


def _registered(registry: Registry[Any], name: str) -> bool:
    return any(entry.name == name for entry in registry)


def _alike(entries: Iterable[Entry[Any]]) -> list[list[Entry[Any]]]:
    """Entries in groups that have the same parameters."""
    groups: dict[tuple[str, ...], list[Entry[Any]]] = {}
    for entry in entries:
        groups.setdefault(tuple(entry.parameters), []).append(entry)
    return list(groups.values())


def _parameters(declared: Mapping[str, Parameter], entries: list[Entry[Any]]) -> Iterator[str]:
    """The table of parameters; a default that differs among entries is the model's own."""
    if not declared:
        yield from ("No parameters.", "")
        return
    rows = []
    for name, parameter in declared.items():
        defaults = {_default(entry.parameters[name]) for entry in entries} or {_default(parameter)}
        shown = defaults.pop() if len(defaults) == 1 else "the model's own"
        rows.append([f"`{name}`", markdown_text(parameter.help), markdown_text(parameter.wanted), shown])
    yield from (Table(["Parameter", "What it is", "Values", "Default"], rows, left=4).markdown(ready=True), "")


def _default(parameter: Parameter) -> str:
    value: Any = parameter.default
    return "–" if value in (None, ()) else f"`{show(value)}`"
