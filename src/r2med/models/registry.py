"""All models a user can name: cards by name, one TOML file each; what is ready here, and how to get the rest."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from ..core import UnknownName, UsageError
from ..core.files import exists, parse_toml, typed_path
from ..core.keys import key_place
from ..core.plugins import Plugin, plugins
from ..core.registry import Registry
from .card import Card, ChatCard, ModelCard
from .locate import locate, ready
from .prompts import Instructions, built_in

if TYPE_CHECKING:
    from importlib.abc import Traversable

HUB_ID = re.compile(r"(?!.*(?:--|\.\.))(?=[^@]{1,96}(?:@|$))[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w.-]{1,100})?", re.ASCII)
"""As the hub has them: 96 characters at most, neither `--` nor `..`; so each has a folder of its own."""
CHAT_ALIASES = {"local": "smollm2"}
NEEDS = {
    "onnx": ("onnx", ("onnxruntime", "tokenizers")),
    "transformers": ("torch", ("torch", "transformers")),
    "llama.cpp": ("local-llm", ("xllamacpp",)),
}
# Backend: the extra, and the modules that show it is installed.
API_NEEDS = ("api", ("httpx",))
ORDER = ("dense", "late-interaction", "sparse", "cross-encoder", "chat")
LEXICAL = {
    "bm25": ("BM25 as R2MED computes it", "scores equal to those of gensim in R2MED's script"),
    "bm25-lucene": ("BM25 as Lucene computes it", "scores equal to those of bm25s"),
    "bm25-nano": ("BM25 as NanoR2MED's candidate lists were made", "scores equal to those of bm25s to the last bit"),
}
# Name: what it is, and how that was shown.
CHAT = "its protocol (OpenAI's), against a server on loopback that speaks it; not with its own weights"
# How it was shown that chat models behind an API are asked as they should be.
METHOD = "its order of asking and its reading of answers, with scripted answers of a server on loopback"
# How it was shown that a method of reranking does with a chat model's answers what its authors say.
SERVER = "http://localhost:8000/v1"


@cache
def _files() -> dict[str, Traversable]:
    """All names of cards, sorted, with their files."""
    found = {entry.name: entry for entry in files(__package__).joinpath("cards").iterdir()}
    names = sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))
    return {name: found[f"{name}.toml"] for name in names}


@cache
def _read(name: str) -> Card | ChatCard | None:
    """The card of a name as files have it, read when somebody asks for it; None where there is none."""
    if name not in _files():
        return None
    data = parse_toml(_files()[name].read_text("utf-8"))
    if data["kind"] == "chat":
        return msgspec.convert(data, ChatCard)
    if pack := data.get("prompts"):
        own = msgspec.convert(data.get("instructions", {}), Instructions)
        lines = built_in(pack)
        data["instructions"] = own.over(Instructions(lines.query, lines.document))
    return msgspec.convert(data, Card)


def card_names() -> tuple[str, ...]:
    """All names of models that encode or score."""
    return tuple(name for name in _files() if isinstance(_read(name), Card))


def cards(kind: str | None = None) -> Iterator[Card]:
    """All named models that encode or score, or those of one kind."""
    return (card for name in _files() if isinstance(card := _read(name), Card) and kind in (None, card.kind))


def named_card(name: str) -> Card | None:
    """The card of a named model that encodes or scores; None where there is none."""
    found = _read(_folded(name))
    return found if isinstance(found, Card) else None


def get_card(name: str) -> Card:
    """The card of a named model."""
    if found := named_card(name):
        return found
    if find_chat_card(name):
        raise UsageError(f"{name} is a chat model: it expands queries (--expand hyde:{name}) and judges passages")
    hint = "(r2med models lists them; a Hugging Face id or a folder works too)"
    raise UnknownName("model", name, card_names(), hint=hint)


def find_card(spec: str) -> Card:
    """The card for whatever a user typed: a name, a folder, or a hub id with or without @revision."""
    from .generic import folder_card, generic_card

    if found := named_card(spec):
        return found
    path = typed_path(spec)
    if (exists(path) and path.is_dir()) or spec.startswith(("/", "./", "../", "~")):
        return folder_card(path)
    if HUB_ID.fullmatch(spec):
        return generic_card(spec)
    return get_card(spec)  # says what is near


def chat_cards() -> Iterator[ChatCard]:
    """All named chat models."""
    return (card for name in _files() if isinstance(card := _read(name), ChatCard))


def chat_names() -> tuple[str, ...]:
    """All names of chat models."""
    return tuple(card.name for card in chat_cards())


def find_chat_card(name: str) -> ChatCard | None:
    """The card of a chat model, by its name or by what servers call it; None where there is none."""
    folded = _folded(name)
    by_name = _read(CHAT_ALIASES.get(folded, folded))
    if isinstance(by_name, ChatCard):
        return by_name
    return next((card for card in chat_cards() if name == card.source and card.is_api), None)


def _folded(name: str) -> str:
    """A name as files have it: case, hyphens and underscores do not count."""
    return name.casefold().replace("_", "-")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One model in the list."""

    name: str
    kind: str
    source: str
    revision: str
    ready: bool
    get: str
    # The command that makes it ready; empty when it is.
    proven: str = ""
    # How it was shown that the model loads as its authors' code does; empty where it was not.
    missing: tuple[str, ...] = ()
    # What is not here: an extra, the weights, a key, a server.
    path: str = ""
    # Folder of the weights.
    summary: str = ""
    parameters: int | None = None
    dimension: int | None = None
    licence: str = ""
    released: str = ""
    note: str = ""
    # What nobody published, and how others ran it.


