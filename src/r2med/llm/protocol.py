"""What a chat model takes and gives: one small vocabulary for endpoints, the embedded model and recorded answers.

Beside its text an answer may say how sure the model was of the number or verdict that it ends on, by the
log-probabilities of those tokens and of their alternatives. A model that reasons first decides with these, not with its
first token. Tokenizers write numbers digit by digit or whole; both are read.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol

import msgspec

from ..core import fingerprint
from ..core.budget import Usage
from ..core.spec import Spec

Alternatives = tuple[tuple[str, float], ...]
"""A token with its log-probability, then those that could have stood there."""
Decision = tuple[Alternatives, ...]
"""The tokens of the last number or verdict of an answer."""

MOST_TOKENS = 4
_DECIDES = re.compile(r"\d+(?:\.\d+)?|(?<![^\W_])(?:yes|no|true|false)(?![^\W_])", re.IGNORECASE)
_MARKS = " \t\n\"'*▁Ġ.,<>/"


def alternatives(entry: object) -> Alternatives:
    """What a server says of one token, the token itself first; empty where it cannot be read."""
    if not isinstance(entry, dict):
        return ()
    others = entry.get("top_logprobs")
    entries = [entry, *(others if isinstance(others, list) else [])]
    found: dict[str, float] = {}
    for given in entries:
        if isinstance(given, dict) and isinstance(given.get("token"), str):
            value = given.get("logprob")
            if isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(given["token"], float(value))
    return tuple(found.items()) if found and next(iter(found)) == entry.get("token") else ()


def decision_of(content: Sequence[Any]) -> Decision:
    """The tokens of the last number or verdict among those of an answer, as servers list them under `logprobs`."""
    texts = [e["token"] if isinstance(e, dict) and isinstance(e.get("token"), str) else "" for e in content]
    last = _last("".join(texts))
    if last is None:
        return ()
    found: list[Alternatives] = []
    start = 0
    for text, entry in zip(texts, content, strict=True):
        if text and start < last.end() and start + len(text) > last.start():
            found.append(alternatives(entry))
        start += len(text)
    return tuple(found) if len(found) <= MOST_TOKENS and all(found) else ()


def decided(decision: Decision) -> str:
    """The number or verdict itself, in small letters."""
    match = _last("".join(token[0][0] for token in decision))
    return match[0].lower() if match else ""


def _last(text: str) -> re.Match[str] | None:
    return next(iter(deque(_DECIDES.finditer(text), maxlen=1)), None)


def probability(decision: Decision) -> float:
    """How likely the number or verdict was: the product of its tokens' probabilities."""
    return min(math.exp(sum(token[0][1] for token in decision)), 1.0)


def expectation(decision: Decision, top: int) -> float | None:
    """The mean of the whole numbers from 0 to `top` that could have stood there, by their probabilities.

    None where that cannot be told: the number has several tokens and is not `top` itself. Alternatives that may be the
    beginning of a longer number are left out, unless the number that was written shows that numbers are single tokens.
    """
    written = decided(decision)
    if not written.isdigit() or int(written) > top:
        return None
    weights: dict[int, float] = {}
    if len(decision) > 1:
        if len(decision) > 2 or int(written) != top or top != 10:
            return None
        ten = math.exp(decision[1][0][1])  # 10 and 1 begin alike: the second token divides them
        one = math.exp(decision[0][0][1])
        weights = {top: one * ten, 1: one * max(1 - ten, 0.0)}
    whole = len(decision) == 1 and len(written) > 1
    for token, logprob in decision[0][len(decision) > 1 :]:
        word = token.strip(_MARKS)
        if word.isdecimal() and word.isascii() and (value := int(word)) <= top and str(value) == word:
            if token != decision[0][0][0] and not whole and 0 < 10 * value <= top:
                continue
            weights[value] = weights.get(value, 0.0) + math.exp(logprob)
    total = sum(weights.values())
    return sum(value * weight for value, weight in weights.items()) / total if total > 0 else None


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
