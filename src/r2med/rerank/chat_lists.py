"""A chat model asked about several passages at a time: what all such rerankers share.

Each answer is kept the moment it arrives: a run that is repeated or was killed asks only what was never answered.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from ..core import Run, Task
from ..core.options import Options
from ..core.spec import Content, Spec
from ..llm import Chat, GenerationStore, Request, StoreKey
from ..retrieve import Build
from ..retrieve.stored import on_task
from .asking import Passages, ask_about, load_prompt, on_chat, sampling_for, spent
from .contract import Reranker, Rest
from .ordering import Float32, check_depth, reordered

FirstScores = np.ndarray[Any, np.dtype[np.int64]]
"""First-stage scores as prompts show them, queries × places."""
COUNTED = ("asked", "cache_hits", "ok", "mended", "unparsed", "failed")
"""Counts that the notes always have."""


class Ranked(NamedTuple):
    """Scores of the candidates by first-stage place, NaN where there is none, and what is worth saying of them."""

    scores: Float32
    notes: dict[str, object] = {}  # noqa: RUF012 - never changed


class ChatListReranker(Reranker):
    """Asks a chat model about several candidates of a query at a time."""

    prompt_name: str
    brackets: ClassVar[bool] = True
    """Whether passages keep numbers in square brackets, which look like the numbers of passages."""

    def __init__(
        self,
        chat: Chat,
        spec: Spec,
        options: Options,
        *,
        hints: bool,
        passage_words: int,
        max_tokens: int | None,
        prompt: Content | None,
    ) -> None:
        self.chat, self.spec, self.options = chat, spec, options
        self.hints, self.passage_words = hints, passage_words
        self.prompt = load_prompt(self.prompt_name, prompt.located() if prompt else None)
        self.sampling = sampling_for(chat, self.prompt, max_tokens)

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> ChatListReranker:
        """The reranker of a spec, on the chat model that is its argument."""
        assert isinstance(spec.argument, Spec)
        chat, options = build.chat(spec.argument), build.options.changed(spec.options)
        given = {key: value for key, value in spec.parameters if key != "rest"}
        return cls(chat=chat, spec=on_chat(spec, chat), options=options, **given)  # type: ignore[arg-type]

    @abstractmethod
    def shape(self) -> dict[str, object]:
        """How questions are made: part of what the reranker is."""

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {
            "kind": self.kind,
            "method": self.prompt_name,
            **self.shape(),
            "hints": self.hints,
            "passage_words": self.passage_words,
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
        passages = Passages(task, candidates, self.passage_words, brackets=self.brackets)
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
                **({"warning": self.chat.warning} if self.chat.warning else {}),
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
