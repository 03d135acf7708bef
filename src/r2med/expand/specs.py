"""Expanders by name: `hyde:qwen-7b`, `query2doc:replay:FILE`, `lamer:published:gpt4`, `concepts`, `oracle`.

Also what an installed package offers under `r2med.expanders`, and `package.module:attr`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from ..core import Task, UnknownName, UsageError
from ..core.addresses import resolve
from ..core.plugins import find_plugin, plugins
from ..llm import Chat, Options, get_llm
from ..retrieve import Retriever
from .concepts import Concepts
from .custom import as_expander
from .generated import Settings
from .oracle import Oracle
from .protocol import Expander
from .replay import Replayed, marking_of

GENERATING = ("hyde", "query2doc", "lamer", "search-o1", "search-r1")
METHODS = (*GENERATING, "concepts", "oracle")
Published = Callable[[Task, str, str], Mapping[str, Sequence[str]]]
"""Looks up the texts published with a task by (task, method, llm): a higher room knows where they lie."""


def get_expander(
    spec: str | object,
    *,
    settings: Settings | None = None,
    options: Options | None = None,
    retriever: Retriever | None = None,
    published: Published | None = None,
) -> Expander:
    """The expander that `spec` names, or an object as one; nothing is fetched or asked yet.

    `retriever` is the first stage of `lamer` and the tool of the searching methods (default: bm25).
    """
    if not isinstance(spec, str):
        return as_expander(spec)
    method, _, source = spec.partition(":")
    if method.casefold().replace("_", "-") not in METHODS:
        return _foreign(spec, method, source)
    method = method.casefold().replace("_", "-")
    if method == "concepts":
        return _concepts(source, spec)
    if method == "oracle":
        if source:
            raise UsageError(f"oracle takes no {source!r}: it uses the true answer")
        return Oracle()
    return _generating(method, source, spec, settings, options, retriever, published)


def _generating(
    method: str,
    source: str,
    spec: str,
    settings: Settings | None,
    options: Options | None,
    retriever: Retriever | None,
    published: Published | None,
) -> Expander:
    if not source:
        raise UsageError(f"{method} needs an LLM: {method}:local, {method}:gpt4, {method}:replay:FILE")
    kind, _, rest = source.partition(":")
    if kind == "replay":
        return _replayed(method, rest, spec)
    if kind == "published":
        if published is None or not rest:
            raise UsageError(f"cannot read {spec!r}: published expansions are named {method}:published:LLM")
        return Replayed(method, lambda task: published(task, method, rest), source=source, marking=marking_of(rest))
    return with_chat(method, get_llm(source, options), settings, retriever)


def with_chat(
    method: str, chat: Chat, settings: Settings | None = None, retriever: Retriever | None = None
) -> Expander:
    """The expander of a generating method on an LLM."""
    from .hyde import HyDE
    from .lamer import LameR
    from .query2doc import Query2doc
    from .searching import SearchO1, SearchR1

    if method == "hyde":
        return HyDE(chat, settings)
    if method == "query2doc":
        return Query2doc(chat, settings)
    if method == "lamer":
        return LameR(chat, settings, retriever=retriever)
    agent = SearchO1 if method == "search-o1" else SearchR1
    return agent(chat, settings, retriever=retriever)


def _foreign(spec: str, method: str, source: str) -> Expander:
    """A plug-in, or what lies at `module:attr`; names of ours are never taken over."""
    if not source and (plugin := find_plugin("expander", method)):
        try:
            return as_expander(plugin.make(), name=method)
        except UsageError as error:
            raise UsageError(f"{plugin.label}: {error}") from None
    if source and _is_module(method):
        return as_expander(resolve(spec), name=source)
    known = [*METHODS, *(p.name for p in plugins("expander"))]
    raise UnknownName("expansion method", method, known, hint=f"(known: {', '.join(known)})")


def _is_module(name: str) -> bool:
    top = name.partition(".")[0]
    try:
        return Path(f"{top}.py").is_file() or Path(top).is_dir() or find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _replayed(method: str, file: str, spec: str) -> Expander:
    if not file:
        raise UsageError(f"{spec!r} names no file: {method}:replay:FILE")
    path = Path(file).expanduser()
    if not path.exists():
        raise UsageError(f"{path}: there is no such file to replay")
    return Replayed(method, path=path)


def _concepts(source: str, spec: str) -> Expander:
    numbers = {"synonyms": 2, "diseases": 3}
    for pair in filter(None, source.split(",")):
        key, _, value = pair.partition("=")
        if key not in numbers or not value.isdecimal():
            raise UsageError(f"cannot read {pair!r} in {spec!r}: it looks like concepts:synonyms=2,diseases=3")
        numbers[key] = int(value)
    return Concepts(synonyms=numbers["synonyms"], diseases=numbers["diseases"])
