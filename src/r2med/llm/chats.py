"""Chat models by name.

    gpt4, qwen-7b               a model of `r2med models`, at its maker's API or behind OPENAI_BASE_URL
    qwen-7b:served=NAME         the same where the server calls it otherwise
    openai:MODEL                any model that an endpoint serves
    smollm2                     the embedded model
    replay:FILE                 recorded answers

The server is part of what a chat model is: another one may serve something else under the same name.
"""

from __future__ import annotations

import os
from dataclasses import replace

from ..core import UsageError
from ..core.options import Options, Parameter, run_options
from ..core.registry import Entry, Registry
from ..core.spec import Content, Spec
from ..models import ChatCard, chat_names, find_chat_card
from .openai import BASE_URL, OpenAIChat
from .protocol import Chat

SERVED = Parameter("served", str, None, "what the server calls the model")
HOST = Parameter("host", str, None, "the server, where it is not the model's own; read from its address")
chats: Registry[Chat] = Registry(
    "LLM",
    options=run_options("concurrency", "requests_per_minute", "tokens_per_minute", "threads"),
    hint=f"(replay:FILE, openai:MODEL, or set {BASE_URL} to use any name a server knows)",
)


def get_llm(spec: str | Spec, options: Options | None = None) -> Chat:
    """The chat model of a spec; nothing is loaded, opened or asked for a key yet."""
    parsed = chats.parse(spec)
    return chats.make(parsed, (options or Options()).changed(parsed.options))


def asked_by(spec: Spec) -> Spec:
    """The chat model that the spec of a method names, run with the options that the method was given."""
    assert isinstance(spec.argument, Spec)
    return replace(spec.argument, options={**spec.argument.options, **spec.options})


def _endpoint(spec: Spec, options: Options) -> Chat:
    """A model behind an endpoint."""
    model = str(spec.argument) if spec.argument is not None else spec.name
    card = find_chat_card(model)
    unknown = ChatCard(name=model, kind="chat", summary="", backend="openai", source=model, licence="unknown")
    source = card.source if card is not None and spec.argument is None else model
    return OpenAIChat(spec, str(spec.get("served") or source), card or unknown, options)


def _local(spec: Spec, options: Options) -> Chat:
    from .local import LocalChat

    card = find_chat_card(spec.name)
    assert card is not None
    return LocalChat(card, options)


def _replay(spec: Spec, options: Options) -> Chat:
    from .replay import Replay

    del options
    assert isinstance(spec.argument, Content)
    return Replay.from_file(spec.argument.located(), spec=spec)


def _published(spec: Spec, options: Options) -> Chat:
    del options
    raise UsageError(f"{spec} names texts that come with a task: expansion methods take them, nothing else does")


def _named(name: str) -> Entry[Chat] | None:
    """A model of the cards."""
    plain, at, _ = name.partition("@")
    if at and find_chat_card(plain) is not None:
        raise UsageError(f"what the server calls {plain} is a parameter now: {plain}:served=NAME")
    card = find_chat_card(name)
    if card is None:
        return None
    if card.backend == "llama.cpp":
        return Entry(card.name, _local, card.summary)
    return Entry(card.name, _endpoint, card.summary, {"served": SERVED._replace(default=card.source), "host": HOST})


def _served(name: str) -> Entry[Chat] | None:
    """Any name, where a server of the user's own is set."""
    if not name or not os.environ.get(BASE_URL):
        return None
    return Entry(name, _endpoint, "a model of your server", {"host": HOST})


chats.add(Entry("replay", _replay, "recorded answers", argument="file", needs_argument=True))
chats.add(Entry("published", _published, "texts published with a task", argument="text", needs_argument=True))
chats.add(Entry("openai", _endpoint, "any model of an endpoint", {"host": HOST}, "text", needs_argument=True))
chats.finders.append(_named)
chats.places.append(_served)
chats.listings.append(chat_names)
