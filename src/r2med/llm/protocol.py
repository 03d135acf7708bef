"""What a chat model takes and gives: prompts, requests and replies, for endpoints, the embedded model and recordings.

Prompts are data: TOML files with named gaps. A gap is written `{{name}}` and filled once, in one pass: braces, tags or
another gap's name inside a query or a passage stay what they are, text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from ..core import DataError, UsageError, fingerprint
from ..core.budget import Usage
from ..core.files import parse_toml
from ..core.spec import Spec

Alternatives = tuple[tuple[str, float], ...]
"""A token with its log-probability, then those that could have stood there."""
Decision = tuple[Alternatives, ...]
"""The tokens of the last number or verdict of an answer."""
Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "content_filter", "error"]
# `stop`: the model ended by itself or met a stop sequence. `error`: this request cannot be answered (see Reply.error).
UNLIMITED_TOKENS = 16_384
# What services allow an answer that nobody limits.
SEEDS_APART = 1_000
# Between the seed of an answer and that of the same asked for again: a server that keeps to seeds would repeat itself.
_GAP = re.compile(r"\{\{([a-z_]+)\}\}")
FAMILIES = {"Q&A reference": "qa-reference", "Clinical evidence": "clinical-evidence", "Clinical case": "clinical-case"}
DEFAULT_FAMILY = "qa-reference"
"""For a folder of the user's own, which has no family."""


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: Role
    content: str


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worked example of a few-shot prompt."""

    query: str
    passage: str


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What a model is told; every field may have gaps."""

    user: str
    # The request itself.
    system: str = ""
    # Who the model is asked to be.
    example: str = ""
    # How one few-shot example is written.
    examples: tuple[Example, ...] = ()
    # Worked examples, checked against the evaluated queries before use.
    passage: str = "[{{number}}] {{passage}}"
    # How one passage is written.
    hint: str = "[{{number}}] (score {{score}} of 100) {{passage}}"
    # The same with the score of the first stage.
    condense: str = ""
    # Asks for the gist of search results.
    again: str = ""
    # The request of later rounds, with the answer of the round before in {{previous}}; none: `user` again.
    limit: str = ""
    # What an agent is told when its searches are used up.
    max_tokens: int | None = None
    # Room for the answer of a reranker or a judge; None: the method's own.
    shown: str = ""
    # Worked examples as one finished text, in place of `examples`; not checked against the evaluated queries.
    between: str = "\n\n"
    # What stands between two passages.
    exact: bool = False
    # Blanks and line breaks at the ends of a text are kept.

    @property
    def hash(self) -> str:
        """Fingerprint of all of it."""
        return fingerprint("prompt", msgspec.to_builtins(self))

    def messages(self, **values: str) -> tuple[Message, ...]:
        """The conversation that opens a request."""
        system = (Message("system", self.filled(self.system, **values)),) if self.system else ()
        return (*system, Message("user", self.filled(self.user, **values)))

    def later(self, **values: str) -> tuple[Message, ...]:
        """The conversation of a request in a later round."""
        return msgspec.structs.replace(self, user=self.again or self.user).messages(**values)

    def filled(self, template: str, **values: str) -> str:
        """One of its texts with the gaps filled."""
        return fill(template, exact=self.exact, **values)

    def numbered(self, passages: Sequence[str], scores: Sequence[int] | None = None) -> str:
        """Passages with their numbers, and with first-stage scores where they are given."""
        lines = [
            self.filled(self.passage, number=str(i), passage=passage)
            if scores is None
            else self.filled(self.hint, number=str(i), passage=passage, score=str(scores[i - 1]))
            for i, passage in enumerate(passages, start=1)
        ]
        return self.between.join(lines)


def fill(template: str, *, exact: bool = False, **values: str) -> str:
    """Replace each gap once; what comes in is never read as a template."""

    def put(gap: re.Match[str]) -> str:
        if gap[1] not in values:
            raise UsageError(f"the prompt has a gap {gap[0]} that is not filled here ({', '.join(values)})")
        return values[gap[1]]

    filled = _GAP.sub(put, template)
    return filled if exact else filled.strip()


def built_in(package: str, name: str, *, gaps: Sequence[str] = ("query",)) -> Prompt:
    """A prompt that comes with r2med: `name` is its path below the package's `prompts` folder."""
    return _parse(files(package).joinpath("prompts", *f"{name}.toml".split("/")).read_bytes(), f"{name}.toml", gaps)


def read_prompt(path: Path, *, gaps: Sequence[str] = ("query",)) -> Prompt:
    """A prompt file of the user's own."""
    try:
        return _parse(path.read_bytes(), str(path), gaps)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None


def _parse(data: bytes, place: str, gaps: Sequence[str]) -> Prompt:
    try:
        table = parse_toml(data.decode())
    except ValueError as error:  # of the encoding, of TOML
        raise DataError(f"is no prompt ({error})", path=place) from None
    return prompt_from(table, place, gaps)


def prompt_from(table: Mapping[str, Any], place: str, gaps: Sequence[str] = ("query",)) -> Prompt:
    """A prompt from the table that a file or a prompt pack holds."""
    try:
        prompt = msgspec.convert(table, Prompt)
    except ValueError as error:
        raise DataError(f"is no prompt ({error})", path=place) from None
    if lacking := next((gap for gap in gaps if f"{{{{{gap}}}}}" not in prompt.user), None):
        raise DataError(f"is no prompt: `user` does not hold {{{{{lacking}}}}}", path=place)
    if "{{passage}}" not in prompt.passage or "{{passage}}" not in prompt.hint:
        raise DataError("is no prompt: `passage` and `hint` must hold {{passage}}", path=place)
    if prompt.condense and "{{passages}}" not in prompt.condense:
        raise DataError("is no prompt: `condense` must hold {{passages}}", path=place)
    if prompt.again and "passages" in gaps and "{{passages}}" not in prompt.again:
        raise DataError("is no prompt: `again` must hold {{passages}}", path=place)
    if prompt.examples and not ("{{query}}" in prompt.example and "{{passage}}" in prompt.example):
        raise DataError("is no prompt: `example` must hold {{query}} and {{passage}}", path=place)
    return prompt


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