def listing(kind: str | None = None, registries: Mapping[str, Registry[Any]] = MappingProxyType({})) -> list[Row]:
    """All models, lexical ones first, ready or not; nothing is loaded to find out.

    Of the `registries`, by kind, come the rerankers that any chat model can run; and a name that one of them has of its
    own hides a plug-in of that kind.
    """
    lexical = [
        Row(name=name, kind="lexical", source="r2med", revision="", ready=True, get="", summary=summary, proven=proven)
        for name, (summary, proven) in LEXICAL.items()
    ]
    rows = lexical + sorted((row(card) for card in (*cards(), *chat_cards())), key=lambda r: ORDER.index(r.kind))
    own = {kind: {entry.name for entry in registry} for kind, registry in registries.items()}
    taken = {r.name for r in rows}
    rows += [
        Row(name=entry.name, kind="reranker", source="r2med", revision="", ready=True, get="", proven=METHOD,
            summary=entry.summary)
        for entry in registries.get("reranker", ()) if entry.argument == "chat"
    ]  # fmt: skip
    rows += [_plugged(plugin, hidden=plugin.name in taken | own.get(plugin.kind, set())) for plugin in plugins()]
    return [r for r in rows if kind in (None, r.kind)]


def _plugged(plugin: Plugin, *, hidden: bool) -> Row:
    """The line of a plug-in, which is not loaded for it; a name of ours hides it."""
    missing = ("name",) if hidden else () if plugin.found else ("package",)
    summary = f"hidden by the {plugin.name} of r2med" if hidden else f"plug-in ({plugin.entry.value})"
    return Row(
        name=plugin.name,
        kind=plugin.kind,
        source=plugin.distribution,
        revision=plugin.version,
        ready=not missing,
        get=f"pip install --force-reinstall {plugin.distribution}" if "package" in missing else "",
        missing=missing,
        summary=summary,
    )


def row(card: ModelCard) -> Row:
    """The line of one model."""
    missing = _missing(card)
    return Row(
        name=card.name,
        kind=card.kind,
        source=card.source,
        revision="" if card.is_api and not isinstance(card, Card) else card.revision,
        ready=not missing,
        get=_command(card, missing),
        proven=card.proven or (CHAT if isinstance(card, ChatCard) and card.is_api else ""),
        missing=tuple(missing),
        path="" if card.is_api else str(locate(card) or ""),
        summary=card.summary,
        parameters=card.parameters,
        dimension=card.dimension if isinstance(card, Card) else None,
        licence=card.licence,
        released=card.released,
        note=card.note,
    )


def missing_extra(card: ModelCard) -> str:
    """The extra that a model needs and that is not installed; empty where it is."""
    extra, modules = NEEDS.get(card.backend, API_NEEDS)
    return "" if all(find_spec(module) for module in modules) else extra


def _missing(card: ModelCard) -> list[str]:
    missing = ["extra"] if missing_extra(card) else []
    if not card.is_api:
        return missing if ready(card) else [*missing, "weights"]
    if os.environ.get(card.url_variable):  # a server of the user's own often wants no key
        return missing
    if isinstance(card, ChatCard) and card.served:
        return [*missing, "server"]
    return missing if key_place(card.key) else [*missing, "key"]


def _command(card: ModelCard, missing: list[str]) -> str:
    """One line for the shell, whatever is missing."""
    extras = [NEEDS.get(card.backend, API_NEEDS)[0]] if "extra" in missing else []
    if "weights" in missing and not card.carrier and not find_spec("huggingface_hub"):
        extras.append("hub")
    steps = [f"pip install 'r2med[{','.join(extras)}]'"] if extras else []
    if "key" in missing:
        steps.append(f"export {card.key}=…")
    if "server" in missing:
        special = isinstance(card, ChatCard) and card.reranker
        serve = f'eval "$(r2med models serve {card.name})"' if special else f"vllm serve {card.source}"
        steps.append(f"export {card.url_variable}={SERVER}; {serve}")
    if "weights" in missing:
        steps.append(f"r2med models fetch {card.name}{' --allow-pickle' if card.pickled else ''}")
    return " && ".join(steps)
