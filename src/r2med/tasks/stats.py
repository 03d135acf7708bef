"""The figures people quote about a task, how its queries relate to their positives, and lexical traps.

A query falls into a trap where its first document shares more of its words than any positive does, and is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..core import Run, Task
from ..text import get_analyzer, term_sets

UNSPACED = 20  # characters between spaces, in the mean, from which a writing does not separate words by spaces


class Stats(msgspec.Struct):
    """Columns of the R2MED table and of a Nano page. Words are separated by white space; no tokenizer is involved."""

    task: str
    queries: int
    documents: int
    judgments: int
    positives: int
    positives_mean: float
    positives_min: int
    positives_median: float
    positives_max: int
    multi_positive_queries: int
    multi_positive_share: float
    relevant_documents: int  # to some query of the task
    query_words_mean: float
    document_words_mean: float
    query_chars_mean: float
    document_chars_mean: float
    fingerprint: str


def stats(task: Task) -> Stats:
    """Measure a task. Queries without judgments count with zero positives."""
    per_query = np.zeros(len(task.queries), dtype=np.int64)
    rows = task.query_ids.positions(task.qrels.query_ids)
    counts = task.qrels.positives_per_query()
    per_query[rows[rows >= 0]] = counts[rows >= 0]
    multiple = int((per_query > 1).sum())
    return Stats(
        task=task.full_name,
        queries=len(task.queries),
        documents=len(task.documents),
        judgments=len(task.qrels),
        positives=task.qrels.positives,
        positives_mean=float(per_query.mean()),
        positives_min=int(per_query.min()),
        positives_median=float(np.median(per_query)),
        positives_max=int(per_query.max()),
        multi_positive_queries=multiple,
        multi_positive_share=multiple / len(per_query),
        relevant_documents=len({at for query in task.queries for at in task.positives(query.id)}),
        query_words_mean=float(task.query_texts.word_counts().mean()),
        document_words_mean=float(task.documents.texts.word_counts().mean()),
        query_chars_mean=float(task.query_texts.char_lengths().mean()),
        document_chars_mean=float(task.documents.texts.char_lengths().mean()),
        fingerprint=task.fingerprint,
    )


class Lengths(NamedTuple):
    """The quartiles of the lengths of texts, and what they are counted in."""

    low: float
    median: float
    high: float
    unit: str


class Tendencies(msgspec.Struct):
    """Figures about the queries of a task; shares lie between 0 and 1, quartiles are 25 %, 50 % and 75 %.

    Lengths are in words, or in characters where the documents' writing does not separate words by spaces.
    """

    query_words: tuple[float, float, float]
    document_words: tuple[float, float, float]
    query_lengths: Lengths
    document_lengths: Lengths
    question_share: float
    overlap: tuple[float, float, float]
    overlap_of_query: dict[str, float]


def tendencies(task: Task) -> Tendencies:
    """Measure a task. Overlap: the share of a query's terms that its best matching positive holds."""
    shared, documents = overlap_with_positives(task), task.documents.texts
    asked, words = task.query_texts.word_counts(), documents.word_counts()
    query_lengths, lengths, unit = asked, words, "word"
    if len(words) and (characters := documents.char_lengths()).mean() > UNSPACED * words.mean():
        query_lengths, lengths, unit = task.query_texts.char_lengths(), characters, "character"
    return Tendencies(
        query_words=quartiles(asked),
        document_words=quartiles(words),
        query_lengths=Lengths(*quartiles(query_lengths), unit),
        document_lengths=Lengths(*quartiles(lengths), unit),
        question_share=sum(_QUESTION.search(q.text) is not None for q in task.queries) / len(task.queries),
        overlap=quartiles(np.array(list(shared.values()))),
        overlap_of_query={query_id: round(value, 4) for query_id, value in shared.items()},
    )


def overlap_with_positives(task: Task) -> dict[str, float]:
    """For each query with a positive, the largest share of its terms that one positive holds."""
    positives = {query.id: task.positives(query.id) for query in task.queries}
    needed = {doc: i for i, doc in enumerate(sorted({doc for of_query in positives.values() for doc in of_query}))}
    terms = term_sets([*task.query_texts, *(task.documents.contents[doc] for doc in needed)])
    held, found = terms[len(task.queries) :], {}
    for query, asked in zip(task.queries, terms, strict=False):
        if asked and positives[query.id]:
            found[query.id] = max(len(asked & held[needed[doc]]) for doc in positives[query.id]) / len(asked)
    return found


