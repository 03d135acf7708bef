"""The loop of the searching methods: the model reasons, asks for a search between marked tags, gets evidence, goes on.

Every call is kept in the generation store under `query#turn` before the next one is made, so that a killed loop takes
up where it stopped. What the loop came to is one more record under the query's own id.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

import msgspec

from ..core import ModelError, Query, R2MedError
from ..core.parallel import STOP
from ..llm import Chat, Generation, GenerationStore, Message, Request, Sampling, StatusOf, open_call, read_reply
from ..llm.parsing import as_parsed
from ..llm.protocol import Prompt, fill
from .prompting import SearchTool, render_passages

POLL = 0.2
# Seconds between looks at a call that another process is making.


class Tags(NamedTuple):
    """How a method marks searches and evidence."""

    search: tuple[str, str]
    evidence: tuple[str, str]
    marking: str
    """How the final answer is set apart: a marking of the parser."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Where a loop ends, whatever the model wants."""

    searches: int = 5
    turns: int = 8
    # Calls that reason; condensing evidence is not counted.
    tokens: int = 8192
    # Generated over all turns.
    turn_tokens: int = 1536
    # Of one turn.
    top: int = 5
    # Passages a search returns.
    passage_tokens: int = 160
    condensed_tokens: int = 160


REASONING = Limits(tokens=16_384, turn_tokens=4096, condensed_tokens=2048)
"""For models that think at length before each search, and before they condense what it found."""


class Outcome(NamedTuple):
    """How a loop ended."""

    final: Generation
    """Under the query's id: final text, status, all that was thought."""
    calls: list[Generation]
    searches: list[str]


def ask(
    chat: Chat,
    request: Request,
    store: GenerationStore,
    marking: str,
    *,
    clean: bool = True,
    keep_prompt: bool = False,
    status: StatusOf = as_parsed,
) -> Generation:
    """One answer: from the store, from another process that is at it, or from the model."""
    while True:
        store.refresh()
        found, left = store.divided(request, status)
        if not left:
            store.reuse(found)
            return found[0]
        if store.claim(left[0]):
            break
        time.sleep(POLL)
    request = left[0]
    try:
        reply = chat.complete_one(request, store.send)
        return store.answer(request, read_reply(request, reply, marking, clean=clean, keep_prompt=keep_prompt))[0]
    except R2MedError:
        if not STOP.is_set():
            store.settle(request)
        raise
    finally:
        store.release(request)


class Loop:
    """One query's conversation."""

    def __init__(
        self,
        chat: Chat,
        prompt: Prompt,
        tags: Tags,
        limits: Limits,
        sampling: Sampling,
        tool: SearchTool,
        store: GenerationStore,
        *,
        clean: bool = True,
        keep_prompt: bool = False,
    ) -> None:
        self.chat, self.prompt, self.tags, self.limits, self.sampling = chat, prompt, tags, limits, sampling
        self.tool, self.store, self.clean, self.keep_prompt = tool, store, clean, keep_prompt
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Make no further call, whichever thread wants to: those under way are kept."""
        self._stopped.set()

    def run(self, query: Query) -> Outcome:
        """Reason and search until there is an answer or a limit is met."""
        opening = opening_messages(self.prompt, query, self.limits)
        messages, calls, searches, thoughts = list(opening), list[Generation](), list[str](), list[str]()
        spent = 0
        last: Generation | None = None
        for turn in range(self.limits.turns):
            room = min(self.limits.turn_tokens, self.limits.tokens - spent)
            if room < 1:
                break
            sampling = msgspec.structs.replace(self.sampling, max_tokens=room, stop=(self.tags.search[1],), n=1)
            request = Request(tuple(messages), sampling, f"{query.id}#{turn}")
            last = self._ask(request, self.tags.marking, self._status)
            calls.append(last)
            spent += last.completion_tokens
            wanted = self._wants(last)
            if last.status == "failed" or wanted is None:
                break
            thoughts.append(last.raw)
            said = last.raw if last.raw.rstrip().endswith(self.tags.search[1]) else last.raw + self.tags.search[1]
            evidence = self.prompt.limit or "No searches are left."
            if len(searches) < self.limits.searches:
                searches.append(wanted)
                evidence = self._evidence(query, wanted, len(searches), calls)
            messages += [Message("assistant", said), Message("user", evidence)]
        return Outcome(self._close(query, opening, last, thoughts, searches, calls), calls, searches)

    def _status(self, said: Generation) -> str:
        """A turn that ends in a search has no final answer, as it should be."""
        return said.status if self._wants(said) is None else "ok"

    def _wants(self, said: Generation) -> str | None:
        """What the model asks its tool for; a call that the token limit cut is none."""
        return open_call(said.raw, *self.tags.search) if said.finish_reason == "stop" else None

    def _evidence(self, query: Query, search: str, number: int, calls: list[Generation]) -> str:
        """What the tool found, condensed where the prompt says how, between its tags."""
        found = render_passages(self.prompt, self.tool.search(search, self.limits.top), self.limits.passage_tokens)
        if self.prompt.condense:
            text = fill(self.prompt.condense, query=query.text, search=search, passages=found)
            sampling = msgspec.structs.replace(self.sampling, max_tokens=self.limits.condensed_tokens, stop=(), n=1)
            request = Request((Message("user", text),), sampling, f"{query.id}#condense{number}")
            told = self._ask(request, self.chat.marking, as_parsed)
            calls.append(told)
            found = told.final if told.usable else found  # better the passages than nothing
        return f"{self.tags.evidence[0]}\n{self._plain(found)}\n{self.tags.evidence[1]}"

    def _ask(self, request: Request, marking: str, status: StatusOf) -> Generation:
        if self._stopped.is_set():
            raise ModelError("stopped")
        kept = {"clean": self.clean, "keep_prompt": self.keep_prompt}
        return ask(self.chat, request, self.store, marking, **kept, status=status)

    def _plain(self, text: str) -> str:
        """A passage that holds a tag of ours must not be able to close its block or to ask for searches."""
        for tag in (*self.tags.search, *self.tags.evidence, "<answer>", "</answer>", "<think>", "</think>"):
            text = text.replace(tag, tag.replace("<", "‹").replace(">", "›"))
        return text

    def _close(
        self,
        query: Query,
        opening: tuple[Message, ...],
        last: Generation | None,
        thoughts: list[str],
        searches: list[str],
        calls: list[Generation],
    ) -> Generation:
        """The record under the query's own id; its calls carry the bill."""
        begun = Request(opening, self.sampling, query.id, again=max((call.again for call in calls), default=0))
        if last is not None and last.status == "failed":
            return msgspec.structs.replace(last, query_id=query.id, prompt_hash=begun.prompt_hash)
        final = Generation(
            query_id=query.id,
            prompt_hash=begun.prompt_hash,
            status="truncated",  # a limit came before an answer
            reasoning="\n\n".join(thoughts),
            finish_reason="length",
            again=begun.again,
            extra={"searches": list(searches), "turns": sum("#condense" not in c.query_id for c in calls)},
        )
        if last is not None and self._wants(last) is None:
            final = msgspec.structs.replace(
                final,
                status=last.status,
                final=last.final,
                raw=last.final,
                reasoning="\n\n".join([*thoughts, last.reasoning]).strip(),
                removed=last.removed,
                finish_reason=last.finish_reason,
                model=last.model,
            )
        self.store.keep(begun, [final])
        return final


def opening_messages(prompt: Prompt, query: Query, limits: Limits) -> tuple[Message, ...]:
    """How a loop begins."""
    return prompt.messages(query=query.text, searches=str(limits.searches))
