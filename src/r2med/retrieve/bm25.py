"""BM25 in three named variants.

`bm25` is R2MED's protocol: the query is weighted with BM25 as a document is, so that a word repeated in a long
vignette counts less than twice. `bm25-lucene` is the textbook sum over query tokens. On long queries the choice moves
scores by ten points, so it has a name. `bm25-nano` made NanoR2MED's candidate lists: bm25s' `robertson` variant, whose
scores it has to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from msgspec import Meta

from .._version import __version__
from ..cache.arrays import Array, ArrayCache
from ..core import Documents, IdTable, Run, Task, TextColumn, UsageError, fingerprint
from ..core.budget import Account, Reused, Timed
from ..core.columns import Int64
from ..core.options import Options
from ..core.queries import Explanation, Feedback, Queries, Share, largest_first
from ..core.spec import Spec
from ..text import TermCounts, Vocabulary, get_analyzer
from .contract import Build, Retriever, check_depth, retrievers
from .feedback import RM3, Found, Mass, feed_back_terms, may_feed_back
from .sparse import Float64, Postings, SparseQueries, TopK, build_postings, mean_terms, search, shares

QueryWeighting = Literal["bm25", "count", "tokens"]
"""As a document, by counts, or token by token in the order of the text, summed in single precision as bm25s does."""
Idf = Literal["lucene", "robertson"]
"""Lucene's never reaches zero; Robertson's is zero for a term that half the documents hold."""
Lengths = Literal["exact", "byte"]
"""Lengths of documents as they are, or as Lucene keeps them in one byte: the first four bits of a long one."""
K1 = Annotated[float, Meta(ge=0, description="how slowly repeated terms saturate")]
B = Annotated[float, Meta(ge=0, le=1, description="how far long documents are held back")]
Analyzer = Annotated[str, Meta(description="how texts become terms: english, nano-english, whitespace, regex or none")]
EXPLAINED = "A sum over the terms that query and document share."
LARGE = 32 << 20
"""Bytes of text from which an index is kept on disk; a smaller one is made faster than it is noticed."""
VERSION = 1
"""Of the arrays that are kept; raised when an analyzer or a weight changes."""


@dataclass(frozen=True)
class BM25Parameters:
    """Everything that changes a score."""

    k1: float = 0.9
    b: float = 0.4
    query: QueryWeighting = "bm25"
    analyzer: str = "english"
    idf: Idf = "lucene"
    lengths: Lengths = "exact"

    def __post_init__(self) -> None:
        if not (self.k1 >= 0 and np.isfinite(self.k1)):
            raise UsageError(f"k1 must be 0 or more, not {self.k1:g}")
        if not 0 <= self.b <= 1:
            raise UsageError(f"b must lie between 0 and 1, not {self.b:g}")
        if self.query not in get_args(QueryWeighting):
            raise UsageError(f"query weighting must be bm25, count or tokens, not {self.query!r}")
        if self.idf not in get_args(Idf):
            raise UsageError(f"idf must be lucene or robertson, not {self.idf!r}")
        if self.lengths not in get_args(Lengths):
            raise UsageError(f"lengths must be exact or byte, not {self.lengths!r}")
        get_analyzer(self.analyzer)

    @property
    def indexed(self) -> dict[str, object]:
        """Those that the postings depend on."""
        rough = {} if self.lengths == "exact" else {"lengths": self.lengths}
        return {"analyzer": self.analyzer, "idf": self.idf, "k1": self.k1, "b": self.b, **rough}


def _idf(frequency: Int64, documents: int, kind: Idf) -> Float64:
    odds = (documents - frequency + 0.5) / (frequency + 0.5)
    if kind == "lucene":
        return np.log1p(odds)
    # bm25s keeps these in single precision, which reaches its impacts.
    return np.log(np.maximum(odds, 1.0)).astype(np.float32).astype(np.float64)


def _norm(parameters: BM25Parameters, lengths: Float64, average: float) -> Float64:
    return parameters.k1 * (1 - parameters.b + parameters.b * lengths / average)


def _in_one_byte(lengths: Int64) -> Int64:
    """Lengths as they come back from one byte: those from 24 on keep the first four bits of what exceeds 24."""
    above = np.maximum(lengths - 24, 0)
    dropped = np.maximum(np.frexp(above.astype(np.float64))[1] - 4, 0)
    rounded: Int64 = np.where(lengths < 24, lengths, 24 + ((above >> dropped) << dropped))
    return rounded


class BM25Index:
    """The postings of a corpus, and what weighting a query needs to know of it."""

    def __init__(
        self,
        parameters: BM25Parameters,
        vocabulary: Vocabulary,
        postings: Postings,
        *,
        documents: int,
        average_length: float,
    ) -> None:
        self.parameters, self.vocabulary, self.postings = parameters, vocabulary, postings
        self.documents, self.average_length = documents, average_length

    @classmethod
    def build(cls, contents: TextColumn, parameters: BM25Parameters | None = None) -> BM25Index:
        """Analyze and index a corpus."""
        parameters = parameters or BM25Parameters()
        return cls.of(get_analyzer(parameters.analyzer).count(contents), parameters)

    @classmethod
    def of(cls, counts: TermCounts, parameters: BM25Parameters) -> BM25Index:
        """The index of documents whose terms are counted."""
        lengths, size = counts.lengths(), len(counts.indptr) - 1
        # A corpus without a single term must not divide by zero.
        average = float(lengths.mean()) if lengths.any() else 1.0
        idf = _idf(np.bincount(counts.terms, minlength=len(counts.vocabulary)), size, parameters.idf)
        kept = lengths if parameters.lengths == "exact" else _in_one_byte(lengths)
        norms = _norm(parameters, kept.astype(np.float64), average)
        postings = build_postings(*counts[1:], norms, idf)
        return cls(parameters, counts.vocabulary, postings, documents=size, average_length=average)

    def with_parameters(self, parameters: BM25Parameters) -> BM25Index:
        """The same postings for other query weights."""
        size, length = self.documents, self.average_length
        return BM25Index(parameters, self.vocabulary, self.postings, documents=size, average_length=length)

    @property
    def nbytes(self) -> int:
        """Memory that postings and terms take."""
        return sum(array.nbytes for array in self.postings) + self.vocabulary.terms.nbytes

    @cached_property
    def idf(self) -> Float64:
        """The inverse document frequency of every term."""
        return _idf(np.diff(self.postings.term_ptr), self.documents, self.parameters.idf)

    def queries(self, texts: TextColumn) -> SparseQueries:
        """Weighted terms of the queries; terms the corpus does not hold fall away."""
        if self.parameters.query == "tokens":
            return self._tokens(texts)
        counted = get_analyzer(self.parameters.analyzer).count(texts)
        numbers = self.vocabulary.find(counted.vocabulary.terms)[counted.terms]
        known = numbers >= 0
        rows = np.repeat(np.arange(len(texts)), np.diff(counted.indptr))[known]
        terms, frequency = numbers[known], counted.counts[known].astype(np.float64)
        indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(texts))))).astype(np.int64)
        if self.parameters.query == "count":
            return SparseQueries(indptr, terms, frequency)
        lengths: Float64 = np.bincount(rows, weights=frequency, minlength=len(texts)).astype(np.float64)
        weights = self.idf[terms] * (
            frequency / (frequency + _norm(self.parameters, lengths, self.average_length)[rows])
        )
        return SparseQueries(indptr, terms, weights)

    def _tokens(self, texts: TextColumn) -> SparseQueries:
        """Every token with the weight 1, in the order of the text, for sums are rounded in that order."""
        analyzed = list(map(get_analyzer(self.parameters.analyzer), texts))
        distinct = list(dict.fromkeys(token for tokens in analyzed for token in tokens))
        found = self.vocabulary.find(TextColumn.from_texts(distinct)).tolist()
        number = {token: term for token, term in zip(distinct, found, strict=True) if term >= 0}
        rows = [[number[token] for token in tokens if token in number] for tokens in analyzed]
        indptr = np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64))).astype(np.int64)
        terms = np.array([term for row in rows for term in row], dtype=np.int32)
        return SparseQueries(indptr, terms, np.ones(len(terms)))

    def weighted(self, queries: Queries) -> SparseQueries:
        """Weighted terms of queries that may stand for several texts each: the weighted mean of their terms."""
        if queries.plain:
            return self.queries(queries.column)
        groups = queries.texts
        return mean_terms(self.queries(TextColumn.from_texts(part.text for group in groups for part in group)), groups)

    def unknown(self, queries: Queries) -> Mass:
        """What terms that the corpus does not hold add to the lengths of query vectors; none where they weigh nothing.

        Of a query of several texts, a term that two of them hold counts as two.
        """
        mass, groups = Mass.none(len(queries)), queries.texts
        if self.parameters.query == "bm25":
            return mass
        counted = get_analyzer(self.parameters.analyzer).count(
            TextColumn.from_texts(part.text for group in groups for part in group)
        )
        owners = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        texts = np.repeat(np.arange(len(owners)), np.diff(counted.indptr))
        lacking = self.vocabulary.find(counted.vocabulary.terms)[counted.terms] < 0
        weights = (counted.counts * shares(groups)[texts])[lacking]
        np.add.at(mass.sums, owners[texts[lacking]], weights)
        np.add.at(mass.squares, owners[texts[lacking]], weights**2)
        return mass


@dataclass(frozen=True)
class PreparedBM25:
    """An index with the documents it was made from."""

    index: BM25Index
    ids: IdTable
    name: str
    contents: TextColumn
    reused: Account

    def search(self, queries: Queries, depth: int) -> Run:
        """The best documents of each query, among those that share a term with it."""
        check_depth(depth)
        terms = self._terms(queries)
        top = self._search(terms, depth)
        empty = int((np.diff(terms.indptr) == 0).sum())
        notes: dict[str, object] = {"queries_without_terms": empty} if empty else {}
        return Run(queries.ids, self.ids, *top, name=self.name, notes=notes, reused=self.reused)

    def _terms(self, queries: Queries) -> SparseQueries:
        """What is searched with, after all feedback."""
        terms = self.index.weighted(queries)
        if not queries.feedback:
            return terms
        unknown = self.index.unknown(queries)
        for feedback in queries.feedback:
            found = self._search(terms, feedback.documents)
            terms = feed_back_terms(feedback, terms, unknown, found, self._found(feedback, found))
            unknown = Mass.none(len(queries))
        return terms

    def explain(self, queries: Queries, documents: Sequence[int]) -> list[Explanation]:
        """What each term adds: its idf, times how it stands in the document, times its weight in the query."""
        rows, index = np.asarray(documents, dtype=np.int32), self.index
        postings = Postings(*map(np.asarray, index.postings))  # slices of mapped arrays are slow to make
        parts: list[list[Share]] = [[] for _ in documents]
        for term, weight in self._terms(queries).first().items():
            idf = float(index.idf[term])
            for place, impact in enumerate(postings.of(term, rows).tolist()):
                if impact and idf:
                    factors = (("idf", idf), ("in the document", impact / idf), ("in the query", weight))
                    parts[place].append(Share(index.vocabulary[term], weight * impact, factors))
        return [Explanation(EXPLAINED, largest_first(found)) for found in parts]

    def _search(self, terms: SparseQueries, depth: int) -> TopK:
        single = self.index.parameters.query == "tokens"
        return search(self.index.postings, terms, self.ids.tie_rank, min(depth, len(self.ids)), single=single)

    def _found(self, feedback: Feedback, top: TopK) -> Found:
        """The terms of all documents that were found; an index keeps impacts, so these few texts are read again."""
        documents = np.unique(top.docs[top.docs >= 0]).tolist()
        texts = TextColumn.from_texts(self.contents[document] for document in documents)
        counts = get_analyzer(self.index.parameters.analyzer).count(texts)
        names = counts.vocabulary.terms
        numbers = self.index.vocabulary.find(names)
        frequency = np.diff(self.index.postings.term_ptr)[numbers]
        order = np.empty(len(names), dtype=np.int64)
        order[sorted(range(len(names)), key=names.encoded)] = np.arange(len(names))
        allowed = may_feed_back(names, frequency, self.index.documents, plain=feedback.method == RM3)
        rows = {document: row for row, document in enumerate(documents)}
        return Found(rows, counts, numbers, order, allowed)


@retrievers.register("bm25")
class BM25(Retriever):
    """BM25 as R2MED computes it: queries are weighted as documents are."""

    kind = "lexical"
    registered: ClassVar[str] = "bm25"
    query: ClassVar[QueryWeighting] = "bm25"
    idf: ClassVar[Idf] = "lucene"

    def __init__(
        self, k1: K1 = 0.9, b: B = 0.4, *, analyzer: Analyzer = "english", options: Options | None = None
    ) -> None:
        self.parameters = BM25Parameters(float(k1), float(b), self.query, analyzer, self.idf)
        self.spec = retrievers.spec(self.registered, k1=float(k1), b=float(b), analyzer=analyzer)
        self.options = options or Options()

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> BM25:
        """The retriever of a spec."""
        values: dict[str, Any] = dict(spec.parameters)
        return cls(**values, options=build.options)

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        facts = asdict(self.parameters)
        if self.idf == "lucene":
            del facts["idf"]  # results of before there was a choice stay what they are
        if self.parameters.lengths == "exact":
            del facts["lengths"]
        return {"retriever": "bm25", **facts}

    def prepare(self, task: Task) -> PreparedBM25:
        """Index the documents; terms and postings are made once, whichever variants search them."""
        documents, own = task.documents, self.parameters
        key = ("postings", own.idf, own.analyzer, own.k1, own.b, own.lengths)
        new = list[_Built]()

        def make() -> _Built:
            new.append(self._kept(documents))
            return new[0]

        built = documents.derived(key, make)
        place = f"bm25 of {documents.fingerprint}"
        names = f"{place}: terms, {own.analyzer}", f"{place}: {', '.join(map(str, key))}"
        found = built.found if new else (True, True)
        reused = {
            name: Reused(seconds, seconds if was_there else 0.0)
            for name, seconds, was_there in zip(names, built.seconds, found, strict=True)
        }
        return PreparedBM25(built.value.with_parameters(own), documents.ids, self.name, documents.contents, reused)

    def _kept(self, documents: Documents) -> _Built:
        """The index of documents; that of a large corpus is kept on disk."""
        if not self.options.cache or documents.contents.nbytes < LARGE:
            return self._make(documents)
        own, cache = self.parameters, ArrayCache()
        settings = own.indexed
        key = fingerprint("bm25 index", [VERSION, __version__, documents.fingerprint, settings])
        if (arrays := cache.load(key)) is not None:
            took = arrays["seconds"].tolist() if "seconds" in arrays else [None, None]
            return _Built(_from_arrays(own, arrays), (took[0], took[1]), (True, True))
        made = self._make(documents)
        about = {"model": "bm25", **settings, "documents": len(documents)}
        cache.save(key, {**_arrays(made.value), "seconds": np.array(made.seconds, dtype=np.float64)}, about)
        return made

    def _make(self, documents: Documents) -> _Built:
        analyzer, new = self.parameters.analyzer, list[Timed[TermCounts]]()

        def count() -> Timed[TermCounts]:
            new.append(Timed.of(lambda: get_analyzer(analyzer).count(documents.contents)))
            return new[0]

        counts = documents.derived(("terms", analyzer), count)
        index = Timed.of(lambda: BM25Index.of(counts.value, self.parameters))
        return _Built(index.value, (counts.seconds, index.seconds), (not new, False))


class _Built(NamedTuple):
    """An index, the seconds that terms and postings took, and whether each of them was there already."""

    value: BM25Index
    seconds: tuple[float | None, float | None]
    found: tuple[bool, bool]

    @property
    def nbytes(self) -> int:
        """Memory that the index takes."""
        return self.value.nbytes


def _arrays(index: BM25Index) -> dict[str, Array]:
    """What is kept of an index."""
    hashes, order = index.vocabulary.lookup
    return {
        "vocabulary_data": index.vocabulary.terms.data,
        "vocabulary_offsets": index.vocabulary.terms.offsets,
        "vocabulary_hashes": hashes,
        "vocabulary_order": order,
        "size": np.array([index.documents, index.average_length]),
        **index.postings._asdict(),
    }


def _from_arrays(parameters: BM25Parameters, arrays: dict[str, Array]) -> BM25Index:
    terms = TextColumn(arrays["vocabulary_data"], arrays["vocabulary_offsets"])
    vocabulary = Vocabulary(terms, (arrays["vocabulary_hashes"], arrays["vocabulary_order"]))
    documents, average_length = arrays["size"].tolist()
    postings = Postings(arrays["term_ptr"], arrays["docs"], arrays["impacts"])
    return BM25Index(parameters, vocabulary, postings, documents=int(documents), average_length=average_length)


@retrievers.register("bm25-lucene")
class BM25Lucene(BM25):
    """BM25 as Lucene computes it: the sum over query tokens."""

    registered = "bm25-lucene"
    query = "count"

    def __init__(
        self,
        k1: K1 = 0.9,
        b: B = 0.4,
        *,
        analyzer: Analyzer = "english",
        lengths: Annotated[
            Lengths, Meta(description="document lengths: exact, or in one byte as Lucene keeps them")
        ] = ("exact"),
        options: Options | None = None,
    ) -> None:
        super().__init__(k1, b, analyzer=analyzer, options=options)
        self.parameters = replace(self.parameters, lengths=lengths)
        self.spec = retrievers.changed(self.spec, lengths=lengths)


@retrievers.register("bm25-nano")
class BM25Nano(BM25):
    """BM25 as NanoR2MED's builder computes it: bm25s' robertson variant, with its tokens, stop words and stems."""

    registered = "bm25-nano"
    query = "tokens"
    idf = "robertson"

    def __init__(
        self, k1: K1 = 1.5, b: B = 0.75, *, analyzer: Analyzer = "nano-english", options: Options | None = None
    ) -> None:
        super().__init__(k1, b, analyzer=analyzer, options=options)
