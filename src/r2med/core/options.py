"""How components are run on this machine. Nothing here changes what a component is, or what it ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from .budget import Budget
from .errors import UsageError
from .parameters import Parameter

Progress = Callable[[int, int], None]  # called with (done, in all)
_DEVICE = re.compile(r"cpu|mps|cuda:\d+")


def check_devices(asked: str) -> list[str]:
    """The names of devices in a text, `cuda` alone standing for every GPU; others are refused."""
    names = [name.strip() for name in asked.split(",")]
    wrong = next((name for name in names if names != ["cuda"] and not _DEVICE.fullmatch(name)), None)
    if wrong is not None:
        raise UsageError(f"unknown device {wrong!r}: cpu, cuda, cuda:N, several with commas, or mps")
    return names


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may say about running models; a backend reads what concerns it."""

    device: str | None = None
    """`cpu`, `cuda`, `cuda:1`, `cuda:0,cuda:1`; None: every GPU there is, else the CPU."""
    threads: int | None = None
    batch_tokens: int | None = None  # tokens that go through a model together
    memory: int | None = None
    """Bytes that dense search may hold beside its mapped vectors; None: what is fastest."""
    verify: int = 0  # cached texts that are encoded again and compared
    cache: bool = True  # whether vectors, scores and indexes are kept on disk
    keep_queries: bool = True  # whether that holds for vectors and scores of queries, too
    trust_remote_code: bool = False
    allow_pickle: bool = False  # load weights that are published as pickles only, which can run code
    base_url: str = ""  # of an API, instead of the environment's
    concurrency: int | None = None  # requests in flight; None: 16 for chat models, 8 for embeddings
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    timeout: float | None = None  # seconds for one answer; None: 600 for chat models, 60 for embeddings
    attempts: int = 5  # times a request is sent before giving up on the server
    budget: Budget | None = None  # one for all that a command spends
    keep_prompts: bool = False  # store every prompt in full beside its answer
    retry: frozenset[str] = frozenset()
    """Statuses of stored answers that chat models are asked for again: `empty`, `failed`, `refused`, …"""
    dry_run: bool = False  # nothing is sent or encoded
    on_progress: Progress | None = None

    def __post_init__(self) -> None:
        """Refuse nonsense where it is typed, not in a thread later."""
        for name in ("threads", "batch_tokens", "concurrency", "requests_per_minute", "tokens_per_minute", "timeout"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"{name} must be above 0, not {value}")
        if self.device is not None:
            check_devices(self.device)
        if self.attempts < 1:
            raise UsageError(f"attempts must be 1 or more, not {self.attempts}")

    def changed(self, changes: Mapping[str, object]) -> Options:
        """A copy with some options changed."""
        known = {field.name for field in fields(Options)}
        if unknown := next((name for name in changes if name not in known), None):
            raise UsageError(f"unknown option {unknown!r}; there are {', '.join(sorted(known))}")
        values: dict[str, Any] = dict(changes)
        return replace(self, **values) if values else self

    def progress(self, done: int, total: int) -> None:
        """Say how far the current work is."""
        if self.on_progress is not None:
            self.on_progress(done, total)


RUN_OPTIONS = {
    parameter.name: parameter
    for parameter in (
        Parameter("device", str, None, "cpu, cuda, cuda:1 …"),
        Parameter("threads", int, None, "threads, or cores, of a model"),
        Parameter("batch_tokens", int, None, "tokens that go through a model together"),
        Parameter("allow_pickle", bool, False, "load weights that are published as pickles only"),
        Parameter("trust_remote_code", bool, False, "let a model run Python code of its own"),
        Parameter("concurrency", int, None, "requests in flight"),
        Parameter("requests_per_minute", int, None, "most requests a minute"),
        Parameter("tokens_per_minute", int, None, "most tokens a minute"),
    )
}
"""Those that may stand in a spec beside its parameters, as in `bge:device=cpu`; they are no part of it."""


def run_options(*names: str) -> Iterable[Parameter]:
    """Some of them, for a registry."""
    return [RUN_OPTIONS[name] for name in names or RUN_OPTIONS]
