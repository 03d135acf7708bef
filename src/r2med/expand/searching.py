"""`search-o1` and `search-r1`: agents whose search tool is any retriever of ours."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import msgspec
from msgspec import Meta

from ..core import Query, Task, UsageError
from ..core.budget import known_sum
from ..core.options import Names, Options, Progress
from ..core.spec import Spec
from ..llm import Chat, Cost, GenerationStore, Request, StoreKey, as_text, asked_by, estimate_tokens, reasons
from ..llm.protocol import Prompt
from ..models.prompts import names_of
from ..retrieve import Build, Retriever, get_retriever, retrievers
from .agent import REASONING, Limits, Loop, Outcome, Tags, opening_messages
from .contract import INSTEAD, PUBLISHED, Expander, Expansion, Expansions, expanders
from .generated import (
    FIRST_STAGE,
    GenerationParameters,
    load_prompt,
    paper_spec,
    prompt_facts,
    prompt_wording,
    store_notes,
)
from .prompting import SearchTool
from .replay import RECORDED, recorded

CONCURRENCY = 16
"""Queries that an agent works on at once."""


@dataclass(frozen=True)
class SearchingParameters(GenerationParameters):
    """What may be set on an agent."""

    retriever: Annotated[Spec, Meta(description="the search tool"), Names(retrievers.parse)] = FIRST_STAGE


class Searching(Expander):
    """What both agents share."""

    tags: Tags
    policies = INSTEAD
    Parameters = SearchingParameters

    def __init__(
        self,
        chat: Chat,
        given: SearchingParameters | None = None,
        *,
        spec: Spec | None = None,
        options: Options | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.chat: Chat = chat
        self.given, self.options = given or SearchingParameters(), options or Options()
        self.spec, self.warning = spec or Spec(self.method, chat.spec), self.given.warning(chat)
        if self.given.passages != 1:
            raise UsageError(f"{self.method} gives one answer a query, not {self.given.passages}")
        self.limits = limits or (REASONING if reasons(chat) else Limits())
        self.sampling = self.given.sampling(chat, self.limits.turn_tokens)
        if self.sampling.max_tokens:
            self.limits = msgspec.structs.replace(self.limits, turn_tokens=self.sampling.max_tokens)

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> Expander:
        """The agent on the chat model that is its argument, or on texts that were recorded."""
        assert isinstance(spec.argument, Spec)
        if spec.argument.name in RECORDED:
            return recorded(spec)
        spec = paper_spec(spec)
        chat, options = build.chat(asked_by(spec)), build.options.changed(spec.options)
        made = cls(chat, spec.values(SearchingParameters), spec=replace(spec, argument=chat.spec), options=options)
        made.retriever = build.retriever(made.given.retriever)
        made.spec = expanders.changed(made.spec, retriever=made.retriever.spec)
        return made

    @cached_property
    def retriever(self) -> Retriever:
        """The search tool."""
        return get_retriever(self.given.retriever)

    def own_settings(self) -> dict[str, object]:
        """What besides prompt and model changes an answer."""
        return {"tool": self.retriever.describe(), "limits": msgspec.to_builtins(self.limits)}

    def describe(self) -> dict[str, object]:
        """Method, model, sampling, prompts, tool and limits."""
        return {
            "method": self.method,
            "llm": self.chat.name,
            "model": self.chat.describe(),
            "sampling": msgspec.to_builtins(self.sampling),
            "clean": not self.given.raw,
            "prompts": prompt_facts(self.method, self.given.prompts),
            **({"protocol": self.given.protocol} if self.given.protocol else {}),
            **self.own_settings(),
        }

    def task_facts(self, task: Task) -> dict[str, object]:
        """What else the tool's rankings of one task depend on."""
        tool = self.retriever.task_facts(task)
        return {"tool": tool} if tool else {}

    def prompt(self, task: Task) -> Prompt:
        """The prompt for a task."""
        return load_prompt(self.method, names_of(task), self.given.prompts)

    def store_key(self, prompt: Prompt, task: Task) -> StoreKey:
        """Where turns and outcomes are kept."""
        facts = self.task_facts(task)
        settings = {**self.own_settings(), "clean": not self.given.raw, **({"task": facts} if facts else {})}
        return StoreKey.of(self.method, self.chat, prompt.hash, self.sampling, task.fingerprint, settings)

    def open_store(self, prompt: Prompt, task: Task, *, read_only: bool = False) -> GenerationStore:
        """Turns and outcomes of a task."""
        return GenerationStore(self.store_key(prompt, task), read_only=read_only, retry=self.options.retry)

    def plan(self, task: Task, *, limit: int | None = None) -> Cost:
        """The most that the limits allow; agents usually stop earlier."""
        prompt = self.prompt(task)
        openings = {q.id: opening_messages(prompt, q, self.limits) for q in task.queries[:limit]}
        with self.open_store(prompt, task, read_only=True) as store:
            requests = [Request(messages, self.sampling, query_id) for query_id, messages in openings.items()]
            missing = [request for request in requests if store.divided(request)[1]]
            place = str(store.path)
        bills = [self._worst(request, condenses=bool(prompt.condense)) for request in missing]
        calls, prompt_tokens, completion_tokens = (sum(b[i] for b in bills) for i in range(3))
        return Cost(
            calls=calls,
            stored=len(requests) - len(missing),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            cost=self._cost(missing, prompt_tokens, completion_tokens),
            store=place,
            first_prompt=as_text(requests[0].messages) if requests else "",
        )

    def _worst(self, request: Request, *, condenses: bool) -> tuple[int, int, int]:
        """Calls, prompt and completion tokens of a loop that uses all it may."""
        limits = self.limits
        turns, searches = limits.turns, min(limits.searches, limits.turns)
        generated = min(limits.tokens, turns * limits.turn_tokens)
        found = limits.top * limits.passage_tokens
        begin = sum(estimate_tokens(m.content) for m in request.messages)
        evidence = limits.condensed_tokens if condenses else found
        # Each turn reads everything before it.
        read = turns * begin + (turns - 1) * (generated + searches * evidence)
        if condenses:
            return turns + searches, read + searches * (begin + found), generated + searches * limits.condensed_tokens
        return turns, read, generated

    def _cost(self, missing: list[Request], prompt_tokens: int, completion_tokens: int) -> float | None:
        """Dollars for so many tokens, from what the model asks for two requests of known size."""
        if not missing:
            return 0.0
        request = missing[0]
        rates = []
        for tokens in (1, 1_000_001):
            sampling = msgspec.structs.replace(request.sampling, max_tokens=tokens)
            rates.append(self.chat.estimate(msgspec.structs.replace(request, sampling=sampling)))
        low, high = rates
        if low.cost is None or high.cost is None:
            return None
        per_completion = (high.cost - low.cost) / max(high.completion_tokens - low.completion_tokens, 1)
        per_prompt = max(low.cost - per_completion * low.completion_tokens, 0.0) / max(low.prompt_tokens, 1)
        return prompt_tokens * per_prompt + completion_tokens * per_completion

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        """Let the agent work on every query, several at a time."""
        prompt, queries = self.prompt(task), task.queries[:limit]
        tool = SearchTool(self.retriever, task)
        items: dict[str, Expansion] = {}
        with self.open_store(prompt, task) as store:
            loop = Loop(
                self.chat, prompt, self.tags, self.limits, self.sampling, tool, store,
                clean=not self.given.raw, keep_prompt=self.options.keep_prompts,
            )  # fmt: skip
            at_once = min(self.options.concurrency or CONCURRENCY, len(queries))
            with ThreadPoolExecutor(max_workers=max(1, at_once)) as pool:
                running: dict[Future[Outcome], Query] = {pool.submit(loop.run, query): query for query in queries}
                try:
                    for done in as_completed(running):
                        query = running[done]
                        items[query.id] = expansion_of(query, done.result())
                        if on_progress:
                            on_progress(len(items), len(queries))
                except BaseException:
                    loop.stop()
                    pool.shutdown(wait=True, cancel_futures=True)  # calls under way are paid for: keep them
                    raise
            kept, reused = store_notes(store), store.reused
        ordered = {query.id: items[query.id] for query in queries}
        notes: dict[str, object] = {
            **kept,
            "prompts": prompt_wording(self.given.prompts),
            "searches": sum(len(item.searches) for item in ordered.values()),
            **({"warning": self.warning} if self.warning else {}),
        }
        policies = PUBLISHED if self.given.protocol else self.policies
        return Expansions(self.method, self.describe(), ordered, notes, policies, reused=reused)


