"""How an expansion meets a retriever: one named policy per method and kind of retriever, stored with the result.

A generated passage can replace the query, follow it, or be averaged with it as a vector. The choice moves scores by
more than the choice of LLM does, so it is never implied by code: it has a name, and a result carries it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from ..core import Task, UnknownName, UsageError
from ..core.queries import Queries, QueryText, Side
from ..core.spec import Spec
from ..llm.parsing import ANSWER, ANSWER_END, SOLUTION, SOLUTION_END, THINK_END
from ..retrieve import Retriever
from .contract import JOINED, OTHER, R2MED, Expander, Expansion, Expansions, expanders, steps_of
from .feedback import FeedsBack

Mode = Literal["replace", "append", "mean"]


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """What becomes of query and generated texts."""

    name: str
    mode: Mode
    # `replace`: the texts alone; `append`: the query, then the texts; `mean`: the mean of their vectors.
    repeat: int = 1
    # How often the query stands before the texts: keeps its words heavy in a sum over terms.
    copies: str = " "
    # Between two copies of the query.
    separator: str | None = " "
    # Between query and texts; None: what suits the model's tokenizer.
    instruction: bool = True
    # Whether a dense model's query instruction stands before the query.
    text_side: Side = "document"
    # As what the texts of a mean are encoded.
    text_instruction: bool = True
    # Whether texts that are encoded as queries carry the query instruction too.
    scaled: bool = True
    # Whether a mean is over vectors of length one where vectors are compared by cosine.
    published: bool = False
    # Whether answers are read as R2MED's scripts read them: what has no mark of its end is searched with as it is.
    balance: int = 0
    # The query stands once for each time that so many times its words go into those of the texts; 0: `repeat` times.

    def describe(self) -> dict[str, object]:
        """Everything that changes a ranking."""
        described: dict[str, object] = msgspec.to_builtins(self)
        if not self.balance:
            del described["balance"]  # results of before there was a choice stay what they are
        return described

    def repeats(self, query: str, texts: str) -> int:
        """How often the query stands before these texts."""
        if not self.balance:
            return self.repeat
        return max(1, len(texts.split()) // max(self.balance * len(query.split()), 1))


POLICIES = {
    p.name: p
    for p in (
        Policy(name="passages", mode="replace"),
        Policy(name="query+passages", mode="append"),
        Policy(name="query+passages.tokenizer", mode="append", separator=None),
        Policy(name="query*2+passages", mode="append", repeat=2),
        Policy(name="query*3+passages", mode="append", repeat=3),
        Policy(name="query*5+passages", mode="append", repeat=5),
        Policy(name="query*n+passages", mode="append", balance=3),
        Policy(name="query+passages.apart", mode="append", separator="\n\n"),
        Policy(name="mean", mode="mean"),
        Policy(name="mean.query-side", mode="mean", text_side="query"),
        Policy(name="mean.no-instruction", mode="mean", text_side="query", instruction=False, text_instruction=False),
        Policy(name="passages.r2med", mode="replace", published=True),
        Policy(name="query+passages.r2med", mode="append", published=True),
        Policy(name="query*2+passages.r2med", mode="append", repeat=2, copies="", published=True),
        Policy(name="query+[SEP]+passages.r2med", mode="append", separator="[SEP]", published=True),
        Policy(name="mean.r2med", mode="mean", text_side="query", text_instruction=False, scaled=False, published=True),
        Policy(name="mean.instructed.r2med", mode="mean", text_side="query", scaled=False, published=True),
    )
}
KINDS = ("lexical", "dense", "sparse", "late-interaction", "custom")
INSTRUCTED_TEXTS = frozenset({"nv", "grit", "inst-l", "inst-xl"})
"""Models whose passages R2MED's scripts encode with the query instruction; all others go without."""
PUBLISHED_METHODS = frozenset({"hyde", "query2doc", "lamer", "search-o1", "search-r1"})
REASONING = frozenset({"think", "think-optional", "final-response", "solution", "answer"})
"""Markings of the LLMs whose final answer those scripts treat alike for every method."""
FINAL = "Final Response"


def published_policy(method: str, kind: str, *, model: str = "", reasoning: bool = False) -> str | None:
    """The policy behind R2MED's published figures, for a retriever's name and a reasoning chat model or another."""
    if method not in PUBLISHED_METHODS or kind not in ("dense", "lexical"):
        return None
    if kind == "dense" and method == "query2doc" and not reasoning:
        return "query+[SEP]+passages.r2med"
    if kind == "dense":
        return "mean.instructed.r2med" if model in INSTRUCTED_TEXTS else "mean.r2med"
    own = {"query2doc": "query*2+passages.r2med", "lamer": "query+passages.r2med"}
    return "passages.r2med" if reasoning else own.get(method, "passages.r2med")


def policy_for(expansions: Expansions, kind: str, name: str | None = None, *, model: str = "") -> Policy:
    """The policy by which these texts meet a kind of retriever: the method's own, or one asked for by name.

    `model` is the retriever's name, which R2MED's own policy depends on; whether the chat model reasons is read from
    how the expansions describe themselves.
    """
    if kind not in KINDS:
        raise UsageError(f"a retriever of kind {kind!r} takes no expansions (those that do: {', '.join(KINDS)})")
    own = expansions.policies.get(kind) or expansions.policies.get(OTHER, JOINED[OTHER])
    chosen = name or own
    if chosen == R2MED:
        reasoning = _marking(expansions.description) in REASONING
        published = published_policy(expansions.method, kind, model=model, reasoning=reasoning)
        chosen = published or (own if own != R2MED else JOINED[OTHER])
    if chosen not in POLICIES:
        raise UnknownName("policy", chosen, POLICIES, hint=f"(known: {R2MED}, {', '.join(POLICIES)})")
    policy = POLICIES[chosen]
    if policy.mode == "mean" and kind != "dense":
        raise UsageError(f"policy {chosen!r} averages vectors and needs a dense retriever, not a {kind} one")
    return policy


