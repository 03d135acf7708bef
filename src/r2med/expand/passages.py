"""Retrieved passages in a prompt: found by any retriever of ours, each cut to a budget of tokens."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ..core import Run, Task
from ..core.queries import Queries
from ..llm import estimate_tokens
from ..llm.prompts import Prompt
from ..retrieve import Index, Retriever
from .paper import cut_to_words

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


def render_passages(prompt: Prompt, passages: Iterable[str], budget: int, *, words: int | None = None) -> str:
    """Numbered passages as the prompt writes them, each cut to so many tokens, or to so many words."""
    cut = [cut_to_tokens(text, budget) if words is None else cut_to_words(text, words) for text in passages]
    return prompt.numbered(cut) or ("" if prompt.exact else NOTHING)


def contents_of(run: Run, row: int, task: Task) -> list[str]:
    """Title and text of the documents that one query retrieved."""
    contents = task.documents.contents
    return [contents[d] for d in run.docs[row].tolist() if d >= 0]


class SearchTool:
    """A retriever over a task's documents for texts that are no queries of it; may be called from many threads."""

    def __init__(self, retriever: Retriever, task: Task) -> None:
        self.retriever, self.task = retriever, task
        self._lock = threading.Lock()
        self._index: Index | None = None

    def search(self, text: str, top: int) -> list[str]:
        """The best passages; none for an empty text."""
        if not text.strip():
            return []
        with self._lock:
            if self._index is None:  # one index for all searches
                self._index = self.retriever.prepare(self.task)
            run = self._index.search(Queries.typed([text]), top)
        return contents_of(run, 0, self.task)
