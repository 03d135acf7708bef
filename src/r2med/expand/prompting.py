"""What stands in prompts beside the query: retrieved passages, each cut to a budget, and few-shot examples.

Passages are found by any retriever of ours. Examples that touch the evaluated queries are left out: checked, not hoped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import msgspec

from ..core import Run, Task, UsageError, fingerprint
from ..core.queries import Queries
from ..llm import estimate_tokens
from ..llm.protocol import Example, Prompt, fill
from ..retrieve import Index, Retriever
from .answers import contains, tokens

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


def cut_to_words(text: str, words: int) -> str:
    """The first words of a text, a blank between each two."""
    return " ".join(text.split()[:words])


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


NEAR = 0.7
"""Share of common words from which two questions are the same question."""
SHORTEST_ANSWER = 6
"""Letters of an answer that is specific enough to be given away (`Yes` is not)."""


def text_fingerprint(text: str) -> str:
    """Fingerprint of a query's normalised words."""
    return fingerprint("query text", tokens(text))


def leak(example: Example, task: Task, evaluated: dict[str, str] | None = None) -> str:
    """Why an example must not be shown to a model that is evaluated on the task; empty where it may."""
    fingerprints = evaluated if evaluated is not None else fingerprints_of(task)
    if twin := fingerprints.get(text_fingerprint(example.query)):
        return f"it is query {twin!r}"
    words = set(tokens(example.query))
    shown = f"{example.query}\n{example.passage}"
    for query in task.queries:
        others = set(tokens(query.text))
        if words and len(words & others) >= NEAR * len(words | others):
            return f"it is nearly query {query.id!r}"
        if query.answer and len(query.answer) >= SHORTEST_ANSWER and contains(shown, query.answer):
            return f"it names the answer of query {query.id!r}"
    return ""


def fingerprints_of(task: Task) -> dict[str, str]:
    """Ids of the evaluated queries by the fingerprint of their words."""
    return {text_fingerprint(query.text): query.id for query in task.queries}


def without_leaks(prompt: Prompt, task: Task) -> tuple[Prompt, tuple[str, ...]]:
    """The prompt without examples that leak, and why each was left out; a prompt left with none is refused."""
    evaluated = fingerprints_of(task)
    reasons = [leak(example, task, evaluated) for example in prompt.examples]
    kept = tuple(e for e, why in zip(prompt.examples, reasons, strict=True) if not why)
    dropped = tuple(f"example {number} left out: {why}" for number, why in enumerate(reasons, start=1) if why)
    if not kept:
        why = f" ({dropped[0]})" if dropped else ""
        raise UsageError(f"there is no few-shot example that may be shown on {task.full_name}{why}")
    return msgspec.structs.replace(prompt, examples=kept), dropped


def render_examples(prompt: Prompt, examples: Iterable[Example]) -> str:
    """The examples as the prompt writes them, a blank line between."""
    return "\n\n".join(fill(prompt.example, query=e.query, passage=e.passage) for e in examples)
