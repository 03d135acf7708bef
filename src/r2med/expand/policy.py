"""How an expansion meets a retriever: one named policy per method and kind of retriever, stored with the result.

A generated passage can replace the query, follow it, or be averaged with it as a vector. The choice moves scores by
more than the choice of LLM does, so it is never implied by code: it has a name, and a result carries it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import msgspec

from ..core import Task, UnknownName, UsageError
from .values import Expansion, Expansions, check_covers

Mode = Literal["replace", "append", "mean"]
Side = Literal["query", "document"]
SPECIAL_SEPARATORS = {"bert": " [SEP] ", "mpnet": " </s> ", "roberta": " </s> ", "xlm-roberta": " </s> "}
"""What stands between two texts in models that were trained on pairs; all others get a line break."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """What becomes of query and generated texts."""

    name: str
    mode: Mode
    # `replace`: the texts alone; `append`: the query, then the texts; `mean`: the mean of their vectors.
    repeat: int = 1
    # How often the query stands before the texts: keeps its words heavy in a sum over terms.
    separator: str | None = " "
    # Between query and texts; None: what suits the model's tokenizer.
    instruction: bool = True
    # Whether a dense model's query instruction stands before the query.
    text_side: Side = "document"
    # As what the texts of a mean are encoded.
    text_instruction: bool = True
    # Whether texts that are encoded as queries carry the query instruction too.

    def describe(self) -> dict[str, object]:
        """Everything that changes a ranking."""
        described: dict[str, object] = msgspec.to_builtins(self)
        return described


class Piece(NamedTuple):
    """One text of a mean, and how it is encoded."""

    text: str
    side: Side
    instruction: bool


POLICIES = {
    p.name: p
    for p in (
        Policy(name="passages", mode="replace"),
        Policy(name="query+passages", mode="append"),
        Policy(name="query+passages.tokenizer", mode="append", separator=None),
        Policy(name="query*2+passages", mode="append", repeat=2),
        Policy(name="query*3+passages", mode="append", repeat=3),
        Policy(name="query*5+passages", mode="append", repeat=5),
        Policy(name="mean", mode="mean"),
        Policy(name="mean.query-side", mode="mean", text_side="query"),
        Policy(name="mean.r2med", mode="mean", text_side="query", text_instruction=False),
        Policy(name="mean.no-instruction", mode="mean", text_side="query", instruction=False, text_instruction=False),
    )
}
KINDS = ("lexical", "dense", "sparse", "late-interaction", "custom")
_APPEND = dict.fromkeys(KINDS, "query+passages")
_PASSAGES = {**_APPEND, "lexical": "passages", "dense": "mean"}
DEFAULTS: dict[str, dict[str, str]] = {
    "hyde": _PASSAGES,
    "query2doc": {**_APPEND, "lexical": "query*5+passages", "dense": "query+passages.tokenizer"},
    "lamer": {**_APPEND, "dense": "mean"},
    "search-o1": _PASSAGES,
    "search-r1": _PASSAGES,
    "concepts": {**_APPEND, "lexical": "query*3+passages"},
    "oracle": _APPEND,
    "custom": _APPEND,
}
R2MED = "r2med"
"""The name that stands for whatever R2MED's scripts do: see `published_policy`."""
INSTRUCTED_TEXTS = frozenset({"nv", "grit", "inst-l", "inst-xl"})
"""Models whose passages R2MED's scripts encode with the query instruction; all others go without."""
REASONING = frozenset({"think", "think-optional", "final-response", "solution", "answer"})
"""Markings of the LLMs whose final answer those scripts treat alike for every method."""


def published_policy(method: str, kind: str, *, model: str = "", reasoning: bool = False) -> str:
    """The policy behind R2MED's published figures, for a retriever's name and a reasoning LLM or another."""
    if kind == "dense" and (method != "query2doc" or reasoning):
        return "mean.query-side" if model in INSTRUCTED_TEXTS else "mean.r2med"
    if kind == "lexical" and reasoning:
        return "passages"
    return "query*2+passages" if (method, kind) == ("query2doc", "lexical") else DEFAULTS[method][kind]