def quartiles(values: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """A quarter, the middle and three quarters of the values; zeros where there are none."""
    if not len(values):
        return (0.0, 0.0, 0.0)
    low, middle, high = np.percentile(values, [25, 50, 75]).tolist()
    return (round(low, 4), round(middle, 4), round(high, 4))


_QUESTION = re.compile("[?？؟]")  # also that of Chinese and Japanese, and that of Arabic
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
# Words that BM25 counts and that tell a reader nothing.
_EMPTY = frozenset(
    {"about", "also", "been", "does", "from", "have", "most", "that", "their", "them", "there", "these", "this", "very"}
    | {"were", "what", "when", "where", "which", "would"}
)


class LexicalTrap(msgspec.Struct):
    """A wrong first document, the positive that matches the query best, and the share of its terms each holds."""

    query: str
    document: str
    shared: int
    share: float
    positive: str
    positive_share: float
    positive_rank: int | None = None
    words: list[str] = msgspec.field(default_factory=list)
    """Of the query, which the wrong document holds and the positive does not."""


def lexical_traps(task: Task, first: Mapping[str, str]) -> dict[str, LexicalTrap]:
    """The queries that fell into a trap; `first` maps each query to the document a system put first."""
    ids, position = task.documents.ids, task.documents.ids.position
    judged = {query_id: sorted(ids[at] for at in task.positives(query_id)) for query_id in first}
    queries = [q for q, d in first.items() if judged[q] and d not in judged[q] and position(d) >= 0]
    needed = {d: i for i, d in enumerate(dict.fromkeys(d for q in queries for d in (first[q], *judged[q])))}
    asked = [query.text if (query := task.query(q)) else "" for q in queries]
    terms = term_sets([*asked, *(task.documents.contents[position(d)] for d in needed)])
    held, found = terms[len(queries) :], {}
    for query_id, own in zip(queries, terms, strict=False):
        shared = {d: len(own & held[needed[d]]) for d in (first[query_id], *judged[query_id])}
        wrong, *positives = shared
        best = max(positives, key=lambda d: shared[d])
        if shared[wrong] > shared[best]:
            share, positive_share = (round(shared[d] / len(own), 4) for d in (wrong, best))
            found[query_id] = LexicalTrap(query_id, wrong, shared[wrong], share, best, positive_share)
    return found


def clearest_traps(task: Task, run: Run, *, most: int = 5) -> list[LexicalTrap]:
    """The queries with the widest gap between the wrong document's share of words and the positive's."""
    first = {query_id: hits[0].doc_id for query_id, hits in run.top(1) if hits}
    found = sorted(lexical_traps(task, first).values(), key=lambda trap: (trap.positive_share - trap.share, trap.query))
    clearest = {trap.document: trap for trap in reversed(found)}  # one of several queries with the same wrong document
    chosen = [trap for trap in found if clearest[trap.document] is trap][:most]
    for trap in chosen:
        judged = task.qrels.of(trap.query)
        ranks = (i for i, hit in enumerate(run.of(trap.query), start=1) if judged.get(hit.doc_id, 0) > 0)
        trap.positive_rank = next(ranks, None)
        trap.words = _words_only_in(task, trap)
    return chosen


def _words_only_in(task: Task, trap: LexicalTrap) -> list[str]:
    """Words of the query that the wrong document holds and the positive does not; short and empty ones left out."""
    analyze = get_analyzer("english")
    asked = task.queries[task.query_ids.position(trap.query)].text
    wrong, right = (task.documents.contents[task.documents.ids.position(d)] for d in (trap.document, trap.positive))
    left = (set(analyze(asked)) & set(analyze(wrong))) - set(analyze(right))
    words = []
    for word in _WORD.findall(asked):
        if len(word) >= 4 and word.lower() not in _EMPTY and (of_word := left.intersection(analyze(word))):
            left -= of_word
            words.append(word)
    return words[:12]
