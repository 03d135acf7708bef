"""Reranking by scores of single pairs: cross-encoders, late interaction, vectors, a yes or no."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from ..cache import ScoreCache, find_scores, pair_keys, reused, store_scores
from ..core import ModelError, Run, Task
from ..core.budget import Account
from ..core.columns import Int32, Int64
from ..core.options import Options
from ..core.queries import Explanation
from ..core.spec import Spec
from ..models.prompts import names_of
from ..retrieve import Remote
from ..retrieve.contract import on_task
from ..retrieve.encoders import WorkOrder
from .contract import DEPTH, Float32, Reranker, Rest, check_depth, reordered, tied, top_pairs


@dataclass(frozen=True)
class Pairs:
    """Pairs as positions in two lists of texts."""

    queries: Sequence[str]
    documents: Sequence[str]
    query: Int32
    document: Int32

    def __len__(self) -> int:
        return len(self.query)

    def take(self, rows: Int64) -> Pairs:
        """Some of the pairs."""
        return replace(self, query=self.query[rows], document=self.document[rows])

    def texts(self, rows: Int64) -> list[tuple[str, str]]:
        """Both texts of some pairs."""
        return [
            (self.queries[q], self.documents[d])
            for q, d in zip(self.query[rows].tolist(), self.document[rows].tolist(), strict=True)
        ]


class Scored(NamedTuple):
    """Scores of some pairs, in whatever order the scorer found fastest."""

    rows: Int64
    """Positions among the pairs."""
    scores: Float32
    """NaN where the scorer could not tell."""
    cut: Int32
    """How many tokens of the document and of the query were cut off, pairs × 2; -1 where the scorer cannot say."""


class PairScorer(Protocol):
    """A model that scores pairs."""

    name: str
    kind: str
    notes: Counter[str]
    """What went wrong and was repaired on the way, counted."""
    keeps_scores: bool
    """Whether scores go into the cache: not where they are cheaper to make than to find."""
    distributable: bool
    """Whether a worker can hold the model that scores."""

    def describe(self) -> dict[str, object]:
        """Everything besides the two texts that changes a score, as plain data: the cache key."""
        ...

    def max_length(self) -> int | None:
        """Where pairs are cut, in tokens; None if the backend cannot say."""
        ...

    def work_order(self, pairs: Pairs) -> WorkOrder:
        """How pairs are dealt out to workers."""
        ...

    def stream(self, pairs: Pairs, names: tuple[str, ...] = ()) -> Iterator[Scored]:
        """Score all pairs, some at a time, so that finished ones can be kept when a later one fails."""
        ...


def by_query(pairs: Pairs, window: int, *, free: bool = False) -> WorkOrder:
    """Pairs in the order of their queries, so that a query is read once."""
    return WorkOrder(np.lexsort((pairs.document, pairs.query)), window, free)


def not_cut(count: int) -> Int32:
    """For scorers that cannot say what they cut."""
    return np.full((count, 2), -1, dtype=np.int32)


class PairScores(NamedTuple):
    """What a reranker found out about its pairs."""

    scores: Float32
    cut: Int32
    """Tokens cut off, as in `Scored`."""
    notes: dict[str, object]
    """Where the scores came from."""
    used: Account
    """What kept scores once took to make."""


class PairReranker(Reranker):
    """Orders candidates by scores of pairs."""

    @abstractmethod
    def max_length(self) -> int | None:
        """Where pairs are cut, in tokens; None if the backend cannot say."""

    @abstractmethod
    def score(self, pairs: Pairs, names: tuple[str, ...]) -> PairScores:
        """Scores of all pairs of a task, through the cache; `names` are what the task is called."""

    def rerank(self, task: Task, candidates: Run, depth: int = DEPTH, *, rest: Rest = "keep") -> Run:
        """Reorder the first `depth` candidates of each query."""
        check_depth(depth, rest)
        begin = time.perf_counter()
        candidates = on_task(candidates, task)
        rows, docs, width = top_pairs(candidates, depth)
        pairs = Pairs(task.query_texts, task.documents.contents, rows, docs)
        made = self.score(pairs, names_of(task))
        table = np.full((len(candidates), width), np.nan, dtype=np.float32)
        table[candidates.docs[:, :width] >= 0] = made.scores
        run = reordered(candidates, table, rest, f"{candidates.name}.{self.name}@{depth}")
        run.notes = {
            **candidates.notes,
            "rerank": {
                "reranker": self.name,
                "depth": depth,
                "rest": rest,
                "pairs": len(pairs),
                "queries_below_depth": int((candidates.lengths() < depth).sum()),
                "empty_documents": _empty(pairs),
                "truncation": cut_note(pairs, made.cut, self.max_length()),
                "no_opinion": int(np.isnan(made.scores).sum()),
                "tied": sum(map(tied, table)),
                **made.notes,
                **({"warning": self.warning} if self.warning else {}),
                "seconds": round(time.perf_counter() - begin, 4),
            },
        }
        run.reused = made.used
        return run


class PointwiseReranker(PairReranker):
    """Orders candidates by a scorer's scores, which are kept in the score cache.

    Equal pairs are scored once, whatever ids their texts have.
    """

    def __init__(
        self, scorer: PairScorer, spec: Spec, options: Options | None = None, *, cache: ScoreCache | None = None
    ) -> None:
        self.scorer = self._own_scorer = scorer
        self.spec, self.options, self._cache = spec, options or Options(), cache
        self.kind = scorer.kind  # type: ignore[misc]
        self.warning = getattr(scorer, "warning", "")

    def distribute(self, remote: Remote | None) -> None:
        """Let workers score, where the scorer is a model that they can hold."""
        own = self._own_scorer
        if remote is None or not own.distributable:
            self.scorer = own
        else:
            self.scorer = remote.scorer(own, self.spec, self.options)

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {"kind": self.kind, **self.scorer.describe(), "max_length": self.max_length()}

    def max_length(self) -> int | None:
        """Where pairs are cut, in tokens; None if the backend cannot say."""
        return self.scorer.max_length()

    def explain(self, task: Task, documents: Sequence[int]) -> list[Explanation]:
        """What the scores of some documents for the task's one query are made of, where the scorer can tell."""
        explain = getattr(self.scorer, "explain", None)
        if explain is None:
            note = f"The score that {self.name} gives the pair. The model does not say what single words add."
            return [Explanation(note)] * len(documents)
        texts = [task.documents.contents[document] for document in documents]
        found: list[Explanation] = explain(task.query_texts[0], texts, names_of(task))
        return found

    def score(self, pairs: Pairs, names: tuple[str, ...]) -> PairScores:
        """Scores of all pairs of a task, through the cache; `names` are what the task is called."""
        self.scorer.notes.clear()
        keys = pair_keys(pairs.queries, pairs.documents, pairs.query, pairs.document)
        _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        distinct, inverse = pairs.take(first), inverse.reshape(-1)
        scores = np.full(len(first), np.nan, dtype=np.float32)
        cut = np.full((len(first), 2), -1, dtype=np.int32)
        missing: Int64 = np.arange(len(first))
        damaged = 0
        shards = None
        if self.scorer.keeps_scores and self.options.cache and self.options.keep_queries:
            # What a task is called is part of the key: instructions may depend on it.
            facts = {**self.scorer.describe(), "names": names}
            shards = (self._cache or ScoreCache()).open(facts, self.max_length(), label=self.scorer.name)
            scores, cut, missing = find_scores(shards, keys[first])
            damaged = shards.damaged
        used: Account = {}
        bill = None
        if len(missing):
            stream = self.scorer.stream(distinct.take(missing), names)
            if shards is not None:
                stream = store_scores(shards, keys[first][missing], stream)
            done = 0
            for scored in stream:
                if np.isinf(scored.scores).any():
                    raise ModelError(f"{self.name} returned an infinite score")
                scores[missing[scored.rows]], cut[missing[scored.rows]] = scored.scores, scored.cut
                done += len(scored.rows)
                self.options.progress(done, len(missing))
            used = getattr(self.scorer, "reused", used)  # vectors or answers that the scorer keeps itself
            bill = getattr(self.scorer, "bill", None)
        if shards is not None:
            used = reused(shards, shards.find(keys[first]), missing)
        notes: dict[str, object] = {
            "distinct_pairs": len(first),
            "cache_hits": len(first) - len(missing),
            "scored": len(missing),
            "damaged_shards": damaged,
            **({"answers": bill} if bill else {}),
            **({"scorer": dict(self.scorer.notes)} if self.scorer.notes else {}),
        }
        return PairScores(scores[inverse], cut[inverse], notes, used)


def cut_note(pairs: Pairs, cut: Int32, limit: int | None) -> dict[str, object]:
    """What the scorer never saw: pairs whose document, and queries that themselves, lost their end."""
    if len(cut) and (cut < 0).all():
        return {"limit": limit, "unknown": len(cut)}
    document, query = np.maximum(cut[:, 0], 0), np.maximum(cut[:, 1], 0)
    return {
        "limit": limit,
        "documents_cut": int((document > 0).sum()),
        "document_tokens_cut": int(document.sum()),
        "queries_cut": len(np.unique(pairs.query[query > 0])),
        "query_tokens_cut": int(query.sum()),
    }


def _empty(pairs: Pairs) -> int:
    return sum(not pairs.documents[i].strip() for i in np.unique(pairs.document).tolist())
