"""What a retrieval task is made of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, overload

from .columns import IdTable, TextColumn
from .fingerprint import Hasher
from .qrels import Qrels
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
