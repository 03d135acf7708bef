"""An LLM as judge: its yes or no on pairs that people judged, and on a pool that nobody has judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from ..core import Task
from ..llm import Chat
from ..rerank.llm.yesno import YesNoScorer
from ..rerank.pairs import Pairs
from ..scoring.holes import PoolEntry
from ..scoring.relabel import Label, agreement_cases, relabel, texts_of

Texts = tuple[str, str]
Progress = Callable[[int, int], None]


class LlmJudge:
    """Asks whether a passage helps to answer a query, with the prompt that reranking one by one uses.

    Answers are kept in the generation store and reused. An answer that is neither yes nor no gives no label.
    """

    def __init__(self, chat: Chat, *, prompt: Path | None = None, store: Path | None = None) -> None:
        self.scorer = YesNoScorer(chat, name=f"judge:{chat.name}", logits=False, prompt=prompt, store=store)

    @property
    def name(self) -> str:
        """The name of the LLM."""
        return self.scorer.chat.name

    def describe(self) -> dict[str, object]:
        """Everything that changes a label."""
        return self.scorer.describe()

    @property
    def notes(self) -> Counter[str]:
        """Counts of answers that could not be read and of passages that were cut."""
        return self.scorer.notes

    def grades(self, pairs: Iterable[Texts], on_progress: Progress | None = None) -> dict[Texts, int | None]:
        """1 for yes, 0 for no, None for neither; each pair of texts is asked once."""
        distinct = list(dict.fromkeys(pairs))
        places = np.arange(len(distinct), dtype=np.int32)
        asked = Pairs([query for query, _ in distinct], [passage for _, passage in distinct], places, places)
        found: dict[Texts, int | None] = {}
        for some in self.scorer.stream(asked):
            for row, score in zip(some.rows.tolist(), some.scores.tolist(), strict=True):
                found[distinct[row]] = None if np.isnan(score) else int(score > 0)
            if on_progress:
                on_progress(len(found), len(distinct))
        return found


def relabel_task(
    judge: LlmJudge,
    task: Task,
    *,
    negatives: int = 1,
    limit: int | None = None,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> list[Label]:
    """Ask about judged pairs, and about random passages that are taken to be irrelevant.

    `negatives` is their number for each positive; `limit` takes only the first queries.
    """
    chosen = frozenset(task.qrels.query_ids[:limit])
    cases = [c for c in agreement_cases(task, negatives=negatives, seed=seed) if c.query_id in chosen]
    grades = judge.grades([texts_of(task, case) for case in cases], on_progress)
    return relabel(task, lambda query, passage: grades[query, passage], cases)


def label_pool(judge: LlmJudge, pool: Sequence[PoolEntry], on_progress: Progress | None = None) -> list[PoolEntry]:
    """The pool with the LLM's grades where nobody filled one in, and its name beside them."""
    grades = judge.grades(((entry.query, entry.passage) for entry in pool if entry.grade is None), on_progress)

    def filled(entry: PoolEntry) -> PoolEntry:
        grade = grades[entry.query, entry.passage] if entry.grade is None else None
        return entry if grade is None else msgspec.structs.replace(entry, grade=grade, judge=judge.name)

    return [filled(entry) for entry in pool]
