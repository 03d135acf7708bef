"""Reranking by asking a chat model about several passages at a time: windows (RankGPT) or small sets (setwise).

All queries are sorted side by side, and each answer is kept the moment it arrives: a run that is repeated or was killed
asks only what was never answered.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from ..core import Run, Task
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
    generate,
    reasons,
    with_defaults,
)
from ..llm.prompts import Prompt, built_in, read_prompt
from ..llm.reading import read_choice, read_order
from ..retrieve import Build
from ..retrieve.stored import on_task
from .contract import Reranker, Rest, rerankers
from .ordering import check_depth, ranks_as_scores, reordered
from .sorting import Sorter, check_sliding, heap_top, sliding

REASONING_TOKENS = 8192
PASSAGE_WORDS = 300
ANSWER_TOKENS = 512
PassageWords = Annotated[int, Meta(ge=1, description="words of a passage that the model is shown")]
Window = Annotated[int, Meta(ge=2, description="passages that are ordered at once")]
Step = Annotated[int, Meta(ge=1, description="how far the window moves")]
Hints = Annotated[bool, Meta(description="show first-stage scores, scaled to 0–100 (InsertRank)")]
MaxTokens = Annotated[int, Meta(ge=1, description="most tokens of one answer")]
OwnPrompt = Annotated[Content, Meta(description="a prompt file in place of ours")]


class ListwiseReranker(Reranker):
    """Sorts each query's candidates by questions about some of them."""

    kind = "listwise"
    prompt_name: str

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
    def from_spec(cls, spec: Spec, build: Build) -> ListwiseReranker:
        """The reranker of a spec, on the chat model that is its argument."""
        assert isinstance(spec.argument, Spec)
        chat, options = build.chat(spec.argument), build.options.changed(spec.options)
        given = {key: value for key, value in spec.parameters if key != "rest"}
        return cls(chat=chat, spec=on_chat(spec, chat), options=options, **given)  # type: ignore[arg-type]

    @abstractmethod
    def shape(self) -> dict[str, object]:
        """How questions are made: part of what the reranker is."""

    @abstractmethod
    def sorter(self, count: int) -> Sorter:
        """The order of questions for so many candidates."""

    @abstractmethod
    def read(self, answer: Generation, size: int, counts: Counter[str]) -> list[int]:
        """The order that an answer gives to the passages asked about."""

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {
            "kind": self.kind,
            "method": self.prompt_name,
            **self.shape(),
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
        key = StoreKey.of(f"rerank-{self.prompt_name}", self.chat, self.prompt.hash, self.sampling, task.fingerprint)
        with GenerationStore(key) as store:
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

    def _sort(
        self, lists: _Lists, lengths: list[int], store: GenerationStore, counts: Counter[str]
    ) -> list[list[int]]:  # fmt: skip
        """All queries side by side, a question of each at a time: what one answer decides, the next one asks."""
        orders: list[list[int]] = [list(range(length)) for length in lengths]
        sorters = [self.sorter(length) for length in lengths]
        asked: dict[int, list[int]] = {}

        def go_on(row: int, answer: list[int] | None) -> None:
            try:
                asked[row] = next(sorters[row]) if answer is None else sorters[row].send(answer)
            except StopIteration as end:
                orders[row] = end.value
                asked.pop(row, None)
                self.options.progress(len(lengths) - len(asked), len(lengths))

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
        return self.read(answer, size, counts)


class SlidingWindow(ListwiseReranker):
    """RankGPT's sliding window over the list, from its end to its head."""

    def __init__(
        self,
        chat: Chat,
        spec: Spec,
        options: Options,
        *,
        window: Window = 20,
        step: Step = 10,
        hints: Hints = False,
        passage_words: PassageWords = PASSAGE_WORDS,
        max_tokens: MaxTokens | None = None,
        prompt: OwnPrompt | None = None,
    ) -> None:
        check_sliding(window, step)
        self.window, self.step = window, step
        super().__init__(
            chat, spec, options, hints=hints, passage_words=passage_words, max_tokens=max_tokens, prompt=prompt
        )

    def shape(self) -> dict[str, object]:
        """The window and its step."""
        return {"window": self.window, "step": self.step}

    def sorter(self, count: int) -> Sorter:
        """Windows from the end of the list to its head."""
        return sliding(count, self.window, self.step)

    def read(self, answer: Generation, size: int, counts: Counter[str]) -> list[int]:
        """The order an answer states; what it leaves out follows, what cannot be read stays as it is."""
        order = read_order(answer.final, size)
        counts["unparsed" if not order.read else "mended" if order.mended else "ok"] += 1
        for name in ("repeated", "unknown", "missing"):
            counts[f"numbers_{name}"] += getattr(order, name)
        return order.places


@rerankers.register("rankgpt", argument="chat", needs_argument=True)
class RankGPT(SlidingWindow):
    """A chat model orders windows of passages (Sun et al., 2023)."""

    prompt_name = "listwise"


@rerankers.register("reasoning", argument="chat", needs_argument=True)
class ReasoningListwise(SlidingWindow):
    """A chat model reasons about windows of passages, then orders them."""

    prompt_name = "reasoning"


@rerankers.register("setwise", argument="chat", needs_argument=True)
class Setwise(ListwiseReranker):
    """A chat model picks the best of a few passages, in a heap sort (Zhuang et al., 2024)."""

    kind = "setwise"
    prompt_name = "setwise"

    def __init__(
        self,
        chat: Chat,
        spec: Spec,
        options: Options,
        *,
        top: Annotated[int, Meta(ge=1, description="places of the list that are sorted")] = 10,
        children: Annotated[int, Meta(ge=1, description="passages compared with their parent in the heap")] = 3,
        hints: Hints = False,
        passage_words: PassageWords = PASSAGE_WORDS,
        max_tokens: MaxTokens | None = None,
        prompt: OwnPrompt | None = None,
    ) -> None:
        self.top, self.children = top, children
        super().__init__(
            chat, spec, options, hints=hints, passage_words=passage_words, max_tokens=max_tokens, prompt=prompt
        )

    def shape(self) -> dict[str, object]:
        """How much of the list is sorted, and how wide the heap is."""
        return {"top": self.top, "children": self.children}

    def sorter(self, count: int) -> Sorter:
        """Heap sort of the best."""
        return heap_top(count, self.top, self.children)

    def read(self, answer: Generation, size: int, counts: Counter[str]) -> list[int]:
        """The passage that an answer picks, then the others."""
        choice = read_choice(answer.final, size)
        counts["unparsed" if choice is None else "ok"] += 1
        best = choice or 0
        return [best, *(i for i in range(size) if i != best)]


COUNTED = ("asked", "cache_hits", "ok", "mended", "unparsed", "failed")


class _Lists:
    """The candidates of a task as prompts show them."""

    def __init__(self, reranker: ListwiseReranker, task: Task, candidates: Run, depth: int) -> None:
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
        messages = ask_about(self.reranker.prompt, self.task.queries[row].text, passages, scores)
        return Request(messages, self.reranker.sampling, self.query_id(row))


def load_prompt(method: str, own: Path | None = None) -> Prompt:
    """The prompt of a method: ours, or a file of the user's."""
    gaps = ("query", "passages")
    return read_prompt(own, gaps=gaps) if own else built_in("r2med.rerank", method, gaps=gaps)


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
    prompt: Prompt, query: str, passages: Sequence[str], scores: Sequence[int] | None = None
) -> tuple[Message, ...]:
    """The conversation about some passages; with `scores`, the first stage's hints."""
    return prompt.messages(query=query, passages=prompt.numbered(passages, scores), count=str(len(passages)))


def on_chat(spec: Spec, chat: Chat) -> Spec:
    """A spec on the chat model as it was found: with the host that serves it."""
    return replace(spec, argument=chat.spec)


def sampling_for(chat: Chat, prompt: Prompt, max_tokens: int | None, **more: Any) -> Sampling:
    """The likeliest answer, or for a model that reasons its own recommended sampling and room to reason."""
    thinks, short = reasons(chat), prompt.max_tokens or ANSWER_TOKENS
    wanted = Sampling(
        max_tokens=max_tokens or (max(short, REASONING_TOKENS) if thinks else short),
        temperature=None if thinks else 0.0,
        seed=0,
        **more,
    )
    return with_defaults(wanted, chat.defaults)


def spent(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What was used between two looks."""
    return {key: round(after[key] - before[key], 6) for key in after if isinstance(after[key], int | float)}
