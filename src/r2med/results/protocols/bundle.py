"""A protocol as data: a TOML file, a name, a fingerprint."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from ...core import DataError, UnknownName, fingerprint
from ...core.toml import loads

UNSTATED: Final = "unstated"
MAIN_PROTOCOL: Final = {"mini": "default", "nano": "nano-profile", "r2med": "r2med-paper"}
"""The protocol that a collection's main figures were made under."""
ABOUT = ("name", "title", "summary", "sources", "source", "versions")  # change no score, or none that is chosen


class BM25Flavour(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which BM25."""

    k1: float
    b: float
    query: Literal["bm25", "count"]
    # How query terms count: weighted as a document's, or as often as they occur.
    analyzer: str


class Generation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How texts are generated with some LLMs; what is not set is not sent."""

    llms: tuple[str, ...]
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    passage_words: int | None = None
    # Words of a passage that stands in a LameR prompt.


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The repository whose files hold the instructions and prompts of a protocol."""

    repository: str
    # Its page.
    commit: str
    url: str
    # Of a file, with `{commit}` and `{path}` in it.
    files: dict[str, str]
    # Path in the repository → SHA-256.

    def address(self, path: str) -> str:
        """Where a file is downloaded."""
        return self.url.replace("{commit}", self.commit).replace("{path}", path)


class Protocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings that change scores, apart from the system itself."""

    name: str
    title: str
    summary: str
    sources: tuple[str, ...] = ()
    # Where the choices were read.
    source: Source | None = None
    # Where instructions and prompts are read from (`r2med protocol fetch`); None: there is nothing to fetch.
    instructions: str = UNSTATED
    # Whose wording models are instructed with.
    prompts: str = ""
    # Hash of the prompt pack that holds that wording.
    truncation: Literal["model", "published", "library", "unstated"] = UNSTATED
    # Lengths that the model's authors, the published scripts or the loading library give.
    precision: Literal["device", "published", "library", "unstated"] = UNSTATED
    # What suits the device, what the published scripts loaded, or what the loading library does.
    pairs: Literal["document-first", "longest-first", "unstated"] = UNSTATED
    # What a query and a document that are too long for a cross-encoder lose.
    similarity: Literal["model", "cosine", "unstated"] = UNSTATED
    # What each model was trained with, or cosine for all.
    bm25: BM25Flavour | None = None
    # None: not stated.
    expansion: dict[str, dict[str, str]] = {}
    # Kind of retriever → method → how a generated text meets the query.
    generation: dict[str, Generation] = {}
    # Kind of LLM → how its texts are generated.
    api_texts: dict[str, str | int | bool] = {}
    # What is done to texts before they are sent to an embedding service.
    versions: dict[str, str] = {}
    # Libraries behind the published figures; a run with others is noted, not refused.
    identical_ids: Literal["kept", "dropped", "unstated"] = UNSTATED
    # Whether a document that carries the query's id is left out of its ranking.
    identical_ids_for: tuple[str, ...] = ()
    # Kinds of retriever for which it is; empty: all.

    @property
    def fingerprint(self) -> str:
        """Hash of the choices; words about them do not count, nor the name, unless it stands for unknown choices."""
        choices: dict[str, Any] = msgspec.to_builtins(self)
        unknown = UNSTATED in (self.instructions, self.truncation, self.similarity, self.identical_ids)
        left_out = ABOUT[1:] if unknown else ABOUT
        return fingerprint("protocol", {key: value for key, value in choices.items() if key not in left_out})


@cache
def protocol_names() -> tuple[str, ...]:
    """The protocols that come with r2med, the default first."""
    found = sorted(entry.name[:-5] for entry in files(__package__).iterdir() if entry.name.endswith(".toml"))
    return ("default", *(name for name in found if name != "default"))


@cache
def get_protocol(name: str) -> Protocol:
    """A protocol by name."""
    if name not in protocol_names():
        raise UnknownName("protocol", name, protocol_names(), hint=f"(known: {', '.join(protocol_names())})")
    return parse_protocol(files(__package__).joinpath(f"{name}.toml").read_text("utf-8"), f"{name}.toml")


def read_protocol(name: str) -> Protocol:
    """A protocol by name, or from a TOML file of one's own."""
    path = Path(name)
    if name in protocol_names() or path.suffix != ".toml":
        return get_protocol(name)
    try:
        return parse_protocol(path.read_text("utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({getattr(error, 'strerror', None) or error})", path=path) from None


def parse_protocol(text: str, path: str | Path) -> Protocol:
    """A protocol from the text of its file."""
    try:
        return msgspec.convert(loads(text), Protocol)
    except ValueError as error:  # tomllib's and msgspec's errors both are
        raise DataError(f"not a protocol ({error})", path=path) from None
