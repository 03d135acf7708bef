"""What a retrieval task is made of: queries, documents, and judgments, which are graded, sparse and in arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np

from .columns import Hasher, IdTable, Int32, Int64, TextColumn
from .errors import DataError
from .run import Run

T = TypeVar("T")


class Query(NamedTuple):
    """A question, post or vignette."""

    id: str
    text: str
    answer: str | None = None
    body_system: str | None = None


class Document(NamedTuple):
    """A passage that may be retrieved."""

    id: str
    text: str
    title: str = ""

    @property
    def contents(self) -> str:
        """What retrievers see: the title, a space, the text."""
        return f"{self.title} {self.text}" if self.title else self.text


class Documents(Sequence[Document]):
    """A corpus in columns; indexing makes the `Document`."""

    def __init__(self, ids: IdTable, texts: TextColumn, titles: TextColumn | None = None) -> None:
        self.ids = ids
        self.texts = texts
        self.titles = titles if titles is not None and titles.nbytes else None
        self._derived: dict[Hashable, Any] = {}

    @classmethod
    def of(cls, documents: Iterable[Document]) -> Documents:
        """Build from single documents."""
        held = list(documents)
        texts, titles = (TextColumn.from_texts(column) for column in ((d.text for d in held), (d.title for d in held)))
        return cls(IdTable(d.id for d in held), texts, titles)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return Document(self.ids[index], self.texts[index], self.titles[index] if self.titles is not None else "")

    def __iter__(self) -> Iterator[Document]:
        if self.titles is None:
            yield from map(Document, self.ids, self.texts)
        else:
            yield from map(Document, self.ids, self.texts, self.titles)

    def __repr__(self) -> str:
        return f"Documents({len(self)}, {self.texts.nbytes / 1e6:.1f} MB of text)"

    def get(self, doc_id: str) -> Document | None:
        """The document with this id."""
        position = self.ids.position(doc_id)
        return None if position < 0 else self[position]

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """A value made from the texts, such as their term counts: made once, kept as long as the documents are."""
        if key not in self._derived:
            self._derived[key] = make()
        found: T = self._derived[key]
        return found

    @property
    def nbytes(self) -> int:
        """Memory that the texts take, and what was made from them as far as it says so."""
        columns = [self.texts, *([self.titles] if self.titles is not None else [])]
        made = sum(getattr(value, "nbytes", 0) for value in self._derived.values())
        return sum(column.nbytes for column in columns) * (1 if self.titles is None else 2) + int(made)

    def apart(self) -> Documents:
        """The same documents, without what was made from them: it is let go with them."""
        return Documents(self.ids, self.texts, self.titles)

    @cached_property
    def contents(self) -> TextColumn:
        """Title and text of every document; the text column itself where there are no titles."""
        if self.titles is None:
            return self.texts
        return TextColumn.from_texts(
            f"{title} {text}" if title else text for text, title in zip(self.texts, self.titles, strict=True)
        )

    @cached_property
    def fingerprint(self) -> str:
        """Hash of ids, texts and titles, in order."""
        hasher = Hasher("documents")
        hasher.texts(self.ids)
        for column in (self.texts, self.titles):
            if column is not None:
                hasher.data(column.offsets.astype("<i8", copy=False))
                hasher.data(column.data)
        return hasher.digest()


class Judgment(NamedTuple):
    """One line of a qrels file."""

    query_id: str
    doc_id: str
    grade: int


class Qrels:
    """Judgments grouped by query (CSR): `docs[indptr[i]:indptr[i+1]]` are the documents judged for query i."""

    def __init__(self, query_ids: IdTable, doc_ids: IdTable, indptr: Int64, docs: Int32, grades: Int32) -> None:
        self.query_ids = query_ids
        self.doc_ids = doc_ids
        self.indptr = indptr
        self.docs = docs
        self.grades = grades

    @classmethod
    def from_judgments(cls, judgments: Iterable[Judgment | tuple[str, str, int]]) -> Qrels:
        """Group judgments by query in order of first appearance; a repeated pair must agree with itself."""
        grouped: dict[str, dict[str, int]] = {}
        for query_id, doc_id, grade in judgments:
            if not float(grade).is_integer():
                raise DataError(f"query {query_id!r} judges document {doc_id!r} as {grade}, which is no whole number")
            of_query = grouped.setdefault(query_id, {})
            if of_query.setdefault(doc_id, grade) != grade:
                raise DataError(
                    f"query {query_id!r} judges document {doc_id!r} twice, as {of_query[doc_id]} and {grade}"
                )
        doc_ids = IdTable(dict.fromkeys(d for of_query in grouped.values() for d in of_query))
        sizes = [len(of_query) for of_query in grouped.values()]
        return cls(
            IdTable(grouped),
            doc_ids,
            np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64),
            doc_ids.positions(d for of_query in grouped.values() for d in of_query),
            np.fromiter((g for of_query in grouped.values() for g in of_query.values()), dtype=np.int32),
        )

    def __len__(self) -> int:
        return len(self.docs)

    def __iter__(self) -> Iterator[Judgment]:
        bounds, docs, grades = self.indptr.tolist(), self.docs.tolist(), self.grades.tolist()
        for i, query_id in enumerate(self.query_ids):
            for j in range(bounds[i], bounds[i + 1]):
                yield Judgment(query_id, self.doc_ids[docs[j]], grades[j])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Qrels) and sorted(self) == sorted(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Qrels({len(self.query_ids)} queries, {len(self)} judgments, {self.positives} positive)"

    def of(self, query_id: str) -> dict[str, int]:
        """Judged documents of one query with their grades; empty for an unknown query."""
        i = self.query_ids.position(query_id)
        if i < 0:
            return {}
        span = slice(self.indptr[i], self.indptr[i + 1])
        return {self.doc_ids[d]: g for d, g in zip(self.docs[span].tolist(), self.grades[span].tolist(), strict=True)}

    @property
    def positives(self) -> int:
        """Number of judgments with a grade above zero."""
        return int((self.grades > 0).sum())

    def positives_per_query(self) -> Int64:
        """Number of positive judgments of each query."""
        running = np.concatenate(([0], np.cumsum(self.grades > 0)))
        return (running[self.indptr[1:]] - running[self.indptr[:-1]]).astype(np.int64)

    def positives_only(self) -> Qrels:
        """The same queries with only their positive judgments; a query without any stays, with none."""
        positive = self.grades > 0
        indptr = np.concatenate(([0], np.cumsum(self.positives_per_query()))).astype(np.int64)
        return Qrels(self.query_ids, self.doc_ids, indptr, self.docs[positive], self.grades[positive])

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the judgments, independent of their order."""
        owners = np.repeat(np.arange(len(self.query_ids)), np.diff(self.indptr))
        order = np.lexsort((-self.doc_ids.tie_rank[self.docs], -self.query_ids.tie_rank[owners]))
        query_ids, doc_ids = list(self.query_ids), list(self.doc_ids)
        hasher = Hasher("qrels")
        hasher.texts([query_ids[i] for i in owners[order].tolist()])
        hasher.texts([doc_ids[i] for i in self.docs[order].tolist()])
        hasher.data(self.grades[order].astype("<i4"))
        return hasher.digest()


