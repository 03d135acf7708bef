"""What a chat model takes and gives: one small vocabulary for endpoints, the embedded model and recorded answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, Protocol

import msgspec

from ..core import fingerprint
from ..core.budget import Usage
from ..core.spec import Spec
from .decision import Decision

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "content_filter", "error"]
# `stop`: the model ended by itself or met a stop sequence. `error`: this request cannot be answered (see Reply.error).


UNLIMITED_TOKENS = 16_384
# What services allow an answer that nobody limits.
SEEDS_APART = 1_000
# Between the seed of an answer and that of the same asked for again: a server that keeps to seeds would repeat itself.


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: Role
    content: str


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an answer is drawn; None leaves the choice to the model's own defaults.

    Defaults are left out of hashes and files, so that a setting added later does not orphan what has been paid for.
    """

    max_tokens: int | None = 1024
    # Most tokens of one answer, its reasoning included; None: no limit is sent.
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    # The k-th of n answers is drawn with seed + k where answers are drawn one by one.
    n: int = 1
    # Answers to one prompt.
    stop: tuple[str, ...] = ()
    # Texts that end an answer; they are not part of it.
    top_logprobs: int = 0
    # How many of the likeliest tokens to ask for; a server that does not know how leaves them out.
    as_given: bool = False
    # What is None stays unset, and what is set is sent, also to a model that is known not to take it.

    @property
    def most_tokens(self) -> int:
        """Tokens to expect at most, for an estimate."""
        return self.max_tokens or UNLIMITED_TOKENS

    @property
    def hash(self) -> str:
        """Fingerprint of all settings."""
        return fingerprint("sampling", msgspec.to_builtins(self))


class Request(msgspec.Struct, frozen=True):
    """One prompt; `key` names it in replies, stores and recorded answers (for an expansion: the query's id)."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    key: str = ""
    sample: int = 0
    # Number of the first answer asked for; earlier ones are stored already.
    again: int = 0
    # How often this was answered before, with an answer that is not wanted.

    @property
    def seed(self) -> int | None:
        """The seed of the first answer asked for; another one where the same was asked before."""
        seed = self.sampling.seed
        return None if seed is None else seed + self.sample + SEEDS_APART * self.again

    def repeated(self, sample: int, again: int) -> Request:
        """The same prompt for one of its answers alone, that was given so often before."""
        sampling = msgspec.structs.replace(self.sampling, n=1)
        return msgspec.structs.replace(self, sampling=sampling, sample=sample, again=again)

    def after(self, count: int) -> Request:
        """The same prompt for the answers that follow the first `count`."""
        sampling = msgspec.structs.replace(self.sampling, n=self.sampling.n - count)
        return msgspec.structs.replace(self, sampling=sampling, sample=self.sample + count)

    @property
    def prompt_hash(self) -> str:
        """Fingerprint of the conversation as it is sent."""
        return fingerprint("prompt", msgspec.to_builtins(self.messages))


class Choice(msgspec.Struct, frozen=True):
    """One answer as the model gave it."""

    text: str
    reasoning: str = ""
    # Only what the server itself set apart; tags inside `text` are for `parse` to read.
    finish_reason: FinishReason = "stop"
    first_token: tuple[tuple[str, float], ...] = ()
    # The likeliest first tokens with their log-probabilities, where asked for and given.
    decision: Decision = ()
    # The tokens of its last number or verdict with their alternatives, likewise.


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to one request."""

    key: str
    choices: tuple[Choice, ...]
    # What one call gave, `sampling.n` at most; a single empty one when `error` says why there is none.
    more: bool = False
    # The rest of the n answers takes another call: ask for `request.after(len(choices))`.
    prompt_tokens: int = 0
    completion_tokens: int = 0
    # Reasoning included, as billed.
    seconds: float = 0.0
    # From sending to the last byte, waiting for limits and retries not included.
    retries: int = 0
    # How often it had to be sent again.
    rate_limits: int = 0
    # How often the server said that it was asked too often.
    cost: float | None = None
    # Dollars; None where the price is not known.
    model: str = ""
    # Name of the model as the server gives it.
    error: str = ""
    # Why this request failed (too long for the model, no recorded answer); other requests are not affected.

    @property
    def text(self) -> str:
        """The first answer."""
        return self.choices[0].text

    @property
    def reasoning(self) -> str:
        """What the server set apart as reasoning of the first answer."""
        return self.choices[0].reasoning

    @property
    def finish_reason(self) -> FinishReason:
        """Why the first answer ended."""
        return self.choices[0].finish_reason


OnReply = Callable[[Request, Reply], None]
# Called the moment an answer has arrived, in whatever thread received it: must be thread-safe (a store's `append` is).
OnSend = Callable[[Request], None]
# Called right before a request goes out to somebody who may charge for it, in whatever thread sends it.


class Chat(Protocol):
    """A model to talk to."""

    spec: Spec
    # What it is, with the server that gives its answers.
    name: str
    # The spec, printed.
    usage: Usage
    # Calls, tokens and dollars so far.
    marking: str
    # How its answers mark reasoning: see `parsing.MARKINGS`.
    defaults: Sampling
    # The model's recommended sampling; use `with_defaults(wanted, chat.defaults)`.
    warning: str
    # A plain sentence results must carry, or empty.

    def describe(self) -> dict[str, object]:
        """Everything besides prompt and sampling that changes an answer, as plain data; never a key."""
        ...

    def check(self) -> None:
        """Raise what would keep a request from being sent: a missing key or extra, a model nobody serves.

        For those who know that something has to be asked; what is stored needs neither.
        """
        ...

    def complete(
        self, requests: Iterable[Request], on_reply: OnReply | None = None, on_send: OnSend | None = None
    ) -> Iterator[Reply]:
        """Answer all requests, several at a time, each yielded when it is there; `requests` is read as there is room.

        What stops everything (a refused key, a dead server, a spent budget) is raised after all answers under way
        have arrived and been handed out.
        """
        ...

    def complete_one(self, request: Request, on_send: OnSend | None = None) -> Reply:
        """Answer one request now; may be called from many threads."""
        ...

    def estimate(self, request: Request) -> Estimate:
        """What a request will take at most, without asking anybody."""
        ...

    def close(self) -> None:
        """Give back connections and memory."""
        ...


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a request is expected to take before it is sent."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    # The most that may come: n × max_tokens.
    cost: float | None
    # Dollars at those tokens; None where the price is not known.


def with_defaults(wanted: Sampling, defaults: Sampling) -> Sampling:
    """`wanted`, with the model's recommended temperature and top_p where nothing was asked for."""
    if wanted.as_given:
        return wanted
    return msgspec.structs.replace(
        wanted,
        temperature=defaults.temperature if wanted.temperature is None else wanted.temperature,
        top_p=defaults.top_p if wanted.top_p is None else wanted.top_p,
    )
