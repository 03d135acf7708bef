"""Was a result made under a protocol? Read from what the result says about its system, choice by choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..schema import SystemInfo
from .bundle import UNSTATED, Protocol


class Expected(NamedTuple):
    """What a protocol means for one dense model; the models' cards know, so a higher room fills this in."""

    query_length: int | None = None
    document_length: int | None = None
    similarity: str | None = None
    own_wording: bool = False
    # The model is instructed, in words that are ours.


def differences(system: SystemInfo, protocol: Protocol, expected: Mapping[str, Expected] | None = None) -> list[str]:
    """Where a system deviates from a protocol; empty where nothing that can be checked does.

    `expected` holds, by name of the retriever, what the protocol means for it.
    """
    found: list[str] = []
    for number, described in enumerate(_retrievers(system)):
        name = _name(system, number)
        if described.get("retriever") == "bm25":
            found += _lexical(name, described, protocol)
        else:
            found += _dense(described, protocol, (expected or {}).get(name, Expected()))
    return list(dict.fromkeys([*found, *_expansion(system, protocol)]))


def unstated(protocol: Protocol, kind: str) -> list[str]:
    """Choices that matter for a kind of system and that the protocol's sources do not state."""
    if kind == "lexical":
        return [] if protocol.bm25 else ["the flavour of BM25"]
    choices = {
        "instructions": protocol.instructions,
        "truncation": protocol.truncation,
        "similarity": protocol.similarity,
    }
    return [name for name, choice in choices.items() if choice == UNSTATED]


def _retrievers(system: SystemInfo) -> list[dict[str, Any]]:
    listed = system.description.get("retrievers", [])
    return [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []


def _name(system: SystemInfo, number: int) -> str:
    """Name of a retriever inside a system: `a+b.rrf` holds `a` and `b`; `@protocol` marks one run under it."""
    whole, dot, fusion = system.name.rpartition(".")
    names = (whole if dot and fusion == "rrf" else system.name).split("+")
    return (names[number] if number < len(names) else system.name).partition("@")[0]


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
    if expected.own_wording and protocol.instructions not in ("r2med", UNSTATED):
        yield f"instructions are r2med's, {protocol.name} has those of {protocol.instructions}"


def _expansion(system: SystemInfo, protocol: Protocol) -> Iterator[str]:
    """An expanded system says `expansion = {method, policy}`; the policy by name or as a table with a name."""
    described = system.description.get("expansion")
    if not isinstance(described, dict):
        return
    method, policy = described.get("method"), described.get("policy")
    used = policy.get("name") if isinstance(policy, dict) else policy
    kind = "lexical" if all(d.get("retriever") == "bm25" for d in _retrievers(system)) else "dense"
    wanted = protocol.expansion.get(kind, {}).get(str(method))
    if wanted and used != wanted:
        yield f"{method} reaches the {kind} retriever as {_show(used)}, under {protocol.name} as {wanted}"


def _show(value: object) -> str:
    return "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
