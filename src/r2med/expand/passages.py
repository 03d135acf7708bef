"""Retrieved passages in a prompt: found by any retriever of ours, each cut to a budget of tokens."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from ..core import Qrels, Query, Run, Task
from ..llm import estimate_tokens
from ..retrieve import BM25, BM25Index, Retriever
from .prompts import Prompt, fill

NOTHING = "(nothing was found)"


def cut_to_tokens(text: str, budget: int) -> str:
    """The longest beginning of `text` that ends with a word and is estimated at no more than `budget` tokens."""
    if estimate_tokens(text) <= budget:
        return text
    words, used = [], 0
    for word in text.split(" "):
        size = len(word.encode()) + 1
        if (used + size - 1) // 4 + 1 > budget:
            break
        words.append(word)
        used += size
    return " ".join(words)


def render_passages(prompt: Prompt, passages: Iterable[str], budget: int) -> str:
    """Numbered passages as the prompt writes them."""
    written = [
        fill(prompt.passage, number=str(number), passage=cut_to_tokens(passage, budget))
        for number, passage in enumerate(passages, start=1)
    ]
    return "\n\n".join(written) or NOTHING


def contents_of(run: Run, row: int, task: Task) -> list[str]:
    """Title and text of the documents that one query retrieved."""
    contents = task.documents.contents
    return [contents[d] for d in run.docs[row].tolist() if d >= 0]


class SearchTool:
    """A retriever over a task's documents for texts that are no queries of it; may be called from many threads."""

    def __init__(self, retriever: Retriever, task: Task) -> None:
        self.retriever = retriever
        self.task = task
        self._lock = threading.Lock()
        self._index: BM25Index | None = None

    def search(self, text: str, top: int) -> list[str]:
        """The best passages; none for an empty text."""
        if not text.strip():
            return []
        asked = replace(self.task, queries=(Query("search", text),), qrels=Qrels.from_judgments([]))
        with self._lock:
            run = self._retrieve(asked, top)
        return contents_of(run, 0, self.task)

    def _retrieve(self, asked: Task, top: int) -> Run:
        if not isinstance(self.retriever, BM25):
            return self.retriever.retrieve(asked, depth=top)
        if self._index is None:  # one index for all searches
            self._index = self.retriever.index(self.task)
        return self.retriever.retrieve(asked, depth=top, index=self._index)
