"""What travels between driver and workers: texts and plain options there, arrays back. Keys and weights never do.

A worker makes a component from its spec, reading the files of its own `R2MED_HOME`, and checks that they are the
driver's files before it encodes anything: a vector of another model never comes back under this one's name.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from ...core import IdTable, Query, Run, Task, TextColumn
from ...core.columns import Int32, Int64
from ...core.options import Options
from ...core.qrels import Judgment, Qrels
from ...core.queries import Queries, Side
from ...core.spec import Spec
from ...core.task import Documents
from ...retrieve.encoders import Float32


class Component(NamedTuple):
    """What a worker makes a retriever or reranker from."""

    kind: Literal["retriever", "reranker"]
    spec: Spec
    options: Options


class EncodeJob(NamedTuple):
    """Texts to encode."""

    component: Component
    expected: dict[str, Any]
    """How the driver's encoder describes itself."""
    side: Side
    instruction: str
    texts: list[str]


class Encoded(NamedTuple):
    """Their vectors, in order."""

    vectors: Float32
    tokens: Int32
    notes: dict[str, int]


class ScoreJob(NamedTuple):
    """Pairs to score."""

    component: Component
    expected: dict[str, Any]
    family: str
    queries: list[str]
    documents: list[str]
    query: Int32
    document: Int32


class ScoredPairs(NamedTuple):
    """Their scores, in order."""

    scores: Float32
    cut: Int32
    notes: dict[str, int]


class Corpus(NamedTuple):
    """A task as plain arrays and lists: what a retriever sees of it, and the judgments its notes count with."""

    fingerprint: str
    """Of the task, so that a worker knows one that it has prepared."""
    name: str
    collection: str
    family: str
    queries: list[tuple[str, str]]
    ids: list[str]
    data: bytes
    offsets: Int64
    judgments: list[Judgment]

    @classmethod
    def of(cls, task: Task) -> Corpus:
        """Titles travel joined with their texts: retrievers see them no other way."""
        contents = task.documents.contents
        queries = [(q.id, q.text) for q in task.queries]
        return cls(
            task.fingerprint,
            task.name,
            task.collection,
            task.family,
            queries,
            list(task.documents.ids),
            contents.data.tobytes(),
            contents.offsets,
            list(task.qrels),
        )

    def task(self) -> Task:
        """The task again."""
        texts = TextColumn(np.frombuffer(self.data, dtype=np.uint8), self.offsets)
        queries = tuple(Query(i, text) for i, text in self.queries)
        documents = Documents(IdTable(self.ids), texts)
        return Task(self.name, queries, documents, Qrels.from_judgments(self.judgments), self.collection, self.family)


class RetrieveJob(NamedTuple):
    """A whole ranking to make."""

    component: Component
    expected: dict[str, Any]
    corpus: Any
    """A `Corpus`, or a handle to one in Ray's object store."""
    queries: Queries
    depth: int


class Ranking(NamedTuple):
    """The ranking."""

    docs: Int32
    scores: Float32
    name: str
    notes: dict[str, Any]
    seconds: float

    def run(self, task: Task) -> Run:
        """As a run over the driver's own task."""
        return Run(task.query_ids, task.documents.ids, self.docs, self.scores, name=self.name, notes=self.notes)


Job = EncodeJob | ScoreJob | RetrieveJob


class Failure(NamedTuple):
    """An error on a worker, as text: exceptions of libraries do not travel well."""

    kind: str
    message: str
    node: str


class Hello(NamedTuple):
    """How a worker introduces itself."""

    node: str
    pid: int
    version: str
