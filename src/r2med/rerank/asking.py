"""What chat models are asked about passages: prompts, passages as they are shown, and how answers are drawn.

Rerankers that ask about several passages at a time share `ChatListReranker`. Each answer is kept the moment it arrives:
a run that is repeated or was killed asks only what was never answered.
"""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from ..core import DataError, Run, Task
from ..core.options import Options
from ..core.spec import Content, Spec
from ..llm import (
    Chat,
    Generation,
    GenerationStore,
    Message,
    Request,
    Sampling,
    StoreKey,
    asked_by,
    reasons,
    with_defaults,
)
from ..llm.protocol import Prompt, built_in, prompt_from, read_prompt
from ..models.prompts import read_pack
from ..retrieve import Build
from ..retrieve.contract import on_task
from .contract import Float32, Reranker, Rest, check_depth, reordered

REASONING_TOKENS = 8192
PASSAGE_WORDS = 300
ANSWER_TOKENS = 512
PassageWords = Annotated[int, Meta(ge=1, description="words of a passage that the model is shown")]
Window = Annotated[int, Meta(ge=2, description="passages that are ordered at once")]
Step = Annotated[int, Meta(ge=1, description="how far the window moves")]
Hints = Annotated[bool, Meta(description="show first-stage scores, scaled to 0–100 (InsertRank)")]
MaxTokens = Annotated[int, Meta(ge=1, description="most tokens of one answer")]
_BRACKETS = re.compile(r"\[(\s*\d+\s*)\]")
OwnPrompt = Annotated[Content, Meta(description="a prompt file in place of ours")]


class Passages:
    """The candidates of a task as prompts show them."""

    def __init__(self, task: Task, candidates: Run, words: int, *, brackets: bool = True) -> None:
        self.task, self.candidates, self.words, self.brackets = task, candidates, words, brackets
        self.cut: set[int] = set()  # documents that were longer than what is shown

    def shown(self, row: int, places: Sequence[int]) -> list[str]:
        """Some of a query's candidates; without `brackets`, `[3]` in a passage becomes `(3)`."""
        passages = []
        for doc in self.candidates.docs[row, list(places)].tolist():
            passage, cut = shortened(self.task.documents.contents[doc], self.words)
            passages.append(passage if self.brackets else _BRACKETS.sub(r"(\1)", passage))
            if cut:
                self.cut.add(doc)
        return passages


def load_prompt(method: str, own: Path | None = None) -> Prompt:
    """The prompt of a method: ours, a file of the user's, or that of a prompt pack."""
    gaps = ("query", "passages")
    if own is None:
        return built_in("r2med.rerank", method, gaps=gaps)
    if not own.name.endswith(".json"):
        return read_prompt(own, gaps=gaps)
    table = read_pack(own).generate.get(method, {})
    if not isinstance(table.get("default"), dict):
        raise DataError(f"has no prompt for {method}", path=own)
    return prompt_from(table["default"], str(own), gaps)


def shortened(text: str, words: int) -> tuple[str, bool]:
    """A passage on one line, cut at a number of words."""
    parts = text.split()
    return " ".join(parts[:words]), len(parts) > words


