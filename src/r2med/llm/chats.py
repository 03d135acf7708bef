"""Chat models by name, and the client of those behind an OpenAI-compatible endpoint.

    gpt4, qwen-7b               a model of `r2med models`, at its maker's API or behind OPENAI_BASE_URL
    qwen-7b:served=NAME         the same where the server calls it otherwise
    openai:MODEL                any model that an endpoint serves: OpenAI, Azure, vLLM, llama.cpp's server, Ollama
    smollm2                     the embedded model
    replay:FILE                 recorded answers

The server is part of what a chat model is: another one may serve something else under the same name.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from ..core import ModelError, UsageError
from ..core.budget import Budget, Usage, estimate_tokens
from ..core.keys import warn_once
from ..core.options import Options, Parameter, run_options
from ..core.parallel import in_parallel
from ..core.registry import Entry, Registry
from ..core.spec import Content, Spec
from ..http import Answer, Client, RateLimit, Rejected, Service, token_count
from ..models import ChatCard, chat_names, find_chat_card
from .protocol import Chat, Choice, Estimate, FinishReason, OnReply, OnSend, Reply, Request, Sampling
from .reading import decision_of

OPENAI = "https://api.openai.com/v1"
KEY, BASE_URL = "OPENAI_API_KEY", "OPENAI_BASE_URL"
FIXED_SAMPLING = re.compile(r"(?:.*/)?(?:o\d|gpt-5)(?:$|[-.])")
# OpenAI's reasoning models: no temperature, no top_p, one answer a call, and the token limit under another name.
TOKENS_PER_MESSAGE = 8
# Role marks and the like.
LENGTH_WORDS = {"length", "max_tokens", "max_output_tokens"}
MOST_BYTES = 8 << 20
# Of one answer. Eight answers of 32,000 tokens are about two million bytes.
EMPTY_ANSWERS = 2
# Times a request is repeated whose answer held no choice at all.
CONCURRENCY, TIMEOUT = 16, 600.0
# Requests in flight; seconds for one answer, since reasoning models take minutes.
FAILURES_IN_A_ROW = 10
# A server that can answer nothing is not asked 876 times.


class OpenAIChat:
    """Chat completions over HTTP. Nothing is opened, and no key is read, before the first request has to be sent."""

    warning = ""

    def __init__(self, spec: Spec, model: str, card: ChatCard, options: Options) -> None:
        self.budget = options.budget if options.budget is not None else Budget(None)
        if self.budget.limit is not None and card.price is None:
            raise UsageError(f"the price of {spec} is not known, so a limit on cost cannot be kept")
        self.model, self.card = model, card
        self.defaults = Sampling(temperature=card.temperature, top_p=card.top_p)
        self.usage = Usage()
        self._fixed = card.fixed_sampling or bool(FIXED_SAMPLING.match(model))
        self._takes_sampling = True
        """Whether settings are sent that a model is known not to take, where a request wants them sent as they are."""
        self._gives_logprobs = True
        self.marking = "hidden" if self._fixed and card.marking == "auto" else card.marking
        self._workers = options.concurrency or CONCURRENCY
        home = card.base_url or OPENAI
        base_url = options.base_url or os.environ.get(card.url_variable) or home
        self._service = Service(
            name=str(spec), base_url=base_url, path="/chat/completions", key=card.key or KEY, home=home
        )
        own = self._service.is_home and not card.served
        self.host = str(spec.get("host") or self._service.place)
        """The server whose answers these are, whether or not it is the one that can be reached now."""
        self.spec = spec if own else spec.with_parameters(host=self.host)
        self.name = str(self.spec)
        self._unserved = card.served and self._service.is_home
        self._client = Client(
            self._service,
            self.usage,
            timeout=options.timeout or TIMEOUT,
            attempts=options.attempts,
            limit=RateLimit(options.requests_per_minute, options.tokens_per_minute),
            most_bytes=MOST_BYTES,
        )

    def __repr__(self) -> str:
        return f"OpenAIChat({self.model!r} at {self._service.place})"

    def describe(self) -> dict[str, object]:
        """The model and the server it is asked at: another server may serve something else under the same name."""
        return {"backend": "openai", "host": self.host, "model": self.model, "marking": self.marking}

    def check(self) -> None:
        """Raise what would keep a request from being sent."""
        if self._unserved:
            raise UsageError(
                f"{self.card.name} is an open model: serve it (r2med models serve {self.card.name} says how) and set "
                f"{BASE_URL} to its URL"
            )
        if self.host != self._service.place:
            raise UsageError(f"{self.name} asks for {self.host}: set {BASE_URL} to it, not to {self._service.place}")
        self._client.check()

    def complete(
        self, requests: Iterable[Request], on_reply: OnReply | None = None, on_send: OnSend | None = None
    ) -> Iterator[Reply]:
        answer = partial(self._answer, on_send=on_send)
        return in_parallel(requests, answer, self._workers, on_result=on_reply, give_up=GiveUp())

    def complete_one(self, request: Request, on_send: OnSend | None = None) -> Reply:
        return self._answer(request, threading.Event(), on_send)

    def close(self) -> None:
        self._client.close()

    def estimate(self, request: Request) -> Estimate:
        sampling = request.sampling
        prompt = sum(estimate_tokens(m.content) + TOKENS_PER_MESSAGE for m in request.messages)
        calls = sampling.n if self._fixed else 1
        completion = sampling.n * sampling.most_tokens
        return Estimate(
            calls=calls,
            prompt_tokens=prompt * calls,
            completion_tokens=completion,
            cost=self.card.cost(prompt * calls, completion),
        )

    def _answer(self, request: Request, stop: threading.Event, on_send: OnSend | None = None) -> Reply:
        """What one call gives: all n answers, or as many as the server draws at a time."""
        if self._unserved or self.host != self._service.place:
            self.check()
        single = msgspec.structs.replace(request.sampling, n=1)
        estimate = self.estimate(msgspec.structs.replace(request, sampling=single) if self._fixed else request)
        with self.budget.hold(estimate.cost or 0.0) as hold:
            try:
                reply = self._ask(request, estimate, stop, on_send)
            except Rejected as why:
                self.usage.add(failures=1)
                if why.filtered:
                    return _failed(request, self.model, "", "content_filter")
                return _failed(request, self.model, str(why), "error")
            hold.actual = reply.cost
        self.usage.add(
            calls=int(not reply.error),
            failures=int(bool(reply.error)),
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            seconds=reply.seconds,
            cost=reply.cost or 0.0,
            unpriced=int(reply.cost is None),
        )
        return reply

    def _ask(self, request: Request, estimate: Estimate, stop: threading.Event, on_send: OnSend | None) -> Reply:
        """Ask until there is a choice; answers without one are on the bill too."""
        sent: Callable[[], None] = (lambda: None) if on_send is None else partial(on_send, request)
        total = Reply(key=request.key, choices=(), cost=self.card.cost(0, 0), model=self.model)
        body = self._body(request)
        for _ in range(EMPTY_ANSWERS + 1):
            try:
                answer = self._client.post(body, estimate.prompt_tokens + estimate.completion_tokens, stop, sent)
            except ModelError as why:
                refused = [name for name in ("temperature", "top_p") if name in body and name in str(why)]
                if "logprobs" in body and "logprob" in str(why):
                    warn_once(f"{self.name} gives no log-probabilities: asked without ({why})")
                    self._gives_logprobs = False
                    body = self._body(request)
                    continue
                if not (request.sampling.as_given and refused):
                    raise
                warn_once(f"{self.name} takes no {' and no '.join(refused)}: asked without ({why})")
                self._takes_sampling = False
                body = self._body(request)
                continue
            total = _added(total, self._read(request, answer))
            if total.choices:
                missing = request.sampling.n - len(total.choices)
                return msgspec.structs.replace(total, choices=total.choices[: request.sampling.n], more=missing > 0)
        error = f"{self._client.host} answered {EMPTY_ANSWERS + 1} times without a choice"
        return msgspec.structs.replace(total, choices=(Choice("", "", "error"),), error=error)

    def _body(self, request: Request) -> dict[str, object]:
        sampling = request.sampling
        body: dict[str, object] = {
            "model": self.model,
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        }
        if self._fixed and not sampling.as_given:
            body |= _given(max_completion_tokens=sampling.max_tokens)
        else:
            body |= _given(max_tokens=sampling.max_tokens)
            if self._takes_sampling or not sampling.as_given:
                body |= _given(temperature=sampling.temperature, top_p=sampling.top_p)
            if sampling.n > 1:
                body["n"] = sampling.n
        if sampling.seed is not None:
            body["seed"] = request.seed
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if sampling.top_logprobs and self._gives_logprobs:
            body |= {"logprobs": True, "top_logprobs": sampling.top_logprobs}
        return body

    def _read(self, request: Request, answer: Answer) -> Reply:
        body = answer.body
        choices = tuple(choice_of(entry) for entry in _list(body.get("choices")) if isinstance(entry, dict))
        counted = body.get("usage")
        counted = counted if isinstance(counted, dict) else {}
        prompt, completion = token_count(counted.get("prompt_tokens")), token_count(counted.get("completion_tokens"))
        if prompt is None or completion is None:
            self.usage.add(estimated=1)
            prompt = sum(estimate_tokens(m.content) + TOKENS_PER_MESSAGE for m in request.messages)
            completion = sum(estimate_tokens(c.text + c.reasoning) for c in choices)
        model = body.get("model")
        return Reply(
            key=request.key,
            choices=choices,
            prompt_tokens=prompt,
            completion_tokens=completion,
            seconds=answer.seconds,
            retries=answer.retries,
            rate_limits=answer.rate_limits,
            cost=self.card.cost(prompt, completion),
            model=model if isinstance(model, str) and model else self.model,
        )


class GiveUp:
    """Ends a series of requests when so many in a row have failed."""

    def __init__(self) -> None:
        self._failed = 0

    def __call__(self, reply: Reply) -> ModelError | None:
        self._failed = self._failed + 1 if reply.error else 0
        if self._failed < FAILURES_IN_A_ROW:
            return None
        return ModelError(f"{self._failed} requests in a row failed: {reply.error}")


def _added(total: Reply, part: Reply) -> Reply:
    return Reply(
        key=total.key,
        choices=total.choices + part.choices,
        prompt_tokens=total.prompt_tokens + part.prompt_tokens,
        completion_tokens=total.completion_tokens + part.completion_tokens,
        seconds=total.seconds + part.seconds,
        retries=total.retries + part.retries,
        rate_limits=total.rate_limits + part.rate_limits,
        cost=None if total.cost is None or part.cost is None else total.cost + part.cost,
        model=part.model,
    )


def _failed(request: Request, model: str, error: str, reason: FinishReason) -> Reply:
    return Reply(key=request.key, choices=(Choice("", "", reason),), cost=0.0, model=model, error=error)


def choice_of(entry: dict[str, Any]) -> Choice:
    """One answer as servers that speak OpenAI's protocol give it."""
    message = entry.get("message")
    message = message if isinstance(message, dict) else {}
    reason = str(entry.get("finish_reason"))
    text = _text(message.get("content"))
    if not text and isinstance(refusal := message.get("refusal"), str) and refusal:
        return Choice(refusal, "", "content_filter")
    finish: FinishReason = (
        "length" if reason in LENGTH_WORDS else "content_filter" if reason == "content_filter" else "stop"
    )
    reasoning = _text(message.get("reasoning_content") or message.get("reasoning"))
    given = entry.get("logprobs")
    content = _list(given.get("content")) if isinstance(given, dict) else []
    if not content:
        return Choice(text, reasoning, finish)
    return Choice(text, reasoning, finish, _first_token(content), decision_of(content))


def _first_token(content: list[Any]) -> tuple[tuple[str, float], ...]:
    """The likeliest first tokens, from whatever of them can be read."""
    first = content[0] if isinstance(content[0], dict) else {}
    entries = [e for e in (*_list(first.get("top_logprobs")), first) if isinstance(e, dict)]
    return tuple(
        (e["token"], float(e["logprob"]))
        for e in entries
        if isinstance(e.get("token"), str) and isinstance(e.get("logprob"), int | float)
    )


def _text(content: object) -> str:
    """Plain text, or the text of a list of parts; anything else is nothing."""
    if isinstance(content, str):
        return content
    return "".join(
        part["text"] for part in _list(content) if isinstance(part, dict) and isinstance(part.get("text"), str)
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _given(**settings: float | None) -> dict[str, object]:
    return {name: value for name, value in settings.items() if value is not None}


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
