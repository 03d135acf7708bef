"""Retrievers by name: what a user types becomes a thing that retrieves.

bm25                       a lexical retriever
bm25:k1=1.2,b=0.75         the same with parameters
bge-small                  a named model
bge-small:max_length=256   the same with options of its backend
org/model, ./folder        any Hugging Face id or model folder
package.module:attr        anything that encodes, searches or retrieves
name-of-a-plug-in          what an installed package offers under `r2med.retrievers`
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core import UnknownName, UsageError
from ..core.plugins import find_plugin, plugins
from ..models import Card, card_names, find_card, locate
from .bm25 import BM25
from .protocol import Retriever

Progress = Callable[[int, int], None]

LEXICAL: dict[str, Callable[..., Retriever]] = {
    "bm25": lambda **p: BM25(**p, query="bm25"),
    "bm25-lucene": lambda **p: BM25(**p, query="count"),
}
Reading = Callable[[str], object]


def yes_or_no(text: str) -> bool:
    """For parameters that are either."""
    if text not in ("yes", "no"):
        raise ValueError(text)
    return text == "yes"


BM25_PARAMETERS: dict[str, Reading] = {"k1": float, "b": float, "analyzer": str}
MODEL_PARAMETERS: dict[str, Reading] = {
    "max_length": int,
    "batch_tokens": int,
    "threads": int,
    "dtype": str,
    "device": str,
    "variant": str,
    "similarity": str,
    "allow_pickle": yes_or_no,
}


def parse_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Split `name:key=value,key=value`; the part behind the colon must hold an equals sign to be parameters."""
    name, colon, rest = spec.partition(":")
    if not colon or "=" not in rest:
        return spec, {}
    parameters = {}
    for pair in rest.split(","):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise UsageError(f"cannot read {pair!r} in {spec!r}: parameters look like name:k1=1.2,b=0.75")
        parameters[key.strip()] = value.strip()
    return name, parameters


def get_retriever(spec: str | object, *, prompts: Path | None = None, **options: object) -> Retriever:
    """The retriever that `spec` names, or an object as one.

    `options` go to models (`device`, `trust_remote_code`, `on_progress`, …).
    """
    if not isinstance(spec, str):
        return _object(spec, "", options)
    name, parameters = parse_spec(spec)
    shown = f"{name},{','.join(f'{k}={v}' for k, v in parameters.items())}" if parameters else ""
    if name in LEXICAL:
        arguments = _typed(parameters, BM25_PARAMETERS, name, spec)
        return LEXICAL[name](**arguments, **({"name": shown} if shown else {}))
    arguments = dict(options) | _typed(parameters, MODEL_PARAMETERS, name, spec)
    if ":" in name:
        from ..core.addresses import resolve

        return _object(resolve(name), name.rpartition(":")[2], arguments)
    # A built-in name is never taken over; a plug-in goes before folders and hub ids.
    if name.casefold().replace("_", "-") not in card_names() and (plugin := find_plugin("retriever", name)):
        return _object(plugin.make(), shown or name, arguments, plugin.label)
    try:
        card = find_card(name)
    except UnknownName:
        known = [*LEXICAL, *card_names(), *(p.name for p in plugins("retriever"))]
        raise UnknownName("retriever", name, known, hint="(r2med models lists them)") from None
    if prompts is not None:
        card = card.with_prompts(prompts)
    return _model(card, shown, arguments)


def _typed(parameters: dict[str, str], known: dict[str, Reading], name: str, spec: str) -> dict[str, Any]:
    typed: dict[str, Any] = {}
    for key, value in parameters.items():
        if key not in known:
            raise UsageError(f"{name} has no parameter {key!r}; it has {', '.join(known)}")
        try:
            typed[key] = known[key](value)
        except ValueError:
            kind = "yes or no" if known[key] is yes_or_no else "a number"
            raise UsageError(f"{key} in {spec!r} must be {kind}, not {value!r}") from None
    return typed


def _model(card: Card, name: str, options: dict[str, Any]) -> Retriever:
    folder = locate(card)
    if card.kind == "dense":
        from .dense import DenseRetriever

        second = locate(card, "document") if card.document_source else None
        return DenseRetriever(card, name=name, folder=folder, document_folder=second, **options)
    options = {k: v for k, v in options.items() if k not in ("variant", "similarity", "verify")}
    if card.kind == "late-interaction":
        from .maxsim import MaxSimRetriever

        return MaxSimRetriever(card, name=name, folder=folder, **options)
    if card.kind == "sparse":
        from .splade import SpladeRetriever

        return SpladeRetriever(card, name=name, folder=folder, **options)
    raise UsageError(f"{card.name} is a {card.kind} model, not a retriever")


def _object(model: object, name: str, options: dict[str, Any], label: str = "") -> Retriever:
    from .objects import as_retriever

    try:
        return as_retriever(model, name=name, **options)
    except UsageError as error:
        raise UsageError(f"{label}: {error}" if label else str(error)) from None