def scaled(candidates: Run, depth: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """First-stage scores of each query's candidates from 0 to 100; equal ones all 100."""
    scores = candidates.scores[:, :depth].astype(np.float64)
    held = (candidates.docs[:, :depth] >= 0) & np.isfinite(scores)
    low = np.where(held, scores, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    high = np.where(held, scores, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    span = np.where(high > low, high - low, 1.0)
    share = np.where(high > low, (np.where(held, scores, 0.0) - np.where(np.isfinite(low), low, 0.0)) / span, 1.0)
    return np.asarray(np.where(held, np.rint(100 * np.clip(share, 0.0, 1.0)), 0), dtype=np.int64)


def ask_about(
    prompt: Prompt, query: str, passages: Sequence[str], scores: Sequence[int] | None = None, **values: str
) -> tuple[Message, ...]:
    """The conversation about some passages; with `scores`, the first stage's hints; `values` fill further gaps."""
    numbered = prompt.numbered(passages, scores)
    return prompt.messages(query=query, passages=numbered, count=str(len(passages)), **values)


def on_chat(spec: Spec, chat: Chat) -> Spec:
    """A spec on the chat model as it was found: with the host that serves it."""
    return replace(spec, argument=chat.spec)


def sampling_for(
    chat: Chat, prompt: Prompt, max_tokens: int | None, *, temperature: float | None = None, **more: Any
) -> Sampling:
    """The likeliest answer, or for a model that reasons its own recommended sampling and room to reason."""
    thinks, short = reasons(chat), prompt.max_tokens or ANSWER_TOKENS
    wanted = Sampling(
        max_tokens=max_tokens or (max(short, REASONING_TOKENS) if thinks else short),
        temperature=temperature if temperature is not None else None if thinks else 0.0,
        seed=0,
        **more,
    )
    return with_defaults(wanted, chat.defaults)


def spent(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What was used between two looks; no dollars where a price is not known."""
    used = {key: round(after[key] - before[key], 6) for key in after if isinstance(after[key], int | float)}
    return used | ({"cost": None} if used["unpriced"] else {})


def count_problem(answer: Generation, counts: Counter[str]) -> None:
    """Count what kept an answer from being whole: no answer, a prompt beyond the context, reasoning without an end."""
    counts["failed"] += answer.status == "failed"
    for name, holds in (
        ("too_long", answer.too_long),
        ("unfinished", answer.unfinished),
        ("refused", answer.status == "refused"),
        ("truncated", answer.status == "truncated"),
    ):
        if holds:
            counts[name] += 1


FirstScores = np.ndarray[Any, np.dtype[np.int64]]
"""First-stage scores as prompts show them, queries × places."""
SHARED = ("passage_words", "max_tokens", "prompt", "hints")
"""Parameters that all such rerankers have; the others say how questions are made."""
COUNTED = ("asked", "cache_hits", "ok", "mended", "unparsed", "failed")
"""Counts that the notes always have."""


class Ranked(NamedTuple):
    """Scores of the candidates by first-stage place, NaN where there is none, and what is worth saying of them."""

    scores: Float32
    notes: dict[str, object] = {}  # noqa: RUF012 - never changed


@dataclass(frozen=True)
class AskingParameters:
    """What may be set on every reranker that asks about several passages at a time."""

    passage_words: PassageWords = PASSAGE_WORDS
    max_tokens: MaxTokens | None = None
    prompt: OwnPrompt | None = None


@dataclass(frozen=True)
class ListParameters(AskingParameters):
    """The same, where first-stage scores may be shown."""

    hints: Hints = False


class ChatListReranker(Reranker):
    """Asks a chat model about several candidates of a query at a time."""

    Parameters: ClassVar[type[Any]] = ListParameters
    """A dataclass of what may be set on it: those above, and how questions are made."""
    prompt_name: ClassVar[str]
    brackets: ClassVar[bool] = True
    """Whether passages keep numbers in square brackets, which look like the numbers of passages."""

    def __init__(self, chat: Chat, spec: Spec, options: Options, given: Any) -> None:
        self.chat, self.spec, self.options, self.given = chat, spec, options, given
        self.warning = chat.warning
        self.prompt = load_prompt(self.prompt_name, given.prompt.located() if given.prompt else None)
        self.sampling = sampling_for(chat, self.prompt, given.max_tokens)

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> ChatListReranker:
        """The reranker of a spec, on the chat model that is its argument."""
        chat, options = build.chat(asked_by(spec)), build.options.changed(spec.options)
        return cls(chat, on_chat(spec, chat), options, spec.values(cls.Parameters))

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {
            "kind": self.kind,
            "method": self.prompt_name,
            **{field.name: getattr(self.given, field.name) for field in fields(self.given) if field.name not in SHARED},
            "hints": self.given.hints,
            "passage_words": self.given.passage_words,
            **({} if self.brackets else {"brackets": False}),
            "llm": self.chat.describe(),
            "prompt": self.prompt.hash,
            "sampling": msgspec.to_builtins(self.sampling),
        }

    def rerank(self, task: Task, candidates: Run, depth: int = 100, *, rest: Rest = "keep") -> Run:
        """Reorder the first `depth` candidates of each query."""
        check_depth(depth, rest)
        begin = time.perf_counter()
        candidates = on_task(candidates, task)
        counts: Counter[str] = Counter()
        before = self.chat.usage.snapshot()
        key = StoreKey.of(f"rerank-{self.prompt_name}", self.chat, self.prompt.hash, self.sampling, task.fingerprint)
        passages = Passages(task, candidates, self.given.passage_words, brackets=self.brackets)
        with GenerationStore(key, retry=self.options.retry) as store:
            ranked = self.score(passages, depth, store, counts)
            counts["cache_hits"], counts["torn_lines"] = store.hits, store.torn
            bill, reused = store.bill(), store.reused
        counts["passages_cut"] = len(passages.cut)
        run = reordered(candidates, ranked.scores, rest, f"{candidates.name}.{self.name}@{depth}")
        run.notes = {
            **candidates.notes,
            "rerank": {
                "reranker": self.name,
                "depth": depth,
                "rest": rest,
                "queries_below_depth": int((candidates.lengths() < depth).sum()),
                **{k: counts[k] for k in (*COUNTED, *sorted(set(counts) - set(COUNTED)))},
                **ranked.notes,
                "answers": bill,
                "usage": spent(before, self.chat.usage.snapshot()),
                **({"warning": self.warning} if self.warning else {}),
                "seconds": round(time.perf_counter() - begin, 4),
            },
        }
        run.reused = reused
        return run

    def request(self, passages: Passages, row: int, places: list[int], key: str, hints: FirstScores | None) -> Request:
        """The question about some of a query's candidates."""
        scores = None if hints is None else [int(hints[row, place]) for place in places]
        query, shown = passages.task.queries[row].text, passages.shown(row, places)
        return Request(ask_about(self.prompt, query, shown, scores, **self.gaps()), self.sampling, key)

    def gaps(self) -> dict[str, str]:
        """What fills gaps of the prompt besides the query and the passages."""
        return {}

    @abstractmethod
    def score(self, passages: Passages, depth: int, store: GenerationStore, counts: Counter[str]) -> Ranked:
        """Ask about the first `depth` candidates of all queries, and score them by the answers."""
