"""From what a user types to a model to talk to."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ..core import UnknownName, UsageError
from ..core.budget import Budget
from ..models import ChatCard, chat_names, find_chat_card
from .openai import BASE_URL, OpenAIChat
from .protocol import Chat


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How an endpoint is used; none of it changes an answer."""

    base_url: str = ""
    # Before OPENAI_BASE_URL.
    concurrency: int = 16
    # Requests in flight.
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    # Prompt and answer, estimated before sending.
    timeout: float = 600.0
    # Seconds for one answer; reasoning models take minutes.
    attempts: int = 5
    # Times a request is sent before giving up on the server.
    max_cost: float | None = None
    # Dollars, where no `budget` is given.
    budget: Budget | None = None
    # Shared by everything a command may spend on.
    threads: int = 1
    # Of the embedded model.

    def __post_init__(self) -> None:
        """Nonsense is refused where it is typed, not in a thread later."""
        for name in ("concurrency", "attempts", "timeout", "threads", "requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"{name} must be above 0, not {value}")
        if self.max_cost is not None and not self.max_cost >= 0:
            raise UsageError(f"max_cost must not be negative, not {self.max_cost}")

    @property
    def spending(self) -> Budget:
        """What limits the cost."""
        return self.budget if self.budget is not None else Budget(self.max_cost)


def get_llm(spec: str, options: Options | None = None) -> Chat:
    """The model of a name; nothing is loaded, opened or asked for a key yet.

    A name of `r2med models` (`NAME@SERVED` where the server calls it otherwise), `replay:FILE`, `openai:MODEL`, or any
    model name behind OPENAI_BASE_URL.
    """
    options = options or Options()
    kind, colon, rest = spec.partition(":")
    if kind in ("replay", "openai") and colon:
        if not rest:
            raise UsageError(f"{spec!r} names no {'file' if kind == 'replay' else 'model'}")
        if kind == "replay":
            from .replay import Replay

            return Replay.from_file(Path(rest).expanduser())
        return _endpoint(spec, rest, find_chat_card(rest), options)
    name, _, served = spec.partition("@")
    card = find_chat_card(name)
    if card and card.backend == "llama.cpp":
        from .local import LocalChat

        return LocalChat(card, options)
    if not card and not (spec and (options.base_url or os.environ.get(BASE_URL))):
        hint = f"(replay:FILE, openai:MODEL, or set {BASE_URL} to use any name a server knows)"
        raise UnknownName("LLM", spec, chat_names(), hint=hint)
    return _endpoint(spec, (served or card.source) if card else spec, card, options)


def _endpoint(name: str, model: str, card: ChatCard | None, options: Options) -> Chat:
    unknown = ChatCard(name=model, kind="chat", summary="", backend="openai", source=model, licence="unknown")
    return OpenAIChat(name, model, card or unknown, options)
