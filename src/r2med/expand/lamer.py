"""`lamer`: the answer is written with first-stage passages in sight (Shen et al., 2024)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..core import Query, Task
from ..llm import Chat
from ..retrieve import Retriever, get_retriever
from .generated import Generated, Settings
from .passages import contents_of, render_passages
from .prompts import Prompt

TOP = 10
PASSAGE_TOKENS = 128


class LameR(Generated):
    """The top passages of any retriever of ours, each cut to a budget of tokens, stand in the prompt."""

    method = "lamer"

    def __init__(
        self,
        chat: Chat,
        settings: Settings | None = None,
        *,
        retriever: Retriever | None = None,
        top: int = TOP,
        passage_tokens: int = PASSAGE_TOKENS,
    ) -> None:
        super().__init__(chat, settings)
        self.retriever = retriever or get_retriever("bm25")
        self.top = top
        self.passage_tokens = passage_tokens

    def own_settings(self) -> dict[str, object]:
        return {"first_stage": self.retriever.describe(), "top": self.top, "passage_tokens": self.passage_tokens}

    def values(self, prompt: Prompt, queries: Sequence[Query], task: Task) -> Iterable[Mapping[str, str]]:
        run = self.retriever.retrieve(replace(task, queries=tuple(queries)), depth=self.top)
        for row, query in enumerate(queries):
            passages = contents_of(run, row, task)
            yield {"query": query.text, "passages": render_passages(prompt, passages, self.passage_tokens)}
