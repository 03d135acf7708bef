"""What the one-shot methods share: one prompt a query, n answers, everything kept as it arrives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..core import Query, Task, UsageError
from ..llm import Chat, Generation, GenerationStore, Message, Request, Sampling, StoreKey, generate, with_defaults
from .prompts import Prompt, load_prompt, prompt_hashes
from .protocol import Plan, Progress
from .values import Expansion, Expansions

REASONING_TOKENS = 10_240
"""Room for a model that thinks before it answers, as R2MED's scripts gave it: a chain that is cut is no answer."""


def reasons(chat: Chat) -> bool:
    """Whether a model is known to think at length, in sight or out of it."""
    return chat.marking not in ("none", "auto")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may set for any method that asks an LLM; None: the method's own default."""

    passages: int | None = None
    # Answers a query gets.
    max_tokens: int | None = None
    # Most tokens of one answer, reasoning included.
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = 0
    prompts: Path | None = None
    # A prompt pack of the user's own.
    keep_prompts: bool = False
    # Store every prompt in full.
    clean: bool = True
    # Strip chatty preambles and markdown fences.
    concurrency: int = 16
    # Queries an agent works on at once; one-shot methods leave this to the LLM's own options.
    store: Path | None = None
    # Folder of the generation store; None: under R2MED_HOME.


class Prepared(NamedTuple):
    """All that is sent for a task, and what is worth telling about it."""

    template: str
    """Hash of what the prompts are made from."""
    requests: tuple[Request, ...]
    notes: dict[str, object]


class Generated(ABC):
    """A method that asks once per query."""

    method: str
    default_passages = 1
    default_tokens = 512
    # Of an answer; a model that reasons gets `REASONING_TOKENS`.
    default_temperature: float | None = None

    def __init__(self, chat: Chat, settings: Settings | None = None) -> None:
        self.chat = chat
        self.settings = settings or Settings()
        self.name = f"{self.method}:{chat.name}"
        self.warning = chat.warning
        self.passages = self.settings.passages or self.default_passages
        if self.passages < 1 or (self.settings.max_tokens or 1) < 1:
            raise UsageError("passages and max_tokens must be 1 or more")

    @property
    def sampling(self) -> Sampling:
        """How answers are drawn."""
        s = self.settings
        temperature = self.default_temperature if s.temperature is None else s.temperature
        wanted = Sampling(
            max_tokens=s.max_tokens or (REASONING_TOKENS if reasons(self.chat) else self.default_tokens),
            temperature=temperature,
            top_p=s.top_p,
            seed=s.seed,
            n=self.passages,
        )
        return with_defaults(wanted, self.chat.defaults)

    def describe(self) -> dict[str, object]:
        return {
            "method": self.method,
            "llm": self.chat.name,
            "model": self.chat.describe(),
            "sampling": msgspec.to_builtins(self.sampling),
            "clean": self.settings.clean,
            "prompts": self.prompt_hashes(),
            **self.own_settings(),
        }

    def prompt_hashes(self) -> dict[str, str]:
        """Fingerprints of the prompts of all task families that the pack has."""
        return prompt_hashes(self.method, self.settings.prompts)

    def own_settings(self) -> dict[str, object]:
        """What else of the method changes a prompt."""
        return {}

    @abstractmethod
    def values(self, prompt: Prompt, queries: Sequence[Query], task: Task) -> Iterable[Mapping[str, str]]:
        """What fills the gaps of the prompt, for each query."""
        ...

    def prompt(self, task: Task) -> tuple[Prompt, dict[str, object]]:
        """The prompt for a task, and notes about it."""
        return load_prompt(self.method, task.family, self.settings.prompts), {}

    def prepare(self, task: Task, limit: int | None = None) -> Prepared:
        """Everything that will be sent."""
        prompt, notes = self.prompt(task)
        queries = task.queries[:limit]
        filled = self.values(prompt, queries, task)
        requests = tuple(
            Request(prompt.messages(**values), self.sampling, query.id)
            for query, values in zip(queries, filled, strict=True)
        )
        return Prepared(prompt.hash, requests, notes)

    def open_store(self, prepared: Prepared, task: Task, *, read_only: bool = False) -> GenerationStore:
        """Where the answers for this task are kept; how they are cleaned is decided when they are read."""
        settings = self.own_settings()
        key = StoreKey.of(self.method, self.chat, prepared.template, self.sampling, task.fingerprint, settings)
        return GenerationStore(key, self.settings.store, read_only=read_only)

    def plan(self, task: Task, *, limit: int | None = None) -> Plan:
        prepared = self.prepare(task, limit)
        with self.open_store(prepared, task, read_only=True) as store:
            return plan_requests(self.chat, prepared.requests, store)

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        prepared = self.prepare(task, limit)
        answers: dict[str, list[Generation]] = {}
        done = 0
        with self.open_store(prepared, task) as store:
            arriving = generate(
                self.chat,
                prepared.requests,
                store,
                clean=self.settings.clean,
                keep_prompt=self.settings.keep_prompts,
            )
            for generation in arriving:
                answers.setdefault(generation.query_id, []).append(generation)
                done += 1
                if on_progress:
                    on_progress(done, len(prepared.requests) * self.passages)
            place = str(store.path)
        items = {
            query.id: expansion_of(query, sorted(answers.get(query.id, ()), key=lambda g: g.sample))
            for query in task.queries[:limit]
        }
        notes = {"store": place, **prepared.notes, **({"warning": self.warning} if self.warning else {})}
        return Expansions(self.method, self.describe(), items, notes)


def expansion_of(query: Query, generations: Sequence[Generation]) -> Expansion:
    """The answers to one query, read."""
    costs = [g.cost for g in generations if g.cost is not None]
    errors = [g.error for g in generations if g.error]
    removed = sorted({part for g in generations for part in g.removed})
    return Expansion(
        query_id=query.id,
        original=query.text,
        texts=tuple(g.final for g in generations if g.usable),
        statuses=tuple(g.status for g in generations),
        reasoning=tuple(g.reasoning for g in generations),
        prompt_tokens=sum(g.prompt_tokens for g in generations),
        completion_tokens=sum(g.completion_tokens for g in generations),
        seconds=sum(g.seconds for g in generations),
        cost=sum(costs) if costs else None,
        notes={**({"removed": removed} if removed else {}), **({"error": errors[0]} if errors else {})},
    )


def plan_requests(chat: Chat, requests: Sequence[Request], store: GenerationStore) -> Plan:
    """What the requests that are not in the store will take at most."""
    missing = [r.after(len(store.begun(r))) for r in requests if store.get(r) is None]
    estimates = [chat.estimate(request) for request in missing]
    costs = [e.cost for e in estimates]
    return Plan(
        calls=sum(e.calls for e in estimates),
        stored=len(requests) - len(missing),
        prompt_tokens=sum(e.prompt_tokens for e in estimates),
        completion_tokens=sum(e.completion_tokens for e in estimates),
        cost=None if None in costs else sum(c for c in costs if c is not None),
        store=str(store.path),
        first_prompt=as_text(requests[0].messages) if requests else "",
    )


def as_text(messages: Iterable[Message]) -> str:
    """A conversation for people to read."""
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)
