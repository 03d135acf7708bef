"""Reranking by windows of passages that a chat model puts in order.

All queries are sorted side by side: while one waits for an answer, others are asked.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter

import numpy as np

from ..core.options import Options
from ..core.parallel import Feed
from ..core.spec import Spec
from ..llm import Chat, Generation, GenerationStore, Request, generate, unless_read
from ..llm.reading import read_order
from .asking import (
    PASSAGE_WORDS,
    Hints,
    MaxTokens,
    OwnPrompt,
    Passages,
    PassageWords,
    Step,
    Window,
    count_problem,
    scaled,
)
from .chat_lists import ChatListReranker, Ranked
from .contract import rerankers
from .ordering import ranks_as_scores
from .sorting import Sorter, check_sliding, sliding

LONG_PASSAGE_WORDS = 512


class ListwiseReranker(ChatListReranker):
    """Sorts each query's candidates by questions about some of them."""

    kind = "listwise"

    @abstractmethod
    def sorter(self, count: int) -> Sorter:
        """The order of questions for so many candidates."""

    @abstractmethod
    def read(self, answer: Generation, size: int, counts: Counter[str]) -> list[int]:
        """The order that an answer gives to the passages asked about."""

    def score(self, passages: Passages, depth: int, store: GenerationStore, counts: Counter[str]) -> Ranked:
        """Sort all queries side by side: what one answer decides, the next question of that query asks."""
        candidates = passages.candidates
        lengths = np.minimum(candidates.lengths(), depth).tolist()
        orders: list[list[int]] = [list(range(length)) for length in lengths]
        sorters = [self.sorter(length) for length in lengths]
        rows = {query.id: row for row, query in enumerate(passages.task.queries)}
        asked: dict[int, list[int]] = {}
        hints = scaled(candidates, depth) if self.hints else None
        questions: Feed[Request] = Feed()

        def go_on(row: int, answer: list[int] | None) -> None:
            try:
                asked[row] = next(sorters[row]) if answer is None else sorters[row].send(answer)
            except StopIteration as end:
                orders[row] = end.value
                asked.pop(row, None)
                self.options.progress(len(lengths) - len(asked), len(lengths))
                return
            request = self.request(passages, row, asked[row], passages.task.queries[row].id, hints)
            counts["asked"] += 1
            questions.add(request)

        def status(answer: Generation) -> str:
            told: Counter[str] = Counter()
            self.read(answer, len(asked[rows[answer.query_id]]), told)
            return unless_read(answer, not told["unparsed"])

        for row in range(len(lengths)):
            go_on(row, None)
        for answer in generate(self.chat, questions, store, clean=False, status=status):
            row = rows[answer.query_id]
            go_on(row, self._read(answer, len(asked[row]), counts))
        return Ranked(ranks_as_scores(orders, min(depth, candidates.depth)))

    def _read(self, answer: Generation, size: int, counts: Counter[str]) -> list[int]:
        """The order an answer gives to the passages asked about; what cannot be read keeps them as they are."""
        count_problem(answer, counts)
        if answer.status == "failed":
            return list(range(size))
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


@rerankers.register("reasonrank", argument="chat", needs_argument=True)
class ReasonRank(SlidingWindow):
    """A chat model thinks about windows of longer passages, then orders them (Liu et al., 2025).

    Numbers in square brackets inside a passage are written in round ones, so that no citation is read as a passage.
    """

    prompt_name = "reasonrank"
    brackets = False

    def __init__(
        self,
        chat: Chat,
        spec: Spec,
        options: Options,
        *,
        window: Window = 20,
        step: Step = 10,
        hints: Hints = False,
        passage_words: PassageWords = LONG_PASSAGE_WORDS,
        max_tokens: MaxTokens | None = None,
        prompt: OwnPrompt | None = None,
    ) -> None:
        super().__init__(
            chat,
            spec,
            options,
            window=window,
            step=step,
            hints=hints,
            passage_words=passage_words,
            max_tokens=max_tokens,
            prompt=prompt,
        )


@rerankers.register("insertrank", argument="chat", needs_argument=True)
class InsertRank(SlidingWindow):
    """A chat model orders windows of passages and is told to weigh first-stage scores too (Seetharaman et al., 2025).

    The scores are the hints of the other methods, scaled to 0–100; the prompt says what they are.
    """

    prompt_name = "insertrank"

    def __init__(
        self,
        chat: Chat,
        spec: Spec,
        options: Options,
        *,
        window: Window = 20,
        step: Step = 10,
        passage_words: PassageWords = PASSAGE_WORDS,
        max_tokens: MaxTokens | None = None,
        prompt: OwnPrompt | None = None,
    ) -> None:
        super().__init__(
            chat,
            spec,
            options,
            window=window,
            step=step,
            hints=True,
            passage_words=passage_words,
            max_tokens=max_tokens,
            prompt=prompt,
        )