@dataclass(frozen=True)
class Task:
    """Queries, documents and judgments under a name."""

    name: str
    queries: tuple[Query, ...]
    documents: Documents
    qrels: Qrels
    collection: str = ""
    family: str = ""
    source: str = ""
    revision: str = ""
    extra: dict[str, str] = field(default_factory=dict, compare=False)
    candidates: Callable[[str], Run] | None = field(default=None, compare=False, repr=False)
    """Reads a set of ranked candidates that came with the task, by its name."""
    published: Callable[[str, str], Mapping[str, Sequence[str]]] | None = field(default=None, compare=False, repr=False)
    """Reads texts that were published with the task, by method and chat model: texts by query id."""

    def __post_init__(self) -> None:
        """Refuse an id that stands twice: one of the two texts would be scored for both."""
        for kind, ids in (("query", self.query_ids), ("document", self.documents.ids)):
            if repeated := ids.duplicates():
                raise DataError(f"{self.full_name} has two of {kind} id {repeated[0]!r}")

    @property
    def full_name(self) -> str:
        """`collection/name`, or the name alone for a folder of one's own."""
        return f"{self.collection}/{self.name}" if self.collection else self.name

    @cached_property
    def query_ids(self) -> IdTable:
        """Ids of the queries, in order."""
        return IdTable(q.id for q in self.queries)

    @cached_property
    def query_texts(self) -> TextColumn:
        """Texts of the queries, in order."""
        return TextColumn.from_texts(q.text for q in self.queries)

    def query(self, query_id: str) -> Query | None:
        """The query with this id."""
        position = self.query_ids.position(query_id)
        return None if position < 0 else self.queries[position]

    def positives(self, query_id: str) -> list[int]:
        """Positions of the documents that are relevant to a query, in the order of the judgments."""
        graded, position = self.qrels.of(query_id).items(), self.documents.ids.position
        return [at for doc_id, grade in graded if grade > 0 and (at := position(doc_id)) >= 0]

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all content; two tasks with equal fingerprints give equal scores to equal systems."""
        hasher = Hasher("task")
        hasher.text(self.documents.fingerprint)
        hasher.texts(q.id for q in self.queries)
        hasher.texts(q.text for q in self.queries)
        hasher.texts(q.answer or "" for q in self.queries)
        hasher.texts(q.body_system or "" for q in self.queries)
        hasher.text(self.qrels.fingerprint)
        return hasher.digest()

    def __repr__(self) -> str:
        counts = f"{len(self.queries)} queries, {len(self.documents)} documents, {len(self.qrels)} judgments"
        return f"Task({self.full_name!r}, {counts})"

    def _repr_html_(self) -> str:
        """For notebooks: counts, and the first queries."""
        from .table import Table, shortened

        rows = [
            [q.id, shortened(q.text), str(sum(g > 0 for g in self.qrels.of(q.id).values()))] for q in self.queries[:3]
        ]
        caption = f"{len(self.queries):,} queries, {len(self.documents):,} documents, {len(self.qrels):,} judgments"
        heading = f"{self.full_name} · {self.family}" if self.family else self.full_name
        return Table(["Query", "Text", "Positives"], rows, caption, 2, heading).html()