def get_policy(method: str, kind: str, name: str | None = None, *, model: str = "", reasoning: bool = False) -> Policy:
    """The policy of a method for a kind of retriever, or the one that is asked for by name."""
    if kind not in KINDS:
        raise UsageError(f"a retriever of kind {kind!r} takes no expansions (those that do: {', '.join(KINDS)})")
    if method not in DEFAULTS:
        raise UnknownName("expansion method", method, DEFAULTS)
    chosen = name or DEFAULTS[method][kind]
    if name == R2MED:
        known = method not in ("concepts", "oracle", "custom")  # those are ours
        chosen = published_policy(method, kind, model=model, reasoning=reasoning) if known else DEFAULTS[method][kind]
    if chosen not in POLICIES:
        raise UnknownName("policy", chosen, POLICIES, hint=f"(known: {R2MED}, {', '.join(POLICIES)})")
    policy = POLICIES[chosen]
    if policy.mode == "mean" and kind != "dense":
        raise UsageError(f"policy {chosen!r} averages vectors and needs a dense retriever, not a {kind} one")
    return policy


def policy_for(expansions: Expansions, kind: str, name: str | None = None, *, model: str = "") -> Policy:
    """The policy for these expansions; whether their LLM reasons is read from how they describe themselves."""
    described = expansions.description
    llm = described.get("model")
    marking = described.get("marking") or (llm.get("marking") if isinstance(llm, dict) else "")
    return get_policy(expansions.method, kind, name, model=model, reasoning=marking in REASONING)


def separator_for(architecture: str) -> str:
    """What suits a model's tokenizer between query and passage."""
    return SPECIAL_SEPARATORS.get(architecture, "\n")


def expanded_text(expansion: Expansion, policy: Policy, separator: str | None = None) -> str:
    """The text that is searched with; the raw query where nothing usable was generated."""
    if not expansion.usable:
        return expansion.original
    joined = " ".join(expansion.texts)
    if policy.mode == "replace":
        return joined
    between = policy.separator if policy.separator is not None else separator or "\n"
    return " ".join([expansion.original] * policy.repeat) + between + joined


def expanded_task(task: Task, expansions: Expansions, policy: Policy, *, separator: str | None = None) -> Task:
    """The task with its query texts replaced; its fingerprint follows from the new texts."""
    if policy.mode == "mean":
        raise UsageError(f"policy {policy.name!r} averages vectors: use query_groups")
    check_covers(expansions, task)
    items = (expansions.of(query.id) for query in task.queries)
    queries = tuple(
        query if item is None else query._replace(text=expanded_text(item, policy, separator))
        for query, item in zip(task.queries, items, strict=True)
    )
    return replace(task, queries=queries)


def query_groups(task: Task, expansions: Expansions, policy: Policy) -> list[tuple[Piece, ...]]:
    """For each query, the texts whose vectors are averaged: the query, then what was generated from it."""
    if policy.mode != "mean":
        raise UsageError(f"policy {policy.name!r} makes texts, not vectors: use expanded_task")
    check_covers(expansions, task)
    groups = []
    for query in task.queries:
        item = expansions.of(query.id)
        texts: Sequence[str] = item.texts if item is not None else ()
        use_instruction = policy.instruction or not texts  # a query that stands alone is searched as any raw query
        with_instruction = policy.text_instruction and policy.text_side == "query"
        pieces = [Piece(text, policy.text_side, with_instruction) for text in texts]
        groups.append((Piece(query.text, "query", use_instruction), *pieces))
    return groups


def apply(
    expansions: Expansions,
    task: Task,
    kind: str,
    *,
    policy: str | Policy | None = None,
    model: str = "",
    separator: str | None = None,
) -> Task | list[tuple[Piece, ...]]:
    """What a retriever of a kind searches with: a task of new texts, or groups of texts to average."""
    chosen = policy if isinstance(policy, Policy) else policy_for(expansions, kind, policy, model=model)
    if chosen.mode == "mean":
        return query_groups(task, expansions, chosen)
    return expanded_task(task, expansions, chosen, separator=separator)
