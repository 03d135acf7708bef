"""Protocols: named, hashed sets of the settings that change scores, each a TOML file.

Whether a result was made under one is read from what the result says about its system, choice by choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from ...core import DataError, UnknownName, fingerprint
from ...core.files import parse_toml
from ..schema import OWN_WORDS, SystemInfo, table, tables

UNSTATED: Final = "unstated"
MAIN_PROTOCOL: Final = {
    "mini@1": "default", "mini-dev": "default", "mini": "default", "nano": "nano-profile", "r2med": "r2med-paper"
}  # fmt: skip
"""The protocol that a collection's main figures were made under."""
ABOUT = ("name", "title", "summary", "sources", "source", "versions")  # change no score, or none that is chosen

CUSTOM = "custom"  # No protocol: instructions or a policy of somebody's own.
SAMPLING = ("temperature", "top_p", "max_tokens", "seed")


class BM25Flavour(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which BM25."""

    k1: float
    b: float
    query: Literal["bm25", "count", "tokens"]
    # How query terms count: weighted as a document's, as often as they occur, or token by token as bm25s sums them.
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
    sources: tuple[str, ...] = ()  # Where the choices were read.
    source: Source | None = None
    # Where instructions and prompts are read from (`r2med protocol fetch`); None: there is nothing to fetch.
    instructions: str = UNSTATED  # Whose wording models are instructed with.
    prompts: str = ""  # Hash of the prompt pack that holds that wording.
    truncation: Literal["model", "published", "library", "unstated"] = UNSTATED
    # Lengths that the model's authors, the published scripts or the loading library give.
    precision: Literal["device", "published", "library", "unstated"] = UNSTATED
    # What suits the device, what the published scripts loaded, or what the loading library does.
    pairs: Literal["document-first", "longest-first", "unstated"] = UNSTATED
    # What a query and a document that are too long for a cross-encoder lose.
    similarity: Literal["model", "cosine", "unstated"] = UNSTATED
    # What each model was trained with, or cosine for all.
    bm25: BM25Flavour | None = None  # None: not stated.
    expansion: dict[str, dict[str, str]] = {}  # Kind of retriever → method → how a generated text meets the query.
    generation: dict[str, Generation] = {}  # Kind of LLM → how its texts are generated.
    api_texts: dict[str, str | int | bool] = {}
    # What is done to texts before they are sent to an embedding service.
    versions: dict[str, str] = {}
    # Libraries behind the published figures; a run with others is noted, not refused.
    identical_ids: Literal["kept", "dropped", "unstated"] = UNSTATED
    # Whether a document that carries the query's id is left out of its ranking.
    identical_ids_for: tuple[str, ...] = ()  # Kinds of retriever for which it is; empty: all.

    @property
    def fingerprint(self) -> str:
        """Hash of its choices."""
        return choices_fingerprint(msgspec.to_builtins(self))


def choices_fingerprint(told: Mapping[str, object]) -> str:
    """Hash of a protocol's choices; words about them do not count, nor the name, unless it stands for unknown ones."""
    unknown = UNSTATED in [told.get(key) for key in ("instructions", "truncation", "similarity", "identical_ids")]
    left_out = ABOUT[1:] if unknown else ABOUT
    return fingerprint("protocol", {key: value for key, value in told.items() if key not in left_out})


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
        return msgspec.convert(parse_toml(text), Protocol)
    except ValueError as error:  # tomllib's and msgspec's errors both are
        raise DataError(f"not a protocol ({error})", path=path) from None


class Expected(NamedTuple):
    """What a protocol means for one dense model; the models' cards know, so a higher room fills this in."""

    query_length: int | None = None
    document_length: int | None = None
    similarity: str | None = None
    dtype: str | None = None  # Precision of the weights.
    own_wording: bool = False
    # The model is instructed, in words that are ours unless a prompt pack says otherwise.
    policy: str | None = None  # How expansions meet it, where that is finer than the protocol's own table.


class Part(NamedTuple):
    """One retriever of a system."""

    name: str
    kind: str
    described: Mapping[str, Any]


def parts(system: SystemInfo) -> list[Part]:
    """The retrievers of a system, under the names its spec gives them: `hyde:gpt4+bm25+nv.rrf+maxsim@50` has two."""
    described = tables(system.description.get("retrievers"))
    named = [str(spec.get("name", "")) for spec in tables(system.spec.get("retrievers"))]
    if len(named) != len(described):
        named = _first_edition_names(system, len(described))
    return [
        Part(name, "lexical" if of.get("retriever") == "bm25" else str(of.get("kind", "dense")), of)
        for name, of in zip(named, described, strict=True)
    ]


def _first_edition_names(system: SystemInfo, count: int) -> list[str]:
    """A file of the first edition names its retrievers in the system's name only."""
    before = 1 if isinstance(system.description.get("expander"), dict) else 0
    names = system.name.split("+")[before : before + count]
    if len(names) < count:
        return [system.name] * count
    fusion = system.description.get("fusion")
    method = fusion.get("method") if isinstance(fusion, dict) else ""
    suffix = f".{method}" if method else ""
    return [name.partition(",policy=")[0].removesuffix(suffix).partition("@")[0] for name in names]


def differences(
    system: SystemInfo,
    protocol: Protocol,
    expected: Mapping[str, Expected] | None = None,
    policies: Mapping[str, str] | None = None,
) -> list[str]:
    """Where a system deviates from a protocol; empty where nothing that can be checked does.

    By name of the retriever, `expected` holds what the protocol means for it, `policies` how expansions met it.
    """
    found: list[str] = []
    for part in parts(system):
        wanted = (expected or {}).get(part.name, Expected())
        if part.kind == "lexical":
            found += _lexical(part.name, part.described, protocol)
        else:
            found += _dense(part.described, protocol, wanted)
        found += _expansion(system, part, protocol, wanted, (policies or {}).get(part.name))
    found += _generation(system, protocol)
    found += _pairs(system, protocol)
    return list(dict.fromkeys(found))


def protocol_of(system: SystemInfo) -> str:
    """The protocol that a part of the system names; with instructions or a policy of one's own it is no protocol's."""
    if system.own_words:
        return CUSTOM
    parameters = tables([table.get("parameters") for table in tables(system.spec.get("retrievers"))])
    stated = next((str(p["protocol"]) for p in parameters if "protocol" in p), "")
    if not system.spec:  # the first edition put it into the name
        stated = next((p for p in protocol_names() if f"@{p}" in system.name), "")
    own_policy = system.description.get("policy", "default") != "default"
    return stated or (CUSTOM if own_policy else "default")


def unstated(protocol: Protocol, kind: str) -> list[str]:
    """Choices that matter for a kind of system and that the protocol's sources do not state."""
    if kind == "lexical":
        return [] if protocol.bm25 else ["the flavour of BM25"]
    return [
        name
        for name in ("instructions", "truncation", "similarity", "precision")
        if getattr(protocol, name) == UNSTATED
    ]


def _lexical(name: str, described: Mapping[str, Any], protocol: Protocol) -> Iterator[str]:
    if protocol.bm25 is None:
        return
    wanted = {f: getattr(protocol.bm25, f) for f in ("k1", "b", "query", "analyzer")}
    if name.startswith("bm25-lucene"):  # the name itself says how query terms count
        wanted["query"] = "count"
    for choice, value in wanted.items():
        if described.get(choice) != value:
            yield f"BM25 {choice} is {_show(described.get(choice))}, {protocol.name} has {_show(value)}"


def _dense(described: Mapping[str, Any], protocol: Protocol, expected: Expected) -> Iterator[str]:
    similarity = described.get("similarity")
    wanted = "cosine" if protocol.similarity == "cosine" else expected.similarity
    if wanted and similarity and similarity != wanted:
        yield f"similarity is {similarity}, {protocol.name} has {wanted}"
    for side, length in (("query", expected.query_length), ("document", expected.document_length)):
        encoder = described.get(side)
        cut = encoder.get("max_length") if isinstance(encoder, dict) else None
        if length is not None and cut != length:
            yield f"a {side} keeps {_show(cut)} tokens, under {protocol.name} {length}"
    if protocol.truncation == "library":
        yield f"truncation is r2med's, {protocol.name} leaves it to its library"
    if expected.own_wording:
        yield from _instructions(str(described.get("prompts") or OWN_WORDS), protocol)
    document = table(described.get("document"))
    if protocol.api_texts and document.get("dtype") == "service" and "sent" not in document:
        yield f"texts go to the service as they are, {protocol.name} cuts and quotes them"
    if expected.dtype is not None and document.get("dtype") != expected.dtype:
        yield f"precision is {_show(document.get('dtype'))}, {protocol.name} has {expected.dtype}"


def _instructions(used: str, protocol: Protocol) -> Iterator[str]:
    """Whether a model was told a protocol's words: r2med's own, or those of the pack whose hash it names."""
    if protocol.instructions == UNSTATED or (protocol.instructions == "r2med" and used == OWN_WORDS):
        return
    if not protocol.prompts or used.rpartition("~")[2] != protocol.prompts:
        yield f"instructions: {used}, {protocol.name} has those of {protocol.instructions}"


def _expansion(
    system: SystemInfo, part: Part, protocol: Protocol, expected: Expected, used: str | None
) -> Iterator[str]:  # fmt: skip
    expander = system.description.get("expander")
    if not isinstance(expander, dict):
        return
    method = str(expander.get("method"))
    for step in tables(expander.get("then")):
        yield f"{method} is followed by {step.get('method')}, under {protocol.name} by nothing"
    wanted = expected.policy or protocol.expansion.get(part.kind, {}).get(method)
    if wanted and used != wanted:
        yield f"{method} reaches {part.name} as {_show(used)}, under {protocol.name} as {wanted}"


def _generation(system: SystemInfo, protocol: Protocol) -> Iterator[str]:
    """How texts were generated here; texts that somebody else generated are not asked about."""
    expander = table(system.description.get("expander"))
    sampling, llm = expander.get("sampling"), str(expander.get("llm", "")).partition(":")[0]
    if not isinstance(sampling, dict) or not protocol.generation:
        return
    used = str(table(expander.get("prompts")).get("pack", OWN_WORDS))
    if protocol.prompts and used.rpartition("~")[2] != protocol.prompts:
        yield f"prompts: {used}, {protocol.name} has those of {protocol.instructions}"
    wanted = next((kind for kind in protocol.generation.values() if llm in kind.llms), None)
    if wanted is None:
        yield f"{protocol.name} generates no texts with {llm}"
        return
    for name in SAMPLING:
        here, there = sampling.get(name), getattr(wanted, name)
        if here != there:
            shown = ["not set" if value is None else _show(value) for value in (here, there)]
            yield f"{name} is {shown[0]}, {protocol.name} has {shown[1]}"
    words = expander.get("passage_words")
    if "first_stage" in expander and words != wanted.passage_words:
        yield f"a passage in the prompt keeps {_show(words)} words, under {protocol.name} {wanted.passage_words}"


def _pairs(system: SystemInfo, protocol: Protocol) -> Iterator[str]:
    """What a cross-encoder cuts off a pair; other rerankers read no pairs."""
    reranking = table(system.description.get("reranking"))
    for link in (reranking, *tables(reranking.get("then"))):
        reranker = table(link.get("reranker"))
        if protocol.pairs == UNSTATED or "logit" not in reranker:
            continue
        cut = reranker.get("truncation", "document-first")
        if cut != protocol.pairs:
            yield f"pairs are cut {cut}, under {protocol.name} {protocol.pairs}"


def _show(value: object) -> str:
    return "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
