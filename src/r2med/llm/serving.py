"""Serving open weights: the command that starts a server for a chat model, the memory it takes, and waiting for it.

Nothing is started here: the user starts the server, on whatever machine has the GPUs.
"""

from __future__ import annotations

import json
import math
import shlex
import threading
import time
from typing import Any, Literal

import msgspec

from ..core import ModelError, Unavailable, UsageError
from ..core.budget import Usage
from ..core.options import show_size
from ..core.parallel import sleep
from ..http import Client, RateLimit, Rejected, Service
from ..models import ChatCard
from .chats import KEY

ServerName = Literal["vllm", "sglang", "llama.cpp"]
PORTS: dict[str, int] = {"vllm": 8000, "sglang": 30000, "llama.cpp": 8080}
# Where each listens unless told otherwise.
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
# Of one weight.
USABLE = 0.9
# The part of a GPU's memory that a server may fill with weights and cache.
TOP_LOGPROBS = 20
# The most log-probabilities that a method asks for.
SLOTS = 4
# Prompts that llama.cpp works on at a time; they share its context.
LORA_RANK = 16
# The highest rank of an adapter that vLLM takes unless told otherwise.
POLL_SECONDS, ANSWER_SECONDS = 1.0, 10.0
# Between two looks whether a server is there; for one answer of it.
MOST_BYTES = 8 << 20


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes on its GPUs, in bytes; None where the card does not say enough."""

    weights: int | None
    one_context: int | None
    # The cache of one prompt and answer of full length.
    needed: int | None
    # On all GPUs together, for the weights and one context.
    given: int | None
    # What the GPUs have, all together.
    contexts: int | None
    # How many of full length fit at a time.


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """How a server of a model is started."""

    name: str
    server: ServerName
    source: str
    revision: str
    # Empty where no commit of the weights was confirmed.
    served: str
    # What the server will call the model.
    dtype: str
    context: int | None
    gpus: int
    command: list[str]
    url: str
    # Where it will listen.
    memory: Memory
    notes: list[str]
    # What the user has to know or do beside it.

    @property
    def shell(self) -> str:
        """The command as it is typed."""
        return shlex.join(self.command)


def start_of(
    card: ChatCard,
    server: ServerName = "vllm",
    *,
    gpus: int = 1,
    gpu_memory: int | None = None,
    context: int | None = None,
) -> Start:
    """The command that serves a model on so many GPUs, each with so much memory, for prompts of so many tokens."""
    if not card.served:
        where = f"at {card.base_url or 'an API'}" if card.is_api else "inside r2med"
        raise UsageError(f"{card.name} runs {where}: there is nothing to serve")
    if card.context is not None and context is not None and context > card.context:
        raise UsageError(f"{card.name} takes {card.context} tokens of prompt and answer, not {context}")
    if card.most_gpus is not None and gpus > card.most_gpus:
        raise UsageError(f"{card.name} is reported to answer wrongly on more than {card.most_gpus} GPU")
    length = context or card.context
    memory = _memory(card, gpus, gpu_memory, length)
    command = _COMMANDS[server](card, gpus, length)
    return Start(
        name=card.name,
        server=server,
        source=card.source,
        revision=_revision(card),
        served=card.source,
        dtype=card.dtype,
        context=length,
        gpus=gpus,
        command=command,
        url=f"http://localhost:{PORTS[server]}/v1",
        memory=memory,
        notes=_notes(card, server, length),
    )


def wait_for(url: str, card: ChatCard, seconds: float) -> str:
    """Wait until a server answers and lists the model: the name that it lists it under."""
    service = Service(name=card.name, base_url=url, path="/models", key=card.key or KEY)
    client = Client(
        service, Usage(), timeout=ANSWER_SECONDS, attempts=1, limit=RateLimit(None, None), most_bytes=MOST_BYTES
    )
    until, never = time.monotonic() + seconds, threading.Event()
    try:
        while True:
            try:
                return _listed(client.get(), service, card)
            except Unavailable as why:
                if time.monotonic() + POLL_SECONDS > until:
                    problem = str(why).partition(", once;")[0]
                    raise Unavailable(f"no model is served at {url} after {seconds:.0f} seconds: {problem}") from None
            except Rejected as why:
                raise ModelError(str(why)) from None
            sleep(POLL_SECONDS, never)
    finally:
        client.close()


def _listed(raw: bytes, service: Service, card: ChatCard) -> str:
    try:
        body = msgspec.json.decode(raw, type=dict[str, Any])
        names = [str(entry["id"]) for entry in body["data"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelError(f"{service.url} gives no list of models: check the URL (http://host:port/v1)") from None
    found = next((name for name in names if name in (card.source, card.name)), None)
    if found is None:
        shown = ", ".join(names[:5]) or "nothing"
        raise ModelError(
            f"{service.place} serves {shown}, not {card.source}: start it with the command of r2med models serve"
        )
    return found


def _memory(card: ChatCard, gpus: int, each: int | None, context: int | None) -> Memory:
    """What is needed against what is there; a model that does not fit is refused with what would."""
    width = BYTES.get(card.dtype, 2)
    weights = None if card.parameters is None else card.parameters * width
    one = None if card.cache_bytes is None or context is None else card.cache_bytes * context
    needed = None if weights is None else math.ceil((weights + (one or 0)) / USABLE)
    given = None if each is None else each * gpus
    contexts = None
    if given is not None and weights is not None and needed is not None:
        if needed > given:
            raise UsageError(_too_small(card, gpus, given // gpus, weights, needed))
        contexts = None if one is None else int(given * USABLE - weights) // one
    return Memory(weights=weights, one_context=one, needed=needed, given=given, contexts=contexts)


def _too_small(card: ChatCard, gpus: int, each: int, weights: int, needed: int) -> str:
    """Why a model does not fit, and what would help: more GPUs, or a shorter context."""
    enough = next((count for count in (1, 2, 4, 8, 16) if count > gpus and count * each >= needed), None)
    help_ = [f"--gpus {enough}"] if enough and enough <= (card.most_gpus or enough) else []
    left = int(each * gpus * USABLE) - weights
    if card.cache_bytes and left >= 4096 * card.cache_bytes:
        help_.append(f"--context {left // card.cache_bytes // 1024 * 1024}")
    advice = f" (try {' or '.join(help_)})" if help_ else ""
    have = f"{gpus} × {show_size(each)}" if gpus > 1 else show_size(each)
    takes = f"{show_size(needed)} of GPU memory, {show_size(weights)} of it for weights"
    return f"{card.name} needs {takes}, not {have}{advice}"


def _vllm(card: ChatCard, gpus: int, context: int | None) -> list[str]:
    command = ["vllm", "serve", card.base_source or card.source, *_pinned(card)]
    if card.base_source:
        command += ["--enable-lora", "--lora-modules", f"{card.source}={card.source}"]
    else:
        command += ["--served-model-name", card.source]
    command += ["--dtype", card.dtype]
    if context is not None:
        command += ["--max-model-len", str(context)]
    command += ["--tensor-parallel-size", str(gpus), "--gpu-memory-utilization", str(USABLE)]
    command += ["--enable-prefix-caching", "--max-logprobs", str(TOP_LOGPROBS), "--generation-config", "vllm"]
    if card.reasoning_parser:
        command += ["--reasoning-parser", card.reasoning_parser]
    if card.top_k is not None:
        command += ["--override-generation-config", json.dumps({"top_k": card.top_k})]
    if card.template_settings:
        command += ["--default-chat-template-kwargs", json.dumps(card.template_settings)]
    return [*command, "--port", str(PORTS["vllm"])]


def _sglang(card: ChatCard, gpus: int, context: int | None) -> list[str]:
    command = ["python", "-m", "sglang.launch_server", "--model-path", card.base_source or card.source, *_pinned(card)]
    if card.base_source:
        command += ["--enable-lora", "--lora-paths", f"{card.source}={card.source}"]
    else:
        command += ["--served-model-name", card.source]
    command += ["--dtype", card.dtype]
    if context is not None:
        command += ["--context-length", str(context)]
    command += ["--tp", str(gpus), "--mem-fraction-static", str(USABLE), "--sampling-defaults", "openai"]
    if card.reasoning_parser:
        command += ["--reasoning-parser", card.reasoning_parser.replace("_", "-")]
    if card.top_k is not None:
        command += ["--preferred-sampling-params", json.dumps({"top_k": card.top_k})]
    return [*command, "--port", str(PORTS["sglang"])]


def _llama_cpp(card: ChatCard, gpus: int, context: int | None) -> list[str]:
    del gpus  # it spreads the layers over all that it finds
    command = ["llama-server", "--model", f"{card.name}.gguf", "--alias", card.source, "--parallel", str(SLOTS)]
    if context is not None:
        command += ["--ctx-size", str(SLOTS * context)]
    command += ["--n-gpu-layers", "all"]
    if card.top_k is not None:
        command += ["--top-k", str(card.top_k)]
    if card.template_settings:
        command += ["--chat-template-kwargs", json.dumps(card.template_settings)]
    return [*command, "--port", str(PORTS["llama.cpp"])]


_COMMANDS = {"vllm": _vllm, "sglang": _sglang, "llama.cpp": _llama_cpp}


def _revision(card: ChatCard) -> str:
    return "" if card.revision == "main" else card.revision


def _pinned(card: ChatCard) -> list[str]:
    """The commit of the weights; that of an adapter is not its base's."""
    revision = "" if card.base_source else _revision(card)
    return ["--revision", revision] if revision else []


def _notes(card: ChatCard, server: str, context: int | None) -> list[str]:
    made = []
    if server != "llama.cpp" and not _revision(card):
        made.append(f"no commit of {card.source} is confirmed: note the one that you serve")
    if server == "llama.cpp":
        made.append(
            f"llama.cpp reads GGUF: convert {card.source} with its convert_hf_to_gguf.py into {card.name}.gguf;"
            " quantised weights take less memory and give other answers"
        )
        if card.base_source:
            made.append(f"{card.source} is an adapter: merge it into {card.base_source} first")
    if server == "vllm" and card.base_source:
        made.append(f"add --max-lora-rank where the adapter_config.json of {card.source} says a rank over {LORA_RANK}")
    if server == "sglang" and card.template_settings:
        said = json.dumps(card.template_settings)
        made.append(f"its authors set {said} in the chat template, which this server is not told")
    if context is None:
        made.append(
            "no context length is published: the server takes that of the model's configuration; --context sets it"
        )
    return made
