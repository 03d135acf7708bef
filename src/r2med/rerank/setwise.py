"""Reranking by picking the best of a few passages at a time, in a heap sort."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from msgspec import Meta

from ..core.options import Options
from ..core.spec import Spec
from ..llm import Chat, Generation
from ..llm.reading import read_choice
from .asking import PASSAGE_WORDS, Hints, MaxTokens, OwnPrompt, PassageWords
from .contract import rerankers
from .listwise import ListwiseReranker
from .sorting import Sorter, heap_top

Top = Annotated[int, Meta(ge=1, description="places of the list that are sorted")]
Children = Annotated[int, Meta(ge=1, description="passages compared with their parent in the heap")]


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
        top: Top = 10,
        children: Children = 3,
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


@rerankers.register("rank-r1", argument="chat", needs_argument=True)
class RankR1(Setwise):
    """A chat model thinks about twenty passages and picks the best, in a heap sort (Zhuang et al., 2025)."""

    prompt_name = "rank-r1"

    def __init__(
        self,
        chat: Chat,
        spec: Spec,
        options: Options,
        *,
        top: Top = 10,
        children: Children = 19,
        hints: Hints = False,
        passage_words: PassageWords = PASSAGE_WORDS,
        max_tokens: MaxTokens | None = None,
        prompt: OwnPrompt | None = None,
    ) -> None:
        super().__init__(
            chat,
            spec,
            options,
            top=top,
            children=children,
            hints=hints,
            passage_words=passage_words,
            max_tokens=max_tokens,
            prompt=prompt,
        )
