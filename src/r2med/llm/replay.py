"""Recorded answers: a generation store, R2MED's `query_with_hydoc.jsonl`, or any mapping of texts by query.

A store says what was asked: its answers are given to the same prompts alone. The others say for which query a text is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ..cache.records import read_records
from ..core import DataError, fingerprint
from ..core.budget import Usage
from ..core.spec import Spec
from .chats import FAILURES_IN_A_ROW
from .parsing import Generation, put_newest
from .protocol import Choice, Estimate, OnReply, OnSend, Reply, Request, Sampling
from .store import is_header, read_header, recorded_lines


class HydocLine(msgspec.Struct):
    """A line of `query_with_hydoc.jsonl`; what else stands in it is not looked at."""

    id: str
    hy_doc: str | list[str]


Asked = tuple[str, str]
"""The key of a request, and the hash of its prompt; no hash where a recording does not say what was asked."""


class Replay:
    """Answers every request with what was recorded for it."""

    defaults = Sampling()

    def __init__(
        self,
        answers: Mapping[str, Sequence[str | Choice]] | Mapping[Asked, Sequence[str | Choice]],
        source: str = "recorded answers",
        *,
        spec: Spec | None = None,
        marking: str = "auto",
        warning: str = "",
    ) -> None:
        self.spec = spec or Spec("replay", source)
        self.answers: dict[Asked, tuple[Choice, ...]] = {
            (key, "") if isinstance(key, str) else key: tuple(Choice(t) if isinstance(t, str) else t for t in texts)
            for key, texts in answers.items()
        }
        self.name = str(self.spec)
        self.marking, self.warning = marking, warning
        self.source = source
        self.usage = Usage()

    @classmethod
    def from_file(cls, path: Path, *, spec: Spec | None = None) -> Replay:
        """Read a store's file or a `query_with_hydoc.jsonl`, compressed with gzip or not."""
        lines = recorded_lines(path)
        if lines and is_header(lines[0]):
            model = read_header(path, lines[0]).key.model
            marking, warning = str(model.get("marking", "auto")), str(model.get("warning", ""))
            return cls(_from_store(path, lines), str(path), spec=spec, marking=marking, warning=warning)
        return cls(_from_hydoc(path, lines), str(path), spec=spec)

    def describe(self) -> dict[str, object]:
        """The content, wherever it lies, and how it is read."""
        content = [[*asked, msgspec.to_builtins(self.answers[asked])] for asked in sorted(self.answers)]
        return {"backend": "replay", "content": fingerprint("replay", content), "marking": self.marking}

    def complete_one(self, request: Request, on_send: OnSend | None = None) -> Reply:
        """The recorded answers, n of them or as many as there are."""
        del on_send  # nothing goes out
        recorded = self.answers.get((request.key, request.prompt_hash)) or self.answers.get((request.key, ""), ())
        found = recorded[request.sample :][: request.sampling.n]
        if not found:
            self.usage.add(failures=1)
            error = f"{self.source} has no answer to what is asked for query {request.key!r}"
            return Reply(key=request.key, choices=(Choice("", "", "error"),), cost=0.0, model=self.name, error=error)
        self.usage.add(calls=1)
        return Reply(key=request.key, choices=found, cost=0.0, model=self.name)

    def complete(
        self, requests: Iterable[Request], on_reply: OnReply | None = None, on_send: OnSend | None = None
    ) -> Iterator[Reply]:
        """Answer in order. A recording that fits none of the first queries belongs to another task."""
        del on_send
        lock = threading.Lock()
        missing = answered = 0
        for request in requests:
            reply = self.complete_one(request)
            with lock:
                missing, answered = missing + bool(reply.error), answered + (not reply.error)
            if missing == FAILURES_IN_A_ROW and not answered:
                raise DataError(f"none of the first {missing} queries has an answer here", path=self.source)
            if on_reply is not None:
                on_reply(request, reply)
            yield reply

    def estimate(self, request: Request) -> Estimate:
        return Estimate(calls=0, prompt_tokens=0, completion_tokens=0, cost=0.0)

    def check(self) -> None:
        """Nothing can be missing."""

    def close(self) -> None:
        """Nothing is held."""


def _from_store(path: Path, lines: list[bytes]) -> dict[Asked, tuple[Choice, ...]]:
    found: dict[Asked, dict[int, Generation]] = {}
    generations, _ = read_records(lines[1:], Generation)
    for generation in generations:
        put_newest(found.setdefault((generation.query_id, generation.prompt_hash), {}), generation)
    if not found:
        raise DataError("holds no generation", path=path)
    try:
        return {asked: tuple(samples[n].choice for n in sorted(samples)) for asked, samples in found.items()}
    except ValueError as error:
        raise DataError(f"holds log-probabilities that cannot be read ({error})", path=path) from None


def _from_hydoc(path: Path, lines: list[bytes]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(lines, 1):
        try:
            record = msgspec.json.decode(line, type=HydocLine)
        except (ValueError, RecursionError) as error:
            what = "is neither a generation store nor a query_with_hydoc.jsonl"
            raise DataError(f"{what} ({error})", path=path, line=number) from None
        if record.id in found:
            raise DataError(f"query {record.id!r} stands twice", path=path, line=number)
        found[record.id] = (record.hy_doc,) if isinstance(record.hy_doc, str) else tuple(record.hy_doc)
    if not found:
        raise DataError("is empty", path=path)
    return found
