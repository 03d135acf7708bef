"""BM25 in two named variants.

`bm25` is R2MED's protocol: the query is weighted with BM25 as a document is, so that a word repeated in a long
vignette counts less than twice. `bm25-lucene` is the textbook sum over query tokens. On long queries the choice moves
scores by ten points, so it has a name.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from ..core import IdTable, Run, Task, TextColumn, UsageError
from ..core.columns import Int64
from ..core.queries import Queries
from ..text import TermCounts, get_analyzer
from .contract import Retriever, check_depth, retrievers
from .sparse import Float64, Postings, SparseQueries, build_postings, search

QueryWeighting = Literal["bm25", "count"]
K1 = Annotated[float, Meta(ge=0, description="how slowly repeated terms saturate")]
B = Annotated[float, Meta(ge=0, le=1, description="how far long documents are held back")]
Analyzer = Annotated[str, Meta(description="how texts become terms: english, whitespace, regex or none")]


@dataclass(frozen=True)
class BM25Parameters:
    """Everything that changes a score."""

    k1: float = 0.9
    b: float = 0.4
    query: QueryWeighting = "bm25"
    analyzer: str = "english"

    def __post_init__(self) -> None:
        if not (self.k1 >= 0 and np.isfinite(self.k1)):
            raise UsageError(f"k1 must be 0 or more, not {self.k1:g}")
        if not 0 <= self.b <= 1:
            raise UsageError(f"b must lie between 0 and 1, not {self.b:g}")
        if self.query not in ("bm25", "count"):
            raise UsageError(f"query weighting must be bm25 or count, not {self.query!r}")
        get_analyzer(self.analyzer)


class BM25Index:
    """Term counts of a corpus and the postings made from them.

    The counts stay, so that documents can be added without analyzing the old ones again: every impact depends on the
    number of documents and their mean length, and is cheap to make anew.
    """

    def __init__(
        self,
        parameters: BM25Parameters,
        counts: TermCounts,
        *,
        lengths: Int64 | None = None,
        postings: Postings | None = None,
    ) -> None:
        self.parameters = parameters
        self.counts = counts
        self.lengths = counts.lengths() if lengths is None else lengths
        # A corpus without a single term must not divide by zero.
        self.average_length = float(self.lengths.mean()) if self.lengths.any() else 1.0
        self.postings = self._postings() if postings is None else postings

    @classmethod
    def build(cls, contents: TextColumn, parameters: BM25Parameters | None = None) -> BM25Index:
        """Analyze and index a corpus."""
        parameters = parameters or BM25Parameters()
        return cls(parameters, get_analyzer(parameters.analyzer).count(contents))

    def extended(self, contents: TextColumn) -> BM25Index:
        """An index with more documents at the end; only these are analyzed."""
        new = get_analyzer(self.parameters.analyzer).count(contents)
        vocabulary, mapping = self.counts.vocabulary.merged(new.vocabulary)
        merged = TermCounts(
            vocabulary,
            np.concatenate((self.counts.indptr, self.counts.indptr[-1] + new.indptr[1:])),
            np.concatenate((self.counts.terms, mapping[new.terms])),
            np.concatenate((self.counts.counts, new.counts)),
        )
        return BM25Index(self.parameters, merged)

    def __len__(self) -> int:
        """Number of documents."""
        return len(self.lengths)

    def _postings(self) -> Postings:
        frequency = np.bincount(self.counts.terms, minlength=len(self.counts.vocabulary))
        return build_postings(*self.counts[1:], self._norm(self.lengths.astype(np.float64)), self._idf(frequency))

    def _idf(self, frequency: Int64) -> Float64:
        return np.log1p((len(self) - frequency + 0.5) / (frequency + 0.5))

    @cached_property
    def idf(self) -> Float64:
        """Lucene's inverse document frequency of every term."""
        return self._idf(np.diff(self.postings.term_ptr))

    def _norm(self, lengths: Float64) -> Float64:
        p = self.parameters
        return p.k1 * (1 - p.b + p.b * lengths / self.average_length)

    def queries(self, texts: TextColumn) -> SparseQueries:
        """Weighted terms of the queries; terms the corpus does not hold fall away."""
        counted = get_analyzer(self.parameters.analyzer).count(texts)
        numbers = self.counts.vocabulary.find(counted.vocabulary.terms)[counted.terms]
        known = numbers >= 0
        rows = np.repeat(np.arange(len(texts)), np.diff(counted.indptr))[known]
        terms, frequency = numbers[known], counted.counts[known].astype(np.float64)
        indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(texts))))).astype(np.int64)
        if self.parameters.query == "count":
            return SparseQueries(indptr, terms, frequency)
        lengths: Float64 = np.bincount(rows, weights=frequency, minlength=len(texts)).astype(np.float64)
        weights = self.idf[terms] * (frequency / (frequency + self._norm(lengths)[rows]))
        return SparseQueries(indptr, terms, weights)

    def weighted(self, queries: Queries) -> SparseQueries:
        """Weighted terms of queries that may stand for several texts each: the weighted mean of their terms."""
        if queries.plain:
            return self.queries(queries.column)
        groups = queries.texts
        single = self.queries(TextColumn.from_texts(part.text for group in groups for part in group))
        shares = np.array([part.weight / sum(p.weight for p in group) for group in groups for part in group])
        ends = np.concatenate(([0], np.cumsum([len(group) for group in groups])))
        weights = single.weights * np.repeat(shares, np.diff(single.indptr))
        return SparseQueries(single.indptr[ends], single.terms, weights)


@dataclass(frozen=True)
class PreparedBM25:
    """An index with the documents it was made from."""

    index: BM25Index
    ids: IdTable
    name: str

    def search(self, queries: Queries, depth: int) -> Run:
        """The best documents of each query, among those that share a term with it."""
        check_depth(depth)
        terms = self.index.weighted(queries)
        top = search(self.index.postings, terms, self.ids.tie_rank, min(depth, len(self.ids)))
        empty = int((np.diff(terms.indptr) == 0).sum())
        notes: dict[str, object] = {"queries_without_terms": empty} if empty else {}
        return Run(queries.ids, self.ids, *top, name=self.name, notes=notes)


@retrievers.register("bm25")
class BM25(Retriever):
    """BM25 as R2MED computes it: queries are weighted as documents are."""

    kind = "lexical"
    query: QueryWeighting = "bm25"

    def __init__(self, k1: K1 = 0.9, b: B = 0.4, *, analyzer: Analyzer = "english") -> None:
        self.parameters = BM25Parameters(float(k1), float(b), self.query, analyzer)
        name = "bm25" if self.query == "bm25" else "bm25-lucene"
        self.spec = retrievers.spec(name, k1=float(k1), b=float(b), analyzer=analyzer)

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {"retriever": "bm25", **asdict(self.parameters)}

    def prepare(self, task: Task) -> PreparedBM25:
        """Index the documents; terms and postings are made once, whichever variants search them."""
        documents, own = task.documents, self.parameters
        counts = documents.derived(
            ("terms", own.analyzer), lambda: get_analyzer(own.analyzer).count(documents.contents)
        )
        made = documents.derived(("postings", own.analyzer, own.k1, own.b), lambda: BM25Index(own, counts))
        index = BM25Index(own, counts, lengths=made.lengths, postings=made.postings)
        return PreparedBM25(index, documents.ids, self.name)


@retrievers.register("bm25-lucene")
class BM25Lucene(BM25):
    """BM25 as Lucene computes it: the sum over query tokens."""

    query = "count"
