"""From what a user types to a model to talk to."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ..core import UnknownName, UsageError, keys
from .catalogue import LlmCard, card_of_model, find_llm, llm_names
from .protocol import Chat

OPENAI = "https://api.openai.com/v1"
KEY, KEY_FILE, BASE_URL = "OPENAI_API_KEY", "OPENAI_API_KEY_FILE", "OPENAI_BASE_URL"


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
    # Dollars.
    threads: int = 1
    # Of the embedded model.
    dry_run: bool = False
    # For plans only: without a key or a server.

    def __post_init__(self) -> None:
        """Nonsense is refused where it is typed, not in a thread later."""
        for name in ("concurrency", "attempts", "timeout", "threads", "requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"{name} must be above 0, not {value}")
        if self.max_cost is not None and not self.max_cost >= 0:
            raise UsageError(f"max_cost must not be negative, not {self.max_cost}")


def get_llm(spec: str, options: Options | None = None) -> Chat:
    """The model of a name.

    `local`, `replay:FILE`, `openai:MODEL`, a name of the catalogue (`NAME@SERVED` where the server calls it
    otherwise), or any model name behind OPENAI_BASE_URL.
    """
    options = options or Options()
    kind, colon, rest = spec.partition(":")
    if spec == "local":
        from .local import LocalChat

        return LocalChat(options)
    if kind in ("replay", "openai") and colon:
        if not rest:
            raise UsageError(f"{spec!r} names no {'file' if kind == 'replay' else 'model'}")
        if kind == "replay":
            from .replay import Replay

            return Replay.from_file(Path(rest).expanduser())
        return _endpoint(spec, rest, card_of_model(rest) or LlmCard(name=rest), options)
    name, _, served = spec.partition("@")
    if card := find_llm(name):
        return _endpoint(spec, served or card.model, card, options)
    if not spec or not (options.base_url or os.environ.get(BASE_URL)):
        hint = f"(local, replay:FILE, openai:MODEL, or set {BASE_URL} to use any name a server knows)"
        raise UnknownName("LLM", spec, (*llm_names(), "local"), hint=hint)
    return _endpoint(spec, spec, card_of_model(spec) or LlmCard(name=spec), options)


def _endpoint(name: str, model: str, card: LlmCard, options: Options) -> Chat:
    from .openai import OpenAIChat

    base_url = options.base_url or os.environ.get(BASE_URL) or OPENAI
    if options.dry_run:
        return OpenAIChat(name, model, base_url, "", options, card)
    if card.open and base_url == OPENAI:
        raise UsageError(f"{name} is an open model: serve it (vllm serve {card.hub_id}) and set {BASE_URL} to its URL")
    key = read_key()
    # A server of one's own often asks for no key; OpenAI always does.
    if not key and base_url == OPENAI:
        raise UsageError(f"{name} needs a key: export {KEY}=… or {KEY_FILE}=FILE")
    return OpenAIChat(name, model, base_url, key, options, card)


def read_key() -> str:
    """The key of the endpoint."""
    return keys.read_key(KEY)