@expanders.register("search-o1", argument="chat", needs_argument=True)
class SearchO1(Searching):
    """Reasons, searches between marked tags, and reads a digest of what was found (Li et al., 2025)."""

    method = "search-o1"
    tags = Tags(
        ("<|begin_search_query|>", "<|end_search_query|>"),
        ("<|begin_search_result|>", "<|end_search_result|>"),
        "final-response",
    )


@expanders.register("search-r1", argument="chat", needs_argument=True)
class SearchR1(Searching):
    """Reasons, searches between R1's tags, and reads the passages themselves (Jin et al., 2025)."""

    method = "search-r1"
    tags = Tags(("<search>", "</search>"), ("<information>", "</information>"), "answer")


def expansion_of(query: Query, outcome: Outcome) -> Expansion:
    """What an agent's loop came to."""
    final = outcome.final
    return Expansion(
        query_id=query.id,
        original=query.text,
        texts=(final.final,) if final.usable else (),
        raw=(final.raw,) if final.status != "failed" else (),
        statuses=(final.status,),
        reasoning=(final.reasoning,),
        searches=tuple(outcome.searches),
        prompt_tokens=sum(g.prompt_tokens for g in outcome.calls),
        completion_tokens=sum(g.completion_tokens for g in outcome.calls),
        seconds=sum(g.seconds for g in outcome.calls),
        retries=sum(g.retries for g in outcome.calls),
        rate_limits=sum(g.rate_limits for g in outcome.calls),
        cost=known_sum(g.cost for g in outcome.calls),
        notes={"turns": final.extra.get("turns", 0), **({"error": final.error} if final.error else {})},
    )
