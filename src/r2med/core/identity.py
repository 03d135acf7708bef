"""Which object this is: what it says of itself, or what its state and code say.

Somebody's own model is known by its `cache_key`, `revision` or `version`; where that stands in its class, the arguments
of its constructor count too. One that declares none is known by its state: the values of its attributes, its weights,
and the code of its class with everything that code refers to. Where the state cannot be read (an open connection, a C
object, code that reads a file or the environment when it is called), nothing stored is ever reused for it: its identity
then holds a number that no other process has.
"""

from __future__ import annotations

import inspect
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from .code import Unreadable, constructor_arguments
from .state import state_digest

REVISION_ATTRS = ("cache_key", "revision", "version", "__version__")
NAMELESS = "no_model_name/available"  # what mteb calls a model without a name


class Identity(NamedTuple):
    """What tells an object from every other."""

    facts: dict[str, object]  # part of every fingerprint and cache key
    digest: str  # short form for names; empty where the object declares a revision
    unknown: str = ""  # why its state cannot be read; stored results and vectors of it are then not reused


def identify(model: Any) -> Identity:
    """The identity of an object that somebody brought."""
    kind = model if inspect.isroutine(model) else type(model)
    facts: dict[str, object] = {"class": f"{kind.__module__ or '__main__'}:{kind.__qualname__}"}
    if revision := revision_of(model):
        return Identity(facts | {"revision": revision, **_arguments(model)}, "")
    try:
        digest = state_digest(model)
    except Unreadable as why:
        return Identity(facts | {"unknown": secrets.token_hex(8)}, "", str(why))
    return Identity(facts | {"state": digest}, digest[:8])


def _arguments(model: Any) -> dict[str, object]:
    """Constructor arguments, for an object whose revision is that of its class: they may tell two of them apart."""
    attribute = next(name for name in REVISION_ATTRS if getattr(model, name, None) not in (None, ""))
    if inspect.isroutine(model) or not isinstance(getattr(type(model), attribute, None), str | int | float):
        return {}
    digests = dict[str, str]()
    for name, value in constructor_arguments(model).items():
        with suppress(Unreadable):  # the others still tell
            digests[name] = state_digest(value)
    return {"arguments": digests} if digests else {}


def revision_of(model: Any) -> str:
    """What an object says of its own state: the first of its `cache_key`, `revision`, `version`."""
    for attribute in REVISION_ATTRS:
        value = getattr(model, attribute, None)
        if callable(value):
            value = value()
        if value is not None and value != "":
            return str(value)
    return ""


def name_of(model: Any) -> str:
    """What an object calls itself, where its weights came from, or its class with the module it lies in."""
    meta = getattr(model, "mteb_model_meta", None)
    said = (
        getattr(model, "name", None),
        getattr(meta, "name", None),
        _card_name(model),
        _card_name(getattr(model, "model", None)),
    )
    for name in said:
        if isinstance(name, str) and name.strip() and name != NAMELESS:
            return Path(name).name if name.startswith(("/", "./", "../", "~")) else name
    return class_name(model)


def class_name(model: Any) -> str:
    """An object's class, or a function, with the module it lies in."""
    kind = model if inspect.isroutine(model) else type(model)
    nameless = kind.__module__ in (None, "__main__", "builtins")
    return kind.__qualname__ if nameless else f"{kind.__module__}:{kind.__qualname__}"


def _card_name(model: Any) -> str | None:
    """Name or path that sentence-transformers and transformers keep with a model."""
    card = getattr(model, "model_card_data", None)
    for holder, field in ((card, "model_id"), (card, "base_model"), (getattr(model, "config", None), "_name_or_path")):
        if isinstance(found := getattr(holder, field, None), str) and found:
            return found
    return None
