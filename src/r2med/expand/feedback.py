"""Feedback without a chat model: RM3 and Rocchio on terms, average and Rocchio on vectors.

These methods make no texts. They ask the retriever to search again with what its best documents hold, so the first
search and the second are one retriever's own. In a fused system each method acts on the retrievers of its kind.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from ..core import Task
from ..core.options import Progress
from ..core.queries import Feedback
from ..core.spec import Spec
from ..retrieve import Build
from ..retrieve.feedback import AVERAGE, RM3, ROCCHIO, VECTOR_ROCCHIO
from .contract import Expander, Expansions, expanders

Documents = Annotated[int, Meta(ge=1, description="best documents that are fed back")]
Terms = Annotated[int, Meta(ge=1, description="terms of theirs that are added")]
Share = Annotated[float, Meta(ge=0, le=1, description="weight of the query; the rest is the documents'")]
Alpha = Annotated[float, Meta(ge=0, description="weight of the query")]
Beta = Annotated[float, Meta(ge=0, description="weight of the documents")]


class FeedsBack(Expander):
    """What the methods without texts share."""

    needs_text = False
    makes_text = False
    kind: ClassVar[str]
    """The kind of retriever that can search so."""
    Parameters: ClassVar[type]

    def __init__(self, given: object, *, spec: Spec | None = None) -> None:
        self.given, self.spec = given, spec or Spec(self.method)

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> Expander:
        """The method with the parameters of a spec."""
        del build
        return cls(spec.values(cls.Parameters), spec=spec)

    def describe(self) -> dict[str, object]:
        """Method and parameters."""
        return {"method": self.method, **asdict(self.given)}  # type: ignore[call-overload]

    def feedback(self) -> Feedback:
        """The search that follows the first one."""
        raise NotImplementedError

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        """No texts: the retriever is told how to search again."""
        del task, limit, on_progress
        return Expansions(self.method, self.describe(), {}, feedback=(self.feedback(),))


@dataclass(frozen=True)
class Rm3Parameters:
    """What may be set on RM3; the defaults are Anserini's."""

    documents: Documents = 10
    terms: Terms = 10
    query: Share = 0.5


@expanders.register("rm3")
class Rm3(FeedsBack):
    """A second BM25 search with the likeliest terms of the best documents (RM3: Abdul-Jaleel et al., 2004)."""

    method, kind = RM3, "lexical"
    Parameters = Rm3Parameters
    given: Rm3Parameters

    def feedback(self) -> Feedback:
        """The query's share and the documents'."""
        given = self.given
        return Feedback(RM3, self.kind, given.documents, given.query, 1 - given.query, given.terms)


@dataclass(frozen=True)
class RocchioParameters:
    """What may be set on Rocchio's method; the defaults are Anserini's."""

    documents: Documents = 10
    terms: Terms = 10
    alpha: Alpha = 1.0
    beta: Beta = 0.75


@expanders.register("rocchio")
class Rocchio(FeedsBack):
    """A second BM25 search with the mean of the best documents' term vectors (Rocchio, 1971)."""

    method, kind = ROCCHIO, "lexical"
    Parameters = RocchioParameters
    given: RocchioParameters

    def feedback(self) -> Feedback:
        """Both weights; documents that were not found count for nothing."""
        given = self.given
        return Feedback(ROCCHIO, self.kind, given.documents, given.alpha, given.beta, given.terms)


@dataclass(frozen=True)
class VectorAverageParameters:
    """What may be set on averaging."""

    documents: Documents = 3


@expanders.register("vector-average")
class VectorAverage(FeedsBack):
    """A second dense search with the mean of the query's vector and the best documents' (Li et al., 2023)."""

    method, kind = AVERAGE, "dense"
    Parameters = VectorAverageParameters
    given: VectorAverageParameters

    def feedback(self) -> Feedback:
        """The query counts as one of the documents."""
        count = self.given.documents
        return Feedback(AVERAGE, self.kind, count, 1 / (count + 1), count / (count + 1))


@dataclass(frozen=True)
class VectorRocchioParameters:
    """What may be set on Rocchio's method for vectors; the defaults are Pyserini's."""

    documents: Documents = 3
    alpha: Alpha = 0.9
    beta: Beta = 0.1


@expanders.register("vector-rocchio")
class VectorRocchio(FeedsBack):
    """A second dense search with the query's vector moved towards the best documents' (Li et al., 2023)."""

    method, kind = VECTOR_ROCCHIO, "dense"
    Parameters = VectorRocchioParameters
    given: VectorRocchioParameters

    def feedback(self) -> Feedback:
        """Both weights."""
        given = self.given
        return Feedback(VECTOR_ROCCHIO, self.kind, given.documents, given.alpha, given.beta)
