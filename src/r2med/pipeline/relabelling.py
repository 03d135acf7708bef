"""An LLM as judge: its yes or no on pairs that people judged, and on a pool that nobody has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ..core import Task
from ..llm import Chat
from ..rerank.pairs import Pairs
from ..rerank.yesno import YesNoScorer
from ..scoring.pool import PoolEntry
from ..scoring.relabel import Relabelling, agreement_cases, relabel

Texts = tuple[str, str]
Progress = Callable[[int, int], None]


class LlmJudge:
    """Asks whether a passage helps to answer a query, with the prompt that reranking one by one uses.

    Answers lie in the generation store: what was asked once is not paid again. An answer that is neither yes nor no is
    no label.
    """

    def __init__(self, chat: Chat, *, prompt: Path | None = None, store: Path | None = None) -> None:
        self.scorer = YesNoScorer(chat, logits=False, prompt=prompt, store=store)

    @property
    def name(self) -> str:
        """The LLM, as it was asked for."""
        return self.scorer.chat.name

    def describe(self) -> dict[str, object]:
        """Everything that changes a label."""
        return self.scorer.describe()

    @property
    def notes(self) -> Counter[str]:
        """Answers that were no answers, passages that were cut."""
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


class Plan(NamedTuple):
    """Which pairs of a task are asked about."""

    negatives: int = 1
    # Random unjudged passages for each positive, taken to be irrelevant.
    limit: int | None = None
    # Only the first queries.
    seed: int = 0


def relabel_task(judge: LlmJudge, task: Task, plan: Plan, on_progress: Progress | None = None) -> Relabelling:
    """Ask about judged pairs and see how far the LLM agrees."""
    chosen = frozenset(task.qrels.query_ids[: plan.limit])
    cases = [c for c in agreement_cases(task, negatives=plan.negatives, seed=plan.seed) if c.query_id in chosen]
    texts = {query.id: query.text for query in task.queries}
    documents = {c.doc_id: d.contents for c in cases if (d := task.documents.get(c.doc_id)) is not None}
    known = ((texts[c.query_id], documents[c.doc_id]) for c in cases if c.query_id in texts and c.doc_id in documents)
    grades = judge.grades(known, on_progress)
    return relabel(task, lambda query, passage: grades[query, passage], cases)


def label_pool(judge: LlmJudge, pool: Sequence[PoolEntry], on_progress: Progress | None = None) -> list[PoolEntry]:
    """The pool with the LLM's grades where nobody filled one in, and its name beside them."""
    open_ = [entry for entry in pool if entry.grade is None]
    grades = judge.grades(((entry.query, entry.passage) for entry in open_), on_progress)

    def filled(entry: PoolEntry) -> PoolEntry:
        grade = grades[entry.query, entry.passage] if entry.grade is None else entry.grade
        by = judge.name if entry.grade is None and grade is not None else entry.judge
        return msgspec.structs.replace(entry, grade=grade, judge=by)

    return [filled(entry) for entry in pool]
