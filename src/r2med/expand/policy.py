"""How an expansion meets a retriever: one named policy per method and kind of retriever, stored with the result.

A generated passage can replace the query, follow it, or be averaged with it as a vector. The choice moves scores by
more than the choice of LLM does, so it is never implied by code: it has a name, and a result carries it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ..core import Task, UnknownName, UsageError
from ..core.queries import Queries, QueryText, Side
from ..retrieve import Retriever
from .contract import OTHER, Expansion, Expansions

Mode = Literal["replace", "append", "mean"]


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
R2MED = "r2med"
"""The name that stands for whatever R2MED's scripts do: see `published_policy`."""
INSTRUCTED_TEXTS = frozenset({"nv", "grit", "inst-l", "inst-xl"})
"""Models whose passages R2MED's scripts encode with the query instruction; all others go without."""
PUBLISHED_METHODS = frozenset({"hyde", "query2doc", "lamer", "search-o1", "search-r1"})
REASONING = frozenset({"think", "think-optional", "final-response", "solution", "answer"})
"""Markings of the LLMs whose final answer those scripts treat alike for every method."""


def published_policy(method: str, kind: str, *, model: str = "", reasoning: bool = False) -> str | None:
    """The policy behind R2MED's published figures, for a retriever's name and a reasoning chat model or another."""
    if kind == "dense" and (method != "query2doc" or reasoning):
        return "mean.query-side" if model in INSTRUCTED_TEXTS else "mean.r2med"
    if kind == "lexical" and reasoning:
        return "passages"
    return "query*2+passages" if (method, kind) == ("query2doc", "lexical") else None


def policy_for(expansions: Expansions, kind: str, name: str | None = None, *, model: str = "") -> Policy:
    """The policy by which these texts meet a kind of retriever: the method's own, or one asked for by name.

    `model` is the retriever's name, which R2MED's own policy depends on; whether the chat model reasons is read from
    how the expansions describe themselves.
    """
    if kind not in KINDS:
        raise UsageError(f"a retriever of kind {kind!r} takes no expansions (those that do: {', '.join(KINDS)})")
    own = expansions.policies.get(kind, expansions.policies[OTHER])
    chosen = name or own
    if name == R2MED:
        published = expansions.method in PUBLISHED_METHODS
        reasoning = _marking(expansions) in REASONING
        chosen = (
            published_policy(expansions.method, kind, model=model, reasoning=reasoning) or own if published else own
        )
    if chosen not in POLICIES:
        raise UnknownName("policy", chosen, POLICIES, hint=f"(known: {R2MED}, {', '.join(POLICIES)})")
    policy = POLICIES[chosen]
    if policy.mode == "mean" and kind != "dense":
        raise UsageError(f"policy {chosen!r} averages vectors and needs a dense retriever, not a {kind} one")
    return policy


def queries_for(
    retriever: Retriever, task: Task, expansions: Expansions, policy: str | None = None
) -> tuple[Queries, Policy]:
    """What a retriever searches with, and the policy that made it."""
    used = policy_for(expansions, retriever.kind, policy, model=retriever.spec.name)
    return expanded_queries(task, expansions, used, separator=retriever.separator()), used


def _marking(expansions: Expansions) -> object:
    """How the chat model marks its reasoning."""
    described = expansions.description
    model = described.get("model")
    return described.get("marking") or (model.get("marking") if isinstance(model, dict) else "")


def expanded_queries(task: Task, expansions: Expansions, policy: Policy, *, separator: str | None = None) -> Queries:
    """What a retriever searches with; the raw query where nothing usable was generated."""
    expansions.check_covers(task)
    texts = [_texts(query.text, expansions.of(query.id), policy, separator) for query in task.queries]
    return Queries(task.query_ids, task.query_texts, texts)


def _texts(query: str, item: Expansion | None, policy: Policy, separator: str | None) -> tuple[QueryText, ...]:
    if item is None or not item.usable:
        return (QueryText(query),)
    if policy.mode == "mean":
        instructed = policy.text_instruction and policy.text_side == "query"
        own = QueryText(query, instruction=policy.instruction)
        return (own, *(QueryText(text, 1.0, policy.text_side, instructed) for text in item.texts))
    joined = " ".join(item.texts)
    if policy.mode == "replace":
        return (QueryText(joined),)
    between = policy.separator if policy.separator is not None else separator or "\n"
    return (QueryText(" ".join([query] * policy.repeat) + between + joined),)
