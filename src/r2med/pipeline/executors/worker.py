"""What a worker does with a job, whatever brought it there."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import numpy as np

from ..._version import __version__
from ...core import ModelError, R2MedError, Task, fingerprint
from ...rerank.pairs import Pairs
from ...retrieve import Index
from ..build import Builder
from .jobs import Component, Encoded, EncodeJob, Failure, Hello, Job, Ranking, RetrieveJob, ScoredPairs, ScoreJob


class Worker:
    """Keeps the models it has loaded, and does one job at a time."""

    def __init__(self, node: str = "", **own: Any) -> None:
        self.node = node or socket.gethostname()
        self.own = {key: value for key, value in own.items() if value is not None}
        """Options that are this worker's rather than the driver's: its device, its threads."""
        self._components: dict[str, Any] = {}
        self._index: tuple[str, Index, Task] | None = None

    def hello(self) -> Hello:
        """Who this is."""
        return Hello(self.node, os.getpid(), __version__)

    def do(self, job: Job) -> Any:
        """The job's value, or a `Failure` that says what went wrong where."""
        try:
            if isinstance(job, EncodeJob):
                return self._encode(job)
            return self._score(job) if isinstance(job, ScoreJob) else self._retrieve(job)
        except R2MedError as error:
            return Failure(type(error).__name__, str(error), self.node)
        except Exception as error:  # a bug or a library: one line with its name
            text = (str(error).strip().splitlines() or [""])[0][:300]
            return Failure("", f"{type(error).__name__}: {text}", self.node)

    def _component(self, component: Component) -> Any:
        key = f"{component.kind} {component.spec} {sorted(component.spec.options.items())}"
        if key not in self._components:
            build = Builder(component.options.changed(self.own))
            spec = component.spec
            self._components[key] = build.retriever(spec) if component.kind == "retriever" else build.reranker(spec)
        return self._components[key]

    def _encode(self, job: EncodeJob) -> Encoded:
        retriever = self._component(job.component)
        encoder = retriever.encoder
        check_same(job.expected, encoder.describe(job.side), retriever.name)
        encoder.notes.clear()
        tokens = np.empty(len(job.texts), dtype=np.int32)
        vectors = np.empty((0, 0), dtype=np.float32)
        for batch in encoder.stream(job.texts, job.side, job.instruction):
            if not len(vectors):
                vectors = np.empty((len(job.texts), batch.vectors.shape[1]), dtype=np.float32)
            vectors[batch.rows], tokens[batch.rows] = batch.vectors, batch.tokens
        return Encoded(vectors, tokens, dict(encoder.notes))

    def _score(self, job: ScoreJob) -> ScoredPairs:
        reranker = self._component(job.component)
        scorer = reranker.scorer
        check_same(job.expected, scorer.describe(), reranker.name)
        scorer.notes.clear()
        scores = np.full(len(job.query), np.nan, dtype=np.float32)
        cut = np.full((len(job.query), 2), -1, dtype=np.int32)
        for some in scorer.stream(Pairs(job.queries, job.documents, job.query, job.document), job.family):
            scores[some.rows], cut[some.rows] = some.scores, some.cut
        return ScoredPairs(scores, cut, dict(scorer.notes))

    def _retrieve(self, job: RetrieveJob) -> Ranking:
        retriever = self._component(job.component)
        check_same(job.expected, retriever.describe(), retriever.name)
        start = time.perf_counter()
        key = f"{retriever.name} {job.corpus.fingerprint}"
        if self._index is None or self._index[0] != key:
            task = job.corpus.task()
            self._index = (key, retriever.prepare(task), task)
        run = self._index[1].search(job.queries, job.depth)
        return Ranking(run.docs, run.scores, run.name, run.notes, time.perf_counter() - start)


def check_same(expected: dict[str, Any], found: dict[str, object], name: str) -> None:
    """Refuse to work with other files or settings than the driver's."""
    if fingerprint("part", expected) == fingerprint("part", found):
        return
    differs = sorted(key for key in {*expected, *found} if expected.get(key) != found.get(key))
    raise ModelError(f"{name} differs from the driver's ({', '.join(differs)}): fetch the same files on both")
