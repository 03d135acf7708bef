"""An embedded model: a real, very small LLM that runs on any laptop without network or key.

SmolLM2-135M-Instruct shows that the machinery works. Its medicine is poor, and everything made with it says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ..core import MissingExtra, ModelError
from ..core.budget import Usage, estimate_tokens
from ..core.options import Options
from ..core.parallel import in_parallel
from ..core.spec import Spec
from ..core.untrusted import inside
from ..models import ChatCard, fetch, locate, verified
from .chats import choice_of
from .protocol import Choice, Estimate, OnReply, OnSend, Reply, Request, Sampling

SLOTS = 4
# Prompts decoded together; on one thread that gives half as much again as one after the other.
CONTEXT = 4096
# Tokens of prompt and answer, each slot.


class LocalChat:
    """llama.cpp inside this process."""

    def __init__(self, card: ChatCard, options: Options, *, slots: int = SLOTS, context: int = CONTEXT) -> None:
        self.card, self.spec = card, Spec(card.name)
        self.name, self.marking, self.warning = card.name, card.marking, card.warning
        self.defaults = Sampling(temperature=card.temperature, top_p=card.top_p)
        self.usage = Usage()
        self._threads, self._slots, self._context = options.threads or 1, slots, context
        self._lock, self._alone = threading.Lock(), threading.Lock()
        self._server: Any = None

    def __repr__(self) -> str:
        return f"LocalChat({self.card.source!r}, {self.card.variant})"

    def describe(self) -> dict[str, object]:
        """The weights, not where they lie or how many run at once."""
        facts: dict[str, object] = {"source": self.card.source, "variant": self.card.variant, "context": self._context}
        facts["logprobs"] = True  # once it gave none, and what was scored without them is another thing
        return {"backend": "llama.cpp", **facts, "marking": self.marking, "warning": self.warning}

    def check(self) -> None:
        """Raise what would keep a request from being answered: the runtime is missing."""
        _runtime()

    def complete(
        self, requests: Iterable[Request], on_reply: OnReply | None = None, on_send: OnSend | None = None
    ) -> Iterator[Reply]:
        del on_send  # nobody charges for what runs here
        return in_parallel(requests, self._answer, self._slots, on_result=on_reply)

    def complete_one(self, request: Request, on_send: OnSend | None = None) -> Reply:
        del on_send
        return self._answer(request, threading.Event())

    def estimate(self, request: Request) -> Estimate:
        sampling = request.sampling
        prompt = sum(estimate_tokens(m.content) for m in request.messages)
        tokens = sampling.n * sampling.most_tokens
        return Estimate(calls=sampling.n, prompt_tokens=prompt * sampling.n, completion_tokens=tokens, cost=0.0)

    def close(self) -> None:
        """Give the model's memory back; the next request loads it again."""
        with self._lock:
            self._server = None

    def _answer(self, request: Request, stop: threading.Event) -> Reply:
        """One answer: the runtime draws them one by one."""
        server = self._loaded()
        if stop.is_set():
            raise ModelError("stopped")
        self.usage.add(attempts=1)
        begun = time.monotonic()
        # What is decoded together, or was kept of an earlier prompt, moves probabilities in their second digit.
        with self._alone if request.sampling.top_logprobs else nullcontext():
            answer = server.handle_chat_completions(_body(request))
        if problem := answer.get("error"):
            return self._failed(request, problem)
        seconds, tokens = time.monotonic() - begun, answer["usage"]
        counts = {name: tokens[name] for name in ("prompt_tokens", "completion_tokens")}
        self.usage.add(calls=1, seconds=seconds, **counts)
        return Reply(
            key=request.key,
            choices=(choice_of(answer["choices"][0]),),
            more=request.sampling.n > 1,
            seconds=seconds,
            cost=0.0,
            model=f"{self.card.source} {self.card.variant}",
            **counts,
        )

    def _failed(self, request: Request, problem: dict[str, Any]) -> Reply:
        if problem.get("type") != "exceed_context_size_error":
            raise ModelError(f"the embedded model refused the request: {problem.get('message')}")
        self.usage.add(failures=1)
        error = f"the prompt has {problem.get('n_prompt_tokens')} tokens, the embedded model takes {self._context}"
        return Reply(key=request.key, choices=(Choice("", "", "error"),), cost=0.0, model=self.card.source, error=error)

    def _loaded(self) -> Any:
        with self._lock:
            if self._server is None:
                runtime = _runtime()  # before a download that would be of no use
                self._server = self._load(runtime, self._weights())
            return self._server

    def _weights(self) -> Path:
        """The file, fetched on first use."""
        folder = locate(self.card)
        if folder is None:
            folder = Path(fetch(self.card).path)
        assert self.card.carrier is not None
        return inside(verified(self.card, folder), self.card.carrier.files[0].name, "file of a carrier")

    def _load(self, xllamacpp: Any, path: Path) -> Any:
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_parallel = self._slots
        parameters.n_ctx = self._context * self._slots
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = self._threads
        parameters.n_gpu_layers = 0
        parameters.cache_ram_mib = 0  # it would keep old prompts in up to 8 GB
        parameters.warmup = False
        parameters.verbosity = -1
        try:
            return xllamacpp.Server(parameters)
        except RuntimeError as error:
            again = f"r2med models fetch {self.card.name} --force"
            raise ModelError(f"{path} cannot be loaded ({error}); {again}") from None


def _runtime() -> Any:
    try:
        import xllamacpp  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise MissingExtra("the embedded language model", "local-llm") from None
    return xllamacpp


def _body(request: Request) -> dict[str, object]:
    sampling = request.sampling
    body: dict[str, object] = {
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "max_tokens": sampling.most_tokens,
        "stop": list(sampling.stop),
    }
    given = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": request.seed,
    }
    if sampling.top_logprobs:
        body |= {"logprobs": True, "top_logprobs": sampling.top_logprobs, "cache_prompt": False}
    return body | {name: value for name, value in given.items() if value is not None}
