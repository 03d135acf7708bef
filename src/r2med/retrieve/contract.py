"""What every retriever is: it prepares the documents of a task, then searches them for any queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from ..core import DataError, Run, Task, UsageError
from ..core.options import run_options
from ..core.queries import Explanation, Queries, Side
from ..core.registry import Registry
from ..core.spec import Spec

if TYPE_CHECKING:
    from ..core.options import Options

DEPTH = 1000
"""Documents that are retrieved for a query unless somebody asks for another number."""


@runtime_checkable
class Index(Protocol):
    """The documents of one task, ready to be searched."""

    def search(self, queries: Queries, depth: int) -> Run:
        """The best `depth` documents of each query; what happened on the way goes into the run's notes."""
        ...


@runtime_checkable
class Explains(Protocol):
    """What an index may offer besides: what its scores are made of."""

    def explain(self, queries: Queries, documents: Sequence[int]) -> list[Explanation]:
        """Why some documents, by their positions, have the scores they have for the one query of `queries`."""
        ...


class Work(NamedTuple):
    """What is left to do for one side of a task, counted without doing it."""

    texts: int
    missing: int
    """Distinct texts that are not kept from an earlier run."""
    tokens: int
    """About; of those that are missing."""
    distinct: int
    seconds: float | None = None
    """At the speed measured last; None where nothing was measured."""
    dollars: float | None = None
    """None where no price is known."""


class Retriever(ABC):
    """Ranks the documents of a task."""

    spec: Spec
    kind: ClassVar[str] = "custom"
    """lexical, dense, sparse, late-interaction, stored or custom: decides how expansions meet it."""
    prepares: ClassVar[str] = "index"
    """What `prepare` does, in the words of a plan."""

    @property
    def name(self) -> str:
        """What results are filed under."""
        return str(self.spec)

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings, as plain data: part of a result's fingerprint."""

    def task_facts(self, task: Task) -> dict[str, object]:
        """What else its ranking of one task depends on, besides itself and the task's content."""
        del task
        return {}

    @abstractmethod
    def prepare(self, task: Task) -> Index:
        """An index of the task's documents."""

    def retrieve(self, task: Task, *, depth: int = DEPTH) -> Run:
        """The best documents for the task's own queries."""
        return self.prepare(task).search(Queries.of(task), depth)

    def check(self) -> None:  # noqa: B027 - most have nothing to check
        """Raise what would stop it later, such as a missing key."""

    def estimate(self, task: Task, side: Side) -> Work | None:
        """What one side of a task has left to do; None where nothing can be counted."""
        del task, side
        return None

    def distribute(self, remote: Remote | None) -> None:  # noqa: B027
        """Let workers run the model, or take it back; a retriever without a model has nothing to give."""

    def separator(self) -> str | None:
        """What stands between two texts in the pairs its model was trained on; None where nobody knows."""
        return None


class Remote(Protocol):
    """Workers that can hold a model."""

    def encoder(self, encoder: Any, spec: Spec, options: Options) -> Any:
        """An encoder that describes itself here and encodes there."""
        ...

    def scorer(self, scorer: Any, spec: Spec, options: Options) -> Any:
        """The same for what scores pairs."""
        ...


class Build(Protocol):
    """What makes components from specs: it knows the options of a command, and makes nothing twice."""

    options: Options

    def retriever(self, spec: str | Spec) -> Retriever:
        """The retriever of a spec, for components that stand on one."""
        ...

    def chat(self, spec: Spec) -> Any:
        """The chat model of a spec."""
        ...


def check_queries(queries: Queries, who: str) -> None:
    """Refuse what would be ignored: feedback, and texts that are not encoded as queries are."""
    texts = (text for group in queries.texts for text in group)
    if queries.feedback or any(text.side != "query" or not text.instruction for text in texts):
        raise UsageError(f"{who} encodes all texts as queries, with its instruction, and searches once")


def check_depth(depth: int) -> None:
    """Refuse a ranking without documents."""
    if depth < 1:
        raise UsageError(f"depth must be 1 or more, not {depth}")


def on_task(run: Run, task: Task) -> Run:
    """A run over exactly the task's queries and documents; one that the task does not know is an error that names it.

    A query of the task without candidates keeps an empty list. The notes say under `candidates` how many have none.
    """
    if (stray := next((query for query in run.query_ids if query not in task.query_ids), None)) is not None:
        raise DataError(f"has candidates for query {stray!r}, which {task.full_name} does not hold")
    if run.doc_ids != task.documents.ids:
        run = run.on(task.documents.ids)
    if run.query_ids != task.query_ids:
        run = run.for_queries(task.query_ids)
    lengths = run.lengths()
    account: dict[str, object] = {
        "name": run.name,
        "queries_without": int((lengths == 0).sum()),
        "shortest": int(lengths.min(initial=run.depth)),
        "longest": int(lengths.max(initial=0)),
    }
    notes = {**run.notes, "candidates": account}
    return Run(run.query_ids, run.doc_ids, run.docs, run.scores, name=run.name, notes=notes)


retrievers: Registry[Retriever] = Registry(
    "retriever", package="r2med.retrieve", options=run_options(), hint="(r2med models lists them)"
)


def kind_of(spec: Spec) -> str | None:
    """The kind of retriever that a spec names, where that is known without making it."""
    entry = None if spec.own else retrievers.find(spec.name)
    if entry is None:
        return None
    maker = entry.target or getattr(entry.make, "__self__", None)
    return getattr(maker, "kind", None)