def queries_without_text(task: Task, expansions: Expansions, policy: Policy) -> int:
    """How many queries are searched with as they are, because nothing was made from them that should have been."""
    if not expansions.items and expansions.feedback:
        return 0  # feedback alone makes no texts
    return sum(not texts_of(expansions.of(query.id), policy, "") for query in task.queries)


def queries_for(
    retriever: Retriever, task: Task, expansions: Expansions, policy: str | None = None
) -> tuple[Queries, Policy]:
    """What a retriever searches with, and the policy that made it."""
    used = policy_for(expansions, retriever.kind, policy, model=retriever.spec.name)
    return expanded_queries(task, expansions, used, separator=retriever.separator(), kind=retriever.kind), used


def policy_settings(name: str) -> dict[str, object]:
    """What a policy of R2MED's scripts does, for the description of a system: their names meant less once."""
    if name == R2MED:
        return {policy.name: policy.describe() for policy in POLICIES.values() if policy.published}
    policy = POLICIES.get(name)
    return policy.describe() if policy is not None and policy.published else {}


def _marking(description: Mapping[str, object]) -> str:
    """How the chat model marks its reasoning; several that mark it in different ways are refused."""
    then = description.get("then")
    described = [description, *(then if isinstance(then, list) else [])]
    found = dict.fromkeys(str(marking) for each in described if (marking := _own_marking(each)) is not None)
    if len(found) > 1:
        kinds = ", ".join(found)
        raise UsageError(f"R2MED's policies read the answers of one kind of chat model; this chain has {kinds}")
    return next(iter(found), "")


def _own_marking(described: Mapping[str, object]) -> object:
    """How the chat model of one method marks its reasoning; None where there is no model."""
    model = described.get("model")
    return described.get("marking") or (model.get("marking") if isinstance(model, dict) else None)


def expanded_queries(
    task: Task, expansions: Expansions, policy: Policy, *, separator: str | None = None, kind: str = ""
) -> Queries:
    """What a retriever searches with; the raw query where nothing usable was generated."""
    expansions.check_covers(task)
    feedback = tuple(f for f in expansions.feedback if f.kind == kind)
    marking = _marking(expansions.description) if policy.published else ""
    texts = [
        _texts(query.text, texts_of(expansions.of(query.id), policy, marking), policy, separator)
        for query in task.queries
    ]
    return Queries(task.query_ids, task.query_texts, texts, feedback)


def texts_of(item: Expansion | None, policy: Policy, marking: str) -> tuple[str, ...]:
    """The texts to search with, read as the policy reads answers; none: the raw query is searched with."""
    if item is None:
        return ()
    if not policy.published:
        return item.texts
    return tuple(published_text(raw, marking) for raw in item.raw) or item.texts


def _texts(query: str, texts: tuple[str, ...], policy: Policy, separator: str | None) -> tuple[QueryText, ...]:
    if not texts:
        return (QueryText(query),)
    if policy.mode == "mean":
        instructed = policy.text_instruction and policy.text_side == "query"
        own = QueryText(query, instruction=policy.instruction, scaled=policy.scaled)
        return (own, *(QueryText(text, 1.0, policy.text_side, instructed, policy.scaled) for text in texts))
    joined = " ".join(texts)
    if policy.mode == "replace":
        return (QueryText(joined),)
    between = policy.separator if policy.separator is not None else separator or "\n"
    return (QueryText(policy.copies.join([query] * policy.repeats(query, joined)) + between + joined),)


def published_text(raw: str, marking: str) -> str:
    """The text that the scripts search with, of an answer as it came: one whose marks are missing is taken whole."""
    after: str | None = None
    if marking in ("think", "think-optional"):
        after = _behind(raw, THINK_END)
    elif marking == "final-response":
        after = _behind(raw, FINAL)
    elif marking == "solution":
        after = _between(raw, SOLUTION, SOLUTION_END)
    elif marking == "answer":
        after = _between(raw, ANSWER, ANSWER_END)
    return raw if after is None else after.strip()


def _behind(text: str, mark: str) -> str | None:
    _, found, after = text.partition(mark)
    return after if found else None


def _between(text: str, begin: str, end: str) -> str | None:
    inside, found, _ = text.partition(begin)[2].partition(end)
    return inside if found else None


def feedback_kind(spec: Spec) -> str | None:
    """The kind of retriever that a feedback method acts on; None for a method that makes texts."""
    entry = None if spec.own else expanders.find(spec.name)
    target = entry.target if entry is not None else None
    return target.kind if isinstance(target, type) and issubclass(target, FeedsBack) else None


def check_expander(expander: Expander, retrievers: Sequence[tuple[str, str]], policy: str | None) -> None:
    """Refuse feedback that no retriever (name, kind) of a system can search with, and a policy that fits no text."""
    if policy is not None and not expander.makes_text:
        raise UsageError(f"{expander.name} makes no texts: leave out the policy")
    if policy == R2MED or (policy in POLICIES and POLICIES[policy].published):
        _marking(expander.describe())
    kinds = {kind for _, kind in retrievers}
    for step in steps_of(expander):
        wanted = feedback_kind(step.spec)
        if wanted is not None and wanted not in kinds:
            others = ", ".join(f"{name} ({kind})" for name, kind in retrievers)
            fitting = [entry.name for entry in expanders if feedback_kind(Spec(entry.name)) in kinds]
            hint = f"; for this one there is {', '.join(fitting)}" if fitting and len(kinds) == 1 else ""
            raise UsageError(f"{step.name} needs a {wanted} retriever, not {others}{hint}")
