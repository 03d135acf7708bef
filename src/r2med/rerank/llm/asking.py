"""Sorting the candidates of many queries at once by asking a model, each answer kept the moment it arrives."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from ...core import Run, Task, UsageError
from ...llm import Chat, Generation, GenerationStore, Request, Sampling, StoreKey, generate, with_defaults
from ..candidates import on_task
from ..ordering import check_depth, ranks_as_scores, reordered
from ..protocol import Progress, Rest
from .parsing import Order, read_choice, read_order
from .prompts import Prompt, load_prompt
from .sorting import Sorter, check_sliding, heap_top, sliding

Method = Literal["listwise", "reasoning", "setwise"]
REASONS = ("think", "think-optional", "final-response", "solution", "answer")
"""Markings of models that reason in sight: their answers need room for it."""
REASONING_TOKENS = 8192
PASSAGE_WORDS = 300


class AskingReranker:
    """Listwise (RankGPT's sliding window), reasoning listwise, or setwise (heap sort) with any chat model.

    `hints` puts the first stage's scores into the prompt, scaled to 0–100 over each query's candidates (InsertRank).
    Passages are cut at `passage_words` words, which is counted. Answers lie in the generation store: a run that is
    repeated or was killed asks only what was never answered.
    """

    def __init__(
        self,
        chat: Chat,
        method: Method = "listwise",
        *,
        name: str = "",
        window: int = 20,
        step: int = 10,
        top: int = 10,
        children: int = 3,
        hints: bool = False,
        passage_words: int = PASSAGE_WORDS,
        max_tokens: int | None = None,
        prompt: Path | None = None,
        store: Path | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        check_sliding(window, step)
        if top < 1 or children < 1 or passage_words < 1:
            raise UsageError("top, children and passage_words must be 1 or more")
        self.chat, self.method = chat, method
        self.kind = "setwise" if method == "setwise" else "listwise"
        self.name = name or f"{method}:{chat.name}"
        self.window, self.step, self.top, self.children = window, step, top, children
        self.hints, self.passage_words = hints, passage_words
        self.prompt = load_prompt(method, prompt)
        self.sampling = sampling_for(chat, self.prompt, max_tokens)
        self.store, self.on_progress = store, on_progress

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        shape = (
            {"top": self.top, "children": self.children}
            if self.method == "setwise"
            else {"window": self.window, "step": self.step}
        )
        return {
            "kind": self.kind,
            "method": self.method,
            **shape,
            "hints": self.hints,
            "passage_words": self.passage_words,
            "llm": self.chat.describe(),
            "prompt": self.prompt.hash,
            "sampling": msgspec.to_builtins(self.sampling),
        }

    def rerank(self, task: Task, candidates: Run, depth: int = 100, *, rest: Rest = "keep") -> Run:
        """Reorder the first `depth` candidates of each query."""
        check_depth(depth, rest)
        begin = time.perf_counter()
        candidates = on_task(candidates, task)
        lengths = np.minimum(candidates.lengths(), depth)
        counts: Counter[str] = Counter()
        before = self.chat.usage.snapshot()
        key = StoreKey.of(f"rerank-{self.method}", self.chat, self.prompt.hash, self.sampling, task.fingerprint)
        with GenerationStore(key, self.store) as store:
            orders = self._sort(_Lists(self, task, candidates, depth), lengths.tolist(), store, counts)
            counts["torn_lines"] = store.torn
        width = min(depth, candidates.depth)
        run = reordered(candidates, ranks_as_scores(orders, width), rest, f"{candidates.name}.{self.name}@{depth}")
        run.notes = {
            **candidates.notes,
            "rerank": {
                "reranker": self.name,
                "depth": depth,
                "rest": rest,
                "queries_below_depth": int((candidates.lengths() < depth).sum()),
                **{k: counts[k] for k in (*COUNTED, *sorted(set(counts) - set(COUNTED)))},
                "usage": spent(before, self.chat.usage.snapshot()),
                **({"warning": self.chat.warning} if self.chat.warning else {}),
                "seconds": round(time.perf_counter() - begin, 4),
            },
        }
        return run

    def _sorter(self, count: int) -> Sorter:
        if self.method == "setwise":
            return heap_top(count, self.top, self.children)
        return sliding(count, self.window, self.step)

    def _sort(
        self, lists: _Lists, lengths: list[int], store: GenerationStore, counts: Counter[str]
    ) -> list[list[int]]:  # fmt: skip
        """All queries side by side, a question of each at a time: what one answer decides, the next one asks."""
        orders: list[list[int]] = [list(range(length)) for length in lengths]
        sorters = [self._sorter(length) for length in lengths]
        asked: dict[int, list[int]] = {}

        def go_on(row: int, answer: list[int] | None) -> None:
            try:
                asked[row] = next(sorters[row]) if answer is None else sorters[row].send(answer)
            except StopIteration as end:
                orders[row] = end.value
                asked.pop(row, None)
                if self.on_progress is not None:
                    self.on_progress(len(lengths) - len(asked), len(lengths))

        for row in range(len(lengths)):
            go_on(row, None)
        while asked:
            requests = {lists.query_id(row): lists.request(row, places, counts) for row, places in asked.items()}
            counts["asked"] += len(requests)
            counts["cache_hits"] += sum(store.get(request) is not None for request in requests.values())
            answers = {
                g.query_id: g for g in generate(self.chat, requests.values(), store, clean=False) if g.sample == 0
            }
            for row, places in list(asked.items()):
                go_on(row, self._read(answers.get(lists.query_id(row)), len(places), counts))
        return orders

    def _read(self, answer: Generation | None, size: int, counts: Counter[str]) -> list[int]:
        """The order an answer gives to the passages asked about; what cannot be read keeps them as they are."""
        if answer is None or answer.status == "failed":
            counts["failed"] += 1
            return list(range(size))
        counts["truncated"] += answer.status == "truncated"
        if self.method == "setwise":
            choice = read_choice(answer.final, size)
            counts["unparsed" if choice is None else "ok"] += 1
            best = choice or 0
            return [best, *(i for i in range(size) if i != best)]
        order = read_order(answer.final, size)
        counts["unparsed" if not order.read else "mended" if order.mended else "ok"] += 1
        _count(order, counts)
        return order.places


COUNTED = ("asked", "cache_hits", "ok", "mended", "unparsed", "failed")


def _count(order: Order, counts: Counter[str]) -> None:
    for name in ("repeated", "unknown", "missing"):
        counts[f"numbers_{name}"] += getattr(order, name)


class _Lists:
    """The candidates of a task as prompts show them."""

    def __init__(self, reranker: AskingReranker, task: Task, candidates: Run, depth: int) -> None:
        self.reranker, self.task, self.candidates = reranker, task, candidates
        self.hints = scaled(candidates, depth) if reranker.hints else None
        self._cut: set[int] = set()

    def query_id(self, row: int) -> str:
        """What requests and answers of a query are filed under."""
        return self.task.queries[row].id

    def request(self, row: int, places: list[int], counts: Counter[str]) -> Request:
        """The question about some of a query's candidates."""
        docs = self.candidates.docs[row, places].tolist()
        passages = []
        for doc in docs:
            passage, cut = shortened(self.task.documents.contents[doc], self.reranker.passage_words)
            passages.append(passage)
            if cut and doc not in self._cut:
                self._cut.add(doc)
                counts["passages_cut"] += 1
        scores = None if self.hints is None else [int(self.hints[row, place]) for place in places]
        messages = self.reranker.prompt.messages(self.task.queries[row].text, passages, scores)
        return Request(messages, self.reranker.sampling, self.query_id(row))


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


def sampling_for(chat: Chat, prompt: Prompt, max_tokens: int | None, **more: Any) -> Sampling:
    """The likeliest answer, or for a model that reasons its own recommended sampling and room to reason."""
    reasons = chat.marking in REASONS
    room = max_tokens or (max(prompt.max_tokens, REASONING_TOKENS) if reasons else prompt.max_tokens)
    wanted = Sampling(max_tokens=room, temperature=None if reasons else 0.0, seed=0, **more)
    return with_defaults(wanted, chat.defaults)


def spent(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What was used between two looks."""
    return {key: round(after[key] - before[key], 6) for key in after if isinstance(after[key], int | float)}
