"""Where the gain comes from: was the inference right, what did right and wrong ones do, how far is the ceiling."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from ..core import Task, UsageError
from ..core.options import Progress
from ..core.queries import Queries
from ..core.spec import Content, Spec
from ..llm import Chat, Generation, GenerationStore, Request, Sampling, StoreKey, generate, reasons, unless_read
from ..llm.reading import read_verdict
from ..models.prompts import names_of
from ..retrieve import Build, Retriever
from .answers import names_answer
from .contract import MISSING, Expander, Expansion, Expansions, expanders
from .generated import REASONING_TOKENS, load_prompt
from .passages import cut_to_tokens
from .policy import queries_for

PASSAGE_TOKENS = 1024
ANSWER_TOKENS = 512
RIGHT, WRONG, UNKNOWN = "right", "wrong", "unknown"
Score = Callable[[Queries], Mapping[str, float]]
"""Retrieves with queries and returns one score per query id."""


@expanders.register("oracle")
class Oracle(Expander):
    """The true answer as expansion: the ceiling that a perfect inference gives a retriever, not a system."""

    method = "oracle"
    warning = "the oracle reads the true answer: its score is a ceiling, not a result"

    def __init__(self, spec: Spec | None = None) -> None:
        self.spec = spec or Spec("oracle")

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> Oracle:
        """The oracle needs nothing."""
        del build
        return cls(spec)

    def describe(self) -> dict[str, object]:
        """The method is all there is."""
        return {"method": self.method}

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        """The answer of each query that has one."""
        if not any(query.answer for query in task.queries):
            raise UsageError(f"{task.full_name} has no answers: there is no oracle for it")
        items = {
            q.id: Expansion(
                query_id=q.id,
                original=q.text,
                texts=(q.answer,) if q.answer else (),
                statuses=("ok" if q.answer else MISSING,),
            )
            for q in task.queries[:limit]
        }
        if on_progress:
            on_progress(len(items), len(items))
        return Expansions(self.method, self.describe(), items)


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Queries whose inference went the same way."""

    queries: int
    raw: float | None
    # Mean score of the queries as they are; None for no queries.
    expanded: float | None
    gain: float | None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one task with one retriever."""

    task: str
    method: str
    policy: str
    oracle_policy: str
    inference: dict[str, str]
    # right, wrong or unknown (no answer to compare with, or no usable text), by query id.
    named: float | None
    # Share of right inferences among the queries that have an answer.
    judged_by: str
    # "words", or the name of the LLM.
    raw: float
    expanded: float
    oracle: float | None
    # The ceiling: expanded with the true answer.
    groups: dict[str, Group]


def infer(expansions: Expansions, task: Task) -> dict[str, str]:
    """For each expanded query whether its texts name the answer; one that fell back to the raw query is `unknown`."""
    verdicts = {}
    for query in task.queries:
        item = expansions.of(query.id)
        if item is None:
            continue
        if not query.answer or not item.usable:
            verdicts[query.id] = UNKNOWN
        else:
            verdicts[query.id] = RIGHT if names_answer(item.texts, query.answer) else WRONG
    return verdicts


def named_share(task: Task, inference: Mapping[str, str]) -> float | None:
    """Share of queries with an answer whose expansion names it; a failed generation names nothing."""
    asked = [query.id for query in task.queries if query.answer and query.id in inference]
    return sum(inference[i] == RIGHT for i in asked) / len(asked) if asked else None


def gains(inference: Mapping[str, str], raw: Mapping[str, float], expanded: Mapping[str, float]) -> dict[str, Group]:
    """Scores before and after, separately for right, wrong and unknown inferences."""
    groups = {}
    for verdict in (RIGHT, WRONG, UNKNOWN):
        ids = [i for i, v in inference.items() if v == verdict and i in raw]
        before, after = _mean([raw[i] for i in ids]), _mean([expanded.get(i, 0.0) for i in ids])
        gain = None if before is None or after is None else after - before
        groups[verdict] = Group(queries=len(ids), raw=before, expanded=after, gain=gain)
    return groups


def diagnose(
    expansions: Expansions,
    task: Task,
    retriever: Retriever,
    score: Score,
    *,
    policy: str | None = None,
    inference: Mapping[str, str] | None = None,
    judged_by: str = "words",
) -> Diagnosis:
    """Compare raw, expanded and oracle queries; `inference` holds verdicts of another judge than word matching."""
    verdicts = dict(infer(expansions, task) if inference is None else inference)

    def scored(of: Expansions | None) -> tuple[dict[str, float], str]:
        queries, used = Queries.of(task), ""
        if of is not None:
            queries, chosen = queries_for(retriever, task, of, policy if of is expansions else None)
            used = chosen.name
        return {i: value for i, value in score(queries).items() if expansions.of(i) is not None}, used

    raw, _ = scored(None)
    expanded, used = scored(expansions)
    whole, after = _mean(list(raw.values())), _mean(list(expanded.values()))
    if whole is None or after is None:
        raise UsageError(f"{task.full_name} has no scored queries")
    ceiling, oracle_policy = scored(Oracle().expand(task)) if any(q.answer for q in task.queries) else (None, "")
    return Diagnosis(
        task=task.full_name,
        method=expansions.method,
        policy=used,
        oracle_policy=oracle_policy,
        inference=verdicts,
        named=named_share(task, verdicts),
        judged_by=judged_by,
        raw=whole,
        expanded=after,
        oracle=None if ceiling is None else _mean(list(ceiling.values())),
        groups=gains(verdicts, raw, expanded),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def judge(
    expansions: Expansions, task: Task, chat: Chat, *, prompts: Content | None = None, retry: Collection[str] = ()
) -> dict[str, str]:
    """Verdicts by query id; a judge that says neither yes nor no leaves a query `unknown`."""
    prompt = load_prompt("judge", names_of(task), prompts)
    sampling = Sampling(max_tokens=REASONING_TOKENS if reasons(chat) else ANSWER_TOKENS, temperature=0.0, seed=0)
    verdicts = {query.id: UNKNOWN for query in task.queries if expansions.of(query.id)}
    requests = []
    for query in task.queries:
        item = expansions.of(query.id)
        if query.answer and item is not None and item.usable:
            passage = cut_to_tokens("\n\n".join(item.texts), PASSAGE_TOKENS)
            messages = prompt.messages(query=query.text, answer=query.answer, passage=passage)
            requests.append(Request(messages, sampling, query.id))
    key = StoreKey.of("judge", chat, prompt.hash, sampling, task.fingerprint)

    def status(answer: Generation) -> str:
        return unless_read(answer, read_verdict(answer.final) is not None)

    with GenerationStore(key, retry=retry) as kept:
        for generation in generate(chat, requests, kept, status=status):
            if generation.usable:
                verdict = read_verdict(generation.final)
                verdicts[generation.query_id] = UNKNOWN if verdict is None else RIGHT if verdict else WRONG
    return verdicts
