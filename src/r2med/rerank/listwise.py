"""Reranking by sorting: a chat model is asked about a few passages at a time, to order them or to pick the best.

A way of sorting is a generator: it yields places to be compared, is sent their order (positions among those asked
about, best first), and returns the whole list's new order. All queries are sorted side by side: while one waits for an
answer, others are asked.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from ..core import UsageError
from ..core.parallel import Feed
from ..llm import Generation, GenerationStore, Request, generate, unless_read
from ..llm.reading import read_choice, read_order
from .asking import (
    AskingParameters,
    ChatListReranker,
    ListParameters,
    Passages,
    PassageWords,
    Ranked,
    Step,
    Window,
    count_problem,
    scaled,
)
from .contract import ranks_as_scores, rerankers

Sorter = Generator[list[int], list[int], list[int]]


def check_sliding(window: int, step: int) -> None:
    """A step beyond the window would leave passages out."""
    if window < 2 or not 1 <= step <= window:
        raise UsageError(f"a window of {window} cannot move by {step}: at least 2, and a step of 1 to the window")


def sliding(count: int, window: int, step: int) -> Sorter:
    """RankGPT's sliding window: from the end of the list to its head, so that good passages are carried up."""
    order = list(range(count))
    end = count
    while count > 1:
        start = max(0, end - window)
        asked = order[start:end]
        answer = yield asked
        order[start:end] = [asked[i] for i in answer]
        if start == 0:
            break
        end -= step
    return order


def heap_top(count: int, top: int, children: int) -> Sorter:
    """Setwise heap sort: the best `top` by picking the best of a parent and its children; the rest stay in order.

    Only the first of each answer is used. Places are asked about in list order, so that an answer that cannot be read
    (which changes nothing) leaves the first stage's favourite on top.
    """
    heap = list(range(count))
    size = count

    def sift(node: int) -> Generator[list[int], list[int], None]:
        while children * node + 1 < size:
            family = [node, *range(children * node + 1, min(children * (node + 1) + 1, size))]
            asked = sorted(heap[i] for i in family)
            answer = yield asked
            best = asked[answer[0]]
            if best == heap[node]:
                return
            place = heap.index(best)
            heap[node], heap[place] = heap[place], heap[node]
            node = place

    for node in range((count - 2) // children, -1, -1) if count > 1 else ():
        yield from sift(node)
    chosen: list[int] = []
    while size and len(chosen) < top:
        chosen.append(heap[0])
        size -= 1
        heap[0] = heap[size]
        if size > 1 and len(chosen) < top:
            yield from sift(0)
    return [*chosen, *sorted(set(range(count)).difference(chosen))]


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
        hints = scaled(candidates, depth) if self.given.hints else None
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


@dataclass(frozen=True)
class MovingWindow(AskingParameters):
    """A window over the list."""

    window: Window = 20
    step: Step = 10

    def __post_init__(self) -> None:
        check_sliding(self.window, self.step)


@dataclass(frozen=True)
class WindowParameters(MovingWindow, ListParameters):
    """What may be set on rerankers that order a window at a time."""


@dataclass(frozen=True)
class LongWindowParameters(WindowParameters):
    """The same, for longer passages."""

    passage_words: PassageWords = LONG_PASSAGE_WORDS


@dataclass(frozen=True)
class ScoredWindowParameters(MovingWindow):
    """The same, where first-stage scores are always shown."""

    hints: ClassVar[bool] = True


class SlidingWindow(ListwiseReranker):
    """RankGPT's sliding window over the list, from its end to its head."""

    Parameters: ClassVar[type[MovingWindow]] = WindowParameters

    def sorter(self, count: int) -> Sorter:
        """Windows from the end of the list to its head."""
        return sliding(count, self.given.window, self.given.step)

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
    Parameters = LongWindowParameters


@rerankers.register("insertrank", argument="chat", needs_argument=True)
class InsertRank(SlidingWindow):
    """A chat model orders windows of passages and is told to weigh first-stage scores too (Seetharaman et al., 2025).

    The scores are the hints of the other methods, scaled to 0–100; the prompt says what they are.
    """

    prompt_name = "insertrank"
    Parameters = ScoredWindowParameters


Top = Annotated[int, Meta(ge=1, description="places of the list that are sorted")]
Children = Annotated[int, Meta(ge=1, description="passages compared with their parent in the heap")]


@dataclass(frozen=True)
class HeapParameters(ListParameters):
    """What may be set on rerankers that sort in a heap."""

    top: Top = 10
    children: Children = 3


@dataclass(frozen=True)
class WideHeapParameters(HeapParameters):
    """The same, with twenty passages at a time."""

    children: Children = 19


@rerankers.register("setwise", argument="chat", needs_argument=True)
class Setwise(ListwiseReranker):
    """A chat model picks the best of a few passages, in a heap sort (Zhuang et al., 2024)."""

    kind = "setwise"
    prompt_name = "setwise"
    Parameters = HeapParameters

    def sorter(self, count: int) -> Sorter:
        """Heap sort of the best."""
        return heap_top(count, self.given.top, self.given.children)

    def read(self, answer: Generation, size: int, counts: Counter[str]) -> list[int]:
        """The passage that an answer picks, then the others."""
        choice = read_choice(answer.final, size)
        counts["unparsed" if choice is None else "ok"] += 1
        best = choice or 0
        return [best, *(i for i in range(size) if i != best)]


@rerankers.register("rank-r1", argument="chat", needs_argument=True)
class RankR1(Setwise):
    """A chat model thinks about twenty passages and picks the best, in a heap sort (Zhuang et al., 2025)."""

    prompt_name = "rank-r1"
    Parameters = WideHeapParameters
