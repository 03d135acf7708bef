"""Judging passages again: an LLM or any other judge on pairs that people judged, and how far the two agree.

The same judge then labels a pool of documents that nobody has judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from ..core import DataError, Task, UsageError
from ..llm import Chat
from ..rerank.pairs import Pairs
from ..rerank.yesno import YesNoScorer
from ..scoring.holes import PoolEntry
from .agreement import cohens_kappa

Texts = tuple[str, str]  # a query and a passage
Progress = Callable[[int, int], None]
Judge = Callable[[str, str], "int | None"]
"""Takes a query and a passage, gives a grade, or None where it has no usable answer."""


class Label(msgspec.Struct, frozen=True):
    """A pair with its known grade and, once asked, the judge's; None where the judge has no usable answer."""

    query_id: str
    doc_id: str
    grade: int
    assumed: bool = False  # a random passage without a judgment, taken to be irrelevant
    judged: int | None = None


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How far a judge agrees with the judgments.

    `agree` is None where the judge answered nothing, `kappa` also where one side gives one answer only.
    """

    pairs: int
    without_answer: int
    assumed_negatives: int
    agree: float | None
    kappa: float | None
    table: dict[str, int]


def agreement_cases(task: Task, *, negatives: int = 1, seed: int = 0) -> list[Label]:
    """Every judged pair and, for each positive, some random unjudged passages taken to be irrelevant.

    R2MED judges only positives; a judge that calls everything relevant would agree with all of them.
    """
    if negatives < 0:
        raise UsageError(f"cannot draw {negatives} passages")
    rng = np.random.Generator(np.random.PCG64(seed))
    cases = []
    for query_id in task.qrels.query_ids:
        judged = task.qrels.of(query_id)
        cases += [Label(query_id, doc_id, grade) for doc_id, grade in judged.items()]
        wanted = min(negatives * sum(grade > 0 for grade in judged.values()), len(task.documents))
        drawn = [task.documents.ids[int(i)] for i in rng.permutation(len(task.documents))[: wanted + len(judged)]]
        others = [doc_id for doc_id in drawn if doc_id not in judged]
        cases += [Label(query_id, doc_id, 0, assumed=True) for doc_id in others[:wanted]]
    return cases


def relabel(task: Task, judge: Judge, cases: Iterable[Label]) -> list[Label]:
    """Ask the judge about each case."""
    return [msgspec.structs.replace(case, judged=_ask(judge, *texts_of(task, case))) for case in cases]


def texts_of(task: Task, case: Label) -> Texts:
    """The query and the passage of a case."""
    query, document = task.query(case.query_id), task.documents.get(case.doc_id)
    if query is None or document is None:
        missing = f"query {case.query_id!r}" if query is None else f"document {case.doc_id!r}"
        raise DataError(f"{task.full_name} has no {missing}")
    return query.text, document.contents


def _ask(judge: Judge, query: str, passage: str) -> int | None:
    answer = judge(query, passage)
    if answer is not None and (isinstance(answer, bool) or not isinstance(answer, int)):
        raise UsageError(f"a judge gives a whole number or None, not {answer!r}")
    return answer


class LlmJudge(YesNoScorer):
    """Asks whether a passage helps to answer a query, with the prompt that reranking one by one uses.

    Answers are kept in the generation store and reused. An answer that is neither yes nor no gives no label.
    """

    def __init__(
        self, chat: Chat, *, prompt: Path | None = None, store: Path | None = None, retry: Collection[str] = ()
    ) -> None:
        super().__init__(chat, logits=False, prompt=prompt, store=store, retry=retry)

    def grades(self, pairs: Iterable[Texts], on_progress: Progress | None = None) -> dict[Texts, int | None]:
        """1 for yes, 0 for no, None for neither; each pair of texts is asked once."""
        distinct = list(dict.fromkeys(pairs))
        places = np.arange(len(distinct), dtype=np.int32)
        asked = Pairs([query for query, _ in distinct], [passage for _, passage in distinct], places, places)
        found: dict[Texts, int | None] = {}
        for some in self.stream(asked):
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
        return entry if grade is None else msgspec.structs.replace(entry, grade=grade, judge=judge.chat.name)

    return [filled(entry) for entry in pool]


def agreement(labels: Sequence[Label]) -> Agreement:
    """Agreement on relevant or not (a grade above zero), over the pairs the judge answered."""
    answers = [(label.grade > 0, label.judged > 0) for label in labels if label.judged is not None]
    counts = Counter(answers)
    table = {
        "both": counts[True, True],
        "only_known": counts[True, False],
        "only_judge": counts[False, True],
        "neither": counts[False, False],
    }
    return Agreement(
        pairs=len(labels),
        without_answer=len(labels) - len(answers),
        assumed_negatives=sum(label.assumed for label in labels),
        agree=(table["both"] + table["neither"]) / len(answers) if answers else None,
        kappa=cohens_kappa([known for known, _ in answers], [given for _, given in answers]),
        table=table,
    )
