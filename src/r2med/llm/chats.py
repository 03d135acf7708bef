"""Chat models by name.

gpt4, qwen-7b               a model of the catalogue, at its maker's API or behind OPENAI_BASE_URL
qwen-7b:served=NAME         the same where the server calls it otherwise
openai:MODEL                any model that an endpoint serves
smollm2                     the embedded model
replay:FILE                 recorded answers
"""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from ..core import UsageError
from ..core.options import Options
from ..core.parameters import Parameter
from ..core.registry import Entry, Registry
from ..core.spec import Content, Spec
from .catalogue import LlmCard, card_of_model, find_llm, llm_names
from .load import BASE_URL, OPENAI
from .load import Options as EndpointOptions
from .load import _endpoint as endpoint
from .protocol import Chat

SERVED = Parameter("served", Annotated[str, Meta(description="what the server calls the model")], None)
HOST = Parameter("host", Annotated[str, Meta(description="the server, where it is not the model's own")], None)
chats: Registry[Chat] = Registry(
    "LLM", hint=f"(smollm2, replay:FILE, openai:MODEL, or set {BASE_URL} to use any name a server knows)"
)


def reasons(chat: Chat) -> bool:
    """Whether a model is known to think at length before it answers, in sight or out of it."""
    return chat.marking not in ("none", "auto")


def get_llm(spec: str | Spec, options: Options | None = None) -> Chat:
    """The chat model of a spec; nothing is asked, and no key needed, before the first request."""
    if isinstance(spec, str):
        name, at, served = spec.partition("@")
        spec = chats.parse(f"{name}:served={served}" if at and find_llm(name) else spec)
    return chats.make(spec, options or Options())


def _endpoint(spec: Spec, options: Options) -> Chat:
    """A model behind an endpoint; its spec names the host where that is not the model's own."""
    model = str(spec.argument) if spec.argument is not None else spec.name
    card = (card_of_model(model) if spec.argument is not None else find_llm(spec.name)) or LlmCard(name=model)
    served = spec.get("served")
    interim = EndpointOptions(
        base_url=options.base_url,
        concurrency=options.concurrency or 16,
        timeout=options.timeout or 600.0,
        requests_per_minute=options.requests_per_minute,
        tokens_per_minute=options.tokens_per_minute,
        attempts=options.attempts,
        dry_run=options.dry_run,
        max_cost=options.budget.limit if options.budget else None,
    )
    chat = endpoint(str(spec), str(served) if served else card.model, card, interim)
    base = options.base_url or os.environ.get(BASE_URL) or OPENAI
    host, asked = ("" if base == OPENAI else urlsplit(base).netloc), spec.get("host")
    if asked is not None and asked != host:
        raise UsageError(f"{spec} is served by {host or 'its maker'} now: set {BASE_URL} to reach {asked}")
    chat.spec = spec.with_parameters(host=host or None)
    return chat


def _local(spec: Spec, options: Options) -> Chat:
    from .local import LocalChat

    chat = LocalChat(EndpointOptions(threads=options.threads or 1))
    chat.spec = spec
    return chat


def _replay(spec: Spec, options: Options) -> Chat:
    from .replay import Replay

    del options
    assert isinstance(spec.argument, Content)
    chat = Replay.from_file(spec.argument.located())
    chat.spec = spec
    return chat


def _published(spec: Spec, options: Options) -> Chat:
    del options
    raise UsageError(f"{spec} names texts that come with a task: expansion methods take them, nothing else does")


def _named(name: str) -> Entry[Chat] | None:
    card = find_llm(name)
    if card is None:
        return None
    return Entry(card.name, _endpoint, card.summary, {"served": SERVED._replace(default=card.model), "host": HOST})


def _served(name: str) -> Entry[Chat] | None:
    """Any name, where a server of the user's own is set."""
    known = bool(os.environ.get(BASE_URL)) and name
    return Entry(name, _endpoint, "a model of your server", {"host": HOST}) if known else None


chats.add(Entry("smollm2", _local, "SmolLM2-135M, embedded: shows that the machinery runs"), aliases=["local"])
chats.add(Entry("replay", _replay, "recorded answers", argument="file", needs_argument=True))
chats.add(Entry("openai", _endpoint, "any model of an endpoint", {"host": HOST}, "text", needs_argument=True))
chats.add(Entry("published", _published, "texts published with a task", argument="text", needs_argument=True))
chats.finders.append(_named)
chats.places.append(_served)
chats.listings.append(llm_names)
